"""Whether the answers are the target's own, and whether the measurement itself can be trusted. Pure."""

from __future__ import annotations

from peagle_sm.core.display.markup import Content, Safe, join, tag
from peagle_sm.measure.records import CheckRecord
from peagle_sm.measure.report import words
from peagle_sm.measure.report.section import Section, arm_cell, folded, table
from peagle_sm.measure.report.verdict import checked
from peagle_sm.measure.report.view import View
from peagle_sm.measure.withholding import is_late

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
    told = [f"largest lag p99 {words.number(max(lags))} ms"] if lags else []
    told += [f"{words.share(max(shares))} of a core at most"] if shares else []
    kept_up = sum(point.client.trusted for point in points)
    parts = [
        f"The client kept up at {kept_up} of {words.plural(len(points), 'point')}"
        + (f" ({', '.join(told)})." if told else ".")
    ]
    parts += [f"Its machine's load average was {busy}."] if (busy := _load_averages(view)) else []
    failed = sum(count for point in points for count in point.errors.values())
    parts.append("No request failed." if not failed else f"{words.plural(failed, 'request')} failed.")
    spent = sum(point.usd or 0.0 for point in points)
    if spent:
        parts.append(f"The measured windows cost {words.usd(spent)} USD.")
    return " ".join(parts)


def _load_averages(view: View) -> str:
    """``2.60``, or each run's own: ``2.60 in b.jsonl, 5.44 in c.jsonl``."""
    found = {
        name: max(busy)
        for name, each in view.files
        if (busy := [load for point in each.points if (load := point.machine_load) is not None])
    }
    if len(found) == 1:
        return words.number(next(iter(found.values())))
    return ", ".join(f"{words.number(load)} in {name}" for name, load in found.items())


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
