"""K by load on simulated traces, a table in docs/how-to/k-by-load.md, by scripts/simulate-loads."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from peagle_bench.tune.fit import Noise
from peagle_bench.tune.loads import ROUNDS
from scripts.bench.tuner.page import origin, publish
from scripts.bench.tuner.traces import MEASURED, TraceOutcome, simulate_traces

BEGIN = "<!-- traces: written by scripts/simulate-loads -->"
END = "<!-- end of traces -->"
#: The limits at 2% noise: mean regret of the tables and its 95th percentile.
MOST_MEAN, MOST_P95 = 0.01, 0.04
NOISE = Noise(0.01, 0.0173)  #: 2% of a rate


def misses(outcome: TraceOutcome) -> list[str]:
    """The limits that the tables exceed; empty is the proof."""
    mean, high = float(outcome.table.mean()), float(np.quantile(outcome.table, 0.95))
    exceeded = []
    if mean > MOST_MEAN:
        exceeded.append(f"mean regret {mean:.2%} (at most {MOST_MEAN:.0%})")
    if high > MOST_P95:
        exceeded.append(f"95th percentile {high:.2%} (at most {MOST_P95:.0%})")
    return exceeded


def table(outcome: TraceOutcome) -> str:
    """Markdown."""
    lines = ["| K | mean regret | 95th percentile | worst |", "|---|---:|---:|---:|"]
    for name, regrets in (
        ("the table of `tune --loads`", outcome.table),
        ("the one K of `tune`, from the same windows", outcome.fixed),
        ("the best single K for the trace, known in advance", outcome.best_single),
    ):
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
    options = parser.parse_args(arguments)
    began = time.monotonic()
    outcome = simulate_traces(options.traces, options.seed, NOISE, rounds=ROUNDS)
    stamp = (
        f"{options.traces} traces, seed {options.seed}, 2% noise, measured at c="
        f"{', '.join(map(str, MEASURED))} with {outcome.windows:.0f} windows on average; tables with "
        f"{outcome.rows.mean():.1f} rows on average. {origin(began)}. Again: `scripts/simulate-loads "
        f"--traces {options.traces} --seed {options.seed}`."
    )
    return publish(options.page, (BEGIN, END), stamp, table(outcome), misses(outcome))


if __name__ == "__main__":
    raise SystemExit(main())
