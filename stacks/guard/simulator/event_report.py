"""The table of docs/guard.md with one row for each kind of world."""

from __future__ import annotations

from collections.abc import Mapping

from stacks.guard.simulator.event_campaign import KindTally
from stacks.guard.simulator.kinds import KINDS, PLAIN
from stacks.guard.simulator.tally import quantile

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
OTHER = ("schedule_moved", "hours", "double", "crashes")


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
            f"docs/guard.md: the lines {BEGIN!r} and {END!r} are missing; put them where the table belongs"
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
