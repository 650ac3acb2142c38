"""The shipped guard through simulated worlds: its promises hold, and each defect once found stays fixed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.guard.simulator.campaign import run_batch
from tests.guard.simulator.kinds import MIXED
from tests.guard.simulator.making import BEGIN, MINUTE, off_after, plan, run, world
from tests.guard.simulator.worlds.traffic import HOUR
from tests.guard.simulator.worlds.world import CloudWatch, Flap, Lambdas, Plan, World

WORLDS = 50


def test_no_promise_is_broken_in_seeded_worlds() -> None:
    tally = run_batch(MIXED, range(WORLDS))
    assert tally.broken == []
    assert tally.idle_offs > WORLDS / 2


def test_no_promise_is_broken_in_worlds_in_which_one_was() -> None:
    """Of 10,000 worlds: an idle time raised after the mark; a reason that was another's."""
    assert run_batch(MIXED, (1944, 4965, 5579, 7267)).broken == []


def _intact(given: World) -> float:
    """Run a world in which every promise must hold; return the minutes from BEGIN to its first life's end."""
    guard, verdict = run(given)
    assert verdict.broken == []
    return off_after(guard)


def _copies(given: Plan) -> Plan:
    return replace(given, components=True, traffic=(("code-copy-0", given.traffic[0][1]),))


# --- the last line: schedules that need no code of ours -----------------------------------------------


@pytest.mark.parametrize("owner", ["direct", "stack"])
@pytest.mark.parametrize("components", [False, True])
def test_with_the_functions_dead_the_schedule_still_ends_it(owner: str, components: bool) -> None:
    given = plan(owner=owner, lifetime_hours=2.0)
    given = _copies(given) if components else given
    minutes = _intact(world(given, lambdas=Lambdas(dead=True)))
    assert 120 <= minutes <= 120 + 30 + 20


@pytest.mark.parametrize("status", ["Creating", "Updating", "SystemUpdating"])
def test_the_schedule_tries_again_where_its_first_shot_is_refused(status: str) -> None:
    flap = Flap(BEGIN + 110 * MINUTE, BEGIN + 145 * MINUTE, status)
    creating = 140 * MINUTE if status == "Creating" else 5 * MINUTE
    given = plan(lifetime_hours=2.0, flaps=(flap,), creating_s=creating)
    assert 140 <= _intact(world(given, lambdas=Lambdas(dead=True))) <= 160


def test_a_stack_that_is_busy_does_not_outlive_its_limit() -> None:
    given = plan(owner="stack", lifetime_hours=2.0, stack_faults=((BEGIN, BEGIN + 24 * HOUR),))
    assert _intact(world(given)) <= 120 + 40


def test_a_stack_whose_deletion_did_nothing_is_turned_off_all_the_same() -> None:
    _intact(world(plan(owner="stack", lies=2)))


# --- quiet, traffic, unknown --------------------------------------------------------------------------


def test_a_stream_of_eight_minutes_that_shows_only_its_start_is_not_cut() -> None:
    # It arrives just after the mark, and nothing but its arrival is ever measured.
    stream = (26 * MINUTE, 34 * MINUTE)
    rules = CloudWatch(concurrency=False, zeros=False)
    assert _intact(world(plan((400, 410), stream), cloudwatch=rules)) >= 26 + 25


@pytest.mark.parametrize("second", range(0, 660, 30))
def test_a_request_in_the_last_minute_of_the_grace_saves_it(second: int) -> None:
    # The sweep is at 55 s past the minute: the end of the grace is not the end of a minute.
    given = plan((400, 410), (30 * MINUTE + second, 31 * MINUTE + second), grace_minutes=10)
    rules = CloudWatch(lag_s=50, concurrency=False)
    result = world(given, cloudwatch=rules, begin=BEGIN + 55 - 600)
    _intact(result)


@pytest.mark.parametrize("second", range(0, 330, 15))
def test_a_request_just_before_the_mark_is_seen_after_it(second: int) -> None:
    # Idle is as short as a sweep, and CloudWatch shows the request only after the mark.
    given = plan((400, 410), (10 * MINUTE + second, 11 * MINUTE + second), idle_minutes=5, grace_minutes=12)
    _intact(world(given, cloudwatch=CloudWatch(lag_s=119, concurrency=False)))


def test_a_warning_of_the_limit_does_not_delay_the_end_of_idleness() -> None:
    # Marked at 25, due at 35 or 40 minutes; the limit's warning falls in between.
    for hours in (1.0, 1.05, 1.1, 1.15, 1.2):
        _intact(world(plan((400, 410), lifetime_hours=hours)))


@pytest.mark.parametrize("lag_s", [180, 240, 300])
def test_metrics_that_come_five_minutes_late_still_prove_quiet(lag_s: int) -> None:
    minutes = _intact(world(plan((400, 410)), cloudwatch=CloudWatch(lag_s=lag_s)))
    assert minutes <= 60


# --- leases, names, owners ----------------------------------------------------------------------------


def test_a_foreign_endpoint_that_takes_the_name_is_left_alone() -> None:
    theirs = plan(owner="foreign", created_at=BEGIN + HOUR)
    for lag_s in (0, 30 * MINUTE):
        guard, verdict = run(world(plan(lifetime_hours=2.0), theirs, tag_lag_s=lag_s))
        assert verdict.counts["foreign"] == 0
        assert guard.account.sagemaker.lives[-1].deleting_at is None


def test_an_old_schedule_never_meets_the_next_endpoint_of_its_name() -> None:
    busy = [(at, at + 5) for at in range(HOUR + 400, 20 * HOUR, 300)]
    again = plan(*busy, created_at=BEGIN + HOUR, lifetime_hours=15.0)
    guard, verdict = run(world(plan(lifetime_hours=2.0), again))
    assert verdict.counts["survivors"] == 0
    assert off_after(guard, 1) >= (1 + 15) * 60
