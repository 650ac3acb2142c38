"""What is sent: loads, counts, warm-ups and rounds; and plans that a workload cannot feed."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from peagle_bench.benchmark.plan import BenchPlan, check_plan, items_of, loads_of, options_of
from peagle_bench.results.records import Load
from tests.bench.benchmark.making import workload

CLOSED, OPEN = Load("closed", concurrency=2), Load("open", rate_per_s=2.5)


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
