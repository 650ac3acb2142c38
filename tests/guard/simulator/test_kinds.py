"""Kinds of worlds: what happens in them, and that the guard keeps its promises there."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from random import Random

import pytest

from peagle_guard.boto_aws import ONCE
from tests.guard.simulator.campaign import run_batch
from tests.guard.simulator.fake_services.fake_aws import INVOKE_TIMEOUT_S
from tests.guard.simulator.guard_run import run_guard, start
from tests.guard.simulator.kinds import KINDS, MIXED, PLAIN, kind_world
from tests.guard.simulator.making import BEGIN, MINUTE, plan, world
from tests.guard.simulator.worlds.timetables import REPEATED_HOURS, repeated_hour
from tests.guard.simulator.worlds.traffic import HOUR, Traffic
from tests.guard.simulator.worlds.world import Failing, Hang, Lambdas

WORLDS = 8
HELD = (PLAIN, *KINDS)
"""Kinds in which no promise is broken."""


@pytest.mark.parametrize("kind", [MIXED, *KINDS])
def test_the_same_seed_gives_the_same_world(kind: str) -> None:
    for seed in range(3):
        given = kind_world(kind, seed)
        assert given == kind_world(kind, seed)
        assert kind == MIXED or given.faults == {kind}
        assert all(planned.traffic for planned in given.plans)


@pytest.mark.parametrize("kind", HELD)
def test_no_promise_is_broken_in_worlds_of_a_kind(kind: str) -> None:
    tally = run_batch(kind, range(WORLDS))
    assert tally.broken == []
    assert tally.worlds == WORLDS <= tally.lives


@pytest.mark.campaign
@pytest.mark.parametrize("seeds", [range(50, 150), (4504, 5780)], ids=["100 more", "250 endpoints"])
def test_no_promise_is_broken_in_more_mixed_worlds(seeds: Sequence[int]) -> None:
    assert run_batch(MIXED, seeds).broken == []


# --- events -------------------------------------------------------------------------------------------


def test_late_sweeps_run_after_the_time_in_their_event() -> None:
    endpoint = plan((400, 410))
    on_time = run_guard(world(endpoint)).account.sagemaker.lives[0].deleting_at
    late = run_guard(world(endpoint, lambdas=Lambdas(delays_s=(180,)))).account.sagemaker.lives[0].deleting_at
    assert on_time is not None
    assert late is not None
    assert late - BEGIN - 180 == pytest.approx(on_time - BEGIN, abs=601)
    assert (late - BEGIN) % 300 == 180


def test_every_firing_comes_twice_where_events_are_redelivered() -> None:
    given = world(plan(owner="stack", lifetime_hours=1.0), lambdas=Lambdas(dead=True, redelivered=True))
    run = start(given)
    delivered: list[int] = []
    run.account.events.run_until(BEGIN)
    run.account.scheduler.arm("other", BEGIN + 600, BEGIN + 1200, delivered.append)
    run.account.events.run_until(BEGIN + 1300)
    assert delivered == [BEGIN + 600, BEGIN + 650]


def test_what_is_on_its_way_comes_although_the_schedule_moved() -> None:
    run = start(world(plan(), delivery_s=300))
    delivered: list[int] = []
    run.account.scheduler.arm("other", BEGIN + 600, BEGIN + 1200, delivered.append)
    run.account.events.run_until(BEGIN + 700)
    run.account.scheduler.arm("other", BEGIN + 6000, BEGIN + 7000, delivered.append)
    run.account.events.run_until(BEGIN + 2000)
    assert delivered == [BEGIN + 900]


def test_a_step_fails_for_its_time_from_its_nth_call_on() -> None:
    copies = tuple((f"code-copy-{n}", Traffic()) for n in range(3))
    endpoint = plan(components=True, traffic=copies)
    given = world(endpoint, failing=(Failing("DeleteInferenceComponent", 2, 14 * MINUTE),))
    run = run_guard(given)
    assert run.account.first_failures.keys() == {"DeleteInferenceComponent"}
    failed = run.account.first_failures["DeleteInferenceComponent"]
    life = run.account.sagemaker.lives[0]
    assert life.turning_off_at == failed
    assert life.deleting_at is not None
    assert life.deleting_at >= failed + 14 * MINUTE


def test_a_hanging_switch_takes_the_sweeps_time() -> None:
    assert vars(ONCE)["read_timeout"] == INVOKE_TIMEOUT_S
    given = world(plan(), hangs=(Hang("code", BEGIN, BEGIN + 24 * HOUR),))
    run = run_guard(given)
    assert run.account.sagemaker.lives[0].ended_by == "schedule"
    assert run.account.calls["Invoke"] > 3


@pytest.mark.parametrize(("zone", "change", "back"), REPEATED_HOURS)
def test_open_times_end_at_the_last_moment_with_a_reading_inside(zone: str, change: str, back: int) -> None:
    # A closing at the first reading that comes twice is that reading; inside the hour its second reading.
    goes_back = int(datetime.fromisoformat(change).replace(tzinfo=UTC).timestamp())
    seen = set()
    for seed in range(200):
        hours, begin, end = repeated_hour(Random(seed))
        if hours.text.endswith(zone):
            closes = next(stop for _, stop in hours.open if begin < stop < end)
            seen.add((closes - goes_back) // MINUTE)
    assert seen == {-back, -back - 30, back // 2, back}
