from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from peagle_bench.compare.measurement import Setup, estimate, minutes_of
from peagle_bench.load import WorkItem
from peagle_sm.core.plan.resolve import Context
from peagle_sm.core.planning import Plan, make_plan
from tests.bench.compare.simulating import ALONE, EIGHT
from tests.service.setting import ACCOUNT, make_spec

ITEMS = tuple(WorkItem(f"p{n}", {"prompt": "x", "max_tokens": 100}) for n in range(98))


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(make_spec(), Context(ACCOUNT, "us-east-1", datetime(2026, 11, 20, tzinfo=UTC)))


def test_minutes_are_those_of_all_turns() -> None:
    alone = Setup(ITEMS, (ALONE,))
    assert minutes_of(alone, arms=3) == pytest.approx(100 * 3 * 100 * 0.010 / 60)
    both = Setup(ITEMS, (ALONE, EIGHT), blocks=6)
    requests = 12 * (8 + 8)
    assert minutes_of(both, arms=3) - minutes_of(alone, arms=3) == pytest.approx(
        requests * 3 / 8 * 100 * 0.020 / 60
    )


def test_the_price_is_that_of_all_arms_for_all_deployments(plan: Plan) -> None:
    assert plan.usd_per_hour is not None
    assert plan.max_usd is not None
    setup = Setup(ITEMS, (ALONE,))
    result = estimate([plan, plan, plan], setup, arms=4, deployments=2)
    assert result.usd_per_hour == pytest.approx(3 * plan.usd_per_hour)
    assert result.minutes == pytest.approx(2 * (15 + minutes_of(setup, 4)))
    assert result.usd == pytest.approx(3 * plan.usd_per_hour * result.minutes / 60)
    assert result.most_usd == pytest.approx(2 * 3 * plan.max_usd)
    assert result.price_sources == (plan.price_source,)


def test_an_unknown_price_stays_unknown(plan: Plan) -> None:
    nameless = replace(plan, usd_per_hour=None, max_usd=None, price_source="no price known")
    result = estimate([plan, nameless], Setup(ITEMS, (ALONE,)), arms=2, deployments=1)
    assert (result.usd_per_hour, result.usd, result.most_usd) == (None, None, None)
    assert result.price_sources == (plan.price_source, "no price known")
