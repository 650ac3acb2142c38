"""Where a command needs a guard on AWS: a terminal gets an offer with the price, a script the refusal."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from peagle_sm.aws.session.session import Session
from peagle_sm.cli.base import State
from peagle_sm.cli.commands.guard import with_guard
from peagle_sm.cli.progress import Follower
from peagle_sm.core.errors import GuardMissing
from peagle_sm.service import Pacing
from peagle_sm.service.inventory.guard_state import require_guard
from tests.service.guard_fakes import FakeGuardAws


@pytest.fixture
def aws() -> FakeGuardAws:
    return FakeGuardAws()


def _deploy(aws: FakeGuardAws, answers: str | None, yes: bool = False) -> tuple[str, str]:
    """Run an action that needs the guard; return its result, or the error's name, and what was shown."""
    session = Session.from_boto3(aws, clock=aws.clock.now)
    pacing = Pacing(aws.clock.now, aws.clock.monotonic, aws.clock.sleep, poll_s=1.0)
    state = State(environ={}, stdin_is_tty=lambda: answers is not None)

    def act() -> str:
        require_guard(session)
        return "deployed"

    with CliRunner().isolation(input=answers or "") as (_, shown, *_rest):
        try:
            result = with_guard(state, session, Follower(), yes, act, pacing)
        except GuardMissing as error:
            result = error.message
        return result, shown.getvalue().decode()


def test_a_yes_on_a_terminal_installs_the_guard_and_goes_on(aws: FakeGuardAws) -> None:
    result, shown = _deploy(aws, "y\n")
    assert result == "deployed"
    assert "No guard is installed in us-east-1." in shown
    assert "USD/month" in shown
    assert "Install the guard now? [y/N]" in shown
    assert "CreateStack" in aws.calls


@pytest.mark.parametrize(("answers", "yes"), [("n\n", False), (None, True), ("y\n", True), (None, False)])
def test_without_a_yes_to_this_question_nothing_is_installed(
    aws: FakeGuardAws, answers: str | None, yes: bool
) -> None:
    result, _ = _deploy(aws, answers, yes)
    assert result.startswith("The guard is not installed in us-east-1")
    assert "CreateStack" not in aws.calls


def test_a_guard_whose_stack_is_broken_is_not_installed_over(aws: FakeGuardAws) -> None:
    assert _deploy(aws, "y\n")[0] == "deployed"
    assert aws.stack is not None
    aws.stack["StackStatus"] = "UPDATE_ROLLBACK_FAILED"
    result, shown = _deploy(aws, "y\n")
    assert "its stack is UPDATE_ROLLBACK_FAILED" in result
    assert "Install the guard now?" not in shown
