"""Headline of the report: which mode is faster, by how much, its confidence and limits. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from peagle_bench.load.points import is_short
from peagle_bench.report import formatting
from peagle_bench.report.costs import CostRow, cheapest, cost_rows
from peagle_bench.report.view import View, load_value
from peagle_bench.results.records import (
    CheckRecord,
    ComparisonRecord,
    FitRecord,
    Load,
    PackRecord,
    PointRecord,
    TableRecord,
)
from peagle_sm.core.spec.endpoint_spec import table_text

#: Pairs of modes for the headline, best first.
_QUESTIONS = (("p-eagle", "eagle3"), ("p-eagle", "none"), ("eagle3", "none"))
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
        found = [row for row in rows if _modes(view, row) == (faster, slower)]
        if found:
            return min(found, key=lambda row: (row.load.kind, load_value(row.load)))
    return min(rows, key=lambda row: (row.load.kind, load_value(row.load)), default=None)


def _modes(view: View, row: ComparisonRecord) -> tuple[str, str]:
    return view.arm(row.faster).mode, view.arm(row.slower).mode


def verdict(view: View) -> Verdict:
    """Summarise the files in one sentence."""
    said = _verdict(view)
    if view.interrupted:
        said = replace(said, headline=f"{said.headline} ({'; '.join(view.interrupted)})")
    mark = view.watermark
    return replace(said, limits=(mark, *said.limits)) if mark else said


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
    plain = formatting.MODE_NAMES["none"]
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
    said = _CLAIMS[kind].format(a=a, b=b, ratio=formatting.ratio(row.ratio.value))
    said = _begun(said)
    figure = f"{formatting.ratio(row.ratio.value)} " if kind == "open" else ""
    reach = ", in this deployment" if row.deployments == 1 else ""
    colon, span = ":" if kind == "open" else "", formatting.span(row.ratio)
    return f"{said}{colon} {figure}{span} at {row.load.label}{reach}"


def limits(view: View, row: ComparisonRecord) -> tuple[str, ...]:
    """List how far a comparison applies: deployments, units of the interval, workload, temperature."""
    reach = "this deployment only" if row.deployments == 1 else f"over {row.deployments} deployments"
    found = [reach, f"95% interval over {formatting.plural(row.units, row.over[:-1])}"]
    if (row.faster, row.slower) == _PROOF:  # the file does not know what else the serving head answered
        accepted = "" if row.acceptance_ratio is None else f" ({formatting.with_span(row.acceptance_ratio)})"
        found.append(
            f"the proof decides by acceptance{accepted}: other traffic of the serving head flatters the"
            " candidate's speed"
        )
    pairs = [(each.faster, each.slower, each.load) for each in view.comparisons]
    if pairs.count((row.faster, row.slower, row.load)) > 1:
        found.insert(0, f"run {view.run_of(row)}")
    if (name := workload_name(view)) is not None:
        found.append(name)
    if (temperature := temperature_of(view, row.load)) is not None:
        found.append(f"temperature {temperature:g}")
    return tuple(found)


def workload_name(view: View) -> str | None:
    """Return the workload's name if all files agree; else None."""
    return name_of_workload(view.setting("workload"))


def name_of_workload(setting: Any) -> str | None:
    """Return the workload's name from a run's setting ``workload``; None without one."""
    name = setting.get("name") if isinstance(setting, dict) else setting
    return str(name) if name else None


def temperature_of(view: View, load: Load | None = None) -> float | None:
    """Return the temperature of the points (of one load) if they agree; else None."""
    found = {point.temperature for point in view.points if load is None or point.load == load}
    if found == {None} or not found:
        workload = view.setting("workload")
        value = workload.get("temperature") if isinstance(workload, dict) else None
        return None if value is None else float(value)
    return found.pop() if len(found) == 1 else None


def _of_fits(view: View) -> Verdict:
    """Summarise fits: the best K at each load of P-EAGLE, or of the first tuned mode."""
    modes = [fit.mode for fit in view.fits]
    mode = "p-eagle" if "p-eagle" in modes else modes[0]
    fits = sorted((fit for fit in view.fits if fit.mode == mode), key=lambda fit: load_value(fit.load))
    said = ", ".join(f"{fit.best_k} at {fit.load.label}" for fit in fits)
    least = min(fit.deployments for fit in fits)
    reach = "this deployment only" if least == 1 else f"from {least} deployments"
    rates = "; ".join(told for fit in fits if (told := _rates(fit)))
    second = f"Tokens per second: {rates}." if rates else ""
    table = next((one for one in view.tables if one.mode == mode), None)
    headline = _of_fit(fits[0], said, several=len(fits) > 1) if table is None else _of_table(table)
    return Verdict(headline, "", (reach,), second)


def _of_fit(fit: FitRecord, best: str, *, several: bool) -> str:
    """Write the K that goes into the spec and whether it is certain; older files have only the best ones."""
    name = formatting.MODE_NAMES[fit.mode]
    if fit.chosen_k is None:
        return f"Best K for {name}: {best}"
    sure = "" if fit.certain else ", not certain"
    return f"K={fit.chosen_k} for {name}{sure}" + (f"; each load alone: {best}" if several else "")


def _of_table(table: TableRecord) -> str:
    """Write what `tune --loads` chose: a table of K by requests in flight, or one K and why."""
    name = formatting.MODE_NAMES[table.mode]
    if table.accepted:
        return f"K by requests in flight for {name}: {table_text(table.rows)}"
    why = "no table is needed" if len(table.rows) == 1 else "the table was not accepted"
    return f"One K at every load for {name}: {table.fixed_k}, since {why}"


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
        return f"{passed} of {applicable} checks passed; not decided: {left}{besides}{of}"
    if not passed:
        return f"Nothing was checked{besides}{of}"
    return f"Outputs are the target's own: {passed} of {applicable} checks passed{besides}{of}"


def scored(packs: Sequence[PackRecord]) -> str:
    """Write ``3 of 4 workload packs passed; failed: rag``; a pack passes if it passes on every arm."""
    names = list(dict.fromkeys(one.pack for one in packs))
    results = {name: {one.passed for one in packs if one.pack == name} for name in names}
    failed = [name for name in names if False in results[name]]
    open_ = [name for name in names if None in results[name] and name not in failed]
    passed = len(names) - len(failed) - len(open_)
    said = f"{passed} of {formatting.plural(len(names), 'workload pack')} passed"
    said += f"; failed: {', '.join(failed)}" if failed else ""
    return said + (f"; not measured: {', '.join(open_)}" if open_ else "")


@dataclass(frozen=True)
class Tile:
    """Key figure with its name and context; ``tone`` "bad" is a warning."""

    name: str
    figure: str
    detail: str
    tone: str = ""


def tiles(view: View) -> tuple[Tile, ...]:
    """Choose at most four key figures; the result of the checks is always included."""
    checks = _checks(view)
    if chief(view) is None and view.points:
        found = (*_of_point(view), _cost(view))
    else:
        alike = _alike(view) if checks is None else None
        found = (_over_none(view), _acceptance(view), alike, _cost(view), _best_k(view))
    shown = [tile for tile in found if tile is not None][: 4 if checks is None else 3]
    return (*shown, checks) if checks else tuple(shown)


def _of_point(view: View) -> tuple[Tile | None, ...]:
    """Make the key figures of one point: latencies and acceptance, at the headline's load."""
    point = first_point(view)
    at = f"{view.label(point.arm)} at {point.load.label}"
    length = point.acceptance.per_step if point.acceptance else None
    figures = (
        ("ms to the first token, p95", point.ttft_ms.p95 if point.ttft_ms else None),
        ("ms per output token, p50", point.tpot_ms.p50 if point.tpot_ms else None),
        ("tokens per pass of the target", length),
    )
    return tuple(Tile(name, formatting.number(figure), at) for name, figure in figures if figure is not None)


def _over_none(view: View) -> Tile | None:
    first = chief(view)
    if first is None or view.arm(first.slower).mode == "none":
        return None
    for row in view.comparisons:
        if row.faster == first.faster and view.arm(row.slower).mode == "none" and row.load == first.load:
            detail = f"{view.label(row.faster)}, {formatting.span(row.ratio)} at {row.load.label}"
            detail += "" if row.doubt is None else f"; no verdict: {row.doubt}"
            return Tile("speed-up over no speculation", formatting.ratio(row.ratio.value), detail)
    return None


def _acceptance(view: View) -> Tile | None:
    first = chief(view)
    if first is None:
        return None
    lengths = [
        next((p.acceptance.per_step for p in view.measured(name, first.load) if p.acceptance), None)
        for name in (first.faster, first.slower)
    ]
    if lengths[0] is None:
        return None
    against = f"; {view.label(first.slower)} {formatting.number(lengths[1])}" if lengths[1] else ""
    return Tile(
        "tokens per pass of the target", formatting.number(lengths[0]), view.label(first.faster) + against
    )


def _alike(view: View) -> Tile | None:
    """Make the key figure of identical greedy answers, if they were compared."""
    first = chief(view)
    if first is None:
        return None
    rows = [row for row in view.comparisons if row.faster == first.faster and row.load == first.load]
    plain = [row for row in rows if view.arm(row.slower).mode == "none"]
    row = (plain or [first])[0]
    if not row.compared_outputs:
        return None
    figure = f"{row.identical_outputs} of {row.compared_outputs}"
    return Tile("identical answers", figure, f"{view.label(row.faster)}; {view.label(row.slower)}")


def _cost(view: View) -> Tile | None:
    rows = cost_rows(view.arms, view.points)
    best = cheapest(rows)
    if best is None or best.usd_per_million is None:
        return None
    detail = f"{view.label(best.arm.name)} at {best.load.label}"
    other = _rival(view, rows, best)
    if other is not None and other.usd_per_million:
        less = 1 - best.usd_per_million / other.usd_per_million
        detail += f", {formatting.share(less)} less than {view.label(other.arm.name)}"
    return Tile("USD per million output tokens", formatting.usd(best.usd_per_million), detail)


def _rival(view: View, rows: tuple[CostRow, ...], best: CostRow) -> CostRow | None:
    """Return the cheapest row of the headline's other arm, if the difference is significant."""
    first = chief(view)
    if first is None or best.arm.name not in (first.faster, first.slower):
        return None
    shown = [
        row.significant
        for row in view.comparisons
        if (row.faster, row.slower, row.load) == (first.faster, first.slower, best.load)
    ]
    if not any(shown):  # without a significant difference, no saving may be claimed
        return None
    name = first.slower if best.arm.name == first.faster else first.faster
    return cheapest([row for row in rows if row.arm.name == name])


def _best_k(view: View) -> Tile | None:
    fits = [fit for fit in view.fits if fit.mode == "p-eagle"] or list(view.fits)
    if not fits:
        return None
    found = sorted({fit.best_k for fit in fits})
    figure = str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}"
    detail = ", ".join(
        f"{fit.best_k} at {fit.load.label}" + (", not certain" if fit.certain is False else "")
        for fit in fits
    )
    return Tile(f"best K, {formatting.MODE_NAMES[fits[0].mode]}", figure, detail)


def _checks(view: View) -> Tile | None:
    if not view.checks:
        return None
    passed = sum(check.passed is True for check in view.checks)
    failed = any(check.passed is False for check in view.checks)
    figure = f"{passed} of {sum(check.applicable for check in view.checks)}"
    return Tile("checks of the answers passed", figure, checked(view.checks), "bad" if failed else "")
