"""The report's first words: which mode is faster, by how much, how sure, and how far it reaches. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from peagle_sm.measure.records import CheckRecord, ComparisonRecord, FitRecord, Load, PointRecord
from peagle_sm.measure.report import words
from peagle_sm.measure.report.view import View, load_value

#: Which pairs answer the reader's question, best first.
_QUESTIONS = (("p-eagle", "eagle3"), ("p-eagle", "none"), ("eagle3", "none"))
_CLAIMS = {
    "faster": "{a} is {ratio} {b}",
    "slower": "{a} is slower than {b}: {ratio}",
    "open": "No difference shown between {a} and {b}",
}


@dataclass(frozen=True)
class Verdict:
    """``headline`` is the sentence, ``figure`` the part to stress, ``second`` the other end of the loads.

    ``limits`` say how far it reaches; that weights or figures are not a real model's stands first.
    """

    headline: str
    figure: str
    limits: tuple[str, ...]
    second: str = ""
    gain: bool = False  #: a difference is shown, and it is the good one


def chief(view: View) -> ComparisonRecord | None:
    """The comparison that the headline tells: P-EAGLE against EAGLE-3 first, at the least load."""
    rows = [row for row in view.comparisons if not row.control]
    for faster, slower in _QUESTIONS:
        found = [row for row in rows if _modes(view, row) == (faster, slower)]
        if found:
            return min(found, key=lambda row: (row.load.kind, load_value(row.load)))
    return min(rows, key=lambda row: (row.load.kind, load_value(row.load)), default=None)


def _modes(view: View, row: ComparisonRecord) -> tuple[str, str]:
    return view.arm(row.faster).mode, view.arm(row.slower).mode


def verdict(view: View) -> Verdict:
    """What the files say, in one sentence; what is missing is not made up for."""
    said = _verdict(view)
    if view.interrupted:
        said = replace(said, headline=f"{said.headline} ({'; '.join(view.interrupted)})")
    mark = view.watermark
    return replace(said, limits=(mark, *said.limits)) if mark else said


def _verdict(view: View) -> Verdict:
    row = chief(view)
    if row is not None:
        figure = words.ratio(row.ratio.value)
        gain = row.ratio.shown and row.ratio.value > 1
        return Verdict(claim(view, row), figure, limits(view, row), _other_end(view, row), gain)
    if view.points:
        return _of_points(view)
    if view.fits:
        return _of_fits(view)
    if view.checks:
        unfinished = view.interrupted and all(check.passed is not False for check in view.checks)
        return Verdict("The checks did not finish" if unfinished else checked(view.checks), "", ())
    if view.withheld:
        reason = view.withheld[0].client.reason or "it was the bottleneck"
        return Verdict("Nothing to publish: the client could not keep up", "", (reason,))
    return Verdict("No finished load is in the file", "", view.empty)


def _begun(text: str) -> str:
    """As a sentence begins; an endpoint's own name stays as it is written."""
    plain = words.MODE_NAMES["none"]
    return text[0].upper() + text[1:] if text.startswith(plain) else text


def _other_end(view: View, row: ComparisonRecord) -> str:
    """The same pair at the greatest load: a gain at c=1 may be gone there."""
    pair = row.faster, row.slower
    rows = [each for each in view.comparisons if (each.faster, each.slower) == pair]
    last = max(rows, key=lambda each: (each.load.kind == row.load.kind, load_value(each.load)))
    if last.load == row.load:
        return ""
    if not last.ratio.shown:
        return f"No difference shown at {last.load.label}: {words.with_span(last.ratio)}."
    return f"At {last.load.label}: {words.with_span(last.ratio)}."


def claim(view: View, row: ComparisonRecord) -> str:
    """``P-EAGLE is 1.31x EAGLE-3 [1.20, 1.42] at c=1, in this deployment``, or that no difference was shown.

    One deployment's interval is over its prompts or blocks: of two deployments that differ by 3% it calls the
    difference significant in most cases (tests/measure/compare/test_coverage.py).
    """
    kind = "open" if not row.ratio.shown else "faster" if row.ratio.value > 1 else "slower"
    a, b = view.label(row.faster), view.label(row.slower)
    said = _CLAIMS[kind].format(a=a, b=b, ratio=words.ratio(row.ratio.value))
    said = _begun(said)
    figure = f"{words.ratio(row.ratio.value)} " if kind == "open" else ""
    reach = ", in this deployment" if row.deployments == 1 else ""
    return f"{said}{':' if kind == 'open' else ''} {figure}{words.span(row.ratio)} at {row.load.label}{reach}"


def limits(view: View, row: ComparisonRecord) -> tuple[str, ...]:
    """How far a comparison reaches: deployments, what the interval is over, workload, temperature."""
    reach = "this deployment only" if row.deployments == 1 else f"over {row.deployments} deployments"
    found = [reach, f"95% interval over {words.plural(row.units, row.over[:-1])}"]
    pairs = [(each.faster, each.slower, each.load) for each in view.comparisons]
    if pairs.count((row.faster, row.slower, row.load)) > 1:
        found.insert(0, f"run {view.run_of(row)}")
    if (name := workload_name(view)) is not None:
        found.append(name)
    if (temperature := temperature_of(view, row.load)) is not None:
        found.append(f"temperature {temperature:g}")
    return tuple(found)


def workload_name(view: View) -> str | None:
    """The prompts' name, where all files agree."""
    return name_of_workload(view.setting("workload"))


def name_of_workload(setting: Any) -> str | None:
    """Return the prompts' name from a run's setting ``workload``; None without one."""
    name = setting.get("name") if isinstance(setting, dict) else setting
    return str(name) if name else None


def temperature_of(view: View, load: Load | None = None) -> float | None:
    """The temperature of the points (of one load), where they agree."""
    found = {point.temperature for point in view.points if load is None or point.load == load}
    if found == {None} or not found:
        told = view.setting("workload")
        asked = told.get("temperature") if isinstance(told, dict) else None
        return None if asked is None else float(asked)
    return found.pop() if len(found) == 1 else None


def _of_fits(view: View) -> Verdict:
    """The K of one mode at each load, P-EAGLE's where it was tuned."""
    modes = [fit.mode for fit in view.fits]
    mode = "p-eagle" if "p-eagle" in modes else modes[0]
    fits = sorted((fit for fit in view.fits if fit.mode == mode), key=lambda fit: load_value(fit.load))
    said = ", ".join(f"{fit.best_k} at {fit.load.label}" for fit in fits)
    least = min(fit.deployments for fit in fits)
    reach = "this deployment only" if least == 1 else f"from {least} deployments"
    rates = "; ".join(told for fit in fits if (told := _rates(fit)))
    second = f"Tokens a second: {rates}." if rates else ""
    return Verdict(f"Best K for {words.MODE_NAMES[mode]}: {said}", "", (reach,), second)


def _rates(fit: FitRecord) -> str:
    """``233 at c=1 (127 without speculation)``; empty where the fit does not hold both."""
    by_k = {point.k: point.otps for point in fit.points}
    if 0 not in by_k or fit.best_k not in by_k:
        return ""
    chosen, plain = words.number(by_k[fit.best_k]), words.number(by_k[0])
    return f"{chosen} at {fit.load.label} with K={fit.best_k}, {plain} without speculation"


def first_point(view: View) -> PointRecord:
    """The fastest arm's point at the least load: what is told where nothing was compared."""
    load = min((point.load for point in view.points), key=lambda each: (each.kind, load_value(each)))
    points = [point for point in view.points if point.load == load]
    real = [point for point in points if not view.arm(point.arm).control]
    return max(real or points, key=lambda point: point.otps)


def _of_points(view: View) -> Verdict:
    point = first_point(view)
    label = view.label(point.arm)
    figure = f"{words.number(point.otps)} tokens/s"
    limits = [name] if (name := workload_name(view)) is not None else []
    if (temperature := temperature_of(view, point.load)) is not None:
        limits.append(f"temperature {temperature:g}")
    if len({each.arm for each in view.points}) > 1:
        limits.append("no interval: `peagle-sm compare` measures one")
    headline = f"{_begun(label)} wrote {figure} at {point.load.label}"
    return Verdict(headline, figure, tuple(limits))


def checked(checks: Sequence[CheckRecord]) -> str:
    """``Outputs are the target's own: 9 of 9 checks passed``, or which were not, and of what endpoint."""
    failed = [check.name for check in checks if check.passed is False]
    undecided = [check.name for check in checks if check.undecided]
    passed = sum(check.passed is True for check in checks)
    applicable = sum(check.applicable for check in checks)
    left_out = list(dict.fromkeys(check.name for check in checks if not check.applicable))
    besides = f"; not applicable: {', '.join(left_out)}" if left_out else ""
    of = f" ({', '.join(dict.fromkeys(check.arm for check in checks))})"
    if failed:
        return f"Outputs are NOT the target's own: {', '.join(dict.fromkeys(failed))} failed{of}"
    if undecided:
        left = ", ".join(dict.fromkeys(undecided))
        return f"{passed} of {applicable} checks passed; not decided: {left}{besides}{of}"
    if not passed:
        return f"Nothing was checked{besides}{of}"
    return f"Outputs are the target's own: {passed} of {applicable} checks passed{besides}{of}"
