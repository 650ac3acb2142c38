"""Every call of every use case fails in each way; nothing billable is left unnamed, and the next run arrives.

The calls are read from an undisturbed run, so a call that is added later is tried too. This is the AWS in
memory: two interruptions in a row, an AWS that goes away for good, and the stacks, whose switch and rollback
cost seconds each on the local server. docs/reference/faults-matrix.md has the same use cases on that server.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import pytest
from botocore.exceptions import ReadTimeoutError

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import BillableLeft, EndpointFailed, Interrupted, NotFound, PeagleError
from peagle_sm.service import delete, deploy, pause, resume
from tests.service.fakes import FakeAws, broken, client_error, denied, lost, throttled
from tests.service.setting import make_spec, pacing_of, session_of
from tests.service.stacked import in_a_stack

SCHEDULE = "schedule/peagle-demo-lifetime"
REGISTER = ("GetSchedule", "GetItem", "UpdateItem")


def _expired(operation: str) -> BaseException:
    return client_error(operation, "ExpiredTokenException", "The security token is expired")


class Killed(BaseException):
    """As after SIGKILL: every later call fails like this too."""


@dataclass(frozen=True)
class Fault:
    """``after``: the call was carried out; ``lasts``: later calls fail alike, or only those of its name."""

    make: Callable[[str], BaseException]
    after: bool = False
    lasts: Literal["no", "all", "same"] = "no"


FAULTS = {
    "throttled": Fault(throttled),
    "500": Fault(broken),
    "timeout": Fault(lambda operation: ReadTimeoutError(endpoint_url=f"https://fake/{operation}")),
    "denied": Fault(denied, lasts="same"),
    "expired": Fault(
        lambda operation: client_error(operation, "ExpiredTokenException", "expired"), lasts="all"
    ),
    "response lost": Fault(lost, after=True),
    "Ctrl-C before": Fault(lambda _: KeyboardInterrupt()),
    "Ctrl-C after": Fault(lambda _: KeyboardInterrupt(), after=True),
    "killed after": Fault(lambda _: Killed(), after=True, lasts="all"),
}
PASSING = ("throttled", "500", "timeout", "response lost")
READS = ("Describe", "Get", "List", "Scan")


@dataclass(frozen=True)
class Case:
    """``undo``: the command that ends the cost; ``settled``: errors by which a run reports its goal."""

    prepare: Callable[[FakeAws], Session]
    act: Callable[[FakeAws, Session], object]
    arrived: Callable[[FakeAws], bool]
    undo: str
    settled: tuple[type[PeagleError], ...] = ()
    in_stack: bool = False


def _deploy(aws: FakeAws, session: Session) -> object:
    return deploy(make_spec(), session=session, pacing=pacing_of(aws))


def _delete(aws: FakeAws, session: Session) -> object:
    return delete(["demo"], session=session, pacing=pacing_of(aws))


def _pause(aws: FakeAws, session: Session) -> object:
    return pause("demo", session=session, pacing=pacing_of(aws))


def _resume(aws: FakeAws, session: Session) -> object:
    return resume("demo", session=session, pacing=pacing_of(aws))


def _deployed(aws: FakeAws) -> Session:
    session = session_of(aws)
    _deploy(aws, session)
    return session


def _failing(aws: FakeAws) -> Session:
    aws.outcome, aws.reason = "Failed", "The primary container did not pass the ping health check."
    return session_of(aws)


def _then_paused(prepare: Callable[[FakeAws], Session]) -> Callable[[FakeAws], Session]:
    def paused(aws: FakeAws) -> Session:
        session = prepare(aws)
        _pause(aws, session)
        return session

    return paused


def _kinds(aws: FakeAws) -> list[str]:
    return [one.partition("/")[0] for one in aws.everything()]


def _serves(aws: FakeAws) -> bool:
    return len(aws.everything()) == 4 and aws.status(aws.endpoints["demo"]) == "InService"


def _gone(aws: FakeAws) -> bool:
    return not aws.everything()


def _rests(aws: FakeAws) -> bool:
    return _kinds(aws) == ["endpoint-config", "model"]


def _stack_serves(aws: FakeAws) -> bool:
    return "demo" in aws.endpoints


CASES = {
    "deploy": Case(session_of, _deploy, _serves, "delete"),
    "deploy-failing": Case(_failing, _deploy, _gone, "delete", (EndpointFailed,)),
    "delete": Case(_deployed, _delete, _gone, "delete", (NotFound,)),
    "pause": Case(_deployed, _pause, _rests, "pause"),
    "resume": Case(_then_paused(_deployed), _resume, _serves, "pause"),
    "stack-pause": Case(in_a_stack, _pause, _rests, "pause", in_stack=True),
    "stack-resume": Case(_then_paused(in_a_stack), _resume, _stack_serves, "pause", in_stack=True),
}


def _run(case: Case, aws: FakeAws, session: Session) -> BaseException | None:
    try:
        case.act(aws, session)
    except (PeagleError, KeyboardInterrupt, Killed) as ended:
        return ended
    return None


def _prepared(case: Case) -> tuple[FakeAws, Session]:
    aws = FakeAws()
    session = case.prepare(aws)
    aws.calls.clear()
    aws.unguarded.clear()
    return aws, session


def _quiet(case: Case) -> list[str]:
    aws, session = _prepared(case)
    _run(case, aws, session)
    assert case.arrived(aws)
    return aws.calls


CALLS = {name: _quiet(case) for name, case in CASES.items()}


def _kinds_for(number: int, call: str) -> list[str]:
    """A call that only reads leaves nothing behind: of what passes, one kind in turn is enough."""
    if not call.startswith(READS):
        return list(FAULTS)
    return [PASSING[number % 3], "denied", "expired", "Ctrl-C before", "killed after"]


CELLS = [
    (name, number, kind)
    for name, calls in CALLS.items()
    for number, call in enumerate(calls)
    for kind in _kinds_for(number, call)
]
IDS = [f"{name}-{number}-{CALLS[name][number]}-{kind}" for name, number, kind in CELLS]
DEPLOY = CALLS["deploy"]
deploy_calls = pytest.mark.parametrize("number", range(len(DEPLOY)), ids=lambda n: f"{n}-{DEPLOY[n]}")


def _check(case: Case, aws: FakeAws, ended: BaseException | None) -> None:
    """What must hold after any run, whatever went wrong."""
    left = aws.everything()
    if not case.in_stack:
        assert not aws.unguarded, "an endpoint existed without its lifetime limit"
        assert not aws.endpoints or SCHEDULE in left
    if case.undo == "pause":
        assert {"endpoint-config", "model"} <= set(_kinds(aws))
    if ended is None:
        assert case.arrived(aws)
    if isinstance(ended, BillableLeft):
        assert ended.details["resources"] == ["endpoint/demo"]
        assert ended.next_step == f"peagle-sm {case.undo} demo --yes --region us-east-1"
    elif isinstance(ended, PeagleError):
        assert ended.next_step or isinstance(ended, Interrupted)
        if case.act is _deploy:
            assert not aws.endpoints, f"{ended!r} does not say that the endpoint is left"
            named = f"{ended.next_step} {ended.details}"
            assert "peagle-sm delete demo" in named or all(one in named for one in left), (left, ended)
        elif case.act is not _resume:
            assert not ("DeleteEndpoint" in aws.calls and aws.endpoints), f"{ended!r} does not name it"


@pytest.mark.parametrize(("name", "number", "kind"), CELLS, ids=IDS)
def test_one_fault_and_the_next_run(name: str, number: int, kind: str) -> None:
    case, fault, call = CASES[name], FAULTS[kind], CALLS[name][number]
    aws, session = _prepared(case)

    def strike(_: FakeAws, at: int, operation: str) -> BaseException | None:
        later = at > number and (fault.lasts == "all" or (fault.lasts == "same" and operation == call))
        return fault.make(operation) if at == number or later else None

    moment = "after" if fault.after else "before"
    setattr(aws, moment, strike)
    began = aws.clock.seconds
    ended = _run(case, aws, session)
    assert aws.clock.seconds - began < 1500
    _check(case, aws, ended)
    if name == "deploy":
        if kind in PASSING and number >= DEPLOY.index("CreateModel"):
            assert ended is None, "one unclear answer after the start is no reason to give up"
        if kind.startswith("Ctrl-C"):
            assert isinstance(ended, Interrupted)
            assert not aws.everything()
    setattr(aws, moment, lambda *_: None)
    if ended is not None:
        again = _run(case, aws, session)
        assert again is None or isinstance(again, case.settled)
        assert case.arrived(aws)
    if kind == "killed after" and name == "deploy":
        assert aws.calls.count("CreateEndpoint") == 1, "it was created again"
    if case.in_stack and not (kind in ("denied", "expired") and call in REGISTER):
        # Who may not write the guard's register pauses and resumes all the same.
        assert aws.register is not None
        assert aws.register["endpoint#demo"]["paused"]["BOOL"] == (case.act is _pause)


@pytest.mark.parametrize("kind", ["throttled", "500", "timeout", "denied"])
@deploy_calls
def test_aws_goes_away_for_good(number: int, kind: str) -> None:
    aws, session = _prepared(CASES["deploy"])
    aws.before = lambda _, call, operation: FAULTS[kind].make(operation) if call >= number else None
    ended = _run(CASES["deploy"], aws, session)
    _check(CASES["deploy"], aws, ended)
    assert isinstance(ended, PeagleError)
    assert isinstance(ended, BillableLeft) == (number > DEPLOY.index("CreateEndpoint")) or not aws.endpoints


@pytest.mark.parametrize("second", range(1, 9))
@deploy_calls
def test_a_second_ctrl_c_hands_over_to_the_lifetime_limit(number: int, second: int) -> None:
    aws, session = _prepared(CASES["deploy"])
    presses = (number, number + second)
    aws.after = lambda _, call, operation: KeyboardInterrupt() if call in presses else None
    ended = _run(CASES["deploy"], aws, session)
    _check(CASES["deploy"], aws, ended)
    assert isinstance(ended, Interrupted | BillableLeft)
    if isinstance(ended, BillableLeft) and aws.endpoints:
        due = aws.schedules["peagle-demo-lifetime"]["StartDate"]
        assert due <= aws.clock.now(), "the limit was not brought forward"
