"""The controller of K: what it never does, whatever it sees, and what it does on made-up engines."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from peagle_runtime_k.controller import BLIND_S, DWELL_S, UNSEEN_S, Controller, Steps

from peagle_bench.tune.loads import ROUNDS
from scripts.bench.tuner import traces_page
from scripts.bench.tuner.controlled import control, simulate_controller

MOST_K, MOST_N = 7, 12
bounds_of = st.one_of(
    st.integers(1, MOST_K).map(lambda k: [0, *[k] * MOST_N]),
    st.lists(st.integers(0, MOST_K), min_size=MOST_N, max_size=MOST_N).filter(any).map(lambda ks: [0, *ks]),
)


@st.composite
def steps_of(draw: st.DrawFn) -> Steps:
    k, running, steps = draw(st.integers(0, MOST_K)), draw(st.integers(1, MOST_N)), draw(st.integers(1, 400))
    survived, left = [], running * steps
    for _ in range(k):
        left = draw(st.integers(0, left))
        survived.append(left)
    seconds = draw(st.floats(1e-6, 30, allow_nan=False))
    return Steps(running, k, steps, seconds, survived, draw(st.booleans()))


event = st.tuples(st.floats(0.01, 7), st.integers(1, MOST_N), st.one_of(st.none(), steps_of()))


@settings(max_examples=200)
@given(bounds_of, st.lists(event, max_size=60))
def test_k_stays_within_the_bounds_and_keeps_its_distance(
    bounds: list[int], events: list[tuple[float, int, Steps | None]]
) -> None:
    controller, now, changed = Controller(bounds), 0.0, -1e9
    k = controller.decide(now, 1)
    for wait, running, steps in events:
        now += wait
        if steps is not None:
            controller.record(steps)
        before, k = k, controller.decide(now, running)
        assert 0 <= k <= bounds[running]
        if k != before:
            # Only the table's limit changes K within the least time between two changes.
            assert now - changed >= DWELL_S or before > bounds[running]
            changed = now


def run(
    goodput_ms: Callable[[int, int], float],
    survival: float,
    loads: list[int],
    bounds: list[int],
    controller: Controller | None = None,
    now: float = 0.0,
) -> tuple[list[int], Controller]:
    """Return K every half second, on an engine whose step takes ``goodput_ms(n, K)`` milliseconds."""
    controller, ks = controller or Controller(bounds), list[int]()
    k = controller.decide(now, loads[0])
    for n in loads:
        seconds = goodput_ms(n, k) / 1000
        steps = max(1, round(0.5 / seconds))
        survived = [round(n * steps * survival**position) for position in range(1, k + 1)]
        now += 0.5
        controller.record(Steps(n, k, steps, steps * seconds, survived))
        ks.append(k)
        k = controller.decide(now, n)
    return ks, controller


def compute_bound(n: int, k: int) -> float:
    """Milliseconds of a step that grows with every token in it: the best K is 1 or 2."""
    return 2 + 1.5 * n * (k + 1)


def rate(ms: Callable[[int, int], float], survival: float, n: int, k: int) -> float:
    return sum(survival**i for i in range(k + 1)) * n / ms(n, k)


@pytest.mark.parametrize("survival", [0.3, 0.6, 0.9])
def test_it_finds_the_k_of_a_load_without_a_table(survival: float) -> None:
    bounds = [0, *[MOST_K] * 8]
    ks, controller = run(compute_bound, survival, [4] * 400, bounds)
    best = max(range(MOST_K + 1), key=lambda k: rate(compute_bound, survival, 4, k))
    late = ks[-100:]
    lost = [1 - rate(compute_bound, survival, 4, k) / rate(compute_bound, survival, 4, best) for k in late]
    assert float(np.median(lost)) < 0.02, (best, late)
    assert controller.why == ""


def test_it_follows_the_text() -> None:
    """Acceptance falls and rises again: K does, too."""
    bounds = [0, *[MOST_K] * 8]

    def ms(n: int, k: int) -> float:
        return 6 + 0.4 * k

    easy, controller = run(ms, 0.9, [2] * 200, bounds)
    hard, controller = run(ms, 0.2, [2] * 200, bounds, controller, 100)
    again, _ = run(ms, 0.9, [2] * 600, bounds, controller, 200)
    assert np.mean(hard[-40:]) < 3 < 5 < np.mean(easy[-40:])
    assert np.mean(again[-40:]) > 5


def test_it_stays_with_the_table_where_nothing_says_otherwise() -> None:
    table = [0, 7, 7, 7, 3, 3, 3, 1, 1]
    ks, controller = run(lambda n, k: 5.0, 0.8, [1] * 30 + [4] * 30 + [8] * 30, table)
    assert ks[29] == 7
    assert ks[59] == 3
    assert ks[89] == 1
    assert controller.switches == 2


def stalls_at_zero(n: int, k: int) -> float:
    """vllm#49548: a tenth of the throughput at K=0, though no draft would be the best there."""
    return 2 + 3.0 * n * (k + 1) if k else 10 * (2 + 3.0 * n)


def test_a_k_at_which_the_engine_stalls_is_not_used_again() -> None:
    ks, controller = run(stalls_at_zero, 0.1, [8] * 1200, [0, *[MOST_K] * 8])
    assert controller.banned == {0}
    visits = sum(after == 0 != before for before, after in pairwise(ks))
    assert visits == 1
    assert ks.count(0) <= 2 * DWELL_S + 2
    assert set(ks[-100:]) <= {1, 2}


def test_a_slow_machine_bans_no_k() -> None:
    """From one moment on every step takes five times as long."""

    def ms(n: int, k: int) -> float:
        return 5 + 0.5 * n * (k + 1)

    _, controller = run(ms, 0.6, [4] * 100, [0, *[MOST_K] * 8])
    _, controller = run(lambda n, k: 5 * ms(n, k), 0.6, [4] * 1200, [0, *[MOST_K] * 8], controller, 50)
    assert controller.banned == set()


def test_at_zero_it_looks_whether_drafts_are_accepted_again() -> None:

    def ms(n: int, k: int) -> float:
        return 2 + 3.0 * n * (k + 1)

    ks, controller = run(ms, 0.05, [8] * 600, [0, *[3] * 8])
    assert ks[-1] == 0
    later, _ = run(ms, 0.99, [8] * round(8 * BLIND_S), [0, *[3] * 8], controller, 300)
    assert any(later)


def test_it_is_off_when_it_cannot_see_and_says_why() -> None:
    controller = Controller([0, 7, 3])
    assert controller.why == "no step was measured yet"
    assert controller.decide(0, 1) == 7
    controller.record(Steps(1, 7, 100, 1.0, [50] * 7))
    assert controller.why == ""
    controller.unseen(UNSEEN_S + 1, "every step computes a prompt")
    assert controller.why == "every step computes a prompt"
    assert (controller.decide(60, 1), controller.decide(60, 2)) == (7, 3)
    controller.record(Steps(1, 7, 100, 1.0, [50] * 7))
    assert controller.why == ""


def test_one_long_step_changes_nothing() -> None:
    controller = Controller([0, *[MOST_K] * 4])
    for _ in range(20):
        controller.record(Steps(2, 7, 100, 1.0, [180, 160, 140, 120, 100, 80, 60]))
    before = controller.goodput(2, 7)
    controller.record(Steps(2, 7, 1, 30.0, [2] * 7))
    assert controller.goodput(2, 7) == pytest.approx(before, abs=0.05)


@pytest.mark.campaign
def test_it_loses_little_on_traces_of_load() -> None:
    outcome = simulate_controller(15, 7, traces_page.NOISE, rounds=ROUNDS)
    assert traces_page.controller_misses(outcome) == []
    # 0.2% more than the table's over 300 traces (docs/how-to/k-by-load.md), and 0.3% over these 15.
    assert outcome.within.mean() < outcome.table.mean() + 0.005
    assert outcome.without.mean() < 0.3 * outcome.largest.mean()


def test_a_stall_costs_one_visit_in_the_simulation_too() -> None:
    from scripts.bench.tuner.worlds import draw_world

    surface = draw_world(np.random.default_rng([7, 1]), (8,), 11)
    found = control(
        surface,
        np.full(120, 8.0),
        [0, *[11] * 8],
        traces_page.NOISE,
        np.random.default_rng(1),
        slower=lambda k: 10.0 if k == 0 else 1.0,
    )
    assert found.ks.count(0) <= 2 * DWELL_S + 2
    assert found.closest_s >= DWELL_S
