"""Every call of a deploy fails once, in each way; nothing billable is left, or the error names it.

The number of calls is read from an undisturbed run, so a call that is added later is tried too.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from peagle_sm.core.errors import BillableLeft, Interrupted, PeagleError
from peagle_sm.service import deploy
from tests.service.fakes import FakeAws, broken, denied, lost, throttled
from tests.service.setting import make_spec, pacing_of, session_of

FAULTS: dict[str, Callable[[str], BaseException]] = {
    "no answer": lost,
    "permission denied": denied,
    "internal failure": broken,
    "throttled": throttled,
    "Ctrl-C": lambda operation: KeyboardInterrupt(),
}
MOMENTS = ("before", "after")


def _run(aws: FakeAws) -> BaseException | None:
    try:
        deploy(make_spec(), session=session_of(aws), pacing=pacing_of(aws))
    except PeagleError as error:
        return error
    return None


def _calls_of_a_quiet_run(outcome: str = "InService") -> list[str]:
    aws = FakeAws()
    aws.outcome = outcome
    _run(aws)
    return aws.calls


QUIET = _calls_of_a_quiet_run()
FAILING = _calls_of_a_quiet_run("Failed")


def _check(aws: FakeAws, error: BaseException | None) -> None:
    """What must hold after any deploy, whatever went wrong."""
    assert not aws.unguarded, "an endpoint existed without its lifetime limit"
    left = aws.everything()
    if error is None:
        assert aws.status(aws.endpoints["demo"]) == "InService"
        return
    assert isinstance(error, PeagleError)
    if isinstance(error, BillableLeft):
        assert error.details["resources"] == ["endpoint/demo"]
        assert error.next_step == "peagle-sm delete demo --yes --region us-east-1"
        assert "schedule/peagle-demo-lifetime" in left or not aws.endpoints
        return
    assert not aws.endpoints, f"{error!r} does not say that the endpoint is left"
    for resource in left:
        named = f"{error.next_step} {error.details}"
        assert resource in named or "peagle-sm delete demo" in named, f"{resource} left, not named: {error!r}"


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("number", range(len(QUIET)), ids=lambda n: f"{n}-{QUIET[n]}")
def test_one_fault_in_a_deploy(number: int, fault: str, moment: str) -> None:
    aws = FakeAws()
    setattr(aws, moment, lambda _, call, operation: FAULTS[fault](operation) if call == number else None)
    error = _run(aws)
    _check(aws, error)
    if fault in ("no answer", "internal failure", "throttled") and number >= QUIET.index("CreateModel"):
        assert error is None, "one unclear answer after the start is no reason to give up"
    if fault == "Ctrl-C":
        assert isinstance(error, Interrupted)
        assert not aws.everything()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("number", range(len(FAILING)), ids=lambda n: f"{n}-{FAILING[n]}")
def test_one_fault_in_a_deploy_that_fails_anyway(number: int, fault: str) -> None:
    aws = FakeAws()
    aws.outcome, aws.reason = "Failed", "The primary container did not pass the ping health check."
    aws.before = lambda _, call, operation: FAULTS[fault](operation) if call == number else None
    _check(aws, _run(aws))


@pytest.mark.parametrize("fault", [name for name in FAULTS if name != "Ctrl-C"])
@pytest.mark.parametrize("number", range(len(QUIET)), ids=lambda n: f"{n}-{QUIET[n]}")
def test_aws_goes_away_for_good(number: int, fault: str) -> None:
    aws = FakeAws()
    aws.before = lambda _, call, operation: FAULTS[fault](operation) if call >= number else None
    error = _run(aws)
    _check(aws, error)
    assert isinstance(error, PeagleError)
    assert isinstance(error, BillableLeft) == (number > QUIET.index("CreateEndpoint")) or not aws.endpoints


@pytest.mark.parametrize("second", range(1, 9))
@pytest.mark.parametrize("first", range(len(QUIET)), ids=lambda n: f"{n}-{QUIET[n]}")
def test_a_second_ctrl_c_hands_over_to_the_lifetime_limit(first: int, second: int) -> None:
    aws = FakeAws()
    aws.after = lambda _, call, operation: KeyboardInterrupt() if call in (first, first + second) else None
    error = _run(aws)
    _check(aws, error)
    assert isinstance(error, Interrupted | BillableLeft)
    if isinstance(error, BillableLeft) and aws.endpoints:
        due = aws.schedules["peagle-demo-lifetime"]["StartDate"]
        assert due <= aws.clock.now(), "the limit was not brought forward"


@pytest.mark.parametrize("number", range(len(QUIET)), ids=lambda n: f"{n}-{QUIET[n]}")
def test_a_killed_run_is_taken_up_by_the_next(number: int) -> None:
    aws = FakeAws()

    class Killed(BaseException):
        """Nothing of ours runs any more, as after SIGKILL: every later call fails like this too."""

    aws.after = lambda _, call, operation: Killed() if call >= number else None
    with pytest.raises(Killed):
        deploy(make_spec(), session=session_of(aws), pacing=pacing_of(aws))
    aws.after = lambda _, call, operation: None
    count = aws.calls.count("CreateEndpoint")
    assert _run(aws) is None
    assert aws.status(aws.endpoints["demo"]) == "InService"
    assert len(aws.everything()) == 4
    assert not aws.unguarded
    assert aws.calls.count("CreateEndpoint") == 1, f"created again after {count}"
