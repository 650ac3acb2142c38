"""Hypothesis looks for a world in which the guard breaks the waste bound, or a promise about traffic."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.guard.simulator.making import BEGIN, MINUTE, plan, run, world
from tests.guard.simulator.worlds.traffic import HOUR, Traffic
from tests.guard.simulator.worlds.world import CloudWatch, World

_requests = st.lists(
    st.tuples(st.integers(5 * MINUTE, 5 * HOUR), st.integers(1, 480)).map(lambda pair: (pair[0], sum(pair))),
    max_size=8,
)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """One endpoint, everything working, at any phase of the sweep, metrics at most two minutes late."""
    requests = draw(_requests)
    endpoint = plan(
        *requests,
        idle_minutes=draw(st.integers(5, 40)),
        grace_minutes=draw(st.integers(10, 30)),
        owner=draw(st.sampled_from(["direct", "stack"])),
        creating_s=draw(st.integers(1, 5 * MINUTE)),
        lifetime_hours=draw(st.floats(1, 8)),
    )
    rules = CloudWatch(
        lag_s=draw(st.integers(0, 120)), zeros=draw(st.booleans()), concurrency=draw(st.booleans())
    )
    return world(endpoint, cloudwatch=rules, begin=BEGIN - draw(st.integers(0, 599)))


@given(worlds())
def test_quiet_lasts_at_most_idle_grace_and_two_sweeps(given_world: World) -> None:
    _, verdict = run(given_world)
    assert verdict.broken == []


@given(
    requests=_requests,
    gap_at=st.integers(0, 4 * HOUR),
    gap_s=st.integers(MINUTE, HOUR),
    stale_at=st.integers(0, 4 * HOUR),
    stale_s=st.integers(MINUTE, 2 * HOUR),
    skew_s=st.integers(-120, 120),
    lag_s=st.integers(0, 300),
)
def test_no_gap_lag_or_skew_makes_traffic_look_like_quiet(
    requests: list[tuple[int, int]],
    gap_at: int,
    gap_s: int,
    stale_at: int,
    stale_s: int,
    skew_s: int,
    lag_s: int,
) -> None:
    rules = CloudWatch(
        lag_s=lag_s,
        skew_s=skew_s,
        concurrency=False,
        gaps=((BEGIN + gap_at, BEGIN + gap_at + gap_s),),
        stale=((BEGIN + stale_at, BEGIN + stale_at + stale_s),),
    )
    lanes = (("AllTraffic", Traffic()), ("B", plan(*requests).traffic[0][1]))
    _, verdict = run(world(plan(traffic=lanes), cloudwatch=rules))
    harm = [verdict.counts[name] for name in ("in_flight", "before_return", "too_early")]
    assert harm == [0, 0, 0], verdict.broken
