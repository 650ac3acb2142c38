"""Tables of one run, as `bench` and `tune` show them; `tables` has those of a report. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from peagle_bench.load.points import is_late, is_short
from peagle_bench.report.costs import cost_rows
from peagle_bench.results.records import (
    ArmRecord,
    FitRecord,
    Percentiles,
    PointRecord,
)
from peagle_sm.core.display import Table

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
    goodput = point.goodput
    return "-" if goodput is None else f"{goodput.requests_per_s:.2f}/s ({goodput.share:.0%})"


def latencies(points: Sequence[PointRecord]) -> Table:
    """Make the table of latencies: p50, p95 and p99 of each load."""
    return Table("Latencies", _TIMES, tuple(_times(point) for point in points), _TIMES[1:])


def _times(point: PointRecord) -> tuple[str, ...]:
    measures = (point.ttft_ms, point.tpot_ms, point.itl_ms, point.e2e_ms)
    return (point.load.label + (" *" if is_late(point.client) else ""), *map(_three, measures))


def _three(percentiles: Percentiles | None) -> str:
    if percentiles is None:
        return "-"
    figures = (percentiles.p50, percentiles.p95, percentiles.p99)
    return " / ".join(f"{value:,.1f}" if value < 100 else f"{value:,.0f}" for value in figures)


def survival(points: Sequence[PointRecord]) -> str:
    """Describe the acceptance of each load: lengths, survival by position, source and temperature."""
    lines = []
    for point in points:
        accepted = point.acceptance
        if accepted is None:
            continue
        rates = " ".join(f"{rate:.3f}" for rate in accepted.survival) or "unknown"
        by_request = "" if accepted.per_request is None else f", {accepted.per_request:.2f} by request"
        lines.append(
            f"{point.load.label}: acceptance length {accepted.per_step or 1:.2f} by step{by_request};"
            f" survival by position {rates} (from"
            f" {_SOURCES[accepted.source]}; temperature {temperature_text(point.temperature)})"
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
