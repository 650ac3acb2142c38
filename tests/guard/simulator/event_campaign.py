"""Runs many worlds of one kind, adds up what the judge found, writes rows of docs/explanation/guard.md."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from tests.guard.simulator.guard_run import run_guard
from tests.guard.simulator.judging.judge_events import PROMISES, judge_events
from tests.guard.simulator.judging.tally import quantile
from tests.guard.simulator.kinds import KINDS, PLAIN, kind_world

BATCH = 100
"""Worlds between two lines of progress."""

BEGIN, END = "<!-- kinds: written by scripts/simulate-guard --kind -->", "<!-- kinds: end -->"

COLUMNS = {
    "in_grace": "request in the grace",
    "shown": "traffic shown",
    "kept": "kept",
    "no_reason": "no reason",
    "half": "half dismantled",
    "never_ended": "never ended",
    "overdue": "overdue",
    "other": "other",
    "blind": "blind",
    "lost": "lost for good",
    "streams": "long stream",
    "unproven": "quiet not provable",
}
OTHER = ("notices", "schedule_moved", "hours", "double", "crashes")

Progress = Callable[[int, float], None]
"""Called with the worlds done and the seconds so far."""


@dataclass(slots=True)
class KindTally:
    """What was found in the worlds of one kind."""

    kind: str
    worlds: int = 0
    lives: int = 0
    idle_offs: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    usd: list[float] = field(default_factory=list)
    """For each world: USD from the last request to the end, the mean of its lives."""
    broken: list[tuple[int, str]] = field(default_factory=list)
    """(seed, what) for each world with a broken promise."""

    def join(self, other: KindTally) -> None:
        """Add the tally of other worlds of the kind."""
        self.worlds += other.worlds
        self.lives += other.lives
        self.idle_offs += other.idle_offs
        self.counts.update(other.counts)
        self.usd += other.usd
        self.broken += other.broken

    @property
    def promises_broken(self) -> int:
        """Return how often a promise was broken."""
        return sum(self.counts[name] for name in PROMISES)


def kind_batch(kind: str, seeds: range) -> KindTally:
    """Run the worlds of some seeds."""
    tally = KindTally(kind)
    # A world's objects refer to each other and die together: one collection a batch is enough.
    gc.disable()
    try:
        for seed in seeds:
            world = kind_world(kind, seed)
            found = judge_events(world, run_guard(world))
            tally.worlds += 1
            tally.lives += found.lives
            tally.idle_offs += found.idle_offs
            tally.counts.update(found.counts)
            tally.usd += found.usd
            if found.notes:
                tally.broken.append((seed, "; ".join(found.notes)))
    finally:
        gc.enable()
    gc.collect()
    return tally


def kind_campaign(kind: str, worlds: int, seed: int, jobs: int, progress: Progress) -> KindTally:
    """Run worlds ``seed`` to ``seed + worlds - 1`` of a kind."""
    total, began = KindTally(kind), time.monotonic()
    parts = [range(first, min(first + BATCH, seed + worlds)) for first in range(seed, seed + worlds, BATCH)]
    run = partial(kind_batch, kind)
    with ProcessPoolExecutor(max_workers=jobs) as pool:
        for tally in map(run, parts) if jobs == 1 else pool.map(run, parts):
            total.join(tally)
            progress(total.worlds, time.monotonic() - began)
    return total


def row(tally: KindTally, commit: str) -> str:
    """Return a kind's row."""
    counts = {**tally.counts, "other": sum(tally.counts[name] for name in OTHER)}
    cells = [f"{counts.get(name, 0):,}" for name in COLUMNS]
    money = f"{quantile(tally.usd, 0.5):,.0f} ({quantile(tally.usd, 0.95):,.0f})"
    figures = [f"{tally.worlds:,}", f"{tally.lives:,}", f"{tally.idle_offs:,}", *cells, money, commit]
    return f"| {tally.kind} | {' | '.join(figures)} |"


def section(document: str, rows: Mapping[str, str]) -> str:
    """Return the document with these rows in its table; rows of other kinds stay.

    Raises:
        ValueError: the document has no place for the table.
    """
    if BEGIN not in document or END not in document:
        raise ValueError(
            f"docs/explanation/guard.md: the lines {BEGIN!r} and {END!r} are missing; "
            "put them where the table belongs"
        )
    before, _, rest = document.partition(BEGIN)
    old, _, after = rest.partition(END)
    known = {line.split("|")[1].strip(): line for line in old.splitlines() if line.startswith("| ")}
    merged = known | dict(rows)
    lines = [merged[kind] for kind in (PLAIN, *KINDS) if kind in merged]
    return before + "\n".join([BEGIN, *_head(), *lines, END]) + after


def _head() -> list[str]:
    names = ["worlds", "lives", "turned off for idleness", *COLUMNS.values(), "USD: median (95%)", "commit"]
    return [f"| kind | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]
