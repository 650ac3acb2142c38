"""``scripts/simulate-guard``: run many worlds of each kind, and name those in which a promise was broken."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator

from tests.guard.simulator.campaign import campaign
from tests.guard.simulator.judging.judge import Tally
from tests.guard.simulator.kinds import KINDS, MIXED, PLAIN

Campaign = Callable[[str, int, int, int], Iterator[Tally]]
SHOWN = 20
"""Broken worlds of a kind that are shown."""


def main(arguments: list[str] | None = None, run: Campaign = campaign) -> int:
    """Run the simulator; 1 if the guard broke a promise in any world."""
    parser = argparse.ArgumentParser(
        prog="scripts/simulate-guard",
        description="Simulates the guard over seeded worlds (docs/explanation/guard.md). "
        "Ends with 1 if the guard breaks a promise.",
    )
    parser.add_argument("--worlds", type=_count, default=10_000, help="worlds of each kind [default: 10000]")
    parser.add_argument(
        "--kind", choices=("all", MIXED, PLAIN, *KINDS), default="all", help="kind of worlds [default: all]"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the first world [default: 0]")
    parser.add_argument("--jobs", type=_count, default=1, help="processes at once [default: 1]")
    given = parser.parse_args(arguments)
    failed = 0
    for kind in (MIXED, PLAIN, *KINDS) if given.kind == "all" else (given.kind,):
        tally = Tally()
        for tally in run(kind, given.worlds, given.seed, given.jobs):
            print(f"{kind}: {tally.worlds:,} of {given.worlds:,} worlds", file=sys.stderr)
        counts = ", ".join(f"{name} {count}" for name, count in sorted(tally.counts.items()) if count)
        print(
            f"{kind}: {tally.worlds:,} worlds, {tally.lives:,} lives, {tally.idle_offs:,} turned off for "
            f"idleness, {len(tally.broken)} worlds with a broken promise; counts: {counts or 'all 0'}"
        )
        for text in tally.broken[:SHOWN]:
            print(f"  {text}")
        failed += len(tally.broken)
    return 1 if failed else 0


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"found {text!r}; allowed: a whole number, at least 1")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
