"""Report sections on trust: checks of the answers, health of the measurement, provenance. Pure.

They show whether the answers are the target's own, whether the client kept up, and how to reproduce the
figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from peagle_bench.load.points import is_late
from peagle_bench.report import formatting
from peagle_bench.report.blocks import (
    Badge,
    Cell,
    Folded,
    Notes,
    PageTable,
    Section,
    arm_cell,
    pair_cell,
)
from peagle_bench.report.rendering import Rendered
from peagle_bench.report.verdict import checked, scored
from peagle_bench.report.view import View
from peagle_bench.results.records import CheckRecord, Header

_MARKS = {True: ("pass", "✓ "), False: ("fail", "✗ "), None: ("open", "? ")}


def proof(view: View) -> Section | None:
    """Make the section on checks, failed ones first, each with the faults that it detects."""
    if not view.checks:
        return None
    order = {False: 0, None: 1, True: 2}
    ranked = sorted(view.checks, key=lambda check: 3 if not check.applicable else order[check.passed])
    several = len({(check.arm, check.baseline) for check in ranked}) > 1
    heads: list[Cell] = ["check", "result"]
    heads += ["arm", "baseline"] if several else []
    heads += ["found", "detects"]
    rows = [_row(view, check, several) for check in ranked]
    examples = [
        Folded(f"{check.name}: examples", [Examples(check.examples)])
        for check in ranked
        if check.examples and check.passed is not True
    ]
    blocks = [PageTable(heads, rows, "Checks of the outputs", range(len(heads))), *examples]
    about = "" if several else f" {view.label(ranked[0].arm)} against {view.label(ranked[0].baseline)}."
    return Section("same-answers", "Same answers", f"{checked(view.checks)}.{about}", blocks)


@dataclass(frozen=True)
class Examples(Rendered):
    """Answers that a check found, as they are."""

    texts: Sequence[str]
    template: ClassVar[str] = "examples.html"


def _row(view: View, check: CheckRecord, several: bool) -> list[Cell]:
    kind, sign = _MARKS[check.passed] if check.applicable else ("open", "")
    names = [arm_cell(view, check.arm), arm_cell(view, check.baseline)] if several else []
    return [check.name, Badge(kind, f"{sign}{check.result}"), *names, check.summary, check.power]


_PACK_MARKS = {True: ("pass", "✓ pass"), False: ("fail", "✗ fail"), None: ("open", "? not measured")}


def scorecard(view: View) -> Section | None:
    """Make the section on workload packs: a row for each pack and arm, and the checks of each below."""
    if not view.packs:
        return None
    rows: list[list[Cell]] = [
        [
            pack.pack,
            arm_cell(view, pack.arm),
            Badge(*_PACK_MARKS[pack.passed]),
            pack.figure or formatting.DASH,
            pack.why,
        ]
        for pack in view.packs
    ]
    details = [
        [pack.pack, arm_cell(view, pack.arm), *_row(view, check, several=False)]
        for pack in view.packs
        for check in pack.checks
    ]
    heads = ["pack", "arm", "result", "figure", "why"]
    names = ["pack", "arm", "check", "result", "found", "detects"]
    notes = [f"{pack.pack}, {view.label(pack.arm)}: {note}" for pack in view.packs for note in pack.notes]
    checks = PageTable(names, details, "Checks of the packs", range(len(names)))
    blocks = [
        PageTable(heads, rows, "Scorecard of the workload packs", range(len(heads))),
        *([Folded("Checks of each pack", [checks])] if details else []),
        *([Notes(notes)] if notes else []),
    ]
    return Section("packs", "Workload packs", f"{scored(view.packs)}.", blocks)


def trust(view: View) -> str:
    """Describe whether the client kept up, and what failed; empty without points."""
    points = [*view.points, *view.withheld]
    if not points:
        return ""
    lags = [lag for point in points if (lag := point.client.lag_p99_ms) is not None]
    shares = [share for point in points if (share := point.client.cpu_share) is not None]
    details = [f"largest p99 lag {formatting.number(max(lags))} ms"] if lags else []
    details += [f"at most {formatting.share(max(shares))} of a core"] if shares else []
    kept_up = sum(point.client.trusted for point in points)
    parts = [
        f"The client kept up at {kept_up} of {formatting.plural(len(points), 'point')}"
        + (f" ({', '.join(details)})." if details else ".")
    ]
    parts += [f"Its machine's load average was {busy}."] if (busy := _load_averages(view)) else []
    failed = sum(count for point in points for count in point.errors.values())
    parts.append("No request failed." if not failed else f"{formatting.plural(failed, 'request')} failed.")
    spent = sum(point.usd or 0.0 for point in points)
    if spent:
        parts.append(f"The measured windows cost {formatting.usd(spent)} USD.")
    return " ".join(parts)


def _load_averages(view: View) -> str:
    """Format the load averages: ``2.60``, or ``2.60 in b.jsonl, 5.44 in c.jsonl`` for several runs."""
    averages = {
        name: max(busy)
        for name, each in view.files
        if (busy := [load for point in each.points if (load := point.machine_load) is not None])
    }
    if len(averages) == 1:
        return formatting.number(next(iter(averages.values())))
    return ", ".join(f"{formatting.number(load)} in {name}" for name, load in averages.items())


def quality(view: View) -> Section | None:
    """Make the section on the client's lag, errors, and withheld points."""
    summary = trust(view)
    if not summary:
        return None
    rows: list[list[Cell]] = []
    for point in view.withheld:
        reason = point.client.reason or "the client was the bottleneck"
        rows.append([point.load.label, arm_cell(view, point.arm), f"withheld: {reason}"])
    for late in view.withheld_comparisons:
        names = pair_cell(view, late.faster, late.slower)
        rows.append([late.load.label, names, "withheld: measured while the client was the bottleneck"])
    for point in view.points:
        if is_late(point.client):
            note = f"measured latencies may be too long: {point.client.reason}"
            rows.append([point.load.label, arm_cell(view, point.arm), note])
        if point.errors:
            errors = ", ".join(f"{count} x {name}" for name, count in sorted(point.errors.items()))
            share = sum(point.errors.values()) / max(1, point.requests)
            rows.append(
                [point.load.label, arm_cell(view, point.arm), f"{errors} ({100 * share:.1f}% of requests)"]
            )
    problems = [PageTable(["load", "arm", "problem"], rows, "Problems", (0, 1, 2))] if rows else []
    return Section("quality", "Quality of the measurement", summary, problems)


_FIRST = ("date", "region", "git_revision", "seed")


@dataclass(frozen=True)
class Facts(Rendered):
    """Names with their values."""

    rows: Sequence[tuple[str, str]]
    template: ClassVar[str] = "facts.html"


def origin(view: View) -> Section:
    """Make the section on the provenance of every file, with the warnings of reading them."""
    blocks: list[Rendered] = []
    for header in view.headers:
        blocks.append(Facts(_facts(header)))
    warnings = (*view.warnings, *view.empty, *view.interrupted)
    blocks += [Notes(warnings, "warnings")] if warnings else []
    return Section("provenance", "Provenance", "", blocks)


def _facts(header: Header) -> list[tuple[str, str]]:
    """Return the facts of a file; all settings are in its header."""
    origin = header.provenance
    facts = [("run", f"{header.run_id}, peagle-sm {header.command}")]
    facts += [(name.replace("_", " "), str(origin[name])) for name in _FIRST if origin.get(name) is not None]
    for name in ("versions", "machine"):
        if isinstance(origin.get(name), Mapping):
            facts.append((name, ", ".join(f"{key} {value}" for key, value in origin[name].items())))
    facts += [("figures of", header.label)] if header.label else []
    return facts
