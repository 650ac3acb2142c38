"""Adds up the verdicts of many worlds; tallies can be joined, so that worlds may run in several processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.guard.simulator.judging.judge import Verdict
from tests.guard.simulator.worlds.world import World

COUNTS = (
    "lives",
    "idle_offs",
    "in_flight",
    "before_return",
    "too_early",
    "late_arrivals",
    "cut_at_limit",
    "survivors",
    "left_running",
    "foreign",
    "double",
    "beyond_bound",
    "kept_killed",
    "hours_missed",
)

BROKEN = (
    "in_flight",
    "before_return",
    "too_early",
    "survivors",
    "foreign",
    "double",
    "beyond_bound",
    "kept_killed",
    "hours_missed",
)
"""What must be 0 for the guard."""

CLEAR = "nothing wrong"


@dataclass(slots=True)
class Group:
    """Verdicts of worlds that have something in common."""

    worlds: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    tails: list[float] = field(default_factory=list)
    """Minutes from the last request to the end, a figure for each life."""
    usd: list[float] = field(default_factory=list)
    """Wasted USD, a figure for each world, divided by its lives."""
    excess: list[float] = field(default_factory=list)

    def add(self, verdict: Verdict) -> None:
        """Add one world."""
        self.worlds += 1
        for name in COUNTS:
            self.counts[name] += getattr(verdict, name)
        self.tails.extend(verdict.tails)
        self.excess.extend(verdict.excess)
        if verdict.lives:
            self.usd.append(verdict.wasted_usd / verdict.lives)

    def join(self, other: Group) -> None:
        """Add another group of the same kind."""
        self.worlds += other.worlds
        self.counts.update(other.counts)
        self.tails.extend(other.tails)
        self.usd.extend(other.usd)
        self.excess.extend(other.excess)

    def share(self, name: str) -> float:
        """Return a count as a share of all lives, 0 to 1."""
        return self.counts[name] / self.counts["lives"] if self.counts["lives"] else 0.0


@dataclass(slots=True)
class Sweeps:
    """What the guard's sweeps asked of AWS, by the number of endpoints in the account."""

    calls: dict[int, Counter[int]] = field(default_factory=dict)
    """By the number of endpoints: how many sweeps made how many calls."""

    def add(self, endpoints: int, calls: int) -> None:
        """Add one sweep."""
        self.calls.setdefault(endpoints, Counter())[calls] += 1

    def join(self, other: Sweeps) -> None:
        """Add another's sweeps."""
        for endpoints, calls in other.calls.items():
            self.calls.setdefault(endpoints, Counter()).update(calls)


@dataclass(slots=True)
class Tally:
    """All results: by rule, by fault, the sweeps, and the worlds in which the guard broke a promise."""

    rules: dict[str, Group] = field(default_factory=dict)
    faults: dict[str, Group] = field(default_factory=dict)
    sweeps: Sweeps = field(default_factory=Sweeps)
    broken: list[tuple[int, str]] = field(default_factory=list)
    """(seed, what) for each world in which the guard broke a promise."""
    crashes: list[str] = field(default_factory=list)
    """Failures of the guard's own code that were no fault of AWS."""

    def add_rival(self, rule: str, verdict: Verdict) -> None:
        """Add one world under a published rule."""
        self.rules.setdefault(rule, Group()).add(verdict)

    def add_guard(self, rule: str, world: World, verdict: Verdict) -> None:
        """Add one world under the guard."""
        self.rules.setdefault(rule, Group()).add(verdict)
        for fault in world.faults or (CLEAR,):
            self.faults.setdefault(fault, Group()).add(verdict)
        failed = [name for name in BROKEN if getattr(verdict, name)]
        if failed:
            self.broken.append((world.seed, f"{', '.join(failed)}: {'; '.join(verdict.notes)}"))

    def join(self, other: Tally) -> None:
        """Add another tally."""
        for mine, theirs in ((self.rules, other.rules), (self.faults, other.faults)):
            for name, group in theirs.items():
                mine.setdefault(name, Group()).join(group)
        self.sweeps.join(other.sweeps)
        self.broken.extend(other.broken)
        self.crashes.extend(other.crashes)


def quantile(values: Iterable[float], share: float) -> float:
    """Return the value below which a share of the values lies (nearest rank); 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
