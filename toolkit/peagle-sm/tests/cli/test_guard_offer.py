"""Where a command needs a guard on AWS: a terminal gets an offer with the price, a script the refusal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from click.testing import CliRunner

from peagle_sm.cli.base import State
from peagle_sm.cli.commands.guard import with_guard
from peagle_sm.cli.progress import Follower
from peagle_sm.core.errors import GuardMissing, NotFound
from peagle_sm.core.guard import GUARD_STACK
from peagle_sm.service import Pacing
from peagle_sm.service.guard.installation import uninstall
from peagle_sm.service.inventory.guard_state import require_guard
from tests.local.serving import Server
from tests.service.account import Account, WatchedBoto3


@pytest.fixture
def aws(server: Server) -> Iterator[Account]:
    """An account without a guard."""
    account = Account(server, WatchedBoto3(server.url))
    yield account
    account.stacks.clear()
    with suppress(NotFound):
        uninstall(account.session(), pacing=_pacing(account))
    account.clear()


def _pacing(aws: Account) -> Pacing:
    """CloudFormation works in real time."""
    return Pacing(aws.now, time.monotonic, lambda _: time.sleep(0.02), poll_s=1.0)


def _deploy(aws: Account, answers: str | None, yes: bool = False) -> tuple[str, str]:
    """Run an action that needs the guard; return its result, or the error's name, and what was shown."""
    session, pacing = aws.session(), _pacing(aws)
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


def test_a_yes_on_a_terminal_installs_the_guard_and_goes_on(aws: Account) -> None:
    result, shown = _deploy(aws, "y\n")
    assert result == "deployed"
    assert "No guard is installed in us-east-1." in shown
    assert "USD/month" in shown
    assert "Install the guard now? [y/N]" in shown
    assert "CreateStack" in aws.calls


@pytest.mark.parametrize(("answers", "yes"), [("n\n", False), (None, True), ("y\n", True), (None, False)])
def test_without_a_yes_to_this_question_nothing_is_installed(
    aws: Account, answers: str | None, yes: bool
) -> None:
    result, _ = _deploy(aws, answers, yes)
    assert result.startswith("The guard is not installed in us-east-1")
    assert "CreateStack" not in aws.calls


def test_a_guard_whose_stack_is_broken_is_not_installed_over(aws: Account) -> None:
    aws.stacks[GUARD_STACK] = "UPDATE_ROLLBACK_FAILED"
    result, shown = _deploy(aws, "y\n")
    assert "its stack is UPDATE_ROLLBACK_FAILED" in result
    assert "Install the guard now?" not in shown
