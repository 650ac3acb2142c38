"""Report sections on throughput, latency, acceptance by position, K by load, K curve and cost. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from peagle_bench.load.points import is_short, late_lines, short_lines
from peagle_bench.report import formatting, tables
from peagle_bench.report.charts import HALF, THIRD, ChartFigure, LineChart, Mark, Series
from peagle_bench.report.costs import CostRow, cheapest, cost_rows
from peagle_bench.report.formatting import MODE_NAMES, Look, looks_of
from peagle_bench.report.section import (
    Cell,
    Figure,
    PageTable,
    Section,
    arm_cell,
    charts,
    doubts,
    page_table,
    pivot,
    values,
)
from peagle_bench.report.tables import decision, rates
from peagle_bench.report.view import View, load_value
from peagle_bench.results.records import (
    Acceptance,
    ArmRecord,
    FitRecord,
    Load,
    PointRecord,
    TableRecord,
)
from peagle_sm.core.spec.endpoint_spec import k_at, table_text

OTPS = Figure("output tokens per second, all requests together", lambda point: point.otps)
EACH = Figure("output tokens per second, one request", lambda point: point.otps_per_request)


def throughput(view: View) -> Section | None:
    """Make the section on OTPS by load: of all requests together, and of one request."""
    if not view.points:
        return None
    alone = all(point.load.concurrency == 1 for point in view.points)  # then both figures are one
    captions = {OTPS: "All requests together, output tokens per second"}
    if not alone:
        captions[EACH] = "One request, output tokens per second"
    content = {
        "notes": doubts(view, short_lines),
        "charts": [drawn for figure in captions if (drawn := charts(view, figure, HALF))],
        "tables": [pivot(view, figure, caption) for figure, caption in captions.items()],
    }
    return Section("throughput", "Throughput", _leaders(view), content)


def _leaders(view: View) -> str:
    """Name the fastest arm at each load; the next section shows which differences are significant.

    A load with too short a window has no fastest arm: its rates may be too high.
    """
    best: list[tuple[str, Load]] = []
    short = {point.load for point in view.points if is_short(point)}
    for load in [load for load in view.loads() if load not in short]:
        rates = {arm: each[load][0] for arm, each in values(view, OTPS, [load]).items()}
        if len(rates) > 1:
            best.append((_first_throughput(view, load, rates), load))
    if not best:
        return ""
    runs = [
        (name, [load.label for _, load in group]) for name, group in groupby(best, key=lambda one: one[0])
    ]
    parts = [
        f"{name} at {labels[0] if len(labels) == 1 else f'{labels[0]} to {labels[-1]}'}"
        for name, labels in runs
    ]
    return "Fastest: " + ", then ".join(parts) + "."


def _first_throughput(view: View, load: Load, rates: Mapping[str, float]) -> str:
    """Name the fastest arm, and the next one unless a comparison shows the difference."""
    first, second = sorted(rates, key=lambda name: -rates[name])[:2]
    rows = [
        row for row in view.comparisons if {row.faster, row.slower} == {first, second} and row.load == load
    ]
    if any(row.significant for row in rows):
        return view.label(first)
    doubted = not rows or any(row.doubt is not None for row in rows)
    reason = "no verdict" if doubted else "no significant difference"
    return f"{view.label(first)} or {view.label(second)} ({reason})"


def _of(name: str, part: str) -> Callable[[PointRecord], float | None]:
    return lambda point: getattr(getattr(point, name), part, None)


FIGURES = (
    Figure("time to first token, p95, ms", _of("ttft_ms", "p95")),
    Figure("time per output token, p50, ms", _of("tpot_ms", "p50")),
    Figure("gap between chunks (ITL), p99, ms", _of("itl_ms", "p99")),
    Figure("whole answer, p95, ms", _of("e2e_ms", "p95")),
)
_COLUMNS = (("TTFT", "ttft_ms"), ("TPOT", "tpot_ms"), ("ITL", "itl_ms"), ("E2E", "e2e_ms"))


def latency(view: View) -> Section | None:
    """Make the section on latency: four charts, the share within the objective, and all percentiles."""
    if not any(figure.value(point) is not None for figure in FIGURES for point in view.points):
        return None
    content = {
        "notes": doubts(view, late_lines),
        "charts": [drawn for figure in FIGURES if (drawn := charts(view, figure, HALF))],
        "goodput": _goodput(view),
        "percentiles": _percentiles(view),
    }
    return Section("latency", "Latency", _latency_lead(view), content)


def _latency_lead(view: View) -> str:
    said = "Lower is better."
    if any(point.itl_ms for point in view.points):
        said += (
            " A chunk may hold several tokens when speculating, so gaps between chunks grow while the time"
            " per token falls."
        )
    elif not any(point.ttft_ms for point in view.points):
        said += " Answers were not streamed, so there is only the time of the whole answer."
    return said


def _goodput(view: View) -> PageTable | None:
    asked = {
        (p.goodput.ttft_ms, p.goodput.tpot_ms, p.goodput.e2e_ms) for p in view.points if p.goodput is not None
    }
    if not asked:
        return None
    names = ("TTFT", "TPOT", "end to end")
    objectives = " or ".join(
        ", ".join(
            f"{name} up to {limit:g} ms" for name, limit in zip(names, one, strict=True) if limit is not None
        )
        for one in sorted(asked, key=str)
    )
    figure = Figure("within", lambda point: point.goodput.share if point.goodput else None)
    caption = f"Requests within the objective ({objectives}), errors counted as missed"
    return pivot(view, figure, caption, formatting.share)


def _percentiles(view: View) -> PageTable:
    columns = [(head, name) for head, name in _COLUMNS if any(getattr(one, name) for one in view.points)]
    heads: list[Cell] = ["load", "arm"]
    heads += [f"{head} {part}" for head, _ in columns for part in ("p50", "p95", "p99")]
    rows: list[list[Cell]] = []
    for point in view.measured_by_load():
        cells: list[Cell] = [point.load.label, arm_cell(view, point.arm)]
        for _, name in columns:
            cells += [formatting.number(_of(name, part)(point)) for part in ("p50", "p95", "p99")]
        rows.append(cells)
    return PageTable(heads, rows, "Milliseconds", (0, 1))


_SOURCES = {
    "per-request": "each request's own figures",
    "metrics": "the engine's counters",
    "cloudwatch": "the engine's log in CloudWatch",
}


def acceptance(view: View) -> Section | None:
    """Make the section on acceptance: by position at the lowest load, and lengths at every load."""
    first = _first_acceptance(view)
    if not first:
        return None
    depth = max(len(found.survival) for _, found in first)
    chart = LineChart(
        title="Share of drafts accepted up to each position",
        series=tuple(
            Series(
                view.label(point.arm),
                view.look(point.arm),
                tuple(Mark(float(at), share) for at, share in enumerate(found.survival, start=1)),
            )
            for point, found in first
        ),
        x_title="position in the draft",
        y_title=f"drafts accepted up to this position, {first[0][0].load.label}",
        x_ticks=tuple(float(at) for at in range(1, max(depth, 2) + 1)),
        shares=True,
        watermark=view.watermark,
    )
    sources = " and ".join(sorted({_SOURCES[found.source] for _, found in first}))
    lowest = PageTable(
        ["arm", "K", "per step", "per request", "temperature"],
        [_row(view, point, found) for point, found in first],
        f"Acceptance length at {first[0][0].load.label}, from {sources}",
    )
    lengths = Figure("length", lambda point: point.acceptance.per_step if point.acceptance else None)
    content = {
        "chart": ChartFigure(chart),
        "lowest": lowest,
        "by_load": pivot(view, lengths, "Acceptance length per step, by load")
        if len(view.loads()) > 1
        else None,
    }
    return Section("acceptance", "Acceptance", _acceptance_lead(view, first), content)


def _first_acceptance(view: View) -> list[tuple[PointRecord, Acceptance]]:
    """Choose each arm's point at the lowest load with known acceptance by position."""
    for load in view.loads():
        found = [
            (point, point.acceptance)
            for arm in view.arms
            if not arm.control
            for point in view.measured(arm.name, load)[:1]
            if point.acceptance and point.acceptance.survival
        ]
        if found:
            return found
    return []


def _row(view: View, point: PointRecord, found: Acceptance) -> list[Cell]:
    return [
        arm_cell(view, point.arm),
        str(view.arm(point.arm).num_speculative_tokens or formatting.DASH),
        formatting.number(found.per_step),
        formatting.number(found.per_request),
        formatting.DASH if point.temperature is None else f"{point.temperature:g}",
    ]


def _acceptance_lead(view: View, shown: list[tuple[PointRecord, Acceptance]]) -> str:
    said = ", ".join(
        f"{formatting.number(found.per_step)} with {view.label(point.arm)}" for point, found in shown
    )
    return f"Tokens per pass of the target at {shown[0][0].load.label}: {said}; 1 without speculation."


def curve(view: View) -> Section | None:
    """Make the section on the best K: a chart for each load, and a table of choices and reasons."""
    if not view.fits:
        return None
    ordered = sorted(view.fits, key=lambda fit: (fit.load.kind, load_value(fit.load)))
    loads = [(load, list(fits)) for load, fits in groupby(ordered, key=lambda fit: fit.load)]
    size = HALF if len(loads) % 3 else THIRD
    content = {
        "charts": [[ChartFigure(k_chart(view, load, fits), size)] for load, fits in loads],
        "chosen": _chosen(ordered),
        "rates": page_table(rates(view), "Rate at each K"),
    }
    return Section("k", "Best K", _curve_lead(ordered), content)


def _look(view: View, fit: FitRecord) -> Look:
    named = [arm for arm in view.arms if arm.mode == fit.mode and not arm.control]
    return view.look(named[0].name) if named else looks_of_mode(fit)


def looks_of_mode(fit: FitRecord) -> Look:
    """Return the look of a fit's mode, also if the files have no arm of it."""
    return looks_of([ArmRecord("any", fit.mode, None, "")])["any"]


def k_chart(view: View, load: Load, fits: list[FitRecord]) -> LineChart:
    """Make the chart of one load: tokens per second by K, a line for each mode; K=0 is no speculation."""
    series, guides = [], []
    for fit in fits:
        look, name = _look(view, fit), formatting.MODE_NAMES[fit.mode]
        points = sorted(fit.points, key=lambda point: point.k)
        marks = tuple(
            Mark(point.k, point.otps, point.low, point.high, hollow=not point.measured) for point in points
        )
        series.append(Series(name, look, marks, dashed=True))
        guides.append((float(fit.best_k), f"K={fit.best_k}", look))
    depths = tuple(sorted({float(point.k) for fit in fits for point in fit.points}))
    return LineChart(
        title=f"Output tokens per second by K at {load.label}",
        series=tuple(series),
        x_title="K (num_speculative_tokens)",
        y_title=f"output tokens per second at {load.label}",
        x_ticks=depths,
        y_zero=False,
        guides=tuple(guides),
        watermark=view.watermark,
    )


def _chosen(fits: list[FitRecord]) -> PageTable:
    columns: dict[str, Callable[[FitRecord], str]] = {
        "load": lambda fit: fit.load.label,
        "mode": lambda fit: formatting.MODE_NAMES[fit.mode],
        "best K": lambda fit: str(fit.best_k),
        "OTPS": lambda fit: _at(fit, fit.best_k, "otps"),
        "without speculation": lambda fit: _at(fit, 0, "otps"),
        "accepted": lambda fit: _at(fit, fit.best_k, "acceptance_length"),
        "step, ms": lambda fit: _at(fit, fit.best_k, "step_ms"),
        "K measured": _measured,
        "deployments": lambda fit: str(fit.deployments),
        "USD": lambda fit: formatting.usd(fit.usd),
        "why": lambda fit: fit.reason,
    }
    rows = [[cell(fit) for cell in columns.values()] for fit in fits]
    return PageTable(list(columns), rows, "What was chosen, and what finding it cost", (0, 1, 7, 10))


def _at(fit: FitRecord, k: int, name: str) -> str:
    return formatting.number(next((getattr(point, name) for point in fit.points if point.k == k), None))


def _measured(fit: FitRecord) -> str:
    return ", ".join(str(k) for k in sorted(p.k for p in fit.points if p.measured)) or formatting.DASH


def _curve_lead(fits: list[FitRecord]) -> str:
    parts = []
    for mode, group in groupby(sorted(fits, key=lambda fit: fit.mode), key=lambda fit: fit.mode):
        said = ", ".join(f"{fit.best_k} at {fit.load.label}" for fit in group)
        parts.append(f"{formatting.MODE_NAMES[mode]}: {said}")
    return "; ".join(parts) + ". Solid markers are measured, hollow ones predicted."


def money(view: View) -> Section | None:
    """Make the section on USD per million tokens by load; None if nothing was billed."""
    rows = cost_rows(view.arms, view.points)
    if not any(row.usd_per_million for row in rows):
        return None
    rates = {(row.arm.name, row.load, row.otps): row.usd_per_million for row in rows}

    def value(point: PointRecord) -> float | None:
        return rates.get((point.arm, point.load, point.otps))

    figure = Figure("USD per million output tokens", value, log=True)
    drawn = charts(view, figure)
    if not drawn:
        return None
    content = {
        "charts": drawn,
        "table": pivot(view, figure, "USD per million output tokens, at full use", formatting.usd),
        "sources": sorted({f"{formatting.usd(row.usd_per_hour)} USD/h: {row.price_source}" for row in rows}),
    }
    return Section("cost", "Cost", cost_words(view, rows), content)


def cost_words(view: View, rows: tuple[CostRow, ...]) -> str:
    """Describe the cheapest point, and what its figure does not include."""
    best = cheapest(rows)
    if best is None:
        return ""
    usd = formatting.usd(best.usd_per_million)
    said = f"Lowest cost: {usd} USD per million output tokens, {view.label(best.arm.name)}"
    return (
        f"{said} at {best.load.label}. If {formatting.share(best.used)} of the capacity is used (a day with"
        f" quiet hours), it is {formatting.usd(best.usd_used)}. Input tokens have no separate price."
    )


def by_load(view: View) -> Section | None:
    """Make the section: the rate by load, the reasons, the validation, the other modes; None without any."""
    if not view.tables:
        return None
    content = {
        "chart": _chart(view),
        "reasons": [_reason(record) for record in view.tables],
        "validations": page_table(
            tables.validations(view.tables, view),
            "Rate of the table's own endpoint over that of the fixed K; the intervals hold for all looks "
            "together",
        ),
        "alternatives": page_table(
            tables.alternatives(view.tables, view),
            "The other modes at each load; all run on the same instance, so a faster one is also cheaper",
        ),
    }
    return Section("by-load", "K by load", _lead(view), content)


def _reason(record: TableRecord) -> str:
    return f"{MODE_NAMES[record.mode]}: {decision(record)}. {record.reason[0].upper()}{record.reason[1:]}."


def _lead(view: View) -> str:
    said = []
    for one in view.tables:
        ks = f"K={table_text(one.rows)} requests in flight"
        said.append(f"{MODE_NAMES[one.mode]}: {ks if one.accepted else f'K={one.fixed_k} at every load'}")
    return "; ".join(said) + "."


def _chart(view: View) -> ChartFigure | None:
    """Return the chart of the rates of each table, its fixed K and no speculation, from the tuner's fits."""
    drawn = [line for one in view.tables for line in _lines(one, view.fits)]
    first = [fit for fit in view.fits if fit.mode == view.tables[0].mode]
    drawn.append(_line("no speculation", Look("grey", "diamond"), first, lambda load: 0))
    drawn = [line for line in drawn if len(line.marks) > 1]
    if not drawn:
        return None
    loads = tuple(sorted({mark.x for line in drawn for mark in line.marks}))
    chart = LineChart(
        title="Output tokens per second by requests in flight",
        series=tuple(drawn),
        x_title="requests in flight",
        y_title="output tokens per second, all requests together",
        x_ticks=loads,
        x_log=loads[-1] / loads[0] >= 8,
        watermark=view.watermark,
    )
    return ChartFigure(chart)


def _lines(record: TableRecord, fits: Sequence[FitRecord]) -> list[Series]:
    """Make the lines of one mode: its table, if it has several rows, and its fixed K."""
    own = [fit for fit in fits if fit.mode == record.mode]
    if not own:
        return []
    look, name = looks_of_mode(own[0]), MODE_NAMES[record.mode]
    fixed = _line(f"{name} K={record.fixed_k}", look, own, lambda load: record.fixed_k)
    if len(record.rows) == 1:
        return [fixed]
    table = _line(f"{name} table", look, own, lambda load: k_at(record.rows, load))
    return [table, replace(fixed, look=replace(look, faint=True))]


def _line(name: str, look: Look, fits: Sequence[FitRecord], k_of: Callable[[int], int]) -> Series:
    """Make the line of one choice of K by load; a load without a figure for its K has no mark."""
    marks = []
    for fit in sorted(fits, key=lambda fit: load_value(fit.load)):
        k = k_of(fit.load.concurrency or 1)
        point = next((point for point in fit.points if point.k == k), None)
        # K=0 in a fit is an engine without a head; a table's K=0 still runs the head.
        if point is not None and (k or name == "no speculation"):
            marks.append(
                Mark(load_value(fit.load), point.otps, point.low, point.high, hollow=not point.measured)
            )
    return Series(name, look, tuple(marks))
