"""Compare two endpoints on a trace of load, such as 1 to 8 to 1 requests in flight: ``scripts/bench-trace``.

The two arms alternate in one run, in windows in ABBA order with the same prompts; each window is the whole
trace. The ratio of their rates is paired by block, with a 95% confidence interval. Writes the figures
(``--output``), and beside them the results file (``.jsonl``), which `peagle-sm report` reads.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from peagle_bench.benchmark.endpoint_arm import Described, describe_endpoint
from peagle_bench.compare.analysis import compare_cells, of_blocks
from peagle_bench.compare.measurement import Setup
from peagle_bench.compare.run import compare
from peagle_bench.load import Window
from peagle_bench.load.driver import concurrency_at
from peagle_bench.results.records import Interval, Load, RequestRecord
from peagle_bench.results.result_file import Results
from peagle_bench.workloads import Workload, rounds
from peagle_sm.core.errors import SpecError
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.service import Endpoint
from peagle_sm.service.spec_to_plan import load_spec
from scripts.bench.comparison import dependencies, human_eval
from scripts.bench.job import run_job, write_json
from scripts.bench.local_stack import LocalStack, Say
from scripts.bench.progress import Reporter

STEPS = (1, 2, 4, 8, 4, 2, 1)
BLOCKS = 8  #: blocks of two windows for each arm; the interval is over the blocks
REQUESTS = 44  #: of a window: with `STEPS`, as many in each step as two rounds of its requests in flight
PROMPTS = 164  #: all of HumanEval
MOST_SLOWER = 0.02  #: the limit of issue 14: never more than 2% below the best fixed K


@dataclass(frozen=True)
class Trace:
    """Outcome of a run: the first arm's rate over the second one's, and whether the answers agree.

    ``by_load`` has the ratio within the steps of each load. ``drafted`` is the mean number of draft tokens in
    each verification step by arm, from the engine's own counters; None without speculation.
    """

    results: Results
    ratio: Interval
    by_load: Mapping[int, Interval]
    blocks: int
    sent: int
    failed: int
    identical: int
    compared: int
    drafted: Mapping[str, float | None]

    @property
    def verdict(self) -> str:
        """Whether the first arm is at most `MOST_SLOWER` slower, by the interval."""
        if self.ratio.low >= 1 - MOST_SLOWER:
            return "holds"
        return "does not hold" if self.ratio.high < 1 - MOST_SLOWER else "not decided"

    @property
    def is_sound(self) -> bool:
        """Whether every request was answered, and every prompt the same by both arms."""
        return not self.failed and self.identical == self.compared > 0


def run_trace(
    stack: LocalStack,
    endpoints: Mapping[str, Endpoint],
    workload: Workload,
    path: Path,
    *,
    say: Say,
    steps: Sequence[int] = STEPS,
    blocks: int = BLOCKS,
    requests: int = REQUESTS,
    seed: int = 0,
) -> Trace:
    """Alternate between two endpoints, by arm name, over the trace; ``path`` is overwritten.

    Raises:
        SpecError: there are not exactly two arms.
        Interrupted, ServiceFault: as `peagle_bench.compare.run.compare`.
    """
    if len(endpoints) != 2:
        raise SpecError(f"--arm: found {len(endpoints)}; allowed: 2.", next_step="Give two arms.")
    described = [_named(stack, name, endpoint) for name, endpoint in endpoints.items()]
    load = Load("closed", concurrency=max(steps), steps=tuple(steps))
    # As many as all windows need: a repeated prompt gets its own cache salt.
    items = tuple(islice(rounds(workload.items, repeat=True), 2 * blocks * requests))
    setup = Setup(items, (load,), blocks, repeat=True)
    path.unlink(missing_ok=True)
    before = {name: draft_counts(endpoint) for name, endpoint in endpoints.items()}
    outcome = compare(
        [nullcontext(described)],
        setup,
        workload,
        path,
        dependencies(stack, described, seed, say),
        control=False,
        config={"steps": list(steps), "requests": requests, "seed": seed},
    )
    after = {name: draft_counts(endpoint) for name, endpoint in endpoints.items()}
    for note in outcome.notes:
        say(f"   note: {note}")
    drafted = {name: _mean_k(before[name], after[name]) for name in endpoints}
    return summary(outcome.results, tuple(endpoints), load, requests, drafted)


def _named(stack: LocalStack, name: str, endpoint: Endpoint) -> Described:
    found = describe_endpoint(stack.session, endpoint.name)
    return replace(found, arm=replace(found.arm, name=name), origin={**found.origin, "engine": None})


def summary(
    results: Results,
    arms: Sequence[str],
    load: Load,
    requests: int,
    drafted: Mapping[str, float | None],
) -> Trace:
    """Summarise the results file of a run; ``arms`` are the first and the second. Pure."""
    (found,) = results.comparisons
    ratio = found.ratio
    if found.faster != arms[0]:  # the comparison's own order is by mode
        ratio = Interval(1 / ratio.value, 1 / ratio.high, 1 / ratio.low)
    own = {arm: [row for row in results.requests if row.arm == arm] for arm in arms}
    spans = {arm: spans_by_load(rows, load, requests) for arm, rows in own.items()}
    by_load = {}
    for concurrency in sorted(set(load.steps)):
        cells = [of_blocks(own[arm], spans[arm][concurrency], speculates=None) for arm in arms]
        by_load[concurrency] = compare_cells([cells[0]], [cells[1]]).rate
    measured = [row for rows in own.values() for row in rows if row.phase == "measured"]
    return Trace(
        results=results,
        ratio=ratio,
        by_load=by_load,
        blocks=found.units,
        sent=len(measured),
        failed=sum(row.error is not None for row in measured),
        identical=found.identical_outputs or 0,
        compared=found.compared_outputs or 0,
        drafted=dict(drafted),
    )


def spans_by_load(
    records: Sequence[RequestRecord], load: Load, requests: int
) -> dict[int, list[tuple[int, Window]]]:
    """Find the times at which one arm was at each load, as (block, window) pairs. Pure.

    A step begins when its first request is sent. The last one ends with the last answer of its window; the
    requests of an earlier step that are still in flight then count in the step in which their tokens arrive.
    """
    found: dict[int, list[tuple[int, Window]]] = defaultdict(list)
    for window in _windows(records):
        begins: list[tuple[int, float]] = []
        for number, row in enumerate(window):
            level = concurrency_at(load, number, requests)
            if not begins or begins[-1][0] != level:
                begins.append((level, row.sent_s))
        end = max(row.done_s for row in window)
        for (level, start), (_, until) in pairwise([*begins, (0, end)]):
            found[level].append((window[0].block, Window(start, until, until - start)))
    return dict(found)


def _windows(records: Sequence[RequestRecord]) -> list[list[RequestRecord]]:
    """Divide an arm's requests into its windows: each begins with a warm-up."""
    found: list[list[RequestRecord]] = []
    warming = True
    for row in sorted(records, key=lambda row: row.sent_s):
        if row.phase == "measured":
            if warming:
                found.append([])
            found[-1].append(row)
        warming = row.phase == "warm-up"
    return found


_COUNTER = re.compile(
    r"^vllm:spec_decode_num_(drafts|draft_tokens)_total(?:\{[^}]*\})?\s+([0-9.eE+-]+)", re.MULTILINE
)


def draft_counts(endpoint: Endpoint) -> dict[str, float]:
    """Read the engine's verification steps (``drafts``) and drafted tokens since its start."""
    found: dict[str, float] = defaultdict(float)
    for name, value in _COUNTER.findall(endpoint.metrics()):
        found[name] += float(value)
    return dict(found)


def _mean_k(before: Mapping[str, float], after: Mapping[str, float]) -> float | None:
    drafts = after.get("drafts", 0.0) - before.get("drafts", 0.0)
    tokens = after.get("draft_tokens", 0.0) - before.get("draft_tokens", 0.0)
    return tokens / drafts if drafts else None


def document(trace: Trace, arms: Mapping[str, EndpointSpec]) -> dict[str, Any]:
    """Return the figures as JSON, with the provenance of the run."""
    config = trace.results.header.config
    return {
        "stand_in_weights": trace.results.header.stand_in_weights,
        "arms": {name: _setting(spec) for name, spec in arms.items()},
        "steps": config["steps"],
        "requests_per_window": config["requests"],
        "ratio": asdict(trace.ratio),
        "by_load": {str(load): asdict(one) for load, one in trace.by_load.items()},
        "blocks": trace.blocks,
        "at_most_2_percent_slower": trace.verdict,
        "requests": trace.sent,
        "failed": trace.failed,
        "identical_outputs": trace.identical,
        "compared_outputs": trace.compared,
        "draft_tokens_per_step": dict(trace.drafted),
        "otps": {point.arm: point.otps for point in trace.results.points},
        "load_average": max(point.machine_load or 0.0 for point in trace.results.points),
        "provenance": trace.results.header.provenance,
    }


def _setting(spec: EndpointSpec) -> dict[str, Any]:
    speculation = spec.speculation
    rows = speculation.num_speculative_tokens_per_batch_size
    return {
        "mode": speculation.mode,
        "num_speculative_tokens": speculation.num_speculative_tokens,
        "table": [list(row) for row in rows] if rows else None,
        "env": dict(spec.serving.env),
    }


def text(trace: Trace, arms: Sequence[str]) -> str:
    """Return the outcome for the terminal."""
    first, second = arms
    steps = " to ".join(map(str, trace.results.header.config["steps"]))
    lines = [
        f"{first} over {second}, c={steps}: {_figures(trace.ratio)} of the tokens/s, {trace.blocks} blocks",
        f"at most {MOST_SLOWER:.0%} slower: {trace.verdict}",
        *(f"  at c={load}: {_figures(one)}" for load, one in trace.by_load.items()),
        "draft tokens per step: "
        + ", ".join(f"{arm} {'none' if k is None else f'{k:.2f}'}" for arm, k in trace.drafted.items()),
        f"answered: {trace.sent - trace.failed} of {trace.sent} requests",
        f"identical outputs: {trace.identical} of {trace.compared} prompts (by token ids)",
    ]
    return "\n".join(lines)


def _figures(ratio: Interval) -> str:
    return f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line.

    Raises:
        SpecError: not two arms, or steps that are not whole numbers from 1.
    """
    parser = argparse.ArgumentParser(prog="scripts/bench-trace", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--arm", action="append", required=True, metavar="NAME=SPEC", help="an arm's name and spec; twice"
    )
    default = ",".join(map(str, STEPS))
    parser.add_argument("--steps", default=default, help=f"requests in flight (default {default})")
    parser.add_argument("--blocks", type=int, default=BLOCKS, help=f"ABBA blocks (default {BLOCKS})")
    parser.add_argument(
        "--requests", type=int, default=REQUESTS, help=f"requests of a window (default {REQUESTS})"
    )
    parser.add_argument("--max-tokens", type=int, default=128, help="tokens per answer at most (default 128)")
    parser.add_argument("--seed", type=int, default=0, help="order of the prompts (default 0)")
    parser.add_argument("--output", type=Path, default=Path("results/bench-trace.json"), help="the figures")
    options = parser.parse_args(words)
    options.steps = parse_steps(options.steps)
    options.arms = read_arms(options.arm)
    return options


def parse_steps(words: str) -> tuple[int, ...]:
    """Parse ``1,8,1``.

    Raises:
        SpecError: a step is not a whole number from 1, or there are fewer than two.
    """
    try:
        steps = tuple(int(word) for word in words.split(","))
    except ValueError:
        steps = ()
    if len(steps) < 2 or min(steps) < 1:
        raise SpecError(
            f"--steps: found {words!r}; allowed: two or more whole numbers from 1, separated by commas.",
            next_step="For example --steps 1,8,1.",
        )
    return steps


def read_arms(words: Sequence[str]) -> dict[str, EndpointSpec]:
    """Read ``NAME=SPEC`` twice. Each arm gets an endpoint of its own name.

    Raises:
        SpecError: not two different names, or a spec cannot be read.
    """
    pairs = [word.partition("=")[::2] for word in words]
    if len({name for name, _ in pairs if name}) != 2 or len(pairs) != 2 or not all(path for _, path in pairs):
        raise SpecError(
            f"--arm: found {', '.join(words)}; allowed: two arms NAME=SPEC with different names.",
            next_step="For example --arm table=table.yaml --arm fixed=fixed.yaml.",
        )
    specs = {name: load_spec(Path(path)) for name, path in pairs}
    return {name: spec.model_copy(update={"name": f"trace-{name}"}) for name, spec in specs.items()}


def job(options: argparse.Namespace, reporter: Reporter) -> int:
    """Deploy both arms, measure, delete; 1 if answers differ or are missing, or anything is left."""
    workload = human_eval(PROMPTS, max_tokens=options.max_tokens, seed=options.seed)
    with LocalStack(reporter.say) as stack:
        with reporter.phase("deploy both arms"):
            endpoints = stack.deploy(options.arms)
        with reporter.phase("trace in turns"):
            trace = run_trace(
                stack,
                endpoints,
                workload,
                options.output.with_suffix(".jsonl"),
                say=reporter.say,
                steps=options.steps,
                blocks=options.blocks,
                requests=options.requests,
                seed=options.seed,
            )
        with reporter.phase("delete everything"):
            left = stack.delete_all() + stack.close()
    print(text(trace, tuple(options.arms)), flush=True)
    print(f"left behind: {', '.join(left) or 'nothing'}")
    write_json(options.output, document(trace, options.arms))
    return 0 if trace.is_sound and not left else 1


def main(words: Sequence[str] | None = None) -> int:
    """The command: returns its exit code."""
    return run_job(lambda reporter: job(arguments(words), reporter))


if __name__ == "__main__":
    sys.exit(main())
