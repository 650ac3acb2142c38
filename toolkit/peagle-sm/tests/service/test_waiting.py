"""wait(): in service, gone, failed, too late, and a poll that AWS does not answer."""

from __future__ import annotations

import pytest

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import EndpointFailed, NotFound, WaitTimeout
from peagle_sm.service import Event, Pacing, deploy, wait
from tests.service.account import Account
from tests.service.aws_errors import throttled
from tests.service.setting import make_spec


@pytest.fixture
def creating(aws: Account, session: Session, pacing: Pacing) -> Session:
    deploy(make_spec(), session=session, pacing=pacing, wait=False)
    aws.calls.clear()
    return session


def test_it_waits_until_the_endpoint_is_in_service(aws: Account, creating: Session, pacing: Pacing) -> None:
    events: list[Event] = []
    facts = wait("demo", session=creating, pacing=pacing, progress=events.append)
    assert facts is not None
    assert facts.status == "InService"
    assert [each.phase for each in events] == ["waiting"] * 4 + ["ready"]
    assert set(aws.calls) == {"DescribeEndpoint"}


def test_it_waits_until_the_endpoint_is_gone(aws: Account, creating: Session, pacing: Pacing) -> None:
    aws.settle("demo")
    aws.sagemaker.delete_endpoint(EndpointName="demo")
    assert wait("demo", session=creating, pacing=pacing, deleted=True) is None
    assert wait("demo", session=creating, pacing=pacing, deleted=True) is None, "also when it is gone already"


def test_an_endpoint_that_does_not_exist_is_not_awaited(session: Session, pacing: Pacing) -> None:
    with pytest.raises(NotFound, match="'demo' does not exist"):
        wait("demo", session=session, pacing=pacing)


def test_a_failed_endpoint_ends_the_wait_with_its_reason(
    aws: Account, session: Session, pacing: Pacing
) -> None:
    broken = make_spec(env={"SCRIPT_EXIT_LINE": "ValueError: no such head"})
    deploy(broken, session=session, pacing=pacing, wait=False)
    with pytest.raises(EndpointFailed, match="did not pass the ping health check") as caught:
        wait("demo", session=session, pacing=pacing)
    assert caught.value.details["status"] == "Failed"
    assert "ping health check" in caught.value.details["failure_reason"]
    assert "`peagle-sm logs demo --region us-east-1`" in str(caught.value.next_step)


def test_an_endpoint_deleted_meanwhile_ends_the_wait(aws: Account, creating: Session, pacing: Pacing) -> None:
    aws.settle("demo")
    aws.sagemaker.delete_endpoint(EndpointName="demo")
    with pytest.raises(EndpointFailed, match="its status is Deleting") as caught:
        wait("demo", session=creating, pacing=pacing)
    assert "`peagle-sm wait demo --deleted --region us-east-1`" in str(caught.value.next_step)
    aws.settle("demo")
    deploy(make_spec(), session=creating, pacing=pacing, wait=False)
    aws.late.append((aws.seconds + 20, aws.remove_endpoint))
    with pytest.raises(EndpointFailed, match="was deleted before it was InService"):
        wait("demo", session=creating, pacing=pacing)


@pytest.mark.parametrize("deleted", [False, True])
def test_a_timeout_names_the_status(deleted: bool, creating: Session, pacing: Pacing) -> None:
    with pytest.raises(WaitTimeout, match="its status is Creating") as caught:
        wait("demo", session=creating, pacing=pacing, timeout_s=30, deleted=deleted)
    assert (caught.value.exit_code, caught.value.details) == (10, {"status": "Creating"})


def test_a_throttled_poll_is_repeated(aws: Account, creating: Session, pacing: Pacing) -> None:
    aws.before = lambda operation: throttled(operation) if len(aws.calls) in (2, 3) else None
    events: list[Event] = []
    facts = wait("demo", session=creating, pacing=pacing, progress=events.append)
    assert facts is not None
    assert sum("retrying" in each.message for each in events) == 2
