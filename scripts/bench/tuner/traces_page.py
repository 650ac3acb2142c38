"""K by load on simulated traces, a table in docs/how-to/k-by-load.md, by scripts/simulate-loads."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from peagle_bench.tune.fit import Array, Noise
from peagle_bench.tune.loads import ROUNDS
from scripts.bench.tuner.controlled import ControllerOutcome, simulate_controller, too_soon
from scripts.bench.tuner.page import origin, publish
from scripts.bench.tuner.traces import MEASURED, TraceOutcome, simulate_traces

BEGIN = "<!-- traces: written by scripts/simulate-loads -->"
END = "<!-- end of traces -->"
CONTROLLER_BEGIN = "<!-- controller: written by scripts/simulate-loads --controller -->"
CONTROLLER_END = "<!-- end of controller -->"
#: The limits at 2% noise: mean regret of the tables and its 95th percentile.
MOST_MEAN, MOST_P95 = 0.01, 0.04
NOISE = Noise(0.01, 0.0173)  #: 2% of a rate


def misses(outcome: TraceOutcome) -> list[str]:
    """The limits that the tables exceed; empty is the proof."""
    return _beyond(outcome.table)


def controller_misses(outcome: ControllerOutcome) -> list[str]:
    """The limits that the controller exceeds within a table; empty is the proof."""
    found = ["K changed twice within five seconds"] if too_soon(outcome) else []
    return [*_beyond(outcome.within), *found]


def _beyond(regrets: Array) -> list[str]:
    mean, high = float(regrets.mean()), float(np.quantile(regrets, 0.95))
    found = [f"mean regret {mean:.2%} (at most {MOST_MEAN:.0%})"] if mean > MOST_MEAN else []
    return [*found, f"95th percentile {high:.2%} (at most {MOST_P95:.0%})"] if high > MOST_P95 else found


def table(outcome: TraceOutcome) -> str:
    """Markdown."""
    return _rows(
        ("the table of `tune --loads`", outcome.table),
        ("the one K of `tune`, from the same windows", outcome.fixed),
        ("the best single K for the trace, known in advance", outcome.best_single),
    )


def controller_table(outcome: ControllerOutcome) -> str:
    """Markdown."""
    return _rows(
        ("the controller, within the table of `tune --loads`", outcome.within),
        ("that table alone", outcome.table),
        ("the controller without a table, from K=11 on", outcome.without),
        ("K=11 alone", outcome.largest),
    )


def _rows(*rows: tuple[str, Array]) -> str:
    lines = ["| K | mean regret | 95th percentile | worst |", "|---|---:|---:|---:|"]
    for name, regrets in rows:
        lines.append(
            f"| {name} | {regrets.mean():.2%} | {np.quantile(regrets, 0.95):.2%} | {regrets.max():.1%} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate, write the page, and return 1 when the tables exceed a limit."""
    parser = argparse.ArgumentParser(prog="scripts/simulate-loads", description=__doc__)
    parser.add_argument(
        "--traces", type=int, default=300, help="endpoints, each with one trace (default 300)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--page", type=Path, default=Path("docs/how-to/k-by-load.md"))
    parser.add_argument("--controller", action="store_true", help="run the controller on the traces")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    if options.controller:
        return _controller(options, began)
    outcome = simulate_traces(options.traces, options.seed, NOISE, rounds=ROUNDS)
    stamp = (
        f"{options.traces} traces, seed {options.seed}, 2% noise, measured at c="
        f"{', '.join(map(str, MEASURED))} with {outcome.windows:.0f} windows on average; tables with "
        f"{outcome.rows.mean():.1f} rows on average. {origin(began)}. Again: `scripts/simulate-loads "
        f"--traces {options.traces} --seed {options.seed}`."
    )
    return publish(options.page, (BEGIN, END), stamp, table(outcome), misses(outcome))


def _controller(options: argparse.Namespace, began: float) -> int:
    outcome = simulate_controller(options.traces, options.seed, NOISE, rounds=ROUNDS)
    stamp = (
        f"{options.traces} traces of ten minutes, seed {options.seed}, 2% noise; within the table "
        f"{outcome.switches:.0f} changes of K on average, without one at least {outcome.closest_s:.1f} s "
        f"between two. {origin(began)}. Again: `scripts/simulate-loads --controller "
        f"--traces {options.traces} --seed {options.seed}`."
    )
    marks = (CONTROLLER_BEGIN, CONTROLLER_END)
    return publish(options.page, marks, stamp, controller_table(outcome), controller_misses(outcome))


if __name__ == "__main__":
    raise SystemExit(main())
