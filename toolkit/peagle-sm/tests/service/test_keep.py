"""Keeping an endpoint: the lease in the register, and the schedules that end its life."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import NotFound, PeagleError, PlanRefused, ServiceFault, SpecError
from peagle_sm.service import Lease, Pacing, deploy, keep, list_endpoints, pause
from tests.service.fakes import ROLE, START, FakeAws, client_error
from tests.service.setting import make_spec, pacing_of, session_of
from tests.service.stacked import in_a_stack

SCHEDULE = "peagle-demo-lifetime"
HOUR = timedelta(hours=1)


def _deployed(aws: FakeAws, **changes: Any) -> Session:
    session = session_of(aws)
    deploy(make_spec(**changes), session=session, pacing=pacing_of(aws))
    aws.clock.seconds = HOUR.total_seconds()
    aws.calls.clear()
    return session


def _held(aws: FakeAws, key: str) -> datetime:
    assert aws.register is not None
    return datetime.fromisoformat(aws.register["endpoint#demo"][key]["S"])


def test_within_the_lifetime_only_the_lease_is_written(aws: FakeAws, pacing: Pacing) -> None:
    session = _deployed(aws)
    lease = keep("demo", 2 * HOUR, session=session, pacing=pacing)
    assert (lease.keep_until, lease.expires_at, lease.expired_at) == (
        START + 3 * HOUR,
        START + 8 * HOUR,
        START + 8 * HOUR,
    )
    assert (lease.usd_per_hour, lease.more_usd, lease.guarded) == (4.2, 0.0, True)
    assert _held(aws, "keep_until") == START + 3 * HOUR
    assert "UpdateSchedule" not in aws.calls
    assert list_endpoints(session)[0].keep_until == START + 3 * HOUR


def test_beyond_the_lifetime_the_schedule_moves_and_the_price_is_shown(aws: FakeAws, pacing: Pacing) -> None:
    session = _deployed(aws, lifecycle={"max_lifetime_hours": 8, "budget_usd": 40})
    shown: list[Lease] = []

    def yes(lease: Lease) -> bool:
        assert "UpdateSchedule" not in aws.calls
        shown.append(lease)
        return True

    lease = keep("demo", 9 * HOUR, session=session, pacing=pacing, confirm=yes)
    assert shown == [lease]
    assert (lease.expires_at, lease.more_usd, lease.budget_usd) == (START + 10 * HOUR, 8.4, 40.0)
    assert lease.spent_usd == pytest.approx(4.2)
    schedule = aws.schedules[SCHEDULE]
    assert (schedule["StartDate"], schedule["EndDate"]) == (START + 10 * HOUR, START + 34 * HOUR)
    assert schedule["Target"]["RoleArn"] == ROLE
    assert _held(aws, "expires_at") == START + 10 * HOUR
    assert list_endpoints(session)[0].expires_at == START + 10 * HOUR


def test_a_no_changes_nothing(aws: FakeAws, pacing: Pacing) -> None:
    session = _deployed(aws)
    with pytest.raises(PeagleError, match="Nothing was changed"):
        keep("demo", 20 * HOUR, session=session, pacing=pacing, confirm=lambda lease: False)
    assert aws.register == {}
    assert aws.schedules[SCHEDULE]["StartDate"] == START + 8 * HOUR


def test_nothing_is_shortened(aws: FakeAws, pacing: Pacing) -> None:
    session = _deployed(aws)
    keep("demo", 20 * HOUR, session=session, pacing=pacing)
    lease = keep("demo", HOUR, session=session, pacing=pacing)
    assert (lease.keep_until, lease.expires_at) == (START + 21 * HOUR, START + 21 * HOUR)
    assert _held(aws, "keep_until") == START + 21 * HOUR
    assert aws.schedules[SCHEDULE]["StartDate"] == START + 21 * HOUR


def test_a_sweep_that_writes_in_between_loses_nothing(aws: FakeAws, pacing: Pacing) -> None:
    session = _deployed(aws)
    assert aws.register is not None
    register = aws.register
    swept: list[str] = []

    def sweep(_: FakeAws, number: int, operation: str) -> None:
        if operation == "UpdateItem" and len(swept) < 2:
            swept.append(operation)
            register["endpoint#demo"] = {
                "pk": {"S": "endpoint#demo"},
                "version": {"N": str(len(swept))},
                "created_at": {"S": START.isoformat()},
                "marked_at": {"S": START.isoformat()},
            }

    aws.before = sweep
    keep("demo", 2 * HOUR, session=session, pacing=pacing)
    item = register["endpoint#demo"]
    assert (item["version"], item["marked_at"]) == ({"N": "3"}, {"S": START.isoformat()})
    assert _held(aws, "keep_until") == START + 3 * HOUR


def test_a_register_that_is_always_written_by_others_is_a_fault(aws: FakeAws, pacing: Pacing) -> None:
    session = _deployed(aws)
    conflict = client_error("UpdateItem", "ConditionalCheckFailedException", "The conditional request failed")
    aws.before = lambda _, number, operation: conflict if operation == "UpdateItem" else None
    with pytest.raises(ServiceFault, match="5 writes to the guard's register entry of demo conflicted"):
        keep("demo", 2 * HOUR, session=session, pacing=pacing)


def test_an_entry_of_an_older_endpoint_is_begun_anew(aws: FakeAws, pacing: Pacing) -> None:
    session = _deployed(aws)
    assert aws.register is not None
    aws.register["endpoint#demo"] = {
        "pk": {"S": "endpoint#demo"},
        "version": {"N": "9"},
        "created_at": {"S": (START - 48 * HOUR).isoformat()},
        "keep_until": {"S": (START + 99 * HOUR).isoformat()},
    }
    assert list_endpoints(session)[0].keep_until is None
    lease = keep("demo", 2 * HOUR, session=session, pacing=pacing)
    assert lease.keep_until == START + 3 * HOUR
    assert "created_at" not in aws.register["endpoint#demo"]


def test_without_a_guard_the_lifetime_alone_moves(aws: FakeAws, pacing: Pacing) -> None:
    session = _deployed(aws)
    aws.register = None
    lease = keep("demo", 20 * HOUR, session=session, pacing=pacing)
    assert not lease.guarded
    assert aws.schedules[SCHEDULE]["StartDate"] == START + 21 * HOUR


def test_all_schedules_of_a_stack_move_the_hard_ones_first(aws: FakeAws, pacing: Pacing) -> None:
    session = _deployed(aws)
    for rows in (aws.endpoints, aws.configs, aws.models):
        for row in rows.values():
            row.tags["peagle-sm:stack"] = "Peagle-demo"
    hard = dict(aws.schedules[SCHEDULE])
    aws.schedules[f"{SCHEDULE}-hard"] = {**hard, "Name": f"{SCHEDULE}-hard"}
    aws.schedules[SCHEDULE] = {
        **hard,
        "Target": {
            "Arn": "arn:aws:lambda:us-east-1:123456789012:function:peagle-guard-switch",
            "RoleArn": ROLE,
            "Input": json.dumps({"action": "off", "stack": "Peagle-demo"}),
        },
    }
    components = [f"{SCHEDULE}-hard-{number}" for number in (1, 2)]
    aws.schedules |= {name: {**hard, "Name": name} for name in components}
    moved: list[str] = []

    def note(_: FakeAws, number: int, operation: str) -> None:
        if operation == "UpdateSchedule":
            moved.extend(
                n
                for n, one in aws.schedules.items()
                if n not in moved and one["StartDate"] > START + 9 * HOUR
            )

    aws.after = note
    keep("demo", 20 * HOUR, session=session, pacing=pacing)
    assert moved == [*components, f"{SCHEDULE}-hard", SCHEDULE]
    ends = {name: one["StartDate"] for name, one in aws.schedules.items()}
    hard_end = START + 21.5 * HOUR
    hard_ends = dict.fromkeys([*components, f"{SCHEDULE}-hard"], hard_end)
    assert ends == {SCHEDULE: START + 21 * HOUR, **hard_ends}
    assert list_endpoints(session)[0].expires_at == START + 21 * HOUR


@pytest.mark.parametrize("length", [timedelta(0), -HOUR, timedelta(days=366)])
def test_a_length_out_of_bounds(session: Session, length: timedelta) -> None:
    with pytest.raises(SpecError, match="more than 0 and at most 365 days"):
        keep("demo", length, session=session)


def test_what_is_not_there_is_not_kept(aws: FakeAws, pacing: Pacing) -> None:
    session = _deployed(aws)
    with pytest.raises(NotFound, match="'nope' does not exist"):
        keep("nope", HOUR, session=session, pacing=pacing)
    pause("demo", session=session, pacing=pacing)
    with pytest.raises(NotFound, match="is paused") as caught:
        keep("demo", HOUR, session=session, pacing=pacing)
    assert "peagle-sm resume demo --region us-east-1" in (caught.value.next_step or "")


def test_a_limit_that_was_lost_is_told(aws: FakeAws, pacing: Pacing) -> None:
    session = _deployed(aws)
    aws.schedules.clear()
    with pytest.raises(PeagleError, match="has no lifetime schedule"):
        keep("demo", HOUR, session=session, pacing=pacing)


def _claimed(aws: FakeAws, at: datetime, **more: Any) -> None:
    assert aws.register is not None
    aws.register["endpoint#demo"] = {
        "pk": {"S": "endpoint#demo"},
        "version": {"N": "3"},
        "created_at": {"S": START.isoformat()},
        "off_at": {"S": at.isoformat()},
        "off_by": {"S": "idle"},
        **more,
    }


def test_what_is_being_deleted_is_not_kept(aws: FakeAws, pacing: Pacing) -> None:
    session = _deployed(aws)
    aws.endpoints["demo"].gone_at = aws.clock.seconds + 60
    with pytest.raises(PlanRefused, match="endpoint demo is already being turned off") as caught:
        keep("demo", 20 * HOUR, session=session, pacing=pacing)
    assert "peagle-sm resume demo --region us-east-1" in (caught.value.next_step or "")
    assert not {"UpdateItem", "UpdateSchedule"} & set(aws.calls)


def test_a_turning_off_that_has_just_been_claimed_is_waited_for(aws: FakeAws, pacing: Pacing) -> None:
    """The sweep's own deletion follows within seconds; a claim that led to nothing is over in minutes."""
    session = _deployed(aws)
    claimed_at = aws.clock.now()
    _claimed(aws, claimed_at)
    lease = keep("demo", 20 * HOUR, session=session, pacing=pacing)
    assert aws.clock.now() - claimed_at >= timedelta(minutes=3)
    assert _held(aws, "expires_at") == lease.expires_at == START + 21 * HOUR

    _claimed(aws, aws.clock.now())

    def deleted(_: FakeAws, number: int, operation: str) -> None:
        if operation == "GetItem":
            aws.endpoints["demo"].gone_at = aws.clock.seconds + 60

    aws.after = deleted
    with pytest.raises(PlanRefused, match="is already being turned off"):
        keep("demo", 30 * HOUR, session=session, pacing=pacing)
    assert aws.schedules[SCHEDULE]["StartDate"] == START + 21 * HOUR


@pytest.mark.parametrize("ahead", [timedelta(hours=-1), timedelta(hours=1)], ids=["fast", "slow"])
def test_the_age_of_a_claim_is_by_awss_clock(aws: FakeAws, pacing: Pacing, ahead: timedelta) -> None:
    """The guard dates a claim by AWS's clock; this machine's may be an hour fast or slow."""
    session = _deployed(aws)
    aws.ahead = ahead
    _claimed(aws, aws.clock.now() + ahead)
    began = aws.clock.now()
    keep("demo", 20 * HOUR, session=session, pacing=pacing)
    assert timedelta(minutes=3) <= aws.clock.now() - began < timedelta(minutes=4)


def test_what_is_half_dismantled_is_not_kept(aws: FakeAws, pacing: Pacing) -> None:
    session = _deployed(aws)
    _claimed(aws, START, parting={"BOOL": True})
    with pytest.raises(PlanRefused, match="is already being turned off"):
        keep("demo", 20 * HOUR, session=session, pacing=pacing)
    assert "UpdateSchedule" not in aws.calls


def test_the_guard_and_keep_never_both_succeed(aws: FakeAws, pacing: Pacing) -> None:
    """The guard claims and deletes at each call of `keep` in turn; it acts on the version that it read."""
    outcomes = set()
    quiet = FakeAws()
    keep("demo", 20 * HOUR, session=_deployed(quiet), pacing=pacing_of(quiet))
    for position in range(len(quiet.calls)):
        world = FakeAws()
        session = _deployed(world)

        def sweep(aws: FakeAws, number: int, operation: str, position: int = position) -> None:
            assert aws.register is not None
            if number == position and "endpoint#demo" not in aws.register:
                _claimed(aws, aws.clock.now())
                aws.endpoints["demo"].gone_at = aws.clock.seconds + 20

        world.before = sweep
        try:
            keep("demo", 20 * HOUR, session=session, pacing=pacing_of(world))
            kept = True
        except PeagleError:
            kept = False
        world.clock.seconds += 60
        world.everything()
        assert ("demo" in world.endpoints) is kept, quiet.calls[position]
        outcomes.add(kept)
    assert outcomes == {True, False}


def test_a_firing_of_the_old_end_that_is_on_its_way_is_waited_out(aws: FakeAws, pacing: Pacing) -> None:
    session = _deployed(aws)
    aws.clock.seconds = 8 * 3600 + 30.0

    def fire(_: FakeAws, number: int, operation: str) -> None:
        if operation == "UpdateSchedule":
            late = aws.clock.seconds + 50
            aws.late.append((late, lambda: setattr(aws.endpoints["demo"], "gone_at", late + 20)))

    aws.after = fire
    with pytest.raises(PlanRefused, match="is already being turned off"):
        keep("demo", 20 * HOUR, session=session, pacing=pacing)


def test_a_schedule_that_moves_sends_its_new_end_and_is_not_retried(aws: FakeAws, pacing: Pacing) -> None:
    """The switch refuses an event whose end is earlier than the schedule's start."""
    session = in_a_stack(aws)
    switch = "arn:aws:lambda:us-east-1:123456789012:function:peagle-guard-switch"
    answer = {"action": "off", "stack": "Peagle-demo", "expires_at": (START + 8 * HOUR).isoformat()}
    aws.schedules[SCHEDULE] = {
        "Name": SCHEDULE,
        "ScheduleExpression": "rate(10 minutes)",
        "StartDate": START + 8 * HOUR,
        "Target": {"Arn": switch, "RoleArn": ROLE, "Input": json.dumps(answer)},
    }
    lease = keep("demo", 20 * HOUR, session=session, pacing=pacing)
    target = aws.schedules[SCHEDULE]["Target"]
    assert json.loads(target["Input"]) == {**answer, "expires_at": lease.expires_at.isoformat()}
    assert target["RetryPolicy"] == {"MaximumEventAgeInSeconds": 60, "MaximumRetryAttempts": 0}


def test_of_two_keeps_at_once_the_later_end_holds(aws: FakeAws, pacing: Pacing) -> None:
    """Each reads the schedule before the other moves it; the register has the later end."""
    session = _deployed(aws)

    def other(_: Lease) -> bool:
        keep("demo", 20 * HOUR, session=session, pacing=pacing)
        return True

    keep("demo", 9 * HOUR, session=session, pacing=pacing, confirm=other)
    assert aws.schedules[SCHEDULE]["StartDate"] == START + 21 * HOUR
    assert _held(aws, "expires_at") == START + 21 * HOUR


def test_a_firing_of_an_end_that_another_keep_has_moved_is_waited_out(aws: FakeAws, pacing: Pacing) -> None:
    session = _deployed(aws)
    aws.clock.seconds = 8 * 3600 + 40.0
    aws.schedules[SCHEDULE]["StartDate"] = START + 20 * HOUR
    late = aws.clock.seconds + 60
    aws.late.append((late, lambda: setattr(aws.endpoints["demo"], "gone_at", late + 20)))
    with pytest.raises(PlanRefused, match="is already being turned off"):
        keep("demo", 9 * HOUR, session=session, pacing=pacing)
