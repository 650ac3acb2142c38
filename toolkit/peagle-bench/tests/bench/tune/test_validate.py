"""Validation of a table of K, with the product's own alternation, on engines in virtual time."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

import pytest

from peagle_bench.compare.alternating import OnRun, TurnContext
from peagle_bench.load import Silent, Timeouts, WorkItem
from peagle_bench.results.records import (
    ArmRecord,
    Interval,
    Load,
    Record,
    RequestRecord,
    TableCheck,
)
from peagle_bench.tune.validate import (
    Validation,
    is_accepted,
    reason_of,
    validated_loads,
    verdict_of,
)
from tests.bench.compare.virtual import FakeTarget, VirtualTime
from tests.bench.tune.stepping import SteppingEngine, SteppingEngines

TABLE = ArmRecord("table", "p-eagle", 7, "tune-demo-p-eagle-table")
FIXED = ArmRecord("fixed", "p-eagle", 3, "tune-demo-p-eagle-k3")
ITEMS = [WorkItem(f"p{n}", {"prompt": f"prompt {n}"}) for n in range(60)]
#: What the rates of `SteppingEngine` ask for at 1, 2, 4 and 8 requests in flight.
GOOD = ((1, 2, 7), (3, 4, 3), (5, 8, 1))
LOADS = (1, 2, 4, 8)


def validated(
    table: SteppingEngine, fixed: SteppingEngine, loads: tuple[int, ...] = LOADS
) -> tuple[tuple[TableCheck, ...], SteppingEngines, list[Record]]:
    time = VirtualTime()
    engines = SteppingEngines(time, {"table": table, "fixed": fixed})
    records: list[Record] = []

    def context(on_run: OnRun) -> TurnContext:
        return TurnContext(Timeouts(), 0.0, Silent(), on_run, time.clock, engines.connect)

    validation = Validation(
        table=TABLE,
        fixed=FIXED,
        target_of=lambda arm: FakeTarget(arm.name),
        items=ITEMS,
        requests=12,
        sink=records.append,
        salt="salt",
        context_of=context,
        run=time.run,
    )
    return validation.checks(validated_loads(loads)), engines, records


def engine(*rows: tuple[int, int, int], **more: float) -> SteppingEngine:
    return replace(SteppingEngine(rows, noise=0.01), **more)  # type: ignore[arg-type]


def test_a_table_that_follows_the_load_is_accepted() -> None:
    checks, _, records = validated(engine(*GOOD), engine((1, 8, 3)))
    assert [check.load.label for check in checks] == ["c=1 to 8 to 1", "c=1", "c=2", "c=4", "c=8"]
    assert is_accepted(checks), reason_of(checks)
    by_load = {check.load.label: check.ratio for check in checks}
    assert by_load["c=1"].low > 1.2
    assert by_load["c=8"].low > 1
    assert all(check.identical_outputs == check.compared_outputs for check in checks)
    assert {type(record) for record in records} == {ArmRecord, RequestRecord}
    assert "is not slower" in reason_of(checks)


def test_an_engine_that_stalls_at_the_switch_is_refused() -> None:
    """vllm#49548: [[1,4,2],[5,512,0]] fell from 232 to 24 tokens/s with 8 requests in flight."""
    rows = ((1, 4, 3), (5, 512, 0))
    well = engine(*rows)
    assert well.rate(0, 8) > 0.8 * well.rate(3, 8)  # by its rates alone the table looks harmless
    checks, _, _ = validated(engine(*rows, stall_s=10.0), engine((1, 512, 3)))
    (first,) = checks  # the steps come first, and nothing else is measured
    assert first.load.label == "c=1 to 8 to 1"
    assert first.ratio.high < 0.5
    assert not is_accepted(checks)
    assert reason_of(checks).startswith("the table's own endpoint is slower")


@pytest.mark.parametrize("overhead", [0.14, 0.04])
def test_a_table_whose_engine_is_slower_at_one_load_is_refused(overhead: float) -> None:
    """vLLM without full CUDA graphs: 14% slower where both have the same K (vllm#49548)."""
    checks, _, _ = validated(engine((1, 8, 3), overhead=overhead), engine((1, 8, 3)), (1, 4))
    assert checks[-1].verdict == "slower"
    assert not is_accepted(checks)


def test_steps_have_the_concurrency_of_each_step() -> None:
    _, engines, _ = validated(engine(*GOOD), engine((1, 8, 3)), (1, 8))
    by_arm = [list(group) for _, group in groupby(engines.seen, key=lambda one: one[0])]
    levels = [count for _, count in by_arm[0]]
    assert levels[:3] == [1, 1, 1]  # the warm-up, and the first step
    assert max(levels) == 8
    assert levels.count(8) > 8
    assert levels[-1] == 1


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        ((0.99, 1.0, 1.01), "as fast"),
        ((0.98, 0.999, 1.02), "as fast"),
        ((0.97, 1.0, 1.03), "not decided"),
        ((0.985, 0.99, 0.995), "slower"),
        ((0.5, 0.6, 0.7), "slower"),
        ((1.1, 1.2, 1.3), "as fast"),
    ],
)
def test_what_is_as_fast(interval: tuple[float, float, float], verdict: str) -> None:
    low, value, high = interval
    ratio = Interval(value, low, high)
    assert verdict_of(lambda confidence: ratio, loads=5) == verdict
    check = TableCheck(Load("closed", concurrency=4), ratio, verdict)
    assert is_accepted([check]) == (verdict == "as fast")
    assert ("c=4" in reason_of([check])) == (verdict != "as fast")


def test_nothing_measured_is_not_accepted() -> None:
    assert not is_accepted(())
    assert reason_of(()) == "the table was not validated"
