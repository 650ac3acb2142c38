"""Report sections on throughput, latency, acceptance by position, and cost. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from peagle_bench.load.points import late_lines, short_lines
from peagle_bench.report import formatting, tables
from peagle_bench.report.blocks import (
    Beside,
    Figure,
    Folded,
    Grid,
    Notes,
    PageTable,
    Section,
    arm_cell,
    charts,
    doubts,
    page_tables,
)
from peagle_bench.report.charts import ChartFigure, LineChart, Mark, Series
from peagle_bench.report.costs import CostRow, cheapest, cost_rows
from peagle_bench.report.view import View
from peagle_bench.results.records import Acceptance, PointRecord

OTPS = Figure("output tokens per second, all requests together", lambda point: point.otps)
EACH = Figure("output tokens per second, one request", lambda point: point.otps_per_request)


def throughput(view: View) -> Section | None:
    """Make the section on OTPS by load, of all requests together and of one; all figures are folded."""
    if not view.points:
        return None
    alone = all(point.load.concurrency == 1 for point in view.points)  # then both figures are one
    drawn = charts(view, OTPS) if alone else charts(view, OTPS, EACH)
    blocks = [
        *doubts(view, short_lines),
        Grid(drawn),
        Folded("All figures", page_tables(tables.points(view, None))),
    ]
    return Section("throughput", "Throughput", "", blocks)


def _percentile(name: str, part: str) -> Callable[[PointRecord], float | None]:
    return lambda point: getattr(getattr(point, name), part, None)


LATENCIES = (
    Figure("time to first token, p95, ms", _percentile("ttft_ms", "p95")),
    Figure("time per output token, p50, ms", _percentile("tpot_ms", "p50")),
    Figure("gap between chunks (ITL), p99, ms", _percentile("itl_ms", "p99")),
    Figure("whole answer, p95, ms", _percentile("e2e_ms", "p95")),
)


def latency(view: View) -> Section | None:
    """Make the section on latency: four charts, and the share of requests within the goals."""
    if not any(figure.value(point) is not None for figure in LATENCIES for point in view.points):
        return None
    within = Figure("share of requests within the goals", lambda p: p.goodput.share if p.goodput else None)
    drawn = charts(view, *LATENCIES, within)
    return Section(
        "latency",
        "Latency",
        _latency_lead(view) + _goals(view),
        [*doubts(view, late_lines), *([Grid(drawn)] if drawn else page_tables(tables.points(view)))],
    )


def _latency_lead(view: View) -> str:
    lead = "Lower is better."
    if any(point.itl_ms for point in view.points):
        lead += (
            " A chunk may hold several tokens when speculating, so gaps between chunks grow while the time"
            " per token falls."
        )
    elif not any(point.ttft_ms for point in view.points):
        lead += " Answers were not streamed, so there is only the time of the whole answer."
    return lead


def _goals(view: View) -> str:
    goals = {
        (p.goodput.ttft_ms, p.goodput.tpot_ms, p.goodput.e2e_ms) for p in view.points if p.goodput is not None
    }
    if not goals:
        return ""
    names = ("TTFT", "TPOT", "end to end")
    words = " or ".join(
        ", ".join(
            f"{name} up to {limit:g} ms" for name, limit in zip(names, each, strict=True) if limit is not None
        )
        for each in sorted(goals, key=str)
    )
    return f" Goals: {words}; a failed request misses them."


def acceptance(view: View) -> Section | None:
    """Make the section on acceptance by position, at the lowest load."""
    shown = _first_acceptance(view)
    if not shown:
        return None
    load = shown[0][0].load.label
    positions = max(len(accepted.survival) for _, accepted in shown)
    chart = LineChart(
        title="Share of drafts accepted up to each position",
        series=tuple(
            Series(
                view.label(point.arm),
                view.look(point.arm),
                tuple(Mark(float(at), share) for at, share in enumerate(accepted.survival, start=1)),
            )
            for point, accepted in shown
        ),
        x_title="position in the draft",
        y_title=f"drafts accepted up to this position, {load}",
        x_ticks=tuple(float(at) for at in range(1, max(positions, 2) + 1)),
        shares=True,
        watermark=view.watermark,
    )
    sources = " and ".join(sorted({tables.SOURCES[accepted.source] for _, accepted in shown}))
    table = PageTable(
        ["arm", "K", "per step", "per request", "temperature"],
        [
            [
                arm_cell(view, point.arm),
                str(view.arm(point.arm).num_speculative_tokens or formatting.DASH),
                formatting.number(accepted.per_step),
                formatting.number(accepted.per_request),
                formatting.DASH if point.temperature is None else f"{point.temperature:g}",
            ]
            for point, accepted in shown
        ],
        f"Acceptance length at {load}, from {sources}",
    )
    lengths = ", ".join(
        f"{formatting.number(accepted.per_step)} with {view.label(point.arm)}" for point, accepted in shown
    )
    lead = f"Tokens per pass of the target at {load}: {lengths}; 1 without speculation."
    return Section("acceptance", "Acceptance", lead, [Beside(ChartFigure(chart), table)])


def _first_acceptance(view: View) -> list[tuple[PointRecord, Acceptance]]:
    """Choose each arm's point at the lowest load with known acceptance by position."""
    for load in view.loads():
        shown = [
            (point, point.acceptance)
            for arm in view.arms
            if not arm.control
            for point in view.measured(arm.name, load)[:1]
            if point.acceptance and point.acceptance.survival
        ]
        if shown:
            return shown
    return []


def money(view: View) -> Section | None:
    """Make the section on USD per million tokens by load; None if nothing was billed."""
    rows = cost_rows(view.arms, view.points)
    prices = {(row.arm.name, row.load, row.otps): row.usd_per_million for row in rows}
    figure = Figure(
        "USD per million output tokens, at full use",
        lambda point: prices.get((point.arm, point.load, point.otps)),
        log=True,
    )
    drawn = charts(view, figure)
    if not drawn:
        return None
    sources = sorted({f"{formatting.usd(row.usd_per_hour)} USD/h: {row.price_source}" for row in rows})
    return Section("cost", "Cost", cost_words(view, rows), [Grid(drawn), Notes(sources)])


def cost_words(view: View, rows: Sequence[CostRow]) -> str:
    """Describe the cheapest point, and what its figure does not include."""
    best = cheapest(rows)
    if best is None:
        return ""
    usd = formatting.usd(best.usd_per_million)
    lead = f"Lowest cost: {usd} USD per million output tokens, {view.label(best.arm.name)}"
    return (
        f"{lead} at {best.load.label}. If {formatting.share(best.used)} of the capacity is used (a day with"
        f" quiet hours), it is {formatting.usd(best.usd_used)}. Input tokens have no separate price."
    )
