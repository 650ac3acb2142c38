"""The figures of the trace benchmark, on engines in virtual time: nothing depends on the machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from peagle_bench.compare.alternating import OnRun, TurnContext
from peagle_bench.compare.analysis import ArmDeployments
from peagle_bench.compare.measurement import Contest, Setup
from peagle_bench.load import Silent, Timeouts, WorkItem
from peagle_bench.results.records import ArmRecord, Header, Load
from peagle_bench.results.result_file import ResultWriter, read
from peagle_sm.core.errors import SpecError
from scripts.bench.loads.trace import Trace, parse_steps, read_arms, spans_by_load, summary, text
from tests.bench.compare.virtual import FakeTarget, VirtualTime
from tests.bench.tune.stepping import SteppingEngine, SteppingEngines

STEPS = (1, 2, 4, 8, 4, 2, 1)
LOAD = Load("closed", concurrency=8, steps=STEPS)
REQUESTS = 44
TABLE = SteppingEngine(((1, 2, 7), (3, 4, 3), (5, 8, 1)), noise=0.01)
FIXED = SteppingEngine(((1, 8, 3),), noise=0.01)


def traced(first: SteppingEngine, second: SteppingEngine, folder: Path, blocks: int = 4) -> Trace:
    """The second arm comes first in the comparison's own order: mode none is the slowest."""
    time = VirtualTime()
    engines = SteppingEngines(time, {"table": replace(first), "fixed": replace(second)})
    arms = [ArmRecord("table", "p-eagle", 7, "trace-table"), ArmRecord("fixed", "p-eagle", 3, "trace-fixed")]
    items = tuple(
        WorkItem(f"p{n % 60}", {"prompt": f"prompt {n % 60}"}) for n in range(2 * blocks * REQUESTS)
    )
    path = folder / "trace.jsonl"

    def context(on_run: OnRun) -> TurnContext:
        return TurnContext(Timeouts(), 0.0, Silent(), on_run, time.clock, engines.connect)

    with ResultWriter(path) as writer:
        config = {"steps": list(STEPS), "requests": REQUESTS, "seed": 0}
        writer.append(Header("run", "compare", config, {"seed": 0}, stand_in_weights=True))
        contest = Contest(Setup(items, (LOAD,), blocks, repeat=True), writer, "salt", context, run=time.run)
        contest.measure(0, arms, lambda arm: FakeTarget(arm.name))
        contest.conclude([ArmDeployments((arm,)) for arm in arms])
    return summary(read(path), ("table", "fixed"), LOAD, REQUESTS, {"table": 4.0, "fixed": 3.0})


def test_a_table_that_follows_the_load_is_faster_at_both_ends(tmp_path: Path) -> None:
    trace = traced(TABLE, FIXED, tmp_path)
    assert (trace.verdict, trace.is_sound) == ("holds", True)
    assert (trace.blocks, trace.failed, trace.sent) == (4, 0, 2 * 4 * 2 * REQUESTS)
    assert trace.ratio.low > 1
    assert trace.by_load[1].low > 1.05  # K=7 for 3
    assert trace.by_load[8].low > 1  # K=1 for 3
    assert trace.by_load[4].value < trace.by_load[1].value  # both have K=3
    first, second, *levels = text(trace, ("table", "fixed")).splitlines()
    assert first.startswith("table over fixed, c=1 to 2 to 4 to 8 to 4 to 2 to 1: 1.")
    assert second == "at most 2% slower: holds"
    assert [line.split(":")[0].strip() for line in levels[:4]] == ["at c=1", "at c=2", "at c=4", "at c=8"]
    assert levels[-1] == "identical outputs: 60 of 60 prompts (by token ids)"


def test_the_ratio_is_that_of_the_first_arm(tmp_path: Path) -> None:
    trace = traced(replace(FIXED, overhead=0.1), FIXED, tmp_path)
    assert trace.ratio.value == pytest.approx(1 / 1.1, rel=0.02)
    assert trace.verdict == "does not hold"


def test_a_load_lasts_from_its_first_request_to_that_of_the_next(tmp_path: Path) -> None:
    trace = traced(TABLE, FIXED, tmp_path, blocks=2)
    rows = [row for row in trace.results.requests if row.arm == "table"]
    spans = spans_by_load(rows, LOAD, REQUESTS)
    assert {load: len(windows) for load, windows in spans.items()} == {1: 8, 2: 8, 4: 8, 8: 4}
    assert {block for block, _ in spans[8]} == {0, 1}
    measured = [row for row in rows if row.phase == "measured"]
    ordered = sorted(window.start_s for windows in spans.values() for _, window in windows)
    assert ordered[0] == min(row.sent_s for row in measured)
    for windows in spans.values():
        for _, window in windows:
            assert window.end_s in ordered or window.end_s in {row.done_s for row in measured}


@pytest.mark.parametrize("words", ["8", "1,x", "0,8", ""])
def test_bad_steps_are_refused(words: str) -> None:
    with pytest.raises(SpecError, match="two or more whole numbers"):
        parse_steps(words)


def test_two_arms_are_wanted(tmp_path: Path) -> None:
    spec = tmp_path / "a.yaml"
    spec.write_text("name: demo\nmodel: tiny-code\n")
    for words in ([f"a={spec}"], [f"a={spec}", f"a={spec}"], [f"a={spec}", "b"], [f"={spec}", f"b={spec}"]):
        with pytest.raises(SpecError, match="two arms NAME=SPEC"):
            read_arms(words)
    arms = read_arms([f"a={spec}", f"b={spec}"])
    assert [arm.name for arm in arms.values()] == ["trace-a", "trace-b"]
