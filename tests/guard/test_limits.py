"""What holds whatever the metrics say: lifetime, budget, hours; their warnings and their drain."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from peagle_guard.decide import DRAIN, budget_ends_at, decide, spent_usd, usd_per_hour
from peagle_guard.records import (
    Action,
    Decision,
    Endpoint,
    Evidence,
    Kind,
    Lifecycle,
    OffBy,
    Record,
    Tell,
    lifecycle_from_tags,
)
from peagle_guard.sweeper import sweep
from peagle_sm.core.spec.hours import parse_hours
from tests.guard.by_hand import HOUR, MINUTE, START, arn_of, set_up
from tests.guard.simulator.people import SETTINGS

TRAFFIC = Evidence(Kind.TRAFFIC)
UNKNOWN = Evidence(Kind.UNKNOWN)
ENDPOINT = Endpoint(
    name="chat",
    arn=arn_of("chat"),
    created_at=START,
    modified_at=START,
    status="InService",
    config_name="chat-1",
    variants=("AllTraffic",),
    instances=2,
)


def at(
    lifecycle: Lifecycle, now: datetime, record: Record | None = None, seen: Evidence = TRAFFIC
) -> Decision:
    return decide(ENDPOINT, lifecycle, record or Record(name="chat"), seen, now)


def test_the_lifetime_warns_drains_and_ends() -> None:
    """The lifetime's schedule does not wait: the drain comes before it, and a notice announces its start."""
    life = Lifecycle(max_lifetime=8 * HOUR)
    end = START + 8 * HOUR
    begins = end - DRAIN
    assert at(life, begins - 31 * MINUTE).action is Action.NONE
    warned = at(life, begins - 30 * MINUTE)
    assert (warned.action, warned.tell, warned.off_at) == (Action.WARN, Tell.LIMIT_SOON, begins)
    assert at(life, begins - 20 * MINUTE, warned.record).action is Action.NONE
    assert at(life, begins - MINUTE, warned.record).action is Action.NONE
    waits = at(life, begins, warned.record)
    assert (waits.action, waits.off_at, waits.expires_at) == (Action.WAIT, end, end)
    assert at(life, end - MINUTE, warned.record).action is Action.WAIT
    assert at(life, end, warned.record).action is Action.TURN_OFF
    off = at(life, begins, warned.record, UNKNOWN)
    assert (off.action, off.off_by, off.tell) == (Action.TURN_OFF, OffBy.LIFETIME, None)
    assert at(life, begins, None, UNKNOWN).tell is Tell.OFF_NOW  # no warning was sent, so this one is


@pytest.mark.parametrize("minutes", [6, 20, 39])
def test_the_drain_of_a_short_life_is_its_last_quarter(minutes: int) -> None:
    life = Lifecycle(max_lifetime=minutes * MINUTE)
    begins = START + life.max_lifetime * 3 / 4
    assert at(life, begins - MINUTE).action is not Action.TURN_OFF
    assert at(life, begins, None, UNKNOWN).action is Action.TURN_OFF


def test_a_request_that_runs_as_the_notice_said_it_would_end_is_finished_before_the_schedule() -> None:
    """A stream may last 8 minutes: the sweep that finds it at the announced time leaves it running."""
    aws = set_up(age=8 * HOUR - DRAIN, max_lifetime_hours="8")
    aws.serve("chat", START - 5 * MINUTE, START + 8 * MINUTE)
    for minutes in (0, 5):
        aws.now = START + minutes * MINUTE
        sweep(aws, SETTINGS, aws.now)
        assert aws.deeds == []
    aws.now = START + DRAIN
    sweep(aws, SETTINGS, aws.now)
    assert aws.did == ["delete"]


def test_keep_moves_the_lifetime_and_its_warning() -> None:
    life = Lifecycle(max_lifetime=8 * HOUR)
    warned = at(life, START + 7.5 * HOUR).record
    kept = replace(warned, expires_at=START + 12 * HOUR, keep_until=START + 12 * HOUR)
    assert at(life, START + 9 * HOUR, kept, UNKNOWN).action is Action.NONE
    assert at(life, START + 11.5 * HOUR, kept).action is Action.WARN
    # A lease holds to its last minute, so there is no time to drain where it ends the lifetime.
    assert at(life, START + 12 * HOUR - MINUTE, kept, UNKNOWN).action is not Action.TURN_OFF
    assert at(life, START + 12 * HOUR, kept, UNKNOWN).action is Action.TURN_OFF
    earlier = replace(warned, expires_at=START + HOUR)
    assert at(life, START + 2 * HOUR, earlier, UNKNOWN).action is Action.NONE


def test_the_budget_is_spent_at_the_price_of_the_instances_there_are() -> None:
    life = Lifecycle(max_lifetime=100 * HOUR, budget_usd=1000.0, usd_per_hour=100.0, instances=2)
    first = at(life, START).record
    assert spent_usd(life, first, START + 4 * HOUR) == pytest.approx(400)
    assert at(life, START + 9.4 * HOUR, first).action is Action.NONE
    assert at(life, START + 9.5 * HOUR, first).action is Action.WARN
    # Twice the instances from the fourth hour on: 600 USD are left, at 200 an hour.
    scaled = decide(replace(ENDPOINT, instances=4), life, first, TRAFFIC, START + 4 * HOUR).record
    assert usd_per_hour(life, scaled) == 200.0
    assert budget_ends_at(life, scaled) == START + 7 * HOUR
    off = decide(replace(ENDPOINT, instances=4), life, scaled, UNKNOWN, START + 7 * HOUR)
    assert (off.action, off.off_by) == (Action.TURN_OFF, OffBy.BUDGET)


@pytest.mark.parametrize("planned", [1, 2, 4])
def test_the_price_is_for_the_planned_instances_however_many_are_seen_first(planned: int) -> None:
    """Autoscaling had scaled out before the first sweep: four instances cost four times one's price."""
    tags = {"peagle-sm:usd-per-hour": f"{25.0 * planned:g}", "peagle-sm:instance-count": str(planned)}
    life = lifecycle_from_tags(tags)
    for seen in (1, 4):
        record = decide(replace(ENDPOINT, instances=seen), life, Record(name="chat"), TRAFFIC, START).record
        assert usd_per_hour(life, record) == 25.0 * seen


def test_what_an_update_makes_cheaper_or_dearer_counts_from_then_on() -> None:
    """Four hours at 100 USD an hour, then an update to one instance at 10: 400 USD are spent."""
    aws = set_up(age=4 * HOUR, usd_per_hour="100", instance_count="1", budget_usd="450")
    aws.serve("chat", START - 10 * MINUTE, START + 2 * HOUR)
    sweep(aws, SETTINGS, START)
    aws.endpoints["chat"].tags["peagle-sm:usd-per-hour"] = "10"
    for minutes in (5, 60):
        aws.now = START + minutes * MINUTE
        sweep(aws, SETTINGS, aws.now)
    record = aws.register.records["chat"]
    life = lifecycle_from_tags(record.tags)
    assert spent_usd(life, record, START + HOUR) == pytest.approx(400 + 100 * 5 / 60 + 10 * 55 / 60)


def test_without_a_price_there_is_no_budget_to_keep() -> None:
    life = Lifecycle(max_lifetime=100 * HOUR, budget_usd=1.0)
    assert at(life, START + 50 * HOUR).action is Action.NONE
    assert spent_usd(life, at(life, START).record, START + HOUR) == 0


OFFICE = Lifecycle(max_lifetime=1000 * HOUR, hours=parse_hours("Mon-Fri 07:00-19:00 UTC"))
CLOSES = START.replace(hour=19)


def test_the_hours_end_with_a_notice_before_and_the_grace_for_traffic() -> None:
    warned = at(OFFICE, CLOSES - 30 * MINUTE)
    assert (warned.action, warned.off_by, warned.off_at) == (Action.WARN, OffBy.HOURS, CLOSES)
    assert at(OFFICE, CLOSES, warned.record).action is Action.WAIT
    assert at(OFFICE, CLOSES + OFFICE.grace, warned.record).action is Action.TURN_OFF
    off = at(OFFICE, CLOSES, warned.record, UNKNOWN)
    assert (off.action, off.record.off_by) == (Action.TURN_OFF, OffBy.HOURS)


def test_one_limits_drain_does_not_outlast_another_limits() -> None:
    """The hours end with a long grace, and the lifetime soon after."""
    life = replace(OFFICE, grace=40 * MINUTE, max_lifetime=CLOSES + 15 * MINUTE - START)
    assert at(life, CLOSES + 14 * MINUTE).action is Action.WAIT
    assert at(life, CLOSES + 15 * MINUTE).action is Action.TURN_OFF


def test_a_lease_holds_off_the_end_of_the_hours() -> None:
    leased = replace(at(OFFICE, CLOSES - HOUR).record, keep_until=CLOSES + 2 * HOUR)
    assert at(OFFICE, CLOSES + HOUR, leased, UNKNOWN).action is Action.NONE
    assert at(OFFICE, CLOSES + 2 * HOUR, leased, UNKNOWN).action is Action.TURN_OFF


def test_what_was_turned_on_by_hand_outside_the_hours_stays_until_the_next_closing() -> None:
    late = replace(ENDPOINT, created_at=CLOSES + HOUR, modified_at=CLOSES + HOUR)
    tomorrow = CLOSES + timedelta(days=1)
    for now, action in ((CLOSES + 2 * HOUR, Action.NONE), (tomorrow, Action.TURN_OFF)):
        assert decide(late, OFFICE, Record(name="chat"), UNKNOWN, now).action is action


# --- waking -------------------------------------------------------------------------------------------


def gone(off_by: OffBy, off_at: datetime) -> Record:
    off = replace(at(OFFICE, START).record, off_at=off_at, off_by=off_by)
    return decide(None, OFFICE, off, UNKNOWN, off_at + 5 * MINUTE).record


def wakes(record: Record, now: datetime) -> bool:
    return decide(None, OFFICE, record, UNKNOWN, now).action is Action.WAKE


OPENS = CLOSES + 12 * HOUR


@pytest.mark.parametrize(
    ("off_by", "woken"),
    [
        (OffBy.HOURS, True),
        (OffBy.IDLE, True),
        (OffBy.LIFETIME, True),
        (OffBy.BUDGET, False),
        (OffBy.FAILED, False),
        (OffBy.OTHERS, False),
    ],
)
def test_the_opening_wakes_what_the_guard_turned_off(off_by: OffBy, woken: bool) -> None:
    record = gone(off_by, CLOSES)
    assert not wakes(record, OPENS - MINUTE)
    assert wakes(record, OPENS) is woken
    assert wakes(record, OPENS + 5 * HOUR) is woken
    assert not wakes(replace(record, paused=True), OPENS)


def test_what_idled_off_within_its_hours_waits_for_the_next_opening() -> None:
    record = gone(OffBy.IDLE, OPENS + HOUR)
    assert not wakes(record, OPENS + 2 * HOUR)
    assert wakes(record, OPENS + timedelta(days=1))


def test_waking_is_tried_three_times_an_opening() -> None:
    record, now, tries = gone(OffBy.HOURS, CLOSES), OPENS, 0
    for _ in range(20):
        decision = decide(None, OFFICE, record, UNKNOWN, now)
        tries += decision.action is Action.WAKE
        record, now = decision.record, now + 5 * MINUTE
    assert tries == 3
    assert wakes(record, OPENS + timedelta(days=1))


def test_what_the_timetable_woke_goes_on_spending_the_same_budget() -> None:
    life = replace(OFFICE, budget_usd=1500.0, usd_per_hour=100.0)
    off = replace(at(life, START).record, off_at=CLOSES, off_by=OffBy.HOURS)
    record = decide(None, life, off, UNKNOWN, CLOSES).record
    assert record.spent_usd == pytest.approx(1100)
    woken = decide(None, life, record, UNKNOWN, OPENS).record
    again = replace(ENDPOINT, created_at=OPENS + MINUTE, modified_at=OPENS + MINUTE)
    result = decide(again, life, woken, UNKNOWN, OPENS + 5 * MINUTE)
    assert spent_usd(life, result.record, OPENS + HOUR + MINUTE) == pytest.approx(1200)
    by_hand = decide(again, life, record, UNKNOWN, OPENS + 5 * MINUTE)
    assert spent_usd(life, by_hand.record, OPENS + HOUR + MINUTE) == pytest.approx(100)


def test_a_dead_mans_schedule_that_acted_alone_is_told_of() -> None:
    life = Lifecycle(max_lifetime=8 * HOUR)
    record = at(life, START).record
    early = decide(None, life, record, UNKNOWN, START + HOUR)
    assert (early.action, early.tell, early.record.off_by) == (Action.NONE, None, OffBy.OTHERS)
    late = decide(None, life, record, UNKNOWN, START + 9 * HOUR)
    assert (late.action, late.tell, late.record.off_by) == (Action.CONFIRM_GONE, Tell.GONE, OffBy.LIFETIME)
