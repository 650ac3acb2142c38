"""Keeping an endpoint: the lease in the register, and the schedules that end its life."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import NotFound, PeagleError, PlanRefused, ServiceFault, SpecError
from peagle_sm.service import Lease, Pacing, deploy, keep, list_endpoints, pause
from tests.service.account import Account
from tests.service.aws_errors import client_error
from tests.service.setting import ROLE, make_spec
from tests.service.stacked import in_a_stack

SCHEDULE = "peagle-demo-lifetime"
HOUR = timedelta(hours=1)


def _deployed(aws: Account, **changes: Any) -> Session:
    session = aws.session()
    deploy(make_spec(**changes), session=session, pacing=aws.pacing())
    aws.sleep(HOUR.total_seconds() - aws.seconds)
    aws.calls.clear()
    return session


def _held(aws: Account, key: str) -> datetime:
    return datetime.fromisoformat(aws.item()[key]["S"])


def test_within_the_lifetime_only_the_lease_is_written(aws: Account, pacing: Pacing) -> None:
    session = _deployed(aws)
    lease = keep("demo", 2 * HOUR, session=session, pacing=pacing)
    assert (lease.keep_until, lease.expires_at, lease.expired_at) == (
        aws.start + 3 * HOUR,
        aws.start + 8 * HOUR,
        aws.start + 8 * HOUR,
    )
    assert (lease.usd_per_hour, lease.more_usd, lease.guarded) == (4.2, 0.0, True)
    assert _held(aws, "keep_until") == aws.start + 3 * HOUR
    assert "UpdateSchedule" not in aws.calls
    assert list_endpoints(session)[0].keep_until == aws.start + 3 * HOUR


def test_beyond_the_lifetime_the_schedule_moves_and_the_price_is_shown(aws: Account, pacing: Pacing) -> None:
    session = _deployed(aws, lifecycle={"max_lifetime_hours": 8, "budget_usd": 40})
    shown: list[Lease] = []

    def yes(lease: Lease) -> bool:
        assert "UpdateSchedule" not in aws.calls
        shown.append(lease)
        return True

    lease = keep("demo", 9 * HOUR, session=session, pacing=pacing, confirm=yes)
    assert shown == [lease]
    assert (lease.expires_at, lease.more_usd, lease.budget_usd) == (aws.start + 10 * HOUR, 8.4, 40.0)
    assert lease.spent_usd == pytest.approx(4.2, rel=0.05)
    schedule = aws.schedule()
    assert (schedule["StartDate"], schedule["EndDate"]) == (aws.start + 10 * HOUR, aws.start + 34 * HOUR)
    assert schedule["Target"]["RoleArn"] == ROLE
    assert _held(aws, "expires_at") == aws.start + 10 * HOUR
    assert list_endpoints(session)[0].expires_at == aws.start + 10 * HOUR


def test_a_no_changes_nothing(aws: Account, pacing: Pacing) -> None:
    session = _deployed(aws)
    with pytest.raises(PeagleError, match="Nothing was changed"):
        keep("demo", 20 * HOUR, session=session, pacing=pacing, confirm=lambda lease: False)
    assert aws.item() == {}
    assert aws.schedule()["StartDate"] == aws.start + 8 * HOUR


def test_nothing_is_shortened(aws: Account, pacing: Pacing) -> None:
    session = _deployed(aws)
    keep("demo", 20 * HOUR, session=session, pacing=pacing)
    lease = keep("demo", HOUR, session=session, pacing=pacing)
    assert (lease.keep_until, lease.expires_at) == (aws.start + 21 * HOUR, aws.start + 21 * HOUR)
    assert _held(aws, "keep_until") == aws.start + 21 * HOUR
    assert aws.schedule()["StartDate"] == aws.start + 21 * HOUR


def test_a_sweep_that_writes_in_between_loses_nothing(aws: Account, pacing: Pacing) -> None:
    session = _deployed(aws)
    swept: list[str] = []
    created = aws.created().isoformat()

    def sweep(operation: str) -> None:
        if operation == "UpdateItem" and len(swept) < 2:
            swept.append(operation)
            aws.note(version={"N": str(len(swept))}, created_at={"S": created}, marked_at={"S": created})

    aws.before = sweep
    keep("demo", 2 * HOUR, session=session, pacing=pacing)
    item = aws.item()
    assert (item["version"], item["marked_at"]) == ({"N": "3"}, {"S": created})
    assert _held(aws, "keep_until") == aws.start + 3 * HOUR


def test_a_register_that_is_always_written_by_others_is_a_fault(aws: Account, pacing: Pacing) -> None:
    session = _deployed(aws)
    conflict = client_error("UpdateItem", "ConditionalCheckFailedException", "The conditional request failed")
    aws.before = lambda operation: conflict if operation == "UpdateItem" else None
    with pytest.raises(ServiceFault, match="5 writes to the guard's register entry of demo conflicted"):
        keep("demo", 2 * HOUR, session=session, pacing=pacing)


def test_an_entry_of_an_older_endpoint_is_begun_anew(aws: Account, pacing: Pacing) -> None:
    session = _deployed(aws)
    older, until = (aws.start - 48 * HOUR).isoformat(), (aws.start + 99 * HOUR).isoformat()
    aws.note(created_at={"S": older}, keep_until={"S": until})
    assert list_endpoints(session)[0].keep_until is None
    lease = keep("demo", 2 * HOUR, session=session, pacing=pacing)
    assert lease.keep_until == aws.start + 3 * HOUR
    assert "created_at" not in aws.item()


def test_without_a_guard_the_lifetime_alone_moves(aws: Account, pacing: Pacing) -> None:
    session = _deployed(aws)
    with aws.no_guard():
        assert not keep("demo", 20 * HOUR, session=session, pacing=pacing).guarded
    assert aws.schedule()["StartDate"] == aws.start + 21 * HOUR


def test_all_schedules_of_a_stack_move_the_hard_ones_first(aws: Account, pacing: Pacing) -> None:
    session = _deployed(aws)
    aws.tag({"peagle-sm:stack": "Peagle-demo"})
    aws.remove_schedules()
    switch = "arn:aws:lambda:us-east-1:123456789012:function:peagle-guard-switch"
    aws.put_schedule(SCHEDULE, switch, {"action": "off", "stack": "Peagle-demo"})
    components = [f"{SCHEDULE}-hard-{number}" for number in (1, 2)]
    delete = "arn:aws:scheduler:::aws-sdk:sagemaker:deleteEndpoint"
    for name in (f"{SCHEDULE}-hard", *components):
        aws.put_schedule(name, delete, {"EndpointName": "demo"})
    moved: list[str] = []

    def note(operation: str) -> None:
        if operation == "UpdateSchedule":
            moved.append(aws.sent[operation]["Name"])

    aws.after = note
    keep("demo", 20 * HOUR, session=session, pacing=pacing)
    assert moved == [*components, f"{SCHEDULE}-hard", SCHEDULE]
    ends = {name: aws.scheduler.get_schedule(Name=name)["StartDate"] for name in aws.schedules()}
    hard_ends = dict.fromkeys([*components, f"{SCHEDULE}-hard"], aws.start + 21.5 * HOUR)
    assert ends == {SCHEDULE: aws.start + 21 * HOUR, **hard_ends}
    assert list_endpoints(session)[0].expires_at == aws.start + 21 * HOUR


@pytest.mark.parametrize("length", [timedelta(0), -HOUR, timedelta(days=366)])
def test_a_length_out_of_bounds(session: Session, length: timedelta) -> None:
    with pytest.raises(SpecError, match="more than 0 and at most 365 days"):
        keep("demo", length, session=session)


def test_what_is_not_there_is_not_kept(aws: Account, pacing: Pacing) -> None:
    session = _deployed(aws)
    with pytest.raises(NotFound, match="'nope' does not exist"):
        keep("nope", HOUR, session=session, pacing=pacing)
    pause("demo", session=session, pacing=pacing)
    with pytest.raises(NotFound, match="is paused") as caught:
        keep("demo", HOUR, session=session, pacing=pacing)
    assert "peagle-sm resume demo --region us-east-1" in (caught.value.next_step or "")


def test_a_limit_that_was_lost_is_told(aws: Account, pacing: Pacing) -> None:
    session = _deployed(aws)
    aws.remove_schedules()
    with pytest.raises(PeagleError, match="has no lifetime schedule"):
        keep("demo", HOUR, session=session, pacing=pacing)


def _claimed(aws: Account, at: datetime, **more: Any) -> None:
    created, off_at = aws.created().isoformat(), at.isoformat()
    values = {"created_at": {"S": created}, "off_at": {"S": off_at}, "off_by": {"S": "idle"}, **more}
    aws.note(version={"N": "3"}, **values)


def test_what_is_being_deleted_is_not_kept(aws: Account, pacing: Pacing) -> None:
    session = _deployed(aws)
    aws.sagemaker.delete_endpoint(EndpointName="demo")
    with pytest.raises(PlanRefused, match="endpoint demo is already being turned off") as caught:
        keep("demo", 20 * HOUR, session=session, pacing=pacing)
    assert "peagle-sm resume demo --region us-east-1" in (caught.value.next_step or "")
    assert not {"UpdateItem", "UpdateSchedule"} & set(aws.calls)


def test_a_turning_off_that_has_just_been_claimed_is_waited_for(aws: Account, pacing: Pacing) -> None:
    """The sweep's own deletion follows within seconds; a claim that led to nothing is over in minutes."""
    session = _deployed(aws)
    claimed_at = aws.now()
    _claimed(aws, claimed_at)
    lease = keep("demo", 20 * HOUR, session=session, pacing=pacing)
    assert aws.now() - claimed_at >= timedelta(minutes=3)
    assert _held(aws, "expires_at") == lease.expires_at == aws.start + 21 * HOUR

    _claimed(aws, aws.now())

    def deleted(operation: str) -> None:
        if operation == "GetItem" and aws.status() == "InService":
            aws.sagemaker.delete_endpoint(EndpointName="demo")

    aws.after = deleted
    with pytest.raises(PlanRefused, match="is already being turned off"):
        keep("demo", 30 * HOUR, session=session, pacing=pacing)
    assert aws.schedule()["StartDate"] == aws.start + 21 * HOUR


@pytest.mark.parametrize("hours", [-1, 1], ids=["slow", "fast"])
def test_the_age_of_a_claim_is_by_awss_clock(aws: Account, pacing: Pacing, hours: int) -> None:
    """The guard dates a claim by AWS's clock; this machine's may be an hour fast or slow."""
    session = _deployed(aws)
    _claimed(aws, aws.clock())
    aws.start += hours * HOUR
    began = aws.now()
    keep("demo", 20 * HOUR, session=session, pacing=pacing)
    assert timedelta(minutes=3) <= aws.now() - began < timedelta(minutes=4)


def test_what_is_half_dismantled_is_not_kept(aws: Account, pacing: Pacing) -> None:
    session = _deployed(aws)
    _claimed(aws, aws.start, parting={"BOOL": True})
    with pytest.raises(PlanRefused, match="is already being turned off"):
        keep("demo", 20 * HOUR, session=session, pacing=pacing)
    assert "UpdateSchedule" not in aws.calls


def test_the_guard_and_keep_never_both_succeed(aws: Account) -> None:
    """The guard claims and deletes at each call of `keep` in turn; it acts on the version that it read."""
    session = _deployed(aws)
    keep("demo", 20 * HOUR, session=session, pacing=aws.pacing())
    quiet, outcomes = list(aws.calls), set()
    for position in range(0, len(quiet), 2):
        aws.clear()
        aws = Account(aws.server, aws.boto3)
        session = _deployed(aws)

        def sweep(operation: str, aws: Account = aws, position: int = position) -> None:
            if len(aws.calls) - 1 == position and not aws.item():
                _claimed(aws, aws.clock())
                aws.sagemaker.delete_endpoint(EndpointName="demo")

        aws.before = sweep
        try:
            keep("demo", 20 * HOUR, session=session, pacing=aws.pacing())
            kept = True
        except PeagleError:
            kept = False
        aws.before = lambda operation: None
        aws.sleep(60)
        assert (aws.status() is not None) is kept, quiet[position]
        outcomes.add(kept)
    assert outcomes == {True, False}


def test_a_firing_of_the_old_end_that_is_on_its_way_is_waited_out(aws: Account, pacing: Pacing) -> None:
    session = _deployed(aws)
    aws.seconds = 8 * 3600 + 30.0  # the schedule has fired, and nothing has come of it yet

    def fire(operation: str) -> None:
        if operation == "UpdateSchedule":
            aws.late.append((aws.seconds + 50, _delete_endpoint(aws)))

    aws.after = fire
    with pytest.raises(PlanRefused, match="is already being turned off"):
        keep("demo", 20 * HOUR, session=session, pacing=pacing)


def _delete_endpoint(aws: Account) -> Callable[[], object]:
    return lambda: aws.sagemaker.delete_endpoint(EndpointName="demo")


def test_a_schedule_that_moves_sends_its_new_end_and_is_not_retried(aws: Account, pacing: Pacing) -> None:
    """The switch refuses an event whose end is earlier than the schedule's start."""
    session = in_a_stack(aws)
    aws.remove_schedules()
    switch = "arn:aws:lambda:us-east-1:123456789012:function:peagle-guard-switch"
    answer = {"action": "off", "stack": "Peagle-demo", "expires_at": (aws.start + 8 * HOUR).isoformat()}
    aws.put_schedule(SCHEDULE, switch, answer, StartDate=aws.start + 8 * HOUR)
    lease = keep("demo", 20 * HOUR, session=session, pacing=pacing)
    target = aws.schedule()["Target"]
    assert json.loads(target["Input"]) == {**answer, "expires_at": lease.expires_at.isoformat()}
    assert target["RetryPolicy"] == {"MaximumEventAgeInSeconds": 60, "MaximumRetryAttempts": 0}


def test_of_two_keeps_at_once_the_later_end_holds(aws: Account, pacing: Pacing) -> None:
    """Each reads the schedule before the other moves it; the register has the later end."""
    session = _deployed(aws)

    def other(_: Lease) -> bool:
        keep("demo", 20 * HOUR, session=session, pacing=pacing)
        return True

    keep("demo", 9 * HOUR, session=session, pacing=pacing, confirm=other)
    assert aws.schedule()["StartDate"] == aws.start + 21 * HOUR
    assert _held(aws, "expires_at") == aws.start + 21 * HOUR


def test_a_firing_of_an_end_that_another_keep_has_moved_is_waited_out(aws: Account, pacing: Pacing) -> None:
    session = _deployed(aws)
    keep("demo", 19 * HOUR, session=session, pacing=pacing)
    aws.seconds = 8 * 3600 + 40.0
    aws.late.append((aws.seconds + 60, _delete_endpoint(aws)))
    with pytest.raises(PlanRefused, match="is already being turned off"):
        keep("demo", 9 * HOUR, session=session, pacing=pacing)
