"""The report's tables, for a terminal, a notebook, Markdown and the page. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from peagle_bench.report import formatting, slices
from peagle_bench.report.costs import cost_rows
from peagle_bench.report.verdict import checked, chief, outcome_of, scored
from peagle_bench.report.view import View, load_value
from peagle_bench.results.records import (
    ComparisonRecord,
    FitRecord,
    Interval,
    KPoint,
    Percentiles,
    PointRecord,
)
from peagle_bench.step_times import StepTimes
from peagle_sm.core.display import Table
from peagle_sm.core.spec.modes import title_of

_LATENCIES = (("TTFT", "ttft_ms"), ("TPOT", "tpot_ms"), ("ITL", "itl_ms"), ("end to end", "e2e_ms"))
_SHOWN = ("load", "arm", "OTPS", "TTFT p95 ms", "TPOT p50 ms", "accepted", "failed", "USD/1M tokens")
#: Columns of `bench`, which has one arm and a second table of latencies.
RATES = (
    *("load", "requests", "failed", "OTPS", "OTPS of a request", "requests/s", "accepted"),
    *("within goals", "USD/1M tokens"),
)
#: Sources of acceptance figures (`Acceptance.source`), for the reader.
SOURCES = {
    "per-request": "each answer",
    "metrics": "the engine's counters, warm-up included",
    "cloudwatch": "the engine's log in CloudWatch, warm-up included",
}


def points(view: View, heads: Sequence[str] | None = _SHOWN) -> Table | None:
    """Make the table of each arm under each load: rate, latencies, acceptance and cost.

    ``heads`` None: all columns, for the page. Columns without a figure are left out.
    """
    rows = list(view.measured_by_load())
    if not rows:
        return None
    usd = {
        (row.arm.name, row.load, row.otps): row.usd_per_million for row in cost_rows(view.arms, view.points)
    }

    def percentile(name: str, part: str) -> Callable[[PointRecord], str]:
        return lambda point: formatting.number(getattr(getattr(point, name), part, None))

    columns: dict[str, Callable[[PointRecord], str]] = {
        "load": lambda point: point.load.label,
        "arm": lambda point: view.label(point.arm),
        "requests": lambda point: f"{point.requests:,}",
        "OTPS": lambda point: formatting.number(point.otps),
        "OTPS of a request": lambda point: formatting.number(point.otps_per_request),
        "requests/s": lambda point: formatting.number(point.requests_per_s),
        **{
            f"{head} {part} ms": percentile(name, part)
            for head, name in _LATENCIES
            for part in ("p50", "p95", "p99")
        },
        "accepted": lambda point: formatting.number(point.acceptance.per_step if point.acceptance else None),
        "within goals": lambda point: formatting.share(point.goodput.share if point.goodput else None),
        "failed": lambda point: str(sum(point.errors.values()) or formatting.DASH),
        "USD/1M tokens": lambda point: formatting.usd(usd.get((point.arm, point.load, point.otps))),
    }
    heads = tuple(heads or columns)
    lines = tuple(tuple(columns[head](point) for head in heads) for point in rows)
    return _used(
        Table("Measured", heads, lines, tuple(head for head in heads if head not in ("load", "arm")))
    )


def latencies(view: View) -> Table | None:
    """Make the table of latencies of one arm: p50, p95 and p99 of each load."""
    heads = ("load", *(f"{head} ms" for head, _ in _LATENCIES))
    rows = tuple(
        (point.load.label, *(_percentiles(getattr(point, name)) for _, name in _LATENCIES))
        for point in view.measured_by_load()
    )
    return _used(Table("Latencies", heads, rows, heads[1:])) if rows else None


def _percentiles(measure: Percentiles | None) -> str:
    if measure is None:
        return formatting.DASH
    return " / ".join(formatting.number(value) for value in (measure.p50, measure.p95, measure.p99))


def survival(view: View) -> list[str]:
    """Describe the acceptance of each load: length, survival by position, source and temperature."""
    lines = []
    for point in view.measured_by_load():
        if (accepted := point.acceptance) is None:
            continue
        rates = " ".join(f"{rate:.3f}" for rate in accepted.survival) or "unknown"
        by_request = "" if accepted.per_request is None else f", {accepted.per_request:.2f} by request"
        temperature = "as in each request" if point.temperature is None else f"{point.temperature:g}"
        lines.append(
            f"{point.load.label}: acceptance length {accepted.per_step or 1:.2f} by step{by_request};"
            f" survival by position {rates} (from {SOURCES[accepted.source]}; temperature {temperature})"
        )
    return lines


def by_slice(view: View) -> Table | None:
    """Make the table of the first pair and load by slice; None without slices."""
    records = [record for _, each in view.files for record in slices.slices_in(each)]
    if not records:
        return None
    return slices.table(slices.groups(records, view.arms)[0])


def _used(table: Table) -> Table:
    """Remove the columns of figures that are empty."""
    for head in table.right:
        at = table.heads.index(head)
        if all(row[at] == formatting.DASH for row in table.rows):
            table = _without(table, head)
    return table


def ordered(view: View) -> list[ComparisonRecord]:
    """Sort comparisons: the headline's pair first, controls last, each pair by load."""
    first = chief(view)
    order = {arm.name: at for at, arm in enumerate(view.arms)}

    def key(row: ComparisonRecord) -> tuple[object, ...]:
        ahead = first is not None and (row.faster, row.slower) == (first.faster, first.slower)
        names = -order.get(row.faster, 0), -order.get(row.slower, 0)
        return row.control, not ahead, *names, row.load.kind, load_value(row.load)

    return sorted(view.comparisons, key=key)


def ratios(view: View, *, factors: bool = False) -> Table | None:
    """Make the table of comparisons with their intervals; ``factors`` adds those of the ratio."""
    rows = ordered(view)
    if not rows:
        return None
    columns: dict[str, Callable[[ComparisonRecord], str]] = {
        "arm": lambda row: view.label(row.faster),
        "over": lambda row: view.label(row.slower),
        "load": lambda row: row.load.label,
        "speed-up": lambda row: formatting.ratio(row.ratio.value),
        "95% interval": lambda row: formatting.span(row.ratio),
        "units": lambda row: f"{row.units} {row.over}",
        "deployments": lambda row: str(row.deployments),
    }
    if factors:
        columns["from acceptance"] = lambda row: factor(row.acceptance_ratio)
        columns["from step time"] = lambda row: factor(row.step_time_ratio)
    columns["result"] = lambda row: outcome_of(row, view.label(row.faster), view.label(row.slower))
    lines = tuple(tuple(cell(row) for cell in columns.values()) for row in rows)
    return Table("Speed-up", tuple(columns), lines, ("speed-up", "deployments"))


def factor(interval: Interval | None) -> str:
    """Format a factor of a ratio; a dash if it is unknown."""
    return formatting.DASH if interval is None else formatting.with_span(interval)


def alike(row: ComparisonRecord) -> str:
    """Format ``96 of 96`` identical answers; a dash if none were compared."""
    return f"{row.identical_outputs} of {row.compared_outputs}" if row.compared_outputs else formatting.DASH


def best_k(view: View) -> Table | None:
    """Make the table of the tuner's choices."""
    if not view.fits:
        return None
    rows = tuple((title_of(fit.mode), fit.load.label, str(fit.best_k), fit.reason) for fit in view.fits)
    return Table("Best K", ("mode", "load", "best K", "why"), rows, ("best K",))


def rates(view: View) -> Table | None:
    """Make the table of the tuner's fit at each K; K=0 is no speculation."""
    pairs = [(fit, point) for fit in view.fits for point in sorted(fit.points, key=lambda each: each.k)]
    if not pairs:
        return None
    heads = ("mode", "load", "K", "OTPS", "95% interval", "over K=0", "accepted", "step ms", "from", "note")
    lines = tuple(_rate(fit, point) for fit, point in pairs)
    table = Table(
        "Rate at each K", heads, lines, ("K", "OTPS", "over K=0", "accepted", "step ms"), folded=True
    )
    return _used(table)


def _rate(fit: FitRecord, point: KPoint) -> tuple[str, ...]:
    plain = baseline(fit)
    span = formatting.DASH
    if point.low is not None and point.high is not None:
        span = f"[{formatting.number(point.low)}, {formatting.number(point.high)}]"
    marks = {0: "no speculation", fit.best_k: "chosen"}
    return (
        title_of(fit.mode),
        fit.load.label,
        str(point.k),
        formatting.number(point.otps),
        span,
        formatting.ratio(point.otps / plain.otps) if plain and plain.otps and point.k else formatting.DASH,
        formatting.number(point.acceptance_length),
        formatting.number(point.step_ms),
        "measured" if point.measured else "the fit",
        marks.get(point.k, ""),
    )


def baseline(fit: FitRecord) -> KPoint | None:
    """Return the point without speculation (K=0) of a fit; None if it was not measured."""
    return next((point for point in fit.points if point.k == 0), None)


def step_times(times: StepTimes) -> Table:
    """Make the table of step times, with the rates at both ends of the acceptance length."""
    rows = [
        (
            str(k),
            f"c={concurrency}",
            f"{cell.step_ms:.1f}",
            f"{cell.fixed_ms:.2f}",
            formatting.number(times.plain[concurrency]),
            formatting.number(cell.rate(1)),
            formatting.number(cell.rate(k + 1)),
        )
        for (k, concurrency), cell in sorted(times.cells.items())
    ]
    heads = ("K", "load", "step ms", "fixed ms", "no speculation", "AL 1", "AL K+1")
    title = f"Step times of {times.target} with {times.title}: SYNTHETIC acceptance, tokens/s of no head"
    return Table(title, heads, tuple(rows), ("K", *heads[2:]))


def _step_times(view: View) -> list[Table]:
    return [step_times(times) for times in view.step_times]


def checks(view: View, *, power: bool = True) -> Table | None:
    """Make the table of checks; ``power`` adds the long column of what each check detects."""
    if not view.checks:
        return None
    heads = ("check", "arm", "result", "found", "detects")
    rows = [
        (
            check.name,
            check.arm,
            check.result,
            check.summary,
            check.power,
        )
        for check in view.checks
    ]
    kept = len(heads) if power else len(heads) - 1
    table = Table(checked(view.checks), heads[:kept], tuple(row[:kept] for row in rows))
    return table if len({check.arm for check in view.checks}) > 1 else _without(table, "arm")


PACK_RESULTS = {True: "pass", False: "FAIL", None: "not measured"}


def packs(view: View) -> Table | None:
    """Make the scorecard: a row for each workload pack and arm."""
    if not view.packs:
        return None
    heads = ("pack", "arm", "result", "figure", "why")
    rows = tuple(
        (pack.pack, view.label(pack.arm), PACK_RESULTS[pack.passed], pack.figure or formatting.DASH, pack.why)
        for pack in view.packs
    )
    table = Table(scored(view.packs), heads, rows)
    return table if len({pack.arm for pack in view.packs}) > 1 else _without(table, "arm")


def _without(table: Table, head: str) -> Table:
    at = table.heads.index(head)
    heads = (*table.heads[:at], *table.heads[at + 1 :])
    return replace(table, heads=heads, rows=tuple((*row[:at], *row[at + 1 :]) for row in table.rows))


def tables_of(view: View, *, power: bool = False) -> list[Table]:
    """Make every table that has rows, in the order of each output: terminal, notebook, Markdown."""
    tables = (
        ratios(view),
        points(view),
        by_slice(view),
        best_k(view),
        rates(view),
        packs(view),
        checks(view, power=power),
    )
    return [*_step_times(view), *(table for table in tables if table is not None)]
