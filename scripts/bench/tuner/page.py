"""The tuner on many simulated endpoints, a table in docs/how-to/tuner.md, by scripts/simulate-tuner."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from peagle_bench.results import provenance
from peagle_bench.tune.fit import Noise
from scripts.bench.marked_page import insert
from scripts.bench.tuner.simulate import (
    Draw,
    Outcome,
    Strategy,
    always,
    by_deployment,
    by_runtime,
    exhaustive,
    simulate,
)
from scripts.bench.tuner.surface import draw_surface
from scripts.bench.tuner.worlds import draw_world

BEGIN = "<!-- simulation: written by scripts/simulate-tuner -->"
END = "<!-- end of simulation -->"
#: The limits at 2% noise: mean regret and its 95th percentile.
MOST_MEAN, MOST_P95 = 0.008, 0.04
NOISES = {
    "2%": Noise(0.01, 0.0173),
    "2%, all in the step time": Noise(0.0, 0.02),
    "2%, all in the acceptance": Noise(0.02, 0.0),
    "4%": Noise(0.02, 0.0346),
}
LOADS: tuple[tuple[int, ...], ...] = ((1, 8, 32), (1,), (8,), (32,))
#: By the name on the page: the endpoints, and the largest K.
WORLDS: dict[str, Draw] = {
    "independent, K to 32": draw_world,
    "independent, K to 11": lambda rng, loads: draw_world(rng, loads, 11),
    "the tuner's own kind, K to 11": draw_surface,
}


@dataclass(frozen=True)
class Row:
    """One strategy on one kind of endpoint, under one noise and one set of concurrencies."""

    world: str
    noise: str
    concurrencies: tuple[int, ...]
    strategy: str
    outcome: Outcome


def strategies() -> dict[str, Strategy]:
    """By the name on the page."""
    return {
        "tune, one deployment for each K": by_deployment(),
        "tune, K changed in one engine": by_runtime(),
        "every K deployed once, highest reading": exhaustive,
        "always K=7": always(7),
    }


def rows(endpoints: int, seed: int) -> list[Row]:
    """Every strategy at 2% noise, and the tuner's deployments under the other noises."""
    first = next(iter(NOISES))
    tuner, strategy = next(iter(strategies().items()))
    world, draw = next(iter(WORLDS.items()))
    cases = [
        (world, draw, first, load, name, one)
        for world, draw in WORLDS.items()
        for load in (LOADS if world in list(WORLDS)[:1] else LOADS[:2])
        for name, one in strategies().items()
    ]
    cases += [(world, draw, noise, LOADS[0], tuner, strategy) for noise in list(NOISES)[1:]]
    return [
        Row(world, noise, load, name, simulate(one, endpoints, seed, load, NOISES[noise], draw))
        for world, draw, noise, load, name, one in cases
    ]


def misses(found: Sequence[Row]) -> list[str]:
    """The rows of the tuner that exceed the limits at 2% noise; empty is the proof."""
    beyond = []
    for row in found:
        if not row.strategy.startswith("tune"):
            continue
        outcome = row.outcome
        large = outcome.mean > MOST_MEAN or outcome.quantile(0.95) > MOST_P95
        if outcome.unmeasured or outcome.unsound or (large and not row.noise.startswith("4%")):
            beyond.append(
                f"{row.strategy}, {row.world}, noise {row.noise}, c={row.concurrencies}: mean "
                f"{outcome.mean:.2%} (at most {MOST_MEAN:.1%}), 95th percentile {outcome.quantile(0.95):.2%} "
                f"(at most {MOST_P95:.0%}), {outcome.unmeasured} choices not measured, {outcome.unsound} "
                "endpoints with a rate that is not a positive number"
            )
    return beyond


def table(found: Sequence[Row]) -> str:
    """Markdown."""
    lines = [
        "| endpoints | noise | concurrency | strategy | mean regret | 95th percentile | worst | "
        "per load: mean | K deployed: mean, most | windows, mean | not measured |",
        "|---|---|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in found:
        outcome = row.outcome
        lines.append(
            f"| {row.world} | {row.noise} | {', '.join(map(str, row.concurrencies))} | {row.strategy} "
            f"| {outcome.mean:.2%} | {outcome.quantile(0.95):.2%} | {outcome.quantile(1):.1%} "
            f"| {float(outcome.load_regrets.mean()):.2%} | {outcome.deployments:.1f}, "
            f"{outcome.most_deployments} | {outcome.windows:.1f} | {outcome.unmeasured} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate, write the page, and return 1 when the tuner exceeds a limit."""
    parser = argparse.ArgumentParser(prog="scripts/simulate-tuner", description=__doc__)
    parser.add_argument(
        "--endpoints", type=int, default=1000, help="simulated endpoints of each kind (default 1000)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--page", type=Path, default=Path("docs/how-to/tuner.md"))
    options = parser.parse_args(arguments)
    began = time.monotonic()
    found = rows(options.endpoints, options.seed)
    stamp = (
        f"{options.endpoints:,} endpoints, seed {options.seed}; {origin(began)}. Again: "
        f"`scripts/simulate-tuner --endpoints {options.endpoints} --seed {options.seed}`."
    )
    return publish(options.page, (BEGIN, END), stamp, table(found), misses(found))


def origin(began: float) -> str:
    """Say when, from which commit and in how many seconds since ``began`` (monotonic) a page was made."""
    revision = provenance.git_revision(Path(__file__).parent)
    seconds = time.monotonic() - began
    return f"{datetime.now(UTC):%Y-%m-%d}, commit {(revision or 'unknown')[:7]}, {seconds:.0f} s"


def publish(path: Path, marks: tuple[str, str], stamp: str, found: str, missed: Sequence[str]) -> int:
    """Write a table between the page's marks and print it; return 1 when a limit is exceeded."""
    page = path.read_text(encoding="utf-8")
    path.write_text(insert(page, *marks, f"{stamp}\n\n{found}"), encoding="utf-8")
    print(found)
    for line in missed:
        print(f"above the limit: {line}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
