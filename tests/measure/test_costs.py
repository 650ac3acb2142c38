"""Money from points: what is priced, what is left out, what serves a demand for the least."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.errors import SpecError
from peagle_sm.core.unit_cost import Demand
from peagle_sm.measure.costs import cheapest, cost_rows, head_value, serving_of
from peagle_sm.measure.points import Objective
from peagle_sm.measure.records import ClientHealth, Interval
from tests.measure.report.making import MODES, arm, closed, compared, comparison, point

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
    found = {(row.arm.mode, row.load.concurrency): row.usd_per_million for row in rows}
    assert found == {
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


def test_a_component_pays_its_share_of_the_instance() -> None:
    part = replace(
        ARMS["p-eagle"], component="p", instance_type="ml.p6-b200.48xlarge", usd_per_hour=80.0, gpus=1
    )
    serving, note = serving_of(part, POINTS["p-eagle", 1], 80.0, load_catalog())
    assert (serving.copies_per_instance, serving.gpus, note) == (8, 1, None)
    (row,) = cost_rows([part], [POINTS["p-eagle", 1]])
    assert row.usd_per_hour == 10.0


def test_a_component_whose_share_is_not_known_has_no_price() -> None:
    (row,) = cost_rows([replace(ARMS["p-eagle"], component="p")], [POINTS["p-eagle", 1]])
    assert row.usd_per_million is None
    assert "share of the instance's GPUs is not known" in row.price_source


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
    assert Objective(ttft_ms=500).misses(silent) == ("TTFT p95 not measured, asked 500 ms",)


def test_break_even_takes_the_paired_ratio_and_its_interval() -> None:
    rows = cost_rows(ARMS.values(), POINTS.values())
    pair = replace(comparison(ARMS["p-eagle"], ARMS["none"], closed(1)), ratio=Interval(4.0, 2.0, 8.0))
    (found,) = head_value(
        rows, [pair], head=ARMS["p-eagle"].name, baseline=ARMS["none"].name, training_usd=1000
    )
    base = 4.2 / 0.36
    assert found.break_even.saved_usd_per_million == pytest.approx(base * 0.75)
    assert found.soonest == pytest.approx(1000 / (base * 7 / 8))
    assert found.latest == pytest.approx(1000 / (base / 2))


def test_break_even_that_may_never_come() -> None:
    rows = cost_rows(ARMS.values(), POINTS.values())
    pair = replace(comparison(ARMS["p-eagle"], ARMS["none"], closed(1)), ratio=Interval(1.05, 0.98, 1.12))
    (found,) = head_value(
        rows, [pair], head=ARMS["p-eagle"].name, baseline=ARMS["none"].name, training_usd=1000
    )
    assert found.shown is False
    assert found.latest is None


def test_days_come_from_the_cheapest_fleets() -> None:
    rows = cost_rows(ARMS.values(), POINTS.values(), demand=Demand(otps=1600, headroom=0))
    (found,) = head_value(
        rows, [], head=ARMS["p-eagle"].name, baseline=ARMS["eagle3"].name, training_usd=705.6
    )
    assert found.break_even.saved_usd_per_hour == pytest.approx(7 * 4.2)  # 8 instances against 1
    assert found.break_even.days == pytest.approx(1.0)
    assert found.shown is None


def test_arms_that_share_no_load() -> None:
    results = compared()
    rows = cost_rows(results.arms, results.points)
    with pytest.raises(SpecError, match="share no load") as caught:
        head_value(rows, [], head="nobody", baseline=ARMS["none"].name, training_usd=1)
    assert "gpt-oss-20b-p-eagle" in caught.value.message
