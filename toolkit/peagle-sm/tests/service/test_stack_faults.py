"""pause and resume of a stack's endpoint: each call fails once in each way, and is killed after.

Against the AWS in memory, since a stack, its switch's Lambda and its rollback cost seconds each on the local
server; docs/reference/faults-matrix.md has the rest.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from botocore.exceptions import ReadTimeoutError

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import BillableLeft, PeagleError
from peagle_sm.service import pause, resume
from tests.service.fakes import FakeAws, broken, client_error, denied, lost, throttled
from tests.service.setting import pacing_of
from tests.service.stacked import in_a_stack


class Killed(BaseException):
    """As after SIGKILL: every later call fails like this too."""


def _expired(operation: str) -> BaseException:
    return client_error(operation, "ExpiredTokenException", "The security token is expired")


def _timeout(operation: str) -> BaseException:
    return ReadTimeoutError(endpoint_url=f"https://fake/{operation}")


# name -> (fault, whether it strikes after the call was carried out, whether it lasts)
FAULTS: dict[str, tuple[Callable[[str], BaseException], bool, bool]] = {
    "throttled": (throttled, False, False),
    "500": (broken, False, False),
    "timeout": (_timeout, False, False),
    "denied": (denied, False, False),
    "expired token": (_expired, False, True),
    "response lost": (lost, True, False),
    "kill before": (lambda _: Killed(), False, True),
    "kill after": (lambda _: Killed(), True, True),
}
ACTS = ("pause", "resume")


def _at_rest(aws: FakeAws, act: str) -> Session:
    session = in_a_stack(aws)
    if act == "resume":
        pause("demo", session=session, pacing=pacing_of(aws))
    aws.calls.clear()
    return session


def _run(aws: FakeAws, session: Session, act: str) -> BaseException | None:
    turn = pause if act == "pause" else resume
    try:
        turn("demo", session=session, pacing=pacing_of(aws))
    except (PeagleError, Killed) as ended:
        return ended
    return None


def _calls(act: str) -> list[str]:
    aws = FakeAws()
    session = _at_rest(aws, act)
    assert _run(aws, session, act) is None
    return aws.calls


CELLS = [(act, number, call) for act in ACTS for number, call in enumerate(_calls(act))]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(("act", "number", "call"), CELLS, ids=[f"{a}-{n}-{c}" for a, n, c in CELLS])
def test_one_fault(act: str, number: int, call: str, fault: str) -> None:
    aws = FakeAws()
    session = _at_rest(aws, act)
    make, after, lasts = FAULTS[fault]

    def strike(_: FakeAws, at: int, operation: str) -> BaseException | None:
        return make(operation) if at == number or (lasts and at > number) else None

    setattr(aws, "after" if after else "before", strike)
    began = aws.clock.seconds
    ended = _run(aws, session, act)
    assert aws.clock.seconds - began < 900
    setattr(aws, "after" if after else "before", lambda *_: None)
    if isinstance(ended, PeagleError):
        assert ended.next_step
        if isinstance(ended, BillableLeft):
            assert "peagle-sm pause demo --yes" in ended.next_step
    if ended is not None:
        assert _run(aws, session, act) is None
    assert ("demo" in aws.endpoints) == (act == "resume")
    assert aws.register is not None
    if fault in ("denied", "expired token") and call in ("GetSchedule", "GetItem", "UpdateItem"):
        return  # who may not write the guard's register pauses and resumes all the same
    assert aws.register["endpoint#demo"]["paused"]["BOOL"] == (act == "pause")
