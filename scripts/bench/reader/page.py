"""The page of `scripts/bench-reader`, from its readings. Pure."""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from peagle_bench.load.points import quantile

MAX_RATIO = 1.20  #: at most 20% CPU a chunk over raw boto3
MIN_CHUNKS_PER_S = 10_000
MAX_IMPORT_MS = 100.0
_RAW, _ASYNC, _BARE = "raw boto3", "AsyncTokenStream", "bare aiohttp"
_DRAWS = 2_000


@dataclass(frozen=True)
class Reading:
    """One reader, one stream: CPU of the client's process and time on the wall."""

    reader: str
    gap_ms: float
    chunks: int
    cpu_us_per_chunk: float
    chunks_per_s: float


@dataclass(frozen=True)
class ImportCost:
    """CPU of one import in a fresh interpreter, its own start left out."""

    what: str
    cpu_ms: tuple[float, ...]
    boto3: bool


def ratio(ours: Sequence[float], raw: Sequence[float], seed: int = 0) -> tuple[float, float, float]:
    """The ratio of the sums over rounds and its 95% interval, from drawing rounds anew with their pairs."""
    chance = random.Random(seed)
    rounds = range(len(ours))
    drawn = []
    for _ in range(_DRAWS):
        picked = [chance.choice(rounds) for _ in rounds]
        drawn.append(sum(ours[n] for n in picked) / sum(raw[n] for n in picked))
    drawn.sort()
    return sum(ours) / sum(raw), quantile(drawn, 0.025), quantile(drawn, 0.975)


def page(
    readings: Sequence[Reading],
    imports: Sequence[ImportCost],
    *,
    origin: Mapping[str, Any],
    load: tuple[float, float],
    stream: str,
    command: str,
) -> str:
    """The whole page."""
    rounds = len(_of(readings, _RAW, 0.0))
    versions = ", ".join(f"{name} {version}" for name, version in origin["versions"].items())
    machine = origin["machine"]
    lines = [
        "# What the stream readers cost",
        "",
        f"Written by `{command}` on {origin['date']}: {rounds} rounds, in which all readers take turns; "
        f"{machine['cores']} cores of {machine['processor']}, load average {load[0]:.1f} before and "
        f"{load[1]:.1f} after; {versions}; revision {origin['git_revision']}.",
        "",
        f"A process of its own sends the recorded stream `{stream}` many times over, each chunk in one "
        "message and one chunk of HTTP. CPU is that of the client's process, requests included; all readers "
        "keep their connections. 'Raw boto3' is the least that a program can do: iterate botocore's "
        "EventStream and `json.loads` each event; it checks nothing, and of streams cut at random it would "
        "lose text. Ours find the same chunks, typed, timed and checked. 'Bare aiohttp' takes the bytes and "
        "looks at none: what asyncio costs by itself, most of all where every chunk wakes it.",
        "",
        "| stream | reader | CPU us/chunk, median | least | over raw boto3 [95%] | chunks/s, median |",
        "|---|---|---|---|---|---|",
        *_rows(readings),
        "",
        "| import | CPU ms, median of 7 | least | loads boto3 |",
        "|---|---|---|---|",
        *(
            f"| {one.what} | {statistics.median(one.cpu_ms):.1f} | {min(one.cpu_ms):.1f} "
            f"| {'yes' if one.boto3 else 'no'} |"
            for one in imports
        ),
        "",
        "## What must hold",
        "",
        *_verdicts(readings, imports),
        "",
    ]
    return "\n".join(lines)


def _of(readings: Sequence[Reading], reader: str, gap_ms: float) -> list[Reading]:
    return [one for one in readings if (one.reader, one.gap_ms) == (reader, gap_ms)]


def _cases(readings: Sequence[Reading]) -> list[tuple[str, float]]:
    return list(dict.fromkeys((one.reader, one.gap_ms) for one in sorted(readings, key=lambda r: r.gap_ms)))


def _ratio_of(
    readings: Sequence[Reading], reader: str, gap_ms: float, base: str = _RAW
) -> tuple[float, float, float]:
    ours = [one.cpu_us_per_chunk for one in _of(readings, reader, gap_ms)]
    return ratio(ours, [one.cpu_us_per_chunk for one in _of(readings, base, gap_ms)])


def _paced(gap_ms: float) -> str:
    return f"one chunk every {gap_ms:g} ms" if gap_ms else "as fast as it is read"


def _rows(readings: Sequence[Reading]) -> list[str]:
    rows = []
    for reader, gap_ms in _cases(readings):
        those = _of(readings, reader, gap_ms)
        cpu = [one.cpu_us_per_chunk for one in those]
        over = "-"
        if reader != _RAW:
            middle, low, high = _ratio_of(readings, reader, gap_ms)
            over = f"{middle - 1:+.0%} [{low - 1:+.0%}, {high - 1:+.0%}]"
        rate = f"{statistics.median(one.chunks_per_s for one in those):,.0f}" if not gap_ms else "-"
        middle_us = statistics.median(cpu)
        rows.append(f"| {_paced(gap_ms)} | {reader} | {middle_us:.1f} | {min(cpu):.1f} | {over} | {rate} |")
    return rows


def _verdicts(readings: Sequence[Reading], imports: Sequence[ImportCost]) -> list[str]:
    verdicts = []
    for reader, gap_ms in _cases(readings):
        if reader in (_RAW, _BARE):
            continue
        _, _, high = _ratio_of(readings, reader, gap_ms)
        verdicts.append(
            _verdict(
                high <= MAX_RATIO,
                f"{reader}, {_paced(gap_ms)}: at most {MAX_RATIO - 1:.0%} CPU a chunk over raw boto3 "
                f"(the interval ends at {high - 1:+.0%}){_beside(readings, reader, gap_ms)}",
            )
        )
        if not gap_ms:
            rate = statistics.median(one.chunks_per_s for one in _of(readings, reader, gap_ms))
            verdicts.append(
                _verdict(
                    rate > MIN_CHUNKS_PER_S, f"{reader}: over {MIN_CHUNKS_PER_S:,} chunks/s ({rate:,.0f})"
                )
            )
    first = imports[0]
    cost = statistics.median(first.cpu_ms)
    verdicts.append(
        _verdict(
            cost < MAX_IMPORT_MS and not first.boto3,
            f"`{first.what}` takes less than {MAX_IMPORT_MS:.0f} ms of CPU and does not load boto3 "
            f"({cost:.1f} ms)",
        )
    )
    return verdicts


def _beside(readings: Sequence[Reading], reader: str, gap_ms: float) -> str:
    """What of it is asyncio's own."""
    if reader != _ASYNC or not _of(readings, _BARE, gap_ms):
        return ""
    middle, low, high = _ratio_of(readings, _BARE, gap_ms)
    return f"; bare aiohttp: {middle - 1:+.0%} [{low - 1:+.0%}, {high - 1:+.0%}]"


def _verdict(holds: bool, what: str) -> str:
    return f"- {'' if holds else '**does not hold:** '}{what}"
