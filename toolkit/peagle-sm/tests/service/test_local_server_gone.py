"""`peagle-sm local down` while a deploy or a deletion is under way: it ends soon and says why."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import chain, repeat

import pytest
from botocore.exceptions import EndpointConnectionError

from peagle_sm.aws.session.session import LocalTarget, Session
from peagle_sm.core.errors import EngineError, Interrupted
from peagle_sm.service import Event, delete, deploy, pause
from tests.service.account import Account
from tests.service.setting import EXECUTION_ROLE, ROLE, make_spec


class OnFakeTime(Session):
    """A local session whose clock is the test's: a server that is gone has none."""

    def now(self) -> datetime:
        return self._clock()


def _session(aws: Account) -> Session:
    status = aws.server.status
    target = LocalTarget(status.endpoint_url, role_arn=EXECUTION_ROLE, scheduler_role_arn=ROLE)
    return OnFakeTime.from_boto3(aws.boto3, local=target, clock=aws.now)


def _gone(aws: Account) -> str:
    return f"The local SageMaker at {aws.server.url} has ended, with everything that it ran"


def _refused() -> BaseException:
    return EndpointConnectionError(endpoint_url="http://127.0.0.1:9")


def _from(aws: Account, operation: str, faults: Iterator[BaseException | None]) -> None:
    """Take the faults in turn for each call after the first of an operation."""
    aws.before = lambda called: next(faults) if operation in aws.calls[:-1] else None


@pytest.mark.parametrize("operation", ["CreateModel", "CreateEndpoint", "DescribeEndpoint", "CreateSchedule"])
def test_a_deploy_ends_when_the_local_server_is_gone(aws: Account, operation: str) -> None:
    events, pacing = list[Event](), aws.pacing(poll_s=0.5)
    created = "CreateEndpoint" if operation == "DescribeEndpoint" else operation
    aws.before = lambda called: _refused() if {created, operation} <= set(aws.calls) else None
    with pytest.raises(EngineError) as caught:
        deploy(make_spec(), session=_session(aws), pacing=pacing, progress=events.append)
    aws.before = lambda called: None
    assert caught.value.message.startswith(_gone(aws))
    assert "peagle-sm local up" in (caught.value.next_step or "")
    failed = next(event for event in events if event.phase == "failed")
    assert 3 < aws.seconds - failed.elapsed_s < 15
    assert sum("does not answer; retrying for" in event.message for event in events) > 3


@pytest.mark.parametrize("interrupts", [1, 2])
@pytest.mark.parametrize("answered_before", [0, 2])
def test_ctrl_c_after_the_local_server_is_gone(aws: Account, interrupts: int, answered_before: int) -> None:
    """However far the hand-over to the schedule came: nothing is said to be billed."""
    presses = [KeyboardInterrupt() for _ in range(interrupts)]
    _from(aws, "CreateEndpoint", chain(presses, [None] * answered_before, repeat(_refused())))
    with pytest.raises(Interrupted) as caught:
        deploy(make_spec(), session=_session(aws), pacing=aws.pacing(poll_s=0.5))
    assert _gone(aws) in caught.value.message


@pytest.mark.parametrize("command", [delete, pause])
@pytest.mark.parametrize("pressed", [False, True])
def test_a_removal_whose_local_server_is_gone(
    aws: Account, command: Callable[..., object], pressed: bool
) -> None:
    session, pacing = _session(aws), aws.pacing(poll_s=0.5)
    deploy(make_spec(), session=session, pacing=aws.pacing())
    began = aws.seconds
    presses = [KeyboardInterrupt()] if pressed else []
    _from(aws, "DeleteEndpoint", chain(presses, repeat(_refused())))
    with pytest.raises(Interrupted if pressed else EngineError) as caught:
        command(["demo"] if command is delete else "demo", session=session, pacing=pacing)
    assert _gone(aws) in caught.value.message
    assert aws.seconds - began < 15
