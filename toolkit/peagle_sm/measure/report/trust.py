"""The sections on trust: whether the answers are the target's own, and where the figures come from. Pure.

They also say whether the measurement itself can be trusted, and how to get the figures again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from peagle_sm.core.display import Content, Safe, join, tag
from peagle_sm.measure.load.points import is_late
from peagle_sm.measure.report import formatting
from peagle_sm.measure.report.section import Section, arm_cell, folded, table
from peagle_sm.measure.report.verdict import checked
from peagle_sm.measure.report.view import View
from peagle_sm.measure.results.records import CheckRecord, Header

_MARKS = {True: ("pass", "✓ passed"), False: ("fail", "✗ failed"), None: ("open", "? not decided")}
_NOT_APPLICABLE = ("open", "not applicable")


def proof(view: View) -> Section | None:
    """Every check with what it could have caught; what failed comes first."""
    if not view.checks:
        return None
    order = {False: 0, None: 1, True: 2}
    ranked = sorted(view.checks, key=lambda check: 3 if not check.applicable else order[check.passed])
    several = len({(check.arm, check.baseline) for check in ranked}) > 1
    heads: list[Content] = ["check", "result"]
    heads += ["arm", "baseline"] if several else []
    heads += ["found", "would be caught"]
    rows = [_row(view, check, several) for check in ranked]
    shown = table(heads, rows, caption="Checks of the outputs", words=range(len(heads)))
    examples = [_examples(check) for check in ranked if check.examples and check.passed is not True]
    about = "" if several else (f" {view.label(ranked[0].arm)} against {view.label(ranked[0].baseline)}.")
    return Section("same-answers", "Same answers", checked(view.checks) + "." + about, join(shown, *examples))


def _row(view: View, check: CheckRecord, several: bool) -> list[Content]:
    kind, text = _MARKS[check.passed] if check.applicable else _NOT_APPLICABLE
    names = [arm_cell(view, check.arm), arm_cell(view, check.baseline)] if several else []
    return [check.name, tag("span", text, class_=f"mark {kind}"), *names, check.summary, check.power]


def _examples(check: CheckRecord) -> Safe:
    return folded(f"{check.name}: examples", *(tag("pre", text) for text in check.examples))


def trust(view: View) -> str:
    """Whether the client kept up, and what failed; empty where no point was measured."""
    points = [*view.points, *view.withheld]
    if not points:
        return ""
    lags = [lag for point in points if (lag := point.client.lag_p99_ms) is not None]
    shares = [share for point in points if (share := point.client.cpu_share) is not None]
    told = [f"largest lag p99 {formatting.number(max(lags))} ms"] if lags else []
    told += [f"{formatting.share(max(shares))} of a core at most"] if shares else []
    kept_up = sum(point.client.trusted for point in points)
    parts = [
        f"The client kept up at {kept_up} of {formatting.plural(len(points), 'point')}"
        + (f" ({', '.join(told)})." if told else ".")
    ]
    parts += [f"Its machine's load average was {busy}."] if (busy := _load_averages(view)) else []
    failed = sum(count for point in points for count in point.errors.values())
    parts.append("No request failed." if not failed else f"{formatting.plural(failed, 'request')} failed.")
    spent = sum(point.usd or 0.0 for point in points)
    if spent:
        parts.append(f"The measured windows cost {formatting.usd(spent)} USD.")
    return " ".join(parts)


def _load_averages(view: View) -> str:
    """``2.60``, or each run's own: ``2.60 in b.jsonl, 5.44 in c.jsonl``."""
    found = {
        name: max(busy)
        for name, each in view.files
        if (busy := [load for point in each.points if (load := point.machine_load) is not None])
    }
    if len(found) == 1:
        return formatting.number(next(iter(found.values())))
    return ", ".join(f"{formatting.number(load)} in {name}" for name, load in found.items())


def quality(view: View) -> Section | None:
    """The client's lag, errors, and points that are withheld because the client was the bottleneck."""
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
            told = f"latencies may read too long: {point.client.reason}"
            rows.append([point.load.label, arm_cell(view, point.arm), told])
        if point.errors:
            told = ", ".join(f"{count} x {name}" for name, count in sorted(point.errors.items()))
            share = sum(point.errors.values()) / max(1, point.requests)
            rows.append(
                [point.load.label, arm_cell(view, point.arm), f"{told} ({100 * share:.1f}% of requests)"]
            )
    body = (
        table(["load", "arm", "what"], rows, caption="What went wrong", words=(0, 1, 2)) if rows else Safe("")
    )
    return Section("quality", "The measurement itself", said, body)


_FIRST = ("date", "region", "git_revision", "seed")


def origin(view: View) -> Section:
    """Provenance of every file, and the warnings that reading them gave."""
    parts = [_file(header) for header in view.headers]
    if told := (*view.warnings, *view.empty, *view.interrupted):
        parts.append(tag("ul", *(tag("li", text) for text in told), class_="warnings"))
    parts.append(
        tag(
            "p",
            f"Every line of the files ({formatting.plural(view.requests, 'request')}) is inside this page: ",
            tag("code", "peagle-sm report THIS.html"),
            " reads them like the files they came from, and the button writes them out. ",
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
    """Nested settings as ``a.b.0`` and text."""
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
