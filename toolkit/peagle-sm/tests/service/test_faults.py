"""What the fault matrix does not have: Ctrl-C once and twice, an AWS that goes away for good, and stacks.

docs/reference/faults-matrix.md has every other fault at each call of a use case. Here too the calls are those
of an undisturbed run, so a call that is added later is tried as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import pytest
from botocore.exceptions import ReadTimeoutError

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import BillableLeft, Interrupted, NotFound, PeagleError
from peagle_sm.service import delete, deploy, pause, resume
from tests.local.serving import Server
from tests.service.account import Account, WatchedBoto3
from tests.service.aws_errors import broken, client_error, denied, lost, throttled
from tests.service.setting import make_spec
from tests.service.stacked import in_a_stack

SCHEDULE = "peagle-demo-lifetime"
REGISTER = ("GetSchedule", "GetItem", "UpdateItem")


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
    "timeout": Fault(lambda operation: ReadTimeoutError(endpoint_url=f"https://aws/{operation}")),
    "denied": Fault(denied, lasts="same"),
    "expired": Fault(
        lambda operation: client_error(operation, "ExpiredTokenException", "expired"), lasts="all"
    ),
    "response lost": Fault(lost, after=True),
    "Ctrl-C before": Fault(lambda _: KeyboardInterrupt()),
    "Ctrl-C after": Fault(lambda _: KeyboardInterrupt(), after=True),
    "killed after": Fault(lambda _: Killed(), after=True, lasts="all"),
}
CTRL_C = ("Ctrl-C before", "Ctrl-C after")
READS = ("Describe", "Get", "List", "Scan")


@dataclass(frozen=True)
class Case:
    """``undo``: the command that ends the cost; ``settled``: errors by which a run reports its goal."""

    prepare: Callable[[Account], Session]
    act: Callable[[Account, Session], object]
    kinds: tuple[str, ...]
    undo: str
    settled: tuple[type[PeagleError], ...] = ()
    in_stack: bool = False


def _deploy(aws: Account, session: Session) -> object:
    return deploy(make_spec(), session=session, pacing=aws.pacing())


def _delete(aws: Account, session: Session) -> object:
    return delete(["demo"], session=session, pacing=aws.pacing())


def _pause(aws: Account, session: Session) -> object:
    return pause("demo", session=session, pacing=aws.pacing())


def _resume(aws: Account, session: Session) -> object:
    return resume("demo", session=session, pacing=aws.pacing())


def _deployed(aws: Account) -> Session:
    session = aws.session()
    _deploy(aws, session)
    return session


def _then_paused(prepare: Callable[[Account], Session]) -> Callable[[Account], Session]:
    def paused(aws: Account) -> Session:
        session = prepare(aws)
        _pause(aws, session)
        return session

    return paused


SERVES = ("endpoint", "endpoint-config", "model", "schedule")
RESTS = ("endpoint-config", "model")
CASES = {
    "deploy": Case(Account.session, _deploy, SERVES, "delete"),
    "delete": Case(_deployed, _delete, (), "delete", (NotFound,)),
    "pause": Case(_deployed, _pause, RESTS, "pause"),
    "resume": Case(_then_paused(_deployed), _resume, SERVES, "pause"),
    "stack-pause": Case(in_a_stack, _pause, RESTS, "pause", in_stack=True),
    "stack-resume": Case(_then_paused(in_a_stack), _resume, SERVES[:3], "pause", in_stack=True),
}


@contextmanager
def _prepared(server: Server, boto3: WatchedBoto3, case: Case) -> Iterator[tuple[Account, Session]]:
    aws = Account(server, boto3)
    try:
        session = case.prepare(aws)
        aws.calls.clear()
        yield aws, session
    finally:
        aws.clear()


def _run(case: Case, aws: Account, session: Session) -> BaseException | None:
    try:
        case.act(aws, session)
    except (PeagleError, KeyboardInterrupt, Killed) as ended:
        return ended
    return None


def _arrived(case: Case, aws: Account) -> bool:
    return tuple(aws.kinds()) == case.kinds and aws.status() in (None, "InService")


def _calls(server: Server, boto3: WatchedBoto3, case: Case) -> list[str]:
    """The calls of a run without faults."""
    with _prepared(server, boto3, case) as (aws, session):
        assert _run(case, aws, session) is None
        assert _arrived(case, aws)
        return list(aws.calls)


def _cells(case: Case, calls: list[str]) -> Iterator[tuple[int, str]]:
    """Ctrl-C at each call that changes something; for a stack, other faults at every third call too."""
    for number, call in enumerate(calls):
        if not call.startswith(READS):
            yield number, CTRL_C[number % 2]
        if case.in_stack and (number % 3 == 0 or not call.startswith(READS)):
            yield number, list(FAULTS)[number % len(FAULTS)]
    if case.in_stack:
        invoked = calls.index("Invoke")
        yield from ((invoked, kind) for kind in ("throttled", "denied", "response lost", "killed after"))


def _check(case: Case, aws: Account, ended: BaseException | None) -> None:
    """What must hold after any run, whatever went wrong."""
    left, exists = aws.everything(), aws.status() is not None
    assert case.in_stack or not exists or f"schedule/{SCHEDULE}" in left
    if case.undo == "pause":
        assert set(RESTS) <= set(aws.kinds())
    if ended is None:
        assert _arrived(case, aws)
    if isinstance(ended, BillableLeft):
        assert ended.details["resources"] == ["endpoint/demo"]
        assert ended.next_step == f"peagle-sm {case.undo} demo --yes --region us-east-1"
    elif isinstance(ended, PeagleError):
        assert ended.next_step or isinstance(ended, Interrupted)
        if case.act is _deploy:
            assert not exists, f"{ended!r} does not say that the endpoint is left"
            named = f"{ended.next_step} {ended.details}"
            assert "peagle-sm delete demo" in named or all(each in named for each in left), (left, ended)
        elif case.act is not _resume:
            assert not ("DeleteEndpoint" in aws.calls and exists), f"{ended!r} does not name it"


def _strike(aws: Account, case: Case, fault: Fault, number: int, call: str) -> None:
    """Let a call fail; an endpoint must never be without its schedule on the way."""

    def error(operation: str) -> BaseException | None:
        at = len(aws.calls) - 1
        later = at > number and (fault.lasts == "all" or (fault.lasts == "same" and operation == call))
        return fault.make(operation) if at == number or later else None

    def end(operation: str) -> BaseException | None:
        if not case.in_stack and operation in ("CreateEndpoint", "DeleteSchedule"):
            assert aws.status() is None or SCHEDULE in aws.schedules(), "it has no lifetime schedule"
        return error(operation) if fault.after else None

    aws.after = end
    if not fault.after:
        aws.before = error


@pytest.mark.parametrize("name", CASES)
def test_one_fault_and_the_next_run(server: Server, boto3: WatchedBoto3, name: str) -> None:
    case = CASES[name]
    calls = _calls(server, boto3, case)
    for number, kind in _cells(case, calls):
        with _prepared(server, boto3, case) as (aws, session):
            _strike(aws, case, FAULTS[kind], number, calls[number])
            began, cell = aws.seconds, f"{number} {calls[number]} {kind}"
            ended = _run(case, aws, session)
            aws.before, aws.after = lambda operation: None, lambda operation: None
            assert aws.seconds - began < 1500, cell
            _check(case, aws, ended)
            if name == "deploy":
                assert isinstance(ended, Interrupted), cell
                assert not aws.everything(), cell
            if ended is not None:
                again = _run(case, aws, session)
                assert again is None or isinstance(again, case.settled), cell
                assert _arrived(case, aws), cell
            if case.in_stack and not (kind in ("denied", "expired") and calls[number] in REGISTER):
                # Who may not write the guard's register pauses and resumes all the same.
                assert aws.item()["paused"]["BOOL"] == (case.act is _pause), cell


def test_aws_goes_away_for_good(server: Server, boto3: WatchedBoto3) -> None:
    case = CASES["deploy"]
    calls = _calls(server, boto3, case)
    created = calls.index("CreateEndpoint")
    kinds = ("throttled", "500", "timeout", "denied")
    for number in range(0, len(calls), 2):
        fault = Fault(FAULTS[kinds[number // 2 % len(kinds)]].make, lasts="all")
        with _prepared(server, boto3, case) as (aws, session):
            _strike(aws, case, fault, number, calls[number])
            ended = _run(case, aws, session)
            aws.before = lambda operation: None
            _check(case, aws, ended)
            assert isinstance(ended, PeagleError)
            assert isinstance(ended, BillableLeft) == (number > created) or aws.status() is None


@pytest.mark.parametrize("second", [1, 2, 5])
def test_a_second_ctrl_c_hands_over_to_the_lifetime_limit(
    server: Server, boto3: WatchedBoto3, second: int
) -> None:
    case = CASES["deploy"]
    calls = _calls(server, boto3, case)
    for number in range(calls.index("CreateSchedule"), len(calls), 2):
        with _prepared(server, boto3, case) as (aws, session):
            presses = (number, number + second)
            aws.after = lambda _, aws=aws, presses=presses: (  # type: ignore[misc]
                KeyboardInterrupt() if len(aws.calls) - 1 in presses else None
            )
            ended = _run(case, aws, session)
            aws.after = lambda operation: None
            _check(case, aws, ended)
            assert isinstance(ended, Interrupted | BillableLeft)
            if isinstance(ended, BillableLeft) and aws.status() is not None:
                assert aws.schedule()["StartDate"] <= aws.now(), "the limit was not brought forward"
