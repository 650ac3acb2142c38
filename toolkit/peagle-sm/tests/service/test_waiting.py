"""wait(): in service, gone, failed, too late, and a poll that AWS does not answer."""

from __future__ import annotations

import pytest

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import EndpointFailed, NotFound, WaitTimeout
from peagle_sm.service import Event, Pacing, deploy, wait
from tests.service.fakes import FakeAws, throttled
from tests.service.setting import make_spec


@pytest.fixture
def creating(aws: FakeAws, session: Session, pacing: Pacing) -> Session:
    deploy(make_spec(), session=session, pacing=pacing, wait=False)
    aws.calls.clear()
    return session


def test_it_waits_until_the_endpoint_is_in_service(aws: FakeAws, creating: Session, pacing: Pacing) -> None:
    events: list[Event] = []
    facts = wait("demo", session=creating, pacing=pacing, progress=events.append)
    assert facts is not None
    assert facts.status == "InService"
    assert [each.phase for each in events] == ["waiting"] * 4 + ["ready"]
    assert set(aws.calls) == {"DescribeEndpoint"}


def test_it_waits_until_the_endpoint_is_gone(aws: FakeAws, creating: Session, pacing: Pacing) -> None:
    aws.endpoints["demo"].gone_at = aws.clock.seconds + 40
    assert wait("demo", session=creating, pacing=pacing, deleted=True) is None
    assert wait("demo", session=creating, pacing=pacing, deleted=True) is None, "also when it is gone already"


def test_an_endpoint_that_does_not_exist_is_not_awaited(session: Session, pacing: Pacing) -> None:
    with pytest.raises(NotFound, match="'demo' does not exist"):
        wait("demo", session=session, pacing=pacing)


def test_a_failed_endpoint_ends_the_wait_with_its_reason(
    aws: FakeAws, creating: Session, pacing: Pacing
) -> None:
    aws.endpoints["demo"].outcome, aws.endpoints["demo"].reason = "Failed", "no /ping"
    with pytest.raises(EndpointFailed, match="its status is Failed") as caught:
        wait("demo", session=creating, pacing=pacing)
    assert caught.value.details == {"status": "Failed", "failure_reason": "no /ping"}
    assert "`peagle-sm logs demo --region us-east-1`" in str(caught.value.next_step)
    aws.endpoints["demo"].gone_at = aws.clock.seconds + 40
    with pytest.raises(EndpointFailed, match="its status is Deleting") as caught:
        wait("demo", session=creating, pacing=pacing)
    assert "`peagle-sm wait demo --deleted --region us-east-1`" in str(caught.value.next_step)


def test_an_endpoint_deleted_meanwhile_ends_the_wait(aws: FakeAws, creating: Session, pacing: Pacing) -> None:
    aws.late.append((aws.clock.seconds + 20, lambda: aws.endpoints.pop("demo")))
    with pytest.raises(EndpointFailed, match="was deleted before it was InService"):
        wait("demo", session=creating, pacing=pacing)


@pytest.mark.parametrize("deleted", [False, True])
def test_a_timeout_names_the_status(deleted: bool, creating: Session, pacing: Pacing) -> None:
    with pytest.raises(WaitTimeout, match="its status is Creating") as caught:
        wait("demo", session=creating, pacing=pacing, timeout_s=30, deleted=deleted)
    assert (caught.value.exit_code, caught.value.details) == (10, {"status": "Creating"})


def test_a_throttled_poll_is_repeated(aws: FakeAws, creating: Session, pacing: Pacing) -> None:
    aws.before = lambda _, number, operation: throttled(operation) if number in (1, 2) else None
    events: list[Event] = []
    facts = wait("demo", session=creating, pacing=pacing, progress=events.append)
    assert facts is not None
    assert sum("retrying" in each.message for each in events) == 2
