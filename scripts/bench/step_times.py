"""Rates predicted from step times with synthetic acceptance, held against real heads: scripts/step-times.

For each head three engines run side by side: one that accepts no draft token, one with the real head, and one
that accepts all. Their windows take turns, in the next round in reverse, so that a drift of the machine
cancels. The prediction at the real head's acceptance length is compared with the head's measured rate.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any

from peagle_bench.benchmark.acceptance import from_requests
from peagle_bench.benchmark.endpoint_arm import describe_endpoint
from peagle_bench.load import LoadOptions, make_target
from peagle_bench.load.run import measure_point
from peagle_bench.results.provenance import origin
from peagle_bench.results.records import Load, Reading
from peagle_bench.step_times import REAL_ERROR, step_time
from peagle_bench.tune.arms import parse_modes, synthetic_spec
from peagle_bench.tune.estimate import MAX_TOKENS
from peagle_bench.tune.synthetic import demand_answered, measure_window, of_full_length, rate_of
from peagle_bench.tune.windows import EndpointReader, requests_of
from peagle_bench.workloads import Workload, load_workload, salted
from peagle_sm.core.errors import SpecError
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, parse_spec
from peagle_sm.core.spec.modes import Mode, title_of
from scripts.bench.job import run_job, write_json
from scripts.bench.local_stack import LocalStack, Say
from scripts.bench.marked_page import insert
from scripts.bench.progress import Reporter

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/step-times.md"
BEGIN, END = "<!-- step times: written by scripts/step-times -->", "<!-- end of step times -->"


@dataclass(frozen=True)
class Held:
    """A prediction beside the rate of a real head, at one K and concurrency."""

    model: str
    mode: str
    k: int
    concurrency: int
    acceptance_length: float  #: of the real head, by step
    predicted_otps: float
    measured_otps: float
    step_ms: float
    fixed_ms: float
    errors: tuple[float, ...]  #: of each turn

    @property
    def error(self) -> float:
        """Difference of the prediction, as a share of the measured rate."""
        return self.predicted_otps / self.measured_otps - 1


@dataclass(frozen=True)
class Window:
    """A window of a real head: its rate, and its acceptance length by step."""

    otps: float
    acceptance_length: float


@dataclass(frozen=True)
class Turn:
    """Windows of the three engines that followed one another."""

    rejected: Reading
    real: Window
    accepted: Reading

    @property
    def error(self) -> float:
        """Difference of the prediction from this turn's ends, as a share of this turn's measured rate."""
        cell = step_time([self.rejected], [self.accepted])
        return cell.rate(self.real.acceptance_length) / self.real.otps - 1


def real_spec(model: str, mode: str, k: int) -> EndpointSpec:
    """The spec of a model with the catalogue's head."""
    speculation = f"{{mode: {mode}, num_speculative_tokens: {k}}}"
    return parse_spec(f"name: step-{mode}\nmodel: {model}\nsource: container\nspeculation: {speculation}\n")


def hold(
    stack: LocalStack,
    model: str,
    mode: Mode,
    k: int,
    loads: Sequence[int],
    workload: Workload,
    requests: int,
    rounds: int,
    say: Say,
) -> list[Held]:
    """Measure one head and its two synthetic ends: three engines, whose windows take turns."""
    spec = real_spec(model, mode, k)
    specs = {
        "none accepted": synthetic_spec(spec, mode, k, 1.0),
        "real": spec,
        "all accepted": synthetic_spec(spec, mode, k, k + 1.0),
    }
    items = [of_full_length(item) for item in workload.items]
    readers = {
        arm: EndpointReader(
            endpoint,
            mode,
            describe_endpoint(stack.session, endpoint.name, synthetic=arm != "real").arm,
            items,
            requests,
            lambda record: None,
            rotate=False,
            by_client=True,
            salt=secrets.token_hex(4),
        )
        for arm, endpoint in stack.deploy(specs).items()
    }
    turns: dict[int, list[Turn]] = {concurrency: [] for concurrency in loads}
    for block in range(rounds):
        for concurrency in loads:
            ends: dict[str, Reading] = {}
            # The real head comes between both ends, so that a steady drift cancels within each turn.
            for arm in list(readers) if block % 2 == 0 else list(reversed(readers)):
                if arm == "real":
                    window = real_window(readers[arm], items, concurrency, block)
                    otps, length = window.otps, window.acceptance_length
                else:
                    ends[arm] = measure_window(readers[arm], k, concurrency, block)
                    otps, length = ends[arm].otps, ends[arm].acceptance_length
                say(f"   {mode} c={concurrency} {arm}: {otps:.1f} tokens/s, acceptance length {length:.2f}")
            turns[concurrency].append(Turn(ends["none accepted"], window, ends["all accepted"]))
    stack.delete([reader.endpoint.name for reader in readers.values()])
    return [held(model, mode, k, concurrency, each) for concurrency, each in turns.items()]


def held(model: str, mode: str, k: int, concurrency: int, turns: Sequence[Turn]) -> Held:
    """Compare the prediction with the real head, over all turns and in each of them."""
    cell = step_time([turn.rejected for turn in turns], [turn.accepted for turn in turns])
    length = fmean(turn.real.acceptance_length for turn in turns)
    return Held(
        model,
        mode,
        k,
        concurrency,
        length,
        cell.rate(length),
        geometric_mean(turn.real.otps for turn in turns),
        cell.step_ms,
        cell.fixed_ms,
        tuple(turn.error for turn in turns),
    )


def real_window(reader: EndpointReader, items: Sequence[Any], concurrency: int, block: int) -> Window:
    """Measure a real head at the prompts of the synthetic windows, by the requests' own times as there."""
    wanted = requests_of(reader.requests, concurrency)
    chosen = [
        salted(replace(items[index % len(items)], then=None), f"{reader.salt}-{concurrency}-{block}-{turn}")
        for index in range(2 * (wanted + concurrency))
        for turn in [index // len(items)]
    ]
    target = make_target(reader.endpoint.session, reader.arm)
    options = LoadOptions(requests=wanted, drain="keep", seed=block, block=block)
    records, _ = measure_point(target, Load("closed", concurrency=concurrency), chosen, options)
    measured = [each for each in records if each.phase == "measured"]
    good = demand_answered(measured, reader.arm.num_speculative_tokens or 0, concurrency)
    acceptance = from_requests(good)
    assert acceptance is not None
    assert acceptance.per_step is not None
    return Window(rate_of(good, concurrency), acceptance.per_step)


def table(rows: Sequence[Held]) -> str:
    """Write the rows in Markdown."""
    heads = (
        "| model | head | K | c | acceptance length | predicted tokens/s | measured | difference | by round |"
    )
    lines = [heads, "|---|---|---:|---:|---:|---:|---:|---:|---|"]
    lines += [
        f"| {row.model} | {title_of(row.mode)} | {row.k} | {row.concurrency} | {row.acceptance_length:.2f} "
        f"| {row.predicted_otps:.1f} | {row.measured_otps:.1f} | {row.error:+.1%} "
        f"| {', '.join(f'{each:+.1%}' for each in row.errors)} |"
        for row in rows
    ]
    return "\n".join(lines)


def section(document: dict[str, Any]) -> str:
    """Write the page's part: how it was measured, and the table."""
    provenance, settings = document["provenance"], document["settings"]
    machine = provenance["machine"]
    windows = f"at least {settings['requests']} requests a window, {settings['rounds']} rounds"
    how = (
        f"Measured by `scripts/step-times` on {provenance['date'][:10]}: {settings['workload']}, {windows}, "
        f"{MAX_TOKENS} tokens an answer; "
        f"{machine['cores']} cores of {machine['processor']}, vLLM for CPUs."
    )
    rows = [Held(**row) for row in document["rows"]]
    worst = max(rows, key=lambda row: abs(row.error))
    within = f"The largest difference is {worst.error:+.1%}."
    return f"{how}\n\n{table(rows)}\n\n{within}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write the record, and perhaps the page; 1 if a prediction is further off than allowed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m-instruct", help="a model with heads that run here")
    parser.add_argument("--modes", default="p-eagle,eagle3", help="its heads, separated by commas")
    parser.add_argument("--k", type=int, default=3, help="draft tokens of a step")
    parser.add_argument(
        "--concurrency", type=loads_of, default="1,4,8", help="requests in flight, separated by commas"
    )
    parser.add_argument("--requests", type=int, default=12, help="least requests of a window")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of windows, in alternating order")
    parser.add_argument("--out", type=Path, default=ROOT / "results/step-times.json", help="the record")
    parser.add_argument(
        "--page", action="store_true", help="write docs/reference/step-times.md from the record"
    )
    parser.add_argument("--only-page", action="store_true", help="the same, without measuring")
    given = parser.parse_args(arguments)
    return run_job(lambda reporter: job(given, reporter))


def loads_of(text: str) -> list[int]:
    """Read ``1,4,8``."""
    loads = [int(word) for word in text.split(",")]
    if min(loads) < 1:
        raise ValueError
    return loads


def job(given: argparse.Namespace, reporter: Reporter) -> int:
    """Measure unless only the page is wanted; 0, or 1 if a prediction is further off than allowed.

    Raises:
        SpecError: only the page is wanted, and there is no record.
    """
    if not given.only_page:
        measure(given, reporter.say)
    elif not given.out.exists():
        raise SpecError(
            f"--only-page: there is no record at {given.out}", next_step="Measure first: scripts/step-times"
        )
    document = json.loads(given.out.read_text(encoding="utf-8"))
    print(section(document))
    if given.page or given.only_page:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(insert(page, BEGIN, END, section(document)), encoding="utf-8")
    return int(any(abs(Held(**row).error) > REAL_ERROR for row in document["rows"]))


def measure(given: argparse.Namespace, say: Say) -> None:
    """Measure each head, and write the record."""
    workload = load_workload("humaneval", max_tokens=MAX_TOKENS, first_turn_only=True)
    with LocalStack(say) as stack:
        how = given.concurrency, workload, given.requests, given.rounds, say
        every_head = (hold(stack, given.model, mode, given.k, *how) for mode in parse_modes(given.modes))
        rows = list(chain.from_iterable(every_head))
    settings = {"requests": given.requests, "rounds": given.rounds, "workload": workload.name}
    document = {"provenance": origin(0), "settings": settings, "rows": [asdict(row) for row in rows]}
    write_json(given.out, document)


if __name__ == "__main__":
    sys.exit(main())
