"""Kinds of worlds: what happens in them, and that the guard keeps its promises there."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from random import Random

import pytest

from peagle_guard.aws import Query
from peagle_guard.boto_aws import ONCE
from tests.guard.simulator.campaign import run_batch
from tests.guard.simulator.fake_services.fake_aws import INVOKE_TIMEOUT_S, moment
from tests.guard.simulator.guard_run import run_guard, start
from tests.guard.simulator.kinds import KINDS, PLAIN, kind_world
from tests.guard.simulator.making import BEGIN, MINUTE, plan, world
from tests.guard.simulator.worlds.timetables import REPEATED_HOURS, repeated_hour
from tests.guard.simulator.worlds.traffic import HOUR, Traffic
from tests.guard.simulator.worlds.world import CloudWatch, Failing, Hang, Lambdas, Late, World

NOW = BEGIN + HOUR
WORLDS = 8
HELD = (PLAIN, *KINDS)
"""Kinds in which no promise is broken."""


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_world(kind: str) -> None:
    for seed in range(3):
        given = kind_world(kind, seed)
        assert given == kind_world(kind, seed)
        assert given.faults == {kind}
        assert all(planned.traffic for planned in given.plans)


@pytest.mark.parametrize("kind", HELD)
def test_no_promise_is_broken_in_worlds_of_a_kind(kind: str) -> None:
    tally = run_batch(kind, range(WORLDS))
    assert tally.broken == []
    assert tally.worlds == WORLDS <= tally.lives


# --- CloudWatch: two publishers ------------------------------------------------------------------------


def _points(given: World, metric: str, now: int, stat: str = "Sum") -> dict[int, float]:
    """One endpoint's datapoints that can be seen at a moment, by minutes after BEGIN."""
    run = start(given)
    run.account.events.run_until(now)
    dimensions: tuple[tuple[str, str], ...] = (("EndpointName", "code"),)
    if metric != "ApproximateBacklogSize":
        dimensions += (("VariantName", "AllTraffic"),)
    query = Query("q", "AWS/SageMaker", metric, dimensions, stat)
    points = run.aws.metric_data([query], moment(BEGIN), moment(now), None).items[0].points
    return {(int(at.timestamp()) - BEGIN) // MINUTE: value for at, value in points.items()}


def test_request_metrics_are_late_alone() -> None:
    late = Late(BEGIN, BEGIN + 2 * HOUR, 10 * MINUTE, 10 * MINUTE)
    given = world(plan((600, 610)), cloudwatch=CloudWatch(late=(late,)))
    assert max(_points(given, "CPUUtilization", NOW)) == 58
    assert max(_points(given, "Invocations", NOW)) == 48
    assert _points(given, "Invocations", NOW)[10] == 1


def test_lateness_may_grow() -> None:
    late = Late(BEGIN, BEGIN + HOUR, 0, 30 * MINUTE)
    given = world(plan(), cloudwatch=CloudWatch(late=(late,), lag_s=0))
    seen = [max(_points(given, "Invocations", BEGIN + at * MINUTE)) for at in (15, 30, 60)]
    assert seen == [9, 19, 39]


def test_lost_request_metrics_never_come_and_the_utilisation_does() -> None:
    lost = (BEGIN + 20 * MINUTE, BEGIN + 44 * MINUTE)
    given = world(plan((1500, 1510)), cloudwatch=CloudWatch(request_gaps=(lost,)))
    assert set(range(20, 44)).isdisjoint(_points(given, "Invocations", NOW))
    assert set(range(20, 44)) <= set(_points(given, "CPUUtilization", NOW))
    run = run_guard(given)
    assert run.account.metrics.first_shown("code", BEGIN + 1500, BEGIN + 1510) is None


@pytest.mark.parametrize(("enhanced", "requests"), [(False, 60), (True, 300)])
def test_the_publish_interval_is_the_hosts_and_with_enhanced_metrics_the_requests_too(
    enhanced: bool, requests: int
) -> None:
    given = world(plan((630, 640), publish_s=300, enhanced=enhanced))
    assert list(_points(given, "CPUUtilization", NOW))[:4] == [5, 10, 15, 20]
    points = _points(given, "Invocations", NOW)
    assert points[10] == 1
    assert (11 in points) == (requests == 60)
    last = replace(given, cloudwatch=CloudWatch(stamped_at_end=True))
    assert list(_points(last, "CPUUtilization", NOW))[:3] == [9, 14, 19]


def test_samples_follow_the_instances_and_jitter_moves_them() -> None:
    given = world(plan(instances=((BEGIN, 1), (BEGIN + 30 * MINUTE, 2))))
    points = _points(given, "CPUUtilization", NOW, "SampleCount")
    assert (points[29], points[30]) == (1, 2)
    moved = world(plan(), cloudwatch=CloudWatch(jitter_every=7))
    points = _points(moved, "CPUUtilization", NOW, "SampleCount")
    assert set(points.values()) == {1, 2}
    assert sum(points.values()) == pytest.approx(len(range(5, 59)), abs=1)


def test_an_async_endpoint_writes_a_backlog_and_no_invocations() -> None:
    given = world(plan((600, 700), async_config=True))
    assert _points(given, "Invocations", NOW) == {}
    backlog = _points(given, "ApproximateBacklogSize", NOW)
    assert [backlog[at] for at in (9, 10, 11, 12)] == [0, 1, 1, 0]


def test_the_gpu_shows_a_stream_while_it_runs() -> None:
    given = world(plan((600, 6000)), cloudwatch=CloudWatch(concurrency=False))
    gpu, invocations = _points(given, "GPUUtilization", NOW), _points(given, "Invocations", NOW)
    assert (gpu[9], gpu[40]) == (0, 40)
    assert (invocations[10], invocations[40]) == (1, 0)


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
