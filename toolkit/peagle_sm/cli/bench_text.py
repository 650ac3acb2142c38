"""What `bench` prints: before, and at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from peagle_sm.cli.table import render_fields, render_table
from peagle_sm.cli.words import STAND_IN, usd
from peagle_sm.core.errors import PeagleError

if TYPE_CHECKING:
    from peagle_sm.measure.bench import Outcome
    from peagle_sm.measure.bench_plan import BenchPlan
    from peagle_sm.measure.records import ArmRecord, Percentiles, PointRecord
    from peagle_sm.measure.workloads import Workload

_RATES = ("load", "requests", "failed", "tokens/s", "a request", "requests/s", "acceptance")
_TIMES = ("load", "TTFT ms", "TPOT ms", "ITL ms", "end to end ms")


def render_before(arm: ArmRecord, workload: Workload, plan: BenchPlan, *, stand_in: bool) -> str:
    """What is about to be measured, and what it costs."""
    lines = [
        ("endpoint", f"{arm.name}, {_mode(arm)}" + (f" ({STAND_IN})" if stand_in else "")),
        ("workload", _workload(workload)),
        ("loads", ", ".join(load.label for load in plan.loads)),
        ("price", _price(arm, plan)),
    ]
    return render_fields(lines)


def _mode(arm: ArmRecord) -> str:
    tokens = f" K={arm.num_speculative_tokens}" if arm.num_speculative_tokens else ""
    return f"mode {arm.mode}{tokens}"


def _workload(workload: Workload) -> str:
    said = f"{workload.name}: {len(workload.items)} prompts"
    if workload.license:
        said += f"; licence: {workload.license}"
    return "\n".join([said, *workload.notes])


def _price(arm: ArmRecord, plan: BenchPlan) -> str:
    if not arm.usd_per_hour:
        return arm.price_source or "unknown"
    said = f"the endpoint bills {usd(arm.usd_per_hour, 'hour')}, measured or not ({arm.price_source})"
    if plan.seconds is not None:
        windows = arm.usd_per_hour * plan.seconds * len(plan.loads) / 3600
        said += f"; the windows of this run: {usd(windows)}, and warm-ups"
    return said


def render_outcome(outcome: Outcome, *, stand_in: bool) -> str:
    """Rates, latencies, survival and what to know of them; withheld where the client was the bottleneck."""
    from peagle_sm.measure.withholding import is_late, is_short, is_withheld

    results = outcome.results
    arm = results.arms[-1]
    published = [point for point in results.points if not is_withheld(point.client)]
    parts = []
    if published:
        parts += [
            _rates(published, arm) + _star(any(map(is_short, published)), "tokens/s and requests/s"),
            render_table(_TIMES, [_times(point) for point in published], right=_TIMES[1:])
            + "\n(p50 / p95 / p99; ITL is between chunks, of which one may hold several tokens)"
            + _star(any(is_late(point.client) for point in published), "latencies"),
            _survival(published),
        ]
    notes = [*outcome.notes, *([STAND_IN] if stand_in else [])]
    parts += ["\n".join(f"note: {note}" for note in notes), f"results: {outcome.path}"]
    return "\n\n".join(part for part in parts if part)


def _star(marked: bool, what: str) -> str:
    """The footnote of a table in which loads are marked."""
    return f"\n(* these {what} are in doubt: see the note)" if marked else ""


def _rates(points: list[PointRecord], arm: ArmRecord) -> str:
    """The table of rates; goodput and cost where they were asked for and are known."""
    from peagle_sm.measure.costs import cost_rows

    headers, rows = list(_RATES), [_row(point) for point in points]
    if any(point.goodput for point in points):
        headers.append("goodput")
        rows = [[*row, _goodput(point)] for row, point in zip(rows, points, strict=True)]
    if arm.usd_per_hour:
        headers.append("USD/M tokens")
        by_load = {row.load: row.usd_per_million for row in cost_rows([arm], points)}
        costs = [by_load.get(point.load) for point in points]
        rows = [
            [*row, "-" if cost is None else f"{cost:,.2f}"] for row, cost in zip(rows, costs, strict=True)
        ]
    return render_table(headers, rows, right=headers[1:])


def _row(point: PointRecord) -> list[str]:
    from peagle_sm.measure.withholding import is_short

    return [
        point.load.label + (" *" if is_short(point) else ""),
        str(point.requests),
        str(sum(point.errors.values())),
        f"{point.otps:,.1f}",
        "-" if point.otps_per_request is None else f"{point.otps_per_request:,.1f}",
        f"{point.requests_per_s:.2f}",
        _acceptance(point),
    ]


def _goodput(point: PointRecord) -> str:
    found = point.goodput
    return "-" if found is None else f"{found.requests_per_s:.2f}/s ({found.share:.0%})"


def _acceptance(point: PointRecord) -> str:
    found = point.acceptance
    return "-" if found is None or found.per_step is None else f"{found.per_step:.2f}"


def _times(point: PointRecord) -> tuple[str, ...]:
    from peagle_sm.measure.withholding import is_late

    measures = (point.ttft_ms, point.tpot_ms, point.itl_ms, point.e2e_ms)
    return (point.load.label + (" *" if is_late(point.client) else ""), *map(_three, measures))


def _three(found: Percentiles | None) -> str:
    if found is None:
        return "-"
    return " / ".join(
        f"{value:,.1f}" if value < 100 else f"{value:,.0f}" for value in (found.p50, found.p95, found.p99)
    )


def _survival(points: list[PointRecord]) -> str:
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
            f" {_SOURCES[found.source]}; temperature {_temperature(point)})"
        )
    return "\n".join(lines)


_SOURCES = {
    "per-request": "each answer",
    "metrics": "the engine's counters, warm-up included",
    "cloudwatch": "the engine's log in CloudWatch, warm-up included",
}


def _temperature(point: PointRecord) -> str:
    return "as each request says" if point.temperature is None else f"{point.temperature:g}"


def outcome_data(outcome: Outcome, *, stand_in: bool) -> dict[str, Any]:
    """The same as JSON-able data; a point that is not published has no figures."""
    from peagle_sm.measure.result_file import encode
    from peagle_sm.measure.withholding import is_short, is_withheld

    points = []
    for point in outcome.results.points:
        published = not is_withheld(point.client)
        told = encode(point) if published else {"client": encode(point.client)}
        known = {"published": published, "window_too_short": is_short(point)}
        points.append({"load": point.load.label, **known, **told, "arm": point.arm})
    for told, point in zip(points, outcome.results.points, strict=True):
        told["load"] = point.load.label
    return {
        "file": str(outcome.path),
        "stand_in_weights": stand_in,
        "arm": encode(outcome.results.arms[-1]),
        "points": points,
        "notes": list(outcome.notes),
    }


def withheld(outcome: Outcome) -> PeagleError:
    """The error where no load's figures may be published."""
    return PeagleError(
        "no figure is published: at every load this client, not the endpoint, was the bottleneck",
        next_step="run it on a machine with a free core, or at a lower concurrency; the requests are in"
        f" {outcome.path}",
        details={"file": str(outcome.path)},
    )
