"""docs/reference/slicing-bench.md out of the readings of `scripts/bench-slicing`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from peagle_bench.compare.confidence_intervals import ratio
from peagle_bench.results.records import Interval

AT_MOST = 0.01  #: of OTPS
PACED, ENGINE = "paced server", "local engine"


@dataclass(frozen=True)
class Reading:
    """One window: with slices or without; ``load`` is the machine's 1-minute load average."""

    server: str
    concurrency: int
    pair: int
    sliced: bool
    otps: float
    requests: int
    errors: int
    cpu_us_per_request: float
    load: float


def of_pairs(readings: Sequence[Reading]) -> Interval:
    """Compute OTPS with slices over OTPS without, and its 95% interval over pairs.

    Raises:
        ValueError: fewer than two pairs.
    """
    table: dict[int, list[float]] = {}
    for one in readings:
        table.setdefault(one.pair, [0.0, 0.0])[0 if one.sliced else 1] = one.otps
    return ratio([table], (1, -1))


def page(
    readings: Sequence[Reading],
    *,
    alone_us: float,
    origin: Mapping[str, Any],
    load: tuple[float, float],
    command: str,
) -> str:
    """Write the whole page."""
    machine = origin["machine"]
    told = ", ".join(f"{name} {version}" for name, version in origin["versions"].items())
    groups = list(dict.fromkeys((one.server, one.concurrency) for one in readings))
    pairs = len({one.pair for one in readings})
    measured_engine = any(name == ENGINE for name, _ in groups)
    engine = (
        " The 'local engine' is vLLM with the small P-EAGLE stand-in, on the same cores as the client; its"
        " prompts are HumanEval's."
        if measured_engine
        else " The local engine was not measured."
    )
    lines = [
        "# What slices cost",
        "",
        f"Written by `{command.strip()}` on {origin['date']}: {pairs} pairs of windows, seed"
        f" {origin['seed']}; {machine['cores']} cores of {machine['processor']}; load average"
        f" {load[0]:.1f} before and"
        f" {load[1]:.1f} after; {told}; revision {origin['git_revision']}.",
        "",
        "Each pair has a window with [slices](../how-to/slices.md) and one without, on the same prompts;"
        " their order changes from pair to pair. The interval is over pairs. A 'paced server'"
        " (`toolkit/peagle-bench/tests/bench/scheduled_server.py`) sends one token a stream every 5 ms, so OTPS shows the client"
        " alone. Its prompts have 1,200 letters of a dozen scripts, nearly each another one: a dear text"
        f" to read. The slices of one such request take {alone_us:.0f} us of CPU." + engine,
        "",
        "| server | c | OTPS with | without | cost [95%] | CPU of the client, us a request, with | without"
        " | requests | errors | load |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [_row(name, level, _of(readings, name, level)) for name, level in groups]
    lines += ["", "## What must hold", ""]
    lines += [_verdict(name, level, _of(readings, name, level)) for name, level in groups]
    return "\n".join(lines) + "\n"


def _of(readings: Sequence[Reading], name: str, level: int) -> list[Reading]:
    return [one for one in readings if (one.server, one.concurrency) == (name, level)]


def _row(name: str, level: int, found: Sequence[Reading]) -> str:
    sides = [[one for one in found if one.sliced], [one for one in found if not one.sliced]]
    cells = [
        name,
        str(level),
        *(f"{fmean(one.otps for one in side):,.1f}" for side in sides),
        _cost(of_pairs(found)),
        *(f"{fmean(one.cpu_us_per_request for one in side):,.0f}" for side in sides),
        f"{sum(one.requests for one in found):,}",
        str(sum(one.errors for one in found)),
        f"{max(one.load for one in found):.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def _cost(found: Interval) -> str:
    return f"{1 - found.value:+.2%} [{1 - found.high:+.2%}, {1 - found.low:+.2%}]"


def _verdict(name: str, level: int, found: Sequence[Reading]) -> str:
    between = of_pairs(found)
    words = f"{name}, c={level}: at most {AT_MOST:.0%} of OTPS (the interval ends at {1 - between.low:+.2%})"
    if 1 - between.low <= AT_MOST:
        return f"- {words}"
    return f"- **not shown:** {words}" if 1 - between.high <= AT_MOST else f"- **does not hold:** {words}"
