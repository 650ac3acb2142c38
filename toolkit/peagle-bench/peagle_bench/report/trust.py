"""Report sections on trust: checks of the answers, health of the measurement, provenance. Pure.

They show whether the answers are the target's own, whether the client kept up, and how to reproduce the
figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from peagle_bench.load.points import is_late
from peagle_bench.report import formatting
from peagle_bench.report.section import Section, arm_cell, folded, table
from peagle_bench.report.verdict import checked, scored
from peagle_bench.report.view import View
from peagle_bench.results.records import CheckRecord, Header
from peagle_sm.core.display import Content, Safe, join, tag

_MARKS = {True: ("pass", "✓ passed"), False: ("fail", "✗ failed"), None: ("open", "? not decided")}
_NOT_APPLICABLE = ("open", "not applicable")


def proof(view: View) -> Section | None:
    """Make the section on checks, failed ones first, each with the faults that it detects."""
    if not view.checks:
        return None
    order = {False: 0, None: 1, True: 2}
    ranked = sorted(view.checks, key=lambda check: 3 if not check.applicable else order[check.passed])
    several = len({(check.arm, check.baseline) for check in ranked}) > 1
    heads: list[Content] = ["check", "result"]
    heads += ["arm", "baseline"] if several else []
    heads += ["found", "detects"]
    rows = [_row(view, check, several) for check in ranked]
    shown = table(heads, rows, caption="Checks of the outputs", words=range(len(heads)))
    examples = [
        folded(f"{check.name}: examples", *(tag("pre", text) for text in check.examples))
        for check in ranked
        if check.examples and check.passed is not True
    ]
    about = "" if several else (f" {view.label(ranked[0].arm)} against {view.label(ranked[0].baseline)}.")
    return Section("same-answers", "Same answers", checked(view.checks) + "." + about, join(shown, *examples))


def _row(view: View, check: CheckRecord, several: bool) -> list[Content]:
    kind, text = _MARKS[check.passed] if check.applicable else _NOT_APPLICABLE
    names = [arm_cell(view, check.arm), arm_cell(view, check.baseline)] if several else []
    return [check.name, tag("span", text, class_=f"mark {kind}"), *names, check.summary, check.power]


_PACK_MARKS = {True: ("pass", "✓ pass"), False: ("fail", "✗ fail"), None: ("open", "? not measured")}


def scorecard(view: View) -> Section | None:
    """Make the section on workload packs: a row for each pack and arm, and the checks of each below."""
    if not view.packs:
        return None
    rows: list[list[Content]] = []
    for pack in view.packs:
        kind, text = _PACK_MARKS[pack.passed]
        mark = tag("span", text, class_=f"mark {kind}")
        rows.append([pack.pack, arm_cell(view, pack.arm), mark, pack.figure or formatting.DASH, pack.why])
    heads = ["pack", "arm", "result", "figure", "why"]
    shown = table(heads, rows, caption="Scorecard of the workload packs", words=range(len(heads)))
    details = [
        [pack.pack, arm_cell(view, pack.arm), *_row(view, check, several=False)]
        for pack in view.packs
        for check in pack.checks
    ]
    names = ["pack", "arm", "check", "result", "found", "detects"]
    below = table(names, details, caption="Checks of the packs", words=range(len(names)))
    notes = [f"{pack.pack}, {view.label(pack.arm)}: {note}" for pack in view.packs for note in pack.notes]
    body = join(
        shown,
        folded("Checks of each pack", below) if details else None,
        tag("ul", *(tag("li", note) for note in notes), class_="note") if notes else None,
    )
    return Section("packs", "Workload packs", scored(view.packs) + ".", body)


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
    found = {
        name: max(busy)
        for name, each in view.files
        if (busy := [load for point in each.points if (load := point.machine_load) is not None])
    }
    if len(found) == 1:
        return formatting.number(next(iter(found.values())))
    return ", ".join(f"{formatting.number(load)} in {name}" for name, load in found.items())


def quality(view: View) -> Section | None:
    """Make the section on the client's lag, errors, and withheld points."""
    said = trust(view)
    if not said:
        return None
    rows: list[list[Content]] = []
    for point in view.withheld:
        reason = point.client.reason or "the client was the bottleneck"
        rows.append([point.load.label, arm_cell(view, point.arm), f"withheld: {reason}"])
    for late in view.withheld_comparisons:
        names = join(arm_cell(view, late.faster), " over ", arm_cell(view, late.slower))
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
    body = table(["load", "arm", "problem"], rows, caption="Problems", words=(0, 1, 2)) if rows else Safe("")
    return Section("quality", "Quality of the measurement", said, body)


_FIRST = ("date", "region", "git_revision", "seed")


def origin(view: View) -> Section:
    """Make the section on the provenance of every file, with the warnings of reading them."""
    parts = [_file(header) for header in view.headers]
    if warnings := (*view.warnings, *view.empty, *view.interrupted):
        parts.append(tag("ul", *(tag("li", text) for text in warnings), class_="warnings"))
    parts.append(
        tag(
            "p",
            f"This page contains every line of the files ({formatting.plural(view.requests, 'request')}): ",
            tag("code", "peagle-sm report THIS.html"),
            " reads them like the original files, and the button saves them. ",
            tag("button", "Save the data", id="save", type="button", hidden=""),
            class_="note",
        )
    )
    return Section("provenance", "Provenance", "", join(*parts))


def _file(header: Header) -> Safe:
    told = header.provenance
    facts: list[tuple[str, str]] = [("run", f"{header.run_id}, peagle-sm {header.command}")]
    facts += [(name.replace("_", " "), str(told[name])) for name in _FIRST if told.get(name) is not None]
    for name in ("versions", "machine"):
        if isinstance(told.get(name), Mapping):
            facts.append((name, ", ".join(f"{key} {value}" for key, value in told[name].items())))
    facts += [("weights", "small stand-ins")] if header.stand_in_weights else []
    rows = [join(tag("dt", name), tag("dd", value)) for name, value in facts]
    rest = {key: value for key, value in told.items() if key not in (*_FIRST, "versions", "machine")}
    more = [*flat(header.config, "config"), *flat(rest)]
    listed = tag("dl", *(join(tag("dt", name), tag("dd", value)) for name, value in more), class_="fine")
    return join(
        tag("dl", *rows, class_="facts"), folded("Settings, engines and hashes", listed) if more else None
    )


def flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Flatten nested settings to pairs of a path such as ``a.b.0`` and a text."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from flat(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple):
        if all(not isinstance(inner, Mapping | list | tuple) for inner in value):
            yield name, "; ".join(str(inner) for inner in value)
        else:
            for at, inner in enumerate(value):
                yield from flat(inner, f"{name}.{at}")
    elif value is not None:
        yield name, str(value)
