"""Arithmetic of host or call: costs, the rate at which they are equal, what an instance must serve."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from peagle_bench.decide.costs import (
    SECONDS_PER_MONTH,
    Hosting,
    TokenCosts,
    Traffic,
    equal_at,
    exactly,
    gap_of,
    must_serve,
    usd_per_month,
    wins_above,
)
from peagle_bench.results.records import Interval

NEAR = 1e-6
RATES = st.floats(0.01, 1e6)
PRICES = st.floats(0.01, 50)
TRAFFIC = st.builds(
    Traffic,
    otps=RATES,
    input_per_output=st.floats(0, 100),
    busiest=st.none() | st.floats(1, 24),
    used=st.floats(0.05, 1),
)
HOSTINGS = st.builds(
    Hosting,
    instance_type=st.just("ml.g7e.2xlarge"),
    mode=st.just("p-eagle"),
    usd_per_hour=st.floats(0.5, 200).map(exactly),
    price_source=st.just(""),
    serves=st.floats(10, 1e5).map(exactly),
    fewest=st.integers(1, 4),
    on=st.floats(0.1, 1),
)
TOKENS = st.builds(TokenCosts, input=PRICES, output=PRICES, cached=st.none() | PRICES)


def hosting_usd(hosting: Hosting, traffic: Traffic, otps: float) -> float:
    known = hosting.instances(replace(traffic, otps=otps))
    assert known is not None
    return hosting.usd_per_month(known[0]).value


@given(TOKENS, st.floats(0, 1e4), st.floats(0, 1e4), st.floats(0, 1))
def test_tokens_cost_what_their_kinds_cost(
    tokens: TokenCosts, read: float, written: float, share: float
) -> None:
    cached = read * share
    parts = tokens.usd(read - cached, 0) + tokens.usd(cached, 0, cached) + tokens.usd(0, written)
    assert tokens.usd(read, written, cached) == pytest.approx(parts)
    if tokens.cached is None:
        assert tokens.usd(read, written, cached) == pytest.approx(tokens.usd(read, written))


@given(TRAFFIC, HOSTINGS, TOKENS)
def test_the_cheaper_side_changes_at_the_rate_and_not_before(
    traffic: Traffic, hosting: Hosting, tokens: TokenCosts
) -> None:
    each = exactly(tokens.of(traffic))
    here = usd_per_month(traffic.otps, each).value - hosting_usd(hosting, traffic, traffic.otps)
    assume(abs(here) > NEAR * usd_per_month(traffic.otps, each).value)
    above = wins_above(hosting, traffic, each)
    steps = [traffic.otps * factor for factor in (1, 1.1, 2, 5, 30, 1e4)]
    if above is None:
        assert all(usd_per_month(at, each).value < hosting_usd(hosting, traffic, at) for at in steps)
        return
    for at, wins in ((above.value * (1 + NEAR), True), (above.value * (1 - NEAR), False)):
        assert (usd_per_month(at, each).value > hosting_usd(hosting, traffic, at)) is wins
    between = [above.value + (traffic.otps - above.value) * part / 20 for part in range(1, 21)]
    gains = {usd_per_month(at, each).value > hosting_usd(hosting, traffic, at) for at in between}
    assert gains == {here > 0}


@given(TRAFFIC, HOSTINGS, TOKENS, st.floats(1.05, 1.9), st.floats(1.01, 1.99))
def test_between_the_ends_of_a_gap_calling_is_cheaper_and_outside_hosting_is(
    traffic: Traffic, hosting: Hosting, tokens: TokenCosts, carried: float, here: float
) -> None:
    """One instance carries more than pays for it, and less than pays for two."""
    each = exactly(tokens.of(traffic))
    break_even = equal_at(hosting, 1, each).value
    serves = exactly(break_even * carried * traffic.peak(hosting.on))
    hosting, traffic = replace(hosting, fewest=1, serves=serves), replace(traffic, otps=break_even * here)
    gap = gap_of(hosting, traffic, each)
    assert gap is not None
    assert (gap.instances, gap.high) == (1, pytest.approx(2 * break_even))
    assert gap_of(replace(hosting, fewest=2), traffic, each) is None
    for at, wins in (
        (gap.low * (1 - NEAR), True),
        (gap.low * (1 + NEAR), False),
        (gap.high * (1 - NEAR), False),
        (gap.high * (1 + NEAR), True),
    ):
        assert (usd_per_month(at, each).value > hosting_usd(hosting, traffic, at)) is wins


@given(TRAFFIC, HOSTINGS, TOKENS)
def test_an_instance_that_serves_what_it_must_makes_hosting_win(
    traffic: Traffic, hosting: Hosting, tokens: TokenCosts
) -> None:
    each = exactly(tokens.of(traffic))
    needed = must_serve(replace(hosting, serves=None), traffic, each)
    calling = usd_per_month(traffic.otps, each).value
    if needed is None:
        assert hosting.usd_per_month(hosting.fewest).value >= calling * (1 - NEAR)
        return
    enough, less = (replace(hosting, serves=exactly(needed * (1 + sign * NEAR))) for sign in (1, -1))
    assert hosting_usd(enough, traffic, traffic.otps) <= calling * (1 + NEAR)
    assert hosting_usd(less, traffic, traffic.otps) >= calling * (1 - NEAR)


@given(TRAFFIC, HOSTINGS, TOKENS, st.floats(1, 3), st.floats(1, 3))
def test_the_interval_covers_every_price_and_mix_inside_theirs(
    traffic: Traffic, hosting: Hosting, tokens: TokenCosts, wide: float, mixed: float
) -> None:
    value, usd = tokens.of(traffic), hosting.usd_per_hour.value
    doubtful = replace(hosting, usd_per_hour=Interval(usd, usd / wide, usd))
    rate = equal_at(doubtful, 1, Interval(value, value / mixed, value * mixed))
    assert rate.low <= rate.value <= rate.high
    assert rate.low == pytest.approx(rate.value / wide / mixed)
    assert rate.high == pytest.approx(rate.value * mixed)


@given(TRAFFIC, HOSTINGS, TOKENS)
def test_hours_off_lower_the_rate_and_need_as_many_instances_sooner(
    traffic: Traffic, hosting: Hosting, tokens: TokenCosts
) -> None:
    each = exactly(tokens.of(traffic))
    always = replace(hosting, on=1.0)
    assert equal_at(hosting, 1, each).value == pytest.approx(hosting.on * equal_at(always, 1, each).value)
    off, on = hosting.carries(traffic), always.carries(traffic)
    assert off is not None
    assert on is not None
    assert off.value <= on.value * (1 + NEAR)


def test_a_busiest_hour_leaves_headroom_and_the_share_used_does_not_count() -> None:
    hosting = Hosting("ml.g7e.2xlarge", "none", exactly(4.2), "", serves=exactly(700.0))
    steady = hosting.carries(Traffic(1.0, 0.0, busiest=1.0, used=0.1))
    peaky = hosting.carries(Traffic(1.0, 0.0, busiest=2.0, used=0.1))
    assert steady is not None
    assert peaky is not None
    assert (steady.value, peaky.value) == (pytest.approx(490), pytest.approx(245))


def test_all_traffic_comes_in_the_hours_also_if_the_recording_has_a_busiest_hour() -> None:
    """Eight hours a day: all tokens of the month come in a third of it, at three times the mean rate."""
    hosting = Hosting("ml.g7e.2xlarge", "none", exactly(4.2), "", serves=exactly(2100.0), on=1 / 3)
    assert hosting.instances(Traffic(1000.0, 0.0, busiest=1.0)) == (3, 3, 3)
    assert hosting.instances(Traffic(1000.0, 0.0, busiest=6.0)) == (5, 5, 5)


def test_a_rounding_error_buys_no_instance() -> None:
    hosting = Hosting("ml.g7e.2xlarge", "none", exactly(4.2), "", serves=exactly(1000.0))
    assert hosting.instances(Traffic(900.0, 0.0, used=0.3)) == (3, 3, 3)
    assert SECONDS_PER_MONTH == 2_628_000
