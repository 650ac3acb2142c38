"""Missing metrics delay a turn-off as a request in the missing minute would, and cause no notices."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_guard.decide import decide
from peagle_guard.records import Evidence, Kind, Lifecycle, OffBy, Record, Tell
from tests.guard.by_hand import MINUTE, START
from tests.guard.simulator.guard_run import GuardRun
from tests.guard.simulator.making import BEGIN, off_after, plan, run, world
from tests.guard.simulator.making import MINUTE as MINUTE_S
from tests.guard.simulator.worlds.traffic import DAY, HOUR
from tests.guard.simulator.worlds.world import CloudWatch
from tests.guard.test_limits import ENDPOINT

IDLE, GRACE = 15, 10
REQUESTS_LATE = 27
"""Minutes that docs/explanation/guard.md promises to wait where no zeros are written."""

SWEEP = 5
SHOWN = 3
"""Minutes until CloudWatch shows a minute that is over."""

HOURS_30 = 30.0
"""A lifetime that ends nothing here."""


def _off(rules: CloudWatch, idle: int = IDLE, grace: int = GRACE) -> tuple[GuardRun, float]:
    """Run an unused endpoint that goes into service at minute 5; return when it was turned off."""
    given_plan = plan(lifetime_hours=HOURS_30, idle_minutes=idle, grace_minutes=grace)
    guard, verdict = run(world(given_plan, cloudwatch=rules, end=BEGIN + 30 * HOUR))
    assert verdict.broken == []
    assert guard.account.sagemaker.lives[0].ended_by == "guard"
    return guard, off_after(guard)


@cache
def _complete(zeros: bool) -> float:
    return _off(CloudWatch(zeros=zeros))[1]


def _minutes(*lost: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    return tuple((BEGIN + first * MINUTE_S, BEGIN + last * MINUTE_S) for first, last in lost)


@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize("lost", range(4, 75))
def test_one_lost_minute_costs_what_a_request_in_it_would(lost: int, zeros: bool) -> None:
    guard, off = _off(CloudWatch(zeros=zeros, gaps=_minutes((lost, lost + 1))))
    late = 0 if zeros else REQUESTS_LATE
    assert off <= max(_complete(zeros), lost + 1 + IDLE + GRACE + late + SHOWN + 2 * SWEEP)
    assert len(guard.aws.notices) == 1


@given(
    lost=st.lists(st.tuples(st.integers(0, 700), st.integers(1, 300)), max_size=6),
    every=st.integers(2, 90),
    until=st.integers(0, 900),
    where=st.sampled_from(["gaps", "request_gaps", "host_gaps"]),
    zeros=st.booleans(),
    idle=st.sampled_from([5, 15, 60, 120]),
    grace=st.sampled_from([10, 20]),
)
def test_any_pattern_that_ends_is_over_after_the_idle_time_and_the_grace(
    lost: list[tuple[int, int]],
    every: int,
    until: int,
    where: str,
    zeros: bool,
    idle: int,
    grace: int,
) -> None:
    gaps = [(first, first + length) for first, length in lost]
    gaps += [(minute, minute + 1) for minute in range(7, until, every)]
    rules = {
        "gaps": CloudWatch(zeros=zeros, gaps=_minutes(*gaps)),
        "request_gaps": CloudWatch(zeros=zeros, request_gaps=_minutes(*gaps)),
        "host_gaps": CloudWatch(zeros=zeros, host_gaps=_minutes(*gaps)),
    }
    guard, off = _off(rules[where], idle, grace)
    last = max([5, *(end for _, end in gaps)])
    assert off <= last + idle + grace + REQUESTS_LATE + SHOWN + 2 * SWEEP
    sent = [at for at, _, _ in guard.aws.notices]
    assert all(later - first >= DAY for first, later in zip(sent, sent[3:], strict=False))


def test_lost_utilisation_costs_nothing_where_each_minutes_requests_are_written() -> None:
    every_other = _minutes(*((minute, minute + 1) for minute in range(10, 600, 2)))
    assert _off(CloudWatch(host_gaps=every_other))[1] == _off(CloudWatch())[1]


def test_metrics_that_are_lost_for_ever_leave_it_to_the_lifetime_with_two_notices() -> None:
    """A minute lost in each grace: the endpoint is marked again and again, and announced once."""
    gaps = _minutes(*((minute, minute + 1) for minute in range(10, 48 * 60, IDLE + GRACE - 5)))
    guard, verdict = run(world(plan(lifetime_hours=20.0), cloudwatch=CloudWatch(gaps=gaps)))
    assert verdict.counts["survivors"] == 0
    assert guard.account.sagemaker.lives[0].ended_by == "guard"
    assert off_after(guard) >= 19 * 60
    assert len(guard.aws.notices) == 2  # that it is idle, and that its lifetime ends
    record = guard.account.register.records["code"]
    assert record.off_by == "lifetime"


# --- decisions ----------------------------------------------------------------------------------------

LIFE = Lifecycle(idle=15 * MINUTE, grace=10 * MINUTE, max_lifetime=timedelta(days=9))


def _quiet(now_minutes: int, since: int, used: int | None = None) -> Evidence:
    at = START + now_minutes * MINUTE
    used_at = None if used is None else START + used * MINUTE
    return Evidence(Kind.QUIET, since=START + since * MINUTE, until=at, used_at=used_at)


def _marks(*looks: tuple[int, Evidence]) -> list[Tell | None]:
    """Return the notice of each decision, one after the other."""
    record, notices = Record(name="chat"), list[Tell | None]()
    for minutes, evidence in looks:
        decision = decide(ENDPOINT, LIFE, record, evidence, START + minutes * MINUTE)
        record = decision.record
        notices.append(decision.tell)
    return notices


def test_a_mark_is_announced_again_only_after_use_and_twice_a_day() -> None:
    day = 24 * 60
    assert _marks(
        (20, _quiet(20, 5)),
        (40, _quiet(40, 25)),  # a lost minute at 24
        (60, _quiet(60, 45, used=44)),  # a request at 44, which was shown late
        (65, Evidence(Kind.TRAFFIC)),
        (90, _quiet(90, 70)),  # the third of this day
        (20 + day, _quiet(20 + day, 5 + day)),
    ) == [Tell.IDLE_SOON, None, Tell.IDLE_SOON, None, None, Tell.IDLE_SOON]


def test_the_fourth_notice_of_a_day_would_be_that_it_is_off_and_is_left_out() -> None:
    now = START + timedelta(hours=5)
    sent = tuple(now - minutes * MINUTE for minutes in (200, 100, 30))
    gone = Record("chat", ENDPOINT.arn, START, off_at=now, off_by=OffBy.LIFETIME, notices=sent)
    assert decide(None, LIFE, gone, Evidence(Kind.UNKNOWN), now).tell is None
    fewer = decide(None, LIFE, replace(gone, notices=sent[1:]), Evidence(Kind.UNKNOWN), now)
    assert (fewer.tell, fewer.record.notices) == (Tell.GONE, (*sent[1:], now))
    a_day_later = now + timedelta(days=1)
    assert decide(None, LIFE, gone, Evidence(Kind.UNKNOWN), a_day_later).tell is Tell.GONE


def test_it_stays_unknown_for_status_until_its_quiet_lasts() -> None:
    unknown = Evidence(Kind.UNKNOWN)
    record = Record(name="chat")
    seen = []
    for minutes, evidence in (
        (20, unknown),
        (40, _quiet(40, 25)),
        (45, unknown),
        (70, _quiet(70, 45)),
        (75, Evidence(Kind.UNKNOWN)),
        (80, Evidence(Kind.TRAFFIC)),
    ):
        record = decide(ENDPOINT, LIFE, record, evidence, START + minutes * MINUTE).record
        seen.append(record.unknown_since and (record.unknown_since - START) // MINUTE)
    assert seen == [20, 20, 20, None, 75, None]


def test_a_budget_that_moves_with_the_instances_is_announced_once() -> None:
    """Two instances halve the time that is left; autoscaling goes to and fro."""
    life = Lifecycle(max_lifetime=timedelta(days=9), budget_usd=100.0, usd_per_hour=20.0)
    record, notices = Record(name="chat"), list[Tell]()
    for step in range(70):
        endpoint = replace(ENDPOINT, instances=4 if step % 2 else 2)
        now = START + step * 5 * MINUTE
        decision = decide(endpoint, life, record, Evidence(Kind.TRAFFIC), now)
        record = decision.record
        notices += [decision.tell] if decision.tell else []
    assert notices == [Tell.LIMIT_SOON]
