"""`peagle-sm local down` while a deploy or a deletion is under way: it ends soon and says why."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from itertools import chain, repeat

import pytest
from botocore.exceptions import EndpointConnectionError

from peagle_sm.aws.session.session import LocalTarget, Session
from peagle_sm.core.errors import EngineError, Interrupted
from peagle_sm.service import Event, delete, deploy, pause
from tests.service.fakes import ROLE, FakeAws
from tests.service.setting import make_spec, pacing_of

URL = "http://127.0.0.1:9"
GONE = f"The local SageMaker at {URL} has ended, with everything that it ran; nothing is billed"


class OnFakeTime(Session):
    """A local session whose clock is the fake's: no server runs that could be asked for its own."""

    def now(self) -> datetime:
        return self._clock()


def _session(aws: FakeAws) -> Session:
    target = LocalTarget(URL, role_arn=ROLE, scheduler_role_arn=ROLE)
    return OnFakeTime.from_boto3(aws, local=target, clock=aws.clock.now)


def _refused() -> BaseException:
    return EndpointConnectionError(endpoint_url=URL)


@pytest.mark.parametrize("operation", ["CreateModel", "CreateEndpoint", "DescribeEndpoint", "CreateSchedule"])
def test_a_deploy_ends_when_the_local_server_is_gone(operation: str) -> None:
    quiet = FakeAws()
    deploy(make_spec(), session=_session(quiet), pacing=pacing_of(quiet, poll_s=0.5))
    aws, events = FakeAws(), list[Event]()
    last = len(quiet.calls) - 1 - quiet.calls[::-1].index(operation)
    aws.before = lambda _, number, operation: _refused() if number >= last else None
    with pytest.raises(EngineError) as caught:
        deploy(make_spec(), session=_session(aws), pacing=pacing_of(aws, poll_s=0.5), progress=events.append)
    assert caught.value.message.startswith(GONE)
    assert "peagle-sm local up" in (caught.value.next_step or "")
    failed = next(event for event in events if event.phase == "failed")
    assert 3 < aws.clock.seconds - failed.elapsed_s < 15
    assert sum("does not answer; retrying for" in event.message for event in events) > 3


def test_ctrl_c_after_the_local_server_is_gone() -> None:
    aws = FakeAws()
    faults = chain([KeyboardInterrupt()], repeat(_refused()))
    aws.before = lambda _, number, operation: next(faults) if "CreateEndpoint" in aws.calls[:number] else None
    with pytest.raises(Interrupted) as caught:
        deploy(make_spec(), session=_session(aws), pacing=pacing_of(aws, poll_s=0.5))
    assert GONE in caught.value.message


@pytest.mark.parametrize("answered_before", [0, 2])
def test_a_second_ctrl_c_after_the_local_server_is_gone(answered_before: int) -> None:
    """However far the hand-over to the schedule came: nothing is said to be billed."""
    aws = FakeAws()
    interrupts = [KeyboardInterrupt(), KeyboardInterrupt(), *[None] * answered_before]
    faults = chain(interrupts, repeat(_refused()))
    aws.before = lambda _, number, operation: next(faults) if "CreateEndpoint" in aws.calls[:number] else None
    with pytest.raises(Interrupted) as caught:
        deploy(make_spec(), session=_session(aws), pacing=pacing_of(aws, poll_s=0.5))
    assert GONE in caught.value.message


@pytest.mark.parametrize("command", [delete, pause])
def test_ctrl_c_twice_in_a_removal_whose_local_server_is_gone(command: Callable[..., object]) -> None:
    aws = FakeAws()
    session, pacing = _session(aws), pacing_of(aws, poll_s=0.5)
    deploy(make_spec(), session=session, pacing=pacing)
    faults = chain([KeyboardInterrupt()], repeat(_refused()))
    aws.before = lambda _, number, operation: next(faults) if "DeleteEndpoint" in aws.calls[:number] else None
    with pytest.raises(Interrupted) as caught:
        command(["demo"] if command is delete else "demo", session=session, pacing=pacing)
    assert GONE in caught.value.message


def test_a_deletion_ends_when_the_local_server_is_gone() -> None:
    aws = FakeAws()
    session, pacing = _session(aws), pacing_of(aws, poll_s=0.5)
    deploy(make_spec(), session=session, pacing=pacing)
    began = aws.clock.seconds
    aws.before = lambda _, number, operation: _refused() if "DeleteEndpoint" in aws.calls[:number] else None
    with pytest.raises(EngineError) as caught:
        delete(["demo"], session=session, pacing=pacing)
    assert caught.value.message.startswith(GONE)
    assert aws.clock.seconds - began < 15
