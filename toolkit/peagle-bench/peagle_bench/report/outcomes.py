"""Tables of one run, as `bench`, `compare`, `tune` and `cost` show them. Pure.

`tables` has those of a report, which may be of several runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from peagle_bench.load.points import is_late, is_short, is_withheld, separate_withheld
from peagle_bench.report import formatting
from peagle_bench.report.costs import CostRow, cost_rows
from peagle_bench.report.merging import are_alike
from peagle_bench.report.view import View
from peagle_bench.results.records import (
    ArmRecord,
    ComparisonRecord,
    FitRecord,
    Interval,
    Percentiles,
    PointRecord,
)
from peagle_bench.results.result_file import Results
from peagle_sm.core.display import Table
from peagle_sm.core.plan.cost import Demand

_TIMES = ("load", "TTFT ms", "TPOT ms", "ITL ms", "end to end ms")


def rates(points: Sequence[PointRecord], arm: ArmRecord) -> Table:
    """Render the table of rates, with goodput and cost if they are known."""
    columns: dict[str, Callable[[PointRecord], str]] = {
        "load": lambda point: point.load.label + (" *" if is_short(point) else ""),
        "requests": lambda point: str(point.requests),
        "failed": lambda point: str(sum(point.errors.values())),
        "tokens/s": lambda point: f"{point.otps:,.1f}",
        "per request": lambda point: _number(point.otps_per_request, ",.1f"),
        "requests/s": lambda point: f"{point.requests_per_s:.2f}",
        "acceptance": lambda point: _number(_per_step(point), ".2f"),
    }
    if any(point.goodput for point in points):
        columns["goodput"] = _goodput
    if arm.usd_per_hour:
        usd = {row.load: row.usd_per_million for row in cost_rows([arm], points)}
        columns["USD/M tokens"] = lambda point: _number(usd.get(point.load), ",.2f")
    rows = tuple(tuple(cell(point) for cell in columns.values()) for point in points)
    return Table("Rates", tuple(columns), rows, tuple(columns)[1:])


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else f"{value:{form}}"


def _per_step(point: PointRecord) -> float | None:
    return point.acceptance.per_step if point.acceptance else None


def _goodput(point: PointRecord) -> str:
    found = point.goodput
    return "-" if found is None else f"{found.requests_per_s:.2f}/s ({found.share:.0%})"


def latencies(points: Sequence[PointRecord]) -> Table:
    """Make the table of latencies: p50, p95 and p99 of each load."""
    return Table("Latencies", _TIMES, tuple(_times(point) for point in points), _TIMES[1:])


def _times(point: PointRecord) -> tuple[str, ...]:
    measures = (point.ttft_ms, point.tpot_ms, point.itl_ms, point.e2e_ms)
    return (point.load.label + (" *" if is_late(point.client) else ""), *map(_three, measures))


def _three(found: Percentiles | None) -> str:
    if found is None:
        return "-"
    return " / ".join(
        f"{value:,.1f}" if value < 100 else f"{value:,.0f}" for value in (found.p50, found.p95, found.p99)
    )


def survival(points: Sequence[PointRecord]) -> str:
    """Describe the acceptance of each load: lengths, survival by position, source and temperature."""
    lines = []
    for point in points:
        found = point.acceptance
        if found is None:
            continue
        rates = " ".join(f"{rate:.3f}" for rate in found.survival) or "unknown"
        by_request = "" if found.per_request is None else f", {found.per_request:.2f} by request"
        lines.append(
            f"{point.load.label}: acceptance length {found.per_step or 1:.2f} by step{by_request};"
            f" survival by position {rates} (from"
            f" {_SOURCES[found.source]}; temperature {temperature_text(point.temperature)})"
        )
    return "\n".join(lines)


_SOURCES = {
    "per-request": "each answer",
    "metrics": "the engine's counters, warm-up included",
    "cloudwatch": "the engine's log in CloudWatch, warm-up included",
}


def temperature_text(temperature: float | None) -> str:
    """Format a point's temperature; None if each request has its own."""
    return "as in each request" if temperature is None else f"{temperature:g}"


NO_DIFFERENCE = "no significant difference"
WITHHELD = "withheld"
FINE = 1.02  #: the verdict estimates how many prompts are needed to detect this ratio
CONTROL_WITHIN = 0.10  #: the A/A interval must be within 1 +- this for "1, as expected"
_RATIOS = ("load", "ratio of tokens/s", "x", "interval", "acceptance x", "step time x", "verdict")
_ARMS = ("load", "arm", "mode", "K", "prompts", "failed", "tokens/s", "acceptance", "TTFT ms", "TPOT ms")


def arms(results: Results, points: Sequence[PointRecord]) -> Table:
    """Make the table of a comparison's arms under each load."""
    known = {arm.name: arm for arm in results.arms}
    return Table("Arms", _ARMS, tuple(_arm(known[one.arm], one) for one in points), _ARMS[3:])


def ratios(results: Results) -> Table:
    """Make the table of a comparison's ratios, with its verdicts; withheld ones come last."""
    found = separate_withheld(results.points, results.comparisons)
    rows = (*map(_ratio, found.comparisons), *map(_withheld, found.withheld_comparisons))
    return Table("Ratios", _RATIOS, rows, ("x",))


def is_uncertain(points: Sequence[PointRecord]) -> bool:
    """Decide whether a figure in the table of arms is marked."""
    shown = [one for one in points if not is_withheld(one.client)]
    return any(is_short(one) or is_late(one.client) for one in shown)


def _arm(arm: ArmRecord, point: PointRecord) -> tuple[str, ...]:
    about = (
        point.load.label,
        arm.name,
        arm.mode,
        str(arm.num_speculative_tokens or "-"),
        str(point.requests),
        str(sum(point.errors.values())),
    )
    if is_withheld(point.client):
        return (*about, *[WITHHELD] * 4)
    return (
        *about,
        f"{point.otps:,.1f}" + (" *" if is_short(point) else ""),
        _number(_per_step(point), ".2f"),
        _latency(point, point.ttft_ms),
        _latency(point, point.tpot_ms),
    )


def _latency(point: PointRecord, found: Percentiles | None) -> str:
    return "-" if found is None else f"{found.p50:,.2f}" + (" *" if is_late(point.client) else "")


def _withheld(one: ComparisonRecord) -> tuple[str, ...]:
    return (one.load.label, _pair(one), WITHHELD, "-", "-", "-", "see the note")


def _pair(one: ComparisonRecord) -> str:
    return f"{one.slower} over itself" if one.control else f"{one.faster} over {one.slower}"


def _ratio(one: ComparisonRecord) -> tuple[str, ...]:
    return (
        one.load.label,
        _pair(one),
        f"{one.ratio.value:.3f}",
        f"[{one.ratio.low:.3f}, {one.ratio.high:.3f}] over {_units(one)}",
        _factor(one.acceptance_ratio),
        _factor(one.step_time_ratio),
        verdict(one),
    )


def _units(one: ComparisonRecord) -> str:
    return f"{one.units} {one.over}" + (", this deployment only" if one.deployments == 1 else "")


def _factor(factor: Interval | None) -> str:
    return "-" if factor is None else f"{factor.value:.3f} [{factor.low:.3f}, {factor.high:.3f}]"


def _control_verdict(one: ComparisonRecord) -> str:
    """Return the A/A test's verdict; a wide interval contains 1 but proves nothing."""
    if one.ratio.shown:
        return "differs from 1: see the note"
    if one.doubt is not None:
        return f"no verdict: {one.doubt}"
    if one.ratio.low >= 1 - CONTROL_WITHIN and one.ratio.high <= 1 + CONTROL_WITHIN:
        return "1, as expected"
    return f"{NO_DIFFERENCE}, but too few {one.over} to be sure"


def verdict(one: ComparisonRecord) -> str:
    """Return the result in words; for the A/A test, if the run can be trusted."""
    if one.control:
        return _control_verdict(one)
    if one.doubt is not None:
        return f"no verdict: {one.doubt}"
    if one.ratio.shown:
        reach = " in this deployment" if one.deployments == 1 else ""
        return f"{one.faster if one.ratio.value > 1 else one.slower} is faster{reach}"
    half = math.log(one.ratio.high / one.ratio.low) / 2
    text = f"{NO_DIFFERENCE} (+-{math.expm1(half):.1%}"
    if one.over != "deployments" and half > math.log(FINE):
        needed = math.ceil(one.units * (half / math.log(FINE)) ** 2)
        text += f"; +-{FINE - 1:.0%} needs about {needed:,} {one.over}"
    return text + ")"


_CURVE = ("K", "accepted", "step ms", "tokens/s", "95% interval", "")


def curve(record: FitRecord) -> Table:
    """Make the table of a fit: acceptance, step time and rate at each K."""
    rows = tuple(
        (
            str(point.k),
            f"{point.acceptance_length:.2f}",
            f"{point.step_ms:.2f}",
            f"{point.otps:.0f}",
            f"{point.low or 0:.0f} to {point.high or 0:.0f}",
            ("chosen" if point.k == record.best_k else "") + ("" if point.measured else " predicted"),
        )
        for point in record.points
    )
    return Table(f"{record.mode}, {record.load.label}", _CURVE, rows, _CURVE[:5])


def costs(view: View, rows: Sequence[CostRow], demand: Demand | None) -> Table:
    """Make the table of costs; with a demand, also of the fleet for it."""
    columns: dict[str, Callable[[CostRow], str]] = {
        "load": lambda row: row.load.label,
        "arm": lambda row: view.label(row.arm.name),
    }
    if are_alike((row.load, row.arm.name) for row in rows):
        columns["run"] = lambda row: row.run
    used = f"at {formatting.share(rows[0].used)} use" if rows else "at part use"
    figures: dict[str, Callable[[CostRow], str]] = {
        "OTPS": lambda row: formatting.number(row.otps),
        "USD/hour": lambda row: formatting.usd(row.usd_per_hour),
        "USD/1M tokens": lambda row: formatting.usd(row.usd_per_million),
        "95%": _interval,
        used: lambda row: formatting.usd(row.usd_used),
    }
    if demand is not None:
        figures |= {
            "instances": lambda row: _of_fleet(row, "instances", str),
            "GPUs": lambda row: _of_fleet(row, "gpus", str),
            "USD/hour in total": lambda row: _of_fleet(row, "usd_per_hour", formatting.usd),
            "used": lambda row: _of_fleet(row, "use", formatting.share),
        }
    columns |= figures
    if any(row.misses for row in rows):
        columns["misses"] = lambda row: "; ".join(row.misses)
    lines = tuple(tuple(cell(row) for cell in columns.values()) for row in rows)
    return Table("Costs", tuple(columns), lines, tuple(figures))


def _of_fleet(row: CostRow, name: str, form: Callable[[Any], str]) -> str:
    value = getattr(row.fleet, name, None)
    return formatting.DASH if value is None else form(value)


def _interval(row: CostRow) -> str:
    return (
        formatting.DASH
        if row.usd_low is None
        else f"{formatting.usd(row.usd_low)} to {formatting.usd(row.usd_high)}"
    )
