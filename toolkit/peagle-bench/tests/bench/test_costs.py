"""Money from points: what is priced, what is left out, what serves a demand for the least."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from peagle_bench.load.points import Objective
from peagle_bench.report.costs import cheapest, cost_rows, rate_interval, serving_of
from peagle_bench.report.fleet import Demand
from peagle_bench.results.records import ClientHealth, RequestRecord
from peagle_sm.core.catalog import load_catalog
from tests.bench.compare.simulating import request
from tests.bench.report.making import MODES, arm, closed, point

DRAW = random.Random(3)
ARMS = {mode: arm(mode) for mode in MODES}
POINTS = {
    ("none", 1): replace(point(ARMS["none"], closed(1), DRAW), otps=100.0),
    ("eagle3", 1): replace(point(ARMS["eagle3"], closed(1), DRAW), otps=200.0),
    ("p-eagle", 1): replace(point(ARMS["p-eagle"], closed(1), DRAW), otps=400.0),
    ("p-eagle", 8): replace(point(ARMS["p-eagle"], closed(8), DRAW), otps=1600.0),
}


def test_every_point_has_its_price_by_token() -> None:
    rows = cost_rows(ARMS.values(), POINTS.values())
    by_name = {(row.arm.mode, row.load.concurrency): row.usd_per_million for row in rows}
    assert by_name == {
        ("none", 1): pytest.approx(4.2 / 0.36),
        ("eagle3", 1): pytest.approx(4.2 / 0.72),
        ("p-eagle", 1): pytest.approx(4.2 / 1.44),
        ("p-eagle", 8): pytest.approx(4.2 / 5.76),
    }
    best = cheapest(rows)
    assert best is not None
    assert (best.arm.mode, best.load.label) == ("p-eagle", "c=8")


def test_instances_share_the_load_and_the_price() -> None:
    two = replace(ARMS["p-eagle"], instance_count=2, usd_per_hour=8.4)
    (row,) = cost_rows([two], [POINTS["p-eagle", 8]], demand=Demand(otps=1600, headroom=0))
    assert row.usd_per_hour == 8.4
    assert row.usd_per_million == pytest.approx(8.4 / 5.76)
    assert row.fleet is not None
    assert (row.fleet.instances, row.fleet.gpus) == (2, 2)


ONE_COPY = replace(
    ARMS["p-eagle"],
    component="p",
    instance_type="ml.p6-b200.48xlarge",
    usd_per_hour=80.0,
    gpus=1,
    copies=1,
)


def test_a_component_pays_its_share_of_the_instance() -> None:
    serving, note = serving_of(ONE_COPY, POINTS["p-eagle", 1], 80.0, load_catalog())
    assert (serving.copies_per_instance, serving.gpus, note) == (8, 1, None)
    (row,) = cost_rows([ONE_COPY], [POINTS["p-eagle", 1]])
    assert row.usd_per_hour == 10.0


def test_the_copies_of_a_component_share_its_load() -> None:
    """Eight copies, one GPU each, fill the instance: its whole price is of the whole rate."""
    part = replace(ONE_COPY, copies=8)
    whole = replace(part, component=None, gpus=None, copies=None)
    rows = cost_rows([part], [POINTS["p-eagle", 1]]), cost_rows([whole], [POINTS["p-eagle", 1]])
    assert [row.usd_per_hour for (row,) in rows] == [80.0, 80.0]
    assert rows[0][0].usd_per_million == pytest.approx(rows[1][0].usd_per_million)
    serving, _ = serving_of(part, POINTS["p-eagle", 1], 80.0, load_catalog())
    assert serving.otps * serving.copies_per_instance == pytest.approx(POINTS["p-eagle", 1].otps)
    (unknown,) = cost_rows([replace(part, copies=None)], [POINTS["p-eagle", 1]])
    assert unknown.usd_per_million is None
    assert "number of its copies is unknown" in unknown.price_source


def test_a_component_whose_share_is_not_known_has_no_price() -> None:
    (row,) = cost_rows([replace(ARMS["p-eagle"], component="p")], [POINTS["p-eagle", 1]])
    assert row.usd_per_million is None
    assert "share of the instance's GPUs is unknown" in row.price_source


def test_what_is_not_billed_costs_nothing_by_token_either() -> None:
    (row,) = cost_rows([replace(ARMS["none"], usd_per_hour=0.0)], [POINTS["none", 1]])
    assert row.usd_per_million is None
    assert cheapest([row]) is None


def test_a_point_whose_client_was_late_is_not_priced() -> None:
    late = replace(POINTS["none", 1], client=ClientHealth(False, "late", 40.0, 1.0, None))
    assert cost_rows(ARMS.values(), [late]) == ()


def test_a_control_is_not_priced() -> None:
    assert cost_rows([replace(ARMS["none"], control=True)], [POINTS["none", 1]]) == ()


def test_an_objective_leaves_out_what_misses_it() -> None:
    rows = cost_rows(
        ARMS.values(), POINTS.values(), demand=Demand(otps=3000), objective=Objective(ttft_ms=62.5)
    )
    missed = {(row.arm.mode, row.load.concurrency): row.misses for row in rows}
    assert missed["p-eagle", 8][0].startswith("TTFT p95")
    best = cheapest(rows)
    assert best is not None
    assert best.load.concurrency == 1


def test_a_latency_that_was_not_measured_is_missed() -> None:
    silent = replace(POINTS["none", 1], ttft_ms=None)
    assert Objective(ttft_ms=500).misses(silent) == ("TTFT p95 not measured, limit 500 ms",)


def answer(tokens: int, seconds: float, error: str | None = None) -> RequestRecord:
    return request(ARMS["none"].name, "p", seconds=seconds, tokens=tokens, error=error)


def test_a_load_with_failed_requests_is_never_the_cheapest() -> None:
    broken = replace(POINTS["p-eagle", 8], requests=100, errors={"timeout": 60})
    rows = cost_rows(ARMS.values(), [broken, POINTS["p-eagle", 1]], demand=Demand(otps=100))
    assert rows[0].misses == ("60 of 100 requests failed",)
    assert rows[0].failed == 0.6
    best = cheapest(rows)
    assert best is not None
    assert best.load.concurrency == 1
    one = replace(broken, errors={"timeout": 1})
    assert cost_rows(ARMS.values(), [one])[0].misses == ()


def test_the_price_has_an_interval_and_a_price_of_a_real_day() -> None:
    requests = [answer(tokens, 1.0) for tokens in (90, 100, 110, 100) * 3]
    (row,) = cost_rows([ARMS["none"]], [POINTS["none", 1]], requests_of=lambda point: requests, used=0.25)
    assert row.usd_per_million is not None
    assert row.usd_low is not None
    assert row.usd_high is not None
    assert row.usd_low < row.usd_per_million < row.usd_high
    assert 1.05 < row.usd_high / row.usd_low < 1.12
    assert row.usd_used == pytest.approx(4 * row.usd_per_million)


def test_too_few_answers_give_no_interval() -> None:
    assert rate_interval([answer(10, 1.0)] * 7) is None
    assert rate_interval([answer(10, 1.0, error="timeout")] * 9) is None
    same = rate_interval([answer(10, 1.0)] * 8)
    assert same is not None
    assert (same.low, same.high) == (same.value, same.value)


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    rng, held = random.Random(5), 0
    for _ in range(400):
        lengths = [rng.lognormvariate(4, 0.6) for _ in range(40)]
        drawn = [answer(round(n), n / 100 * rng.lognormvariate(-0.02, 0.2)) for n in lengths]
        rate = rate_interval(drawn)
        assert rate is not None
        held += rate.low <= 100 <= rate.high
    assert 0.92 <= held / 400 <= 0.98
