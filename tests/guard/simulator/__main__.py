"""``scripts/simulate-guard``: run the worlds, print the tables, write docs/explanation/guard.md and .svg."""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from tests.guard.simulator import event_campaign, waste
from tests.guard.simulator.campaign import campaign
from tests.guard.simulator.judging import picture, report
from tests.guard.simulator.judging.tally import Tally
from tests.guard.simulator.kinds import KINDS, PLAIN

ROOT = Path(__file__).resolve().parents[3]
SHOWN = 20
"""Broken worlds that are named on the screen."""


def main(arguments: list[str] | None = None) -> int:
    """Run the simulator; 1 where the guard broke a promise in any world."""
    given = _parser().parse_args(arguments)
    if given.waste:
        print(waste.table(waste.plain_waste(given.worlds, given.seed)))
        return 0
    return _kinds(given) if given.kind else _mixed(given)


def _mixed(given: argparse.Namespace) -> int:
    began = time.monotonic()
    tally = campaign(given.worlds, given.seed, given.jobs, lambda done, s: _progress(done, given.worlds, s))
    part = report.section(tally, _provenance(given, time.monotonic() - began))
    print(part)
    if not given.print_only:
        _write(given.out, part, tally)
    for seed, what in tally.broken[:SHOWN]:
        print(f"world {seed}: {what}", file=sys.stderr)
    for crash in tally.crashes[:SHOWN]:
        print(f"the guard's own code failed: {crash}", file=sys.stderr)
    failed = len(tally.broken) + len(tally.crashes)
    print(f"simulate-guard: {given.worlds:,} worlds, {failed} with a broken promise", file=sys.stderr)
    return 1 if failed else 0


def _kinds(given: argparse.Namespace) -> int:
    kinds = [PLAIN, *KINDS] if "all" in given.kind else given.kind
    failed, commit = 0, _commit()
    for kind in kinds:
        print(kind, file=sys.stderr)
        tally = event_campaign.kind_campaign(
            kind, given.worlds, given.seed, given.jobs, lambda done, s: _progress(done, given.worlds, s)
        )
        row = event_campaign.row(tally, commit)
        print(row, flush=True)
        if not given.print_only:
            document = given.out / "guard.md"
            text = event_campaign.section(document.read_text(encoding="utf-8"), {kind: row})
            document.write_text(text, encoding="utf-8")
        for seed, what in tally.broken[:SHOWN]:
            print(f"{kind} world {seed}: {what}", file=sys.stderr)
        failed += len(tally.broken)
    print(f"simulate-guard: {failed} worlds with a broken promise", file=sys.stderr)
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/simulate-guard",
        description="Simulates the guard and the rules that others publish over seeded worlds, and writes "
        "guard.md and guard.svg in docs/explanation. With --kind: worlds with one kind of event, and their "
        "rows in the table of kinds. Ends with 1 where the guard breaks a promise.",
    )
    parser.add_argument("--worlds", type=_count, default=10_000, help="how many worlds [default: 10000]")
    parser.add_argument(
        "--kind",
        action="append",
        choices=("all", PLAIN, *KINDS),
        help="worlds of this kind only, for the table of kinds; repeatable [default: the mixed worlds]",
    )
    parser.add_argument(
        "--waste", action="store_true", help="print what an unused endpoint costs in plain worlds, by cause"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the first world [default: 0]")
    parser.add_argument("--jobs", type=_count, default=1, help="processes at once [default: 1]")
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / "docs" / "explanation",
        help="folder of guard.md [default: docs/explanation]",
    )
    parser.add_argument("--print-only", action="store_true", help="write no file")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"found {text!r}; allowed: a whole number, at least 1")
    return int(text)


def _progress(done: int, worlds: int, seconds: float) -> None:
    left = seconds / done * (worlds - done)
    print(f"{done:,} of {worlds:,} worlds, {seconds:,.0f} s, about {left:,.0f} s left", file=sys.stderr)


def _provenance(given: argparse.Namespace, seconds: float) -> report.Provenance:
    return report.Provenance(
        command=f"scripts/simulate-guard --worlds {given.worlds} --seed {given.seed}",
        worlds=given.worlds,
        seed=given.seed,
        date=datetime.now(UTC).date().isoformat(),
        python=platform.python_version(),
        commit=_commit(),
        seconds=seconds,
        jobs=given.jobs,
    )


def _commit() -> str:
    head = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return head.stdout.strip() or "unknown"


def _write(folder: Path, part: str, tally: Tally) -> None:
    document = folder / "guard.md"
    text = report.replaced(document.read_text(encoding="utf-8"), part)
    document.write_text(text, encoding="utf-8")
    drawn = picture.draw(tally, report.RULES, report.GUARD)
    (folder / "guard.svg").write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
