"""The tables of docs/explanation/guard.md, from a tally."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tests.guard.simulator.judging.rivals import RIVALS
from tests.guard.simulator.judging.tally import BROKEN, Group, Tally, quantile

GUARD = "the guard"
RULES = [GUARD, *(rival.name for rival in RIVALS)]

BEGIN, END = "<!-- simulation: written by scripts/simulate-guard -->", "<!-- simulation: end -->"


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where the figures come from."""

    command: str
    worlds: int
    seed: int
    date: str
    python: str
    commit: str
    seconds: float
    """Wall time of the run."""
    jobs: int = 1
    """Processes at once."""


def by_rule(tally: Tally) -> list[str]:
    """Return the table that compares the rules."""
    lines = [
        "| rule | endpoints | killed in flight | killed before traffic within the grace "
        "| alive after the lifetime limit | left running | foreign deleted | double actions "
        "| USD after the last request: median (95%) |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for rule in RULES:
        group = tally.rules.get(rule)
        if group is None:
            continue
        cells = [_count(group, name) for name in ("in_flight", "before_return", "survivors", "left_running")]
        cells += [f"{group.counts[name]:,}" for name in ("foreign", "double")]
        money = f"{quantile(group.usd, 0.5):,.0f} ({quantile(group.usd, 0.95):,.0f})"
        name = f"**{rule}**" if rule == GUARD else rule
        lines.append(f"| {name} | {group.counts['lives']:,} | {' | '.join(cells)} | {money} |")
    return lines


def _count(group: Group, name: str) -> str:
    count = group.counts[name]
    return "0" if not count else f"{count:,} ({100 * group.share(name):.1f}%)"


def by_fault(tally: Tally) -> list[str]:
    """Return the guard's table by what goes wrong in the world; a world with two faults is in two rows."""
    lines = [
        "| what goes wrong | worlds | endpoints | turned off for idleness | promises broken "
        "| caught in the last minutes | quiet minutes at the end: median (95%) |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for fault in sorted(tally.faults):
        group = tally.faults[fault]
        broken = sum(group.counts[name] for name in BROKEN)
        tails = f"{quantile(group.tails, 0.5):,.0f} ({quantile(group.tails, 0.95):,.0f})"
        lines.append(
            f"| {fault} | {group.worlds:,} | {group.counts['lives']:,} | {group.counts['idle_offs']:,} "
            f"| {broken} | {group.counts['late_arrivals']} | {tails} |"
        )
    return lines


def sweeps(tally: Tally) -> list[str]:
    """Return the table of what a sweep asks of AWS."""
    bands = ((1, 1), (2, 4), (5, 100), (101, 200), (201, 300))
    lines = ["| endpoints in the account | sweeps | calls: median | calls: most |", "|---:|---:|---:|---:|"]
    for low, high in bands:
        found = Counter[int]()
        for size, calls in tally.sweeps.calls.items():
            if low <= size <= high:
                found.update(calls)
        if found:
            label = str(low) if low == high else f"{low} to {high}"
            middle = quantile(found.elements(), 0.5)
            lines.append(f"| {label} | {found.total():,} | {middle:,.0f} | {max(found):,} |")
    return lines


def promises(tally: Tally) -> list[str]:
    """Return one line per promise with the guard's count."""
    group = tally.rules[GUARD]
    words = {
        "in_flight": "killed in flight",
        "before_return": "killed before traffic that arrives within the grace",
        "too_early": "turned off for idleness before idle plus grace had passed",
        "kept_killed": "turned off for idleness during a lease",
        "survivors": "alive after the lifetime limit plus drain",
        "hours_missed": "a timetable's closing or opening missed where everything works",
        "foreign": "foreign endpoints deleted",
        "double": "double actions",
        "beyond_bound": "quiet for longer than the waste bound where everything works",
    }
    return [f"- {text}: **{group.counts[name]}**" for name, text in words.items()]


def section(tally: Tally, provenance: Provenance) -> str:
    """Return the generated part of docs/explanation/guard.md."""
    group = tally.rules[GUARD]
    lines = [
        BEGIN,
        f"{provenance.worlds:,} worlds, seed {provenance.seed}, {group.counts['lives']:,} endpoint lives "
        f"of ours; {provenance.date}, commit {provenance.commit}, Python {provenance.python}, "
        f"{provenance.seconds:,.0f} s in {_processes(provenance.jobs)}. Again: `{provenance.command}`.",
        "",
        "![The guard and the published rules](guard.svg)",
        "",
        *by_rule(tally),
        "",
        "The guard's promises, each a count over all its lives:",
        "",
        *promises(tally),
        "",
        f"Caught in the last minutes: {group.counts['late_arrivals']} lives (what that is stands below). "
        f"In flight when a limit (lifetime, budget, hours) cut, drain over: "
        f"{group.counts['cut_at_limit']} lives, by design.",
        "",
        "The guard by what goes wrong (a world with two faults stands in two rows):",
        "",
        *by_fault(tally),
        "",
        "What one sweep asks of AWS (calls of all kinds, register and notices included):",
        "",
        *sweeps(tally),
        END,
    ]
    return "\n".join(lines)


def _processes(jobs: int) -> str:
    return "one process" if jobs == 1 else f"{jobs} processes"


def replaced(document: str, part: str) -> str:
    """Return the document with its generated part replaced.

    Raises:
        ValueError: the document has no place for it.
    """
    if BEGIN not in document or END not in document:
        raise ValueError(
            f"docs/explanation/guard.md: the lines {BEGIN!r} and {END!r} are missing; "
            "put them where the tables belong"
        )
    before, _, rest = document.partition(BEGIN)
    return before + part + rest.partition(END)[2]
