"""Headline of the report: which mode is faster, by how much, its confidence and limits. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from peagle_bench.load.points import is_short
from peagle_bench.report import formatting
from peagle_bench.report.view import View, load_value
from peagle_bench.results.records import (
    CheckRecord,
    ComparisonRecord,
    FitRecord,
    Load,
    PackRecord,
    PointRecord,
)
from peagle_bench.step_times import StepTimes
from peagle_sm.core.spec.modes import SPECULATING, title_of

#: Pairs of modes for the headline, best first.
_QUESTIONS = (("p-eagle", "eagle3"), *((mode, "none") for mode in reversed(SPECULATING)))
_PROOF = ("candidate", "serving")  #: arms of `learn prove`
_CLAIMS = {
    "faster": "{a} is {ratio} {b}",
    "slower": "{a} is slower than {b}: {ratio}",
    "open": "No significant difference between {a} and {b}",
}


@dataclass(frozen=True)
class Verdict:
    """Headline of a report; ``figure`` is its emphasised part, ``second`` covers the highest load.

    ``limits`` say how far the headline applies; a watermark (not a real model's figures) comes first.
    """

    headline: str
    figure: str
    limits: tuple[str, ...]
    second: str = ""
    gain: bool = False  #: the difference is significant and an improvement


def chief(view: View) -> ComparisonRecord | None:
    """Choose the headline's comparison: P-EAGLE over EAGLE-3 if possible, at the lowest load.

    Of a proof it is the candidate over the serving head.
    """
    rows = [row for row in view.comparisons if not row.control]
    proof = [row for row in rows if (row.faster, row.slower) == _PROOF]
    if proof:
        return proof[0]
    for faster, slower in _QUESTIONS:
        matching = [row for row in rows if _modes(view, row) == (faster, slower)]
        if matching:
            return min(matching, key=lambda row: (row.load.kind, load_value(row.load)))
    return min(rows, key=lambda row: (row.load.kind, load_value(row.load)), default=None)


def _modes(view: View, row: ComparisonRecord) -> tuple[str, str]:
    return view.arm(row.faster).mode, view.arm(row.slower).mode


def verdict(view: View) -> Verdict:
    """Summarise the files in one sentence."""
    result = _verdict(view)
    if view.interrupted:
        result = replace(result, headline=f"{result.headline} ({'; '.join(view.interrupted)})")
    mark = view.watermark
    return replace(result, limits=(mark, *result.limits)) if mark else result


def _verdict(view: View) -> Verdict:
    row = chief(view)
    if row is not None:
        figure = formatting.ratio(row.ratio.value)
        gain = row.significant and row.ratio.value > 1
        return Verdict(claim(view, row), figure, limits(view, row), _other_end(view, row), gain)
    if view.points:
        return _of_points(view)
    if view.fits:
        return _of_fits(view)
    if view.step_times:
        return _of_step_times(view.step_times)
    if view.checks:
        unfinished = view.interrupted and all(check.passed is not False for check in view.checks)
        return Verdict("The checks did not finish" if unfinished else checked(view.checks), "", ())
    if view.packs:
        return Verdict(scored(view.packs), "", ())
    if view.withheld:
        reason = view.withheld[0].client.reason or "it was the bottleneck"
        return Verdict("No figures to publish: the client could not keep up", "", (reason,))
    return Verdict("The file has no finished load", "", view.empty)


def _begun(text: str) -> str:
    """Capitalise a mode's name at the start of a sentence; endpoint names stay unchanged."""
    plain = title_of("none")
    return text[0].upper() + text[1:] if text.startswith(plain) else text


def _other_end(view: View, row: ComparisonRecord) -> str:
    """Describe the same pair at the highest load, where a gain at c=1 may be lost."""
    pair = row.faster, row.slower
    rows = [each for each in view.comparisons if (each.faster, each.slower) == pair]
    last = max(rows, key=lambda each: (each.load.kind == row.load.kind, load_value(each.load)))
    if last.load == row.load:
        return ""
    if last.doubt is not None:
        return f"No verdict at {last.load.label} ({last.doubt}): {formatting.with_span(last.ratio)}."
    if not last.significant:
        return f"No significant difference at {last.load.label}: {formatting.with_span(last.ratio)}."
    return f"At {last.load.label}: {formatting.with_span(last.ratio)}."


def claim(view: View, row: ComparisonRecord) -> str:
    """Write ``P-EAGLE is 1.31x EAGLE-3 [1.20, 1.42] at c=1, in this deployment`` or no difference.

    One deployment's interval is over its prompts or blocks: of two deployments that differ by 3% it calls the
    difference significant in most cases (tests/bench/compare/test_coverage.py).
    """
    if row.doubt is not None:
        names = f"{view.label(row.faster)} and {view.label(row.slower)}"
        measured = f"{formatting.with_span(row.ratio)} at {row.load.label}"
        where = ", in this deployment" if row.deployments == 1 else ""
        return f"No verdict on {names}: {row.doubt}; measured {measured}{where}"
    kind = "open" if not row.ratio.shown else "faster" if row.ratio.value > 1 else "slower"
    a, b = view.label(row.faster), view.label(row.slower)
    text = _CLAIMS[kind].format(a=a, b=b, ratio=formatting.ratio(row.ratio.value))
    text = _begun(text)
    figure = f"{formatting.ratio(row.ratio.value)} " if kind == "open" else ""
    reach = ", in this deployment" if row.deployments == 1 else ""
    colon, span = ":" if kind == "open" else "", formatting.span(row.ratio)
    return f"{text}{colon} {figure}{span} at {row.load.label}{reach}"


def limits(view: View, row: ComparisonRecord) -> tuple[str, ...]:
    """List how far a comparison applies: deployments, units of the interval, workload, temperature."""
    reach = "this deployment only" if row.deployments == 1 else f"over {row.deployments} deployments"
    lines = [reach, f"95% interval over {formatting.plural(row.units, row.over[:-1])}"]
    if (row.faster, row.slower) == _PROOF:  # the file does not know what else the serving head answered
        accepted = "" if row.acceptance_ratio is None else f" ({formatting.with_span(row.acceptance_ratio)})"
        lines.append(
            f"the proof decides by acceptance{accepted}: other traffic of the serving head flatters the"
            " candidate's speed"
        )
    if (name := workload_name(view)) is not None:
        lines.append(name)
    if (temperature := temperature_of(view, row.load)) is not None:
        lines.append(f"temperature {temperature:g}")
    return tuple(lines)


def workload_name(view: View) -> str | None:
    """Return the workload's name if all files agree; else None."""
    return name_of_workload(view.setting("workload"))


def name_of_workload(setting: Any) -> str | None:
    """Return the workload's name from a run's setting ``workload``; None without one."""
    name = setting.get("name") if isinstance(setting, dict) else setting
    return str(name) if name else None


def temperature_of(view: View, load: Load | None = None) -> float | None:
    """Return the temperature of the points (of one load) if they agree; else None."""
    temperatures = {point.temperature for point in view.points if load is None or point.load == load}
    if temperatures == {None} or not temperatures:
        workload = view.setting("workload")
        value = workload.get("temperature") if isinstance(workload, dict) else None
        return None if value is None else float(value)
    return temperatures.pop() if len(temperatures) == 1 else None


def _of_step_times(files: Sequence[StepTimes]) -> Verdict:
    """Say what the file is for; it has no rate of a mode."""
    times = files[0]
    ks = ", ".join(map(str, times.ks))
    return Verdict(
        f"Step times of {times.target} with {times.title}, K={ks}: no rate of a head",
        "",
        ("`peagle-sm decide --step-times` and `learn plan --step-times` predict one",),
    )


def _of_fits(view: View) -> Verdict:
    """Summarise fits: the best K at each load of P-EAGLE, or of the first tuned mode."""
    modes = [fit.mode for fit in view.fits]
    mode = "p-eagle" if "p-eagle" in modes else modes[0]
    fits = sorted((fit for fit in view.fits if fit.mode == mode), key=lambda fit: load_value(fit.load))
    best = ", ".join(f"{fit.best_k} at {fit.load.label}" for fit in fits)
    least = min(fit.deployments for fit in fits)
    reach = "this deployment only" if least == 1 else f"from {least} deployments"
    rates = "; ".join(text for fit in fits if (text := _rates(fit)))
    second = f"Tokens per second: {rates}." if rates else ""
    headline = _of_fit(fits[0], best, several=len(fits) > 1)
    return Verdict(headline, "", (reach,), second)


def _of_fit(fit: FitRecord, best: str, *, several: bool) -> str:
    """Write the K that goes into the spec and whether it is certain; older files have only the best ones."""
    name = title_of(fit.mode)
    if fit.chosen_k is None:
        return f"Best K for {name}: {best}"
    sure = "" if fit.certain else ", not certain"
    return f"K={fit.chosen_k} for {name}{sure}" + (f"; each load alone: {best}" if several else "")


def _rates(fit: FitRecord) -> str:
    """Write the rates of the best K and of no speculation; empty if one of them is unknown."""
    by_k = {point.k: point.otps for point in fit.points}
    if 0 not in by_k or fit.best_k not in by_k:
        return ""
    chosen, plain = formatting.number(by_k[fit.best_k]), formatting.number(by_k[0])
    return f"{chosen} at {fit.load.label} with K={fit.best_k}, {plain} without speculation"


def first_point(view: View) -> PointRecord:
    """Choose the fastest arm's point at the lowest load, for a headline without comparisons."""
    load = min((point.load for point in view.points), key=lambda each: (each.kind, load_value(each)))
    points = [point for point in view.points if point.load == load]
    real = [point for point in points if not view.arm(point.arm).control]
    return max(real or points, key=lambda point: point.otps)


def _of_points(view: View) -> Verdict:
    point = first_point(view)
    label = view.label(point.arm)
    figure = f"{formatting.number(point.otps)} tokens/s"
    limits = [name] if (name := workload_name(view)) is not None else []
    if (temperature := temperature_of(view, point.load)) is not None:
        limits.append(f"temperature {temperature:g}")
    if is_short(point):
        limits.append("rate may be too high: the window is too short")
    if len({each.arm for each in view.points}) > 1:
        limits.append("no confidence interval: use `peagle-sm compare`")
    headline = f"{_begun(label)}: {figure} at {point.load.label}"
    return Verdict(headline, figure, tuple(limits))


def checked(checks: Sequence[CheckRecord]) -> str:
    """Write ``Outputs are the target's own: 9 of 9 checks passed``, or which checks did not pass."""
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
        return f"{passed} of {applicable} checks passed; undecided: {left}{besides}{of}"
    if not passed:
        return f"Nothing was checked{besides}{of}"
    return f"Outputs are the target's own: {passed} of {applicable} checks passed{besides}{of}"


def scored(packs: Sequence[PackRecord]) -> str:
    """Write ``3 of 4 workload packs passed; failed: rag``; a pack passes if it passes on every arm."""
    names = list(dict.fromkeys(pack.pack for pack in packs))
    results = {name: {pack.passed for pack in packs if pack.pack == name} for name in names}
    failed = [name for name in names if False in results[name]]
    open_ = [name for name in names if None in results[name] and name not in failed]
    passed = len(names) - len(failed) - len(open_)
    text = f"{passed} of {formatting.plural(len(names), 'workload pack')} passed"
    text += f"; failed: {', '.join(failed)}" if failed else ""
    return text + (f"; not measured: {', '.join(open_)}" if open_ else "")


NO_DIFFERENCE = "no significant difference"
FINE = 1.02  #: the result estimates how many prompts are needed to detect this ratio
CONTROL_WITHIN = 0.10  #: the A/A interval must be within 1 +- this for "1, as expected"


def outcome_of(row: ComparisonRecord, faster: str | None = None, slower: str | None = None) -> str:
    """Return a comparison's result in words; of the A/A test, whether the run can be trusted.

    ``faster`` and ``slower`` are the arms' names for the reader; None is as in the file.
    """
    if row.control and row.ratio.shown:
        return "differs from 1: see the note"
    if row.doubt is not None:
        return f"no verdict: {row.doubt}"
    if row.control:
        if row.ratio.low >= 1 - CONTROL_WITHIN and row.ratio.high <= 1 + CONTROL_WITHIN:
            return "1, as expected"
        # A wide interval contains 1 but proves nothing.
        return f"{NO_DIFFERENCE}, but too few {row.over} to be sure"
    if row.ratio.shown:
        reach = " in this deployment" if row.deployments == 1 else ""
        name = (faster or row.faster) if row.ratio.value > 1 else (slower or row.slower)
        return f"{name} is faster{reach}"
    half = math.log(row.ratio.high / row.ratio.low) / 2
    text = f"{NO_DIFFERENCE} (+-{math.expm1(half):.1%}"
    if row.over != "deployments" and half > math.log(FINE):
        needed = math.ceil(row.units * (half / math.log(FINE)) ** 2)
        text += f"; +-{FINE - 1:.0%} needs about {needed:,} {row.over}"
    return text + ")"
