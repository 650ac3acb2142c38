"""What is sent: loads, counts, warm-ups and rounds; and plans that a workload cannot feed."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest

from peagle_bench.benchmark.plan import BenchPlan, check_plan, config_of, items_of, loads_of, options_of
from peagle_bench.results.records import Load
from peagle_sm.core.errors import SpecError
from tests.bench.benchmark.making import arm, workload

CLOSED, OPEN = Load("closed", concurrency=2), Load("open", rate_per_s=2.5)


@pytest.mark.parametrize(
    ("plan", "prompts", "expected"),
    [
        (BenchPlan((CLOSED,)), 0, "has no prompts"),
        (BenchPlan(loads_of([1, 32], [])), 20, "concurrency 32 with 20 requests"),
        (BenchPlan((CLOSED,), requests=3, seconds=4.0), 20, "both given"),
    ],
)
def test_a_plan_that_cannot_be_fed_is_refused(plan: BenchPlan, prompts: int, expected: str) -> None:
    with pytest.raises(SpecError, match=expected) as raised:
        check_plan(plan, workload(prompts))
    assert raised.value.next_step


def test_prompts_repeat_with_another_salt_where_a_load_needs_more() -> None:
    plan = BenchPlan(loads_of([32], []), requests=64)
    check_plan(plan, workload(20))
    items = list(islice(items_of(plan, workload(20), plan.loads[0], "s"), 32 + 64))
    assert len({(item.prompt_id, item.body["cache_salt"]) for item in items[32:]}) == 64


def test_the_warm_up_takes_nothing_from_the_measurement() -> None:
    plan = BenchPlan((CLOSED,))
    items = list(items_of(plan, workload(4, turns=True), CLOSED, "s"))
    assert [item.prompt_id for item in items] == ["p/3#warm-up", "p/2#warm-up", *(f"p/{n}" for n in range(4))]
    warm_up, measured = ({item.body["cache_salt"] for item in part} for part in (items[:2], items[2:]))
    assert len(warm_up) == len(measured) == 1
    assert warm_up != measured
    assert [item.then is None for item in items] == [True, True, False, False, False, False]


def test_an_open_loop_warms_up_for_a_second() -> None:
    plan = BenchPlan((OPEN,))
    assert options_of(plan, workload(9), OPEN, 5.0).warm_up_requests == 3
    assert options_of(plan, workload(9), OPEN, 5.0).requests == 9
    timed = options_of(replace(plan, seconds=7.0), workload(9), OPEN, 5.0)
    assert (timed.requests, timed.seconds, timed.warm_up_requests, timed.began) == (None, 7.0, 3, 5.0)


def test_loads_stand_once_each() -> None:
    assert [load.label for load in loads_of([8, 1], [2.5])] == ["c=8", "c=1", "2.5 req/s"]
    for concurrencies in ([], [1, 1]):
        with pytest.raises(SpecError, match="one or more, each once"):
            loads_of(concurrencies, [])


def test_the_configuration_holds_all_that_changes_a_figure() -> None:
    plan, work = BenchPlan((CLOSED,)), workload()
    config = config_of(plan, work, arm())
    for other in (
        config_of(replace(plan, seed=1), work, arm()),
        config_of(replace(plan, loads=(OPEN,)), work, arm()),
        config_of(plan, workload(7), arm()),
        config_of(plan, work, arm(deployment="d2")),
    ):
        assert other != config
    assert config == config_of(plan, work, arm())
