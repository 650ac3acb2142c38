"""`peagle-sm cost`: what the tokens of results files cost.

Prices come from an option or the results file; a missing one is looked up, once for each instance type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from peagle_bench.commands.options import FILE, POSITIVE, goal_option, objective_of
from peagle_bench.commands.report import caution_lines
from peagle_sm.cli.arguments import open_session
from peagle_sm.cli.base import Command, State, global_options
from peagle_sm.cli.console import emit, note
from peagle_sm.cli.terminal import show
from peagle_sm.core.display import Table
from peagle_sm.core.errors import CredentialsError

if TYPE_CHECKING:
    from peagle_bench.report.costs import CostRow, Pricing
    from peagle_bench.report.fleet import Demand
    from peagle_bench.report.view import View
    from peagle_bench.results.records import ArmRecord, Header
    from peagle_sm.aws.session.session import Session


@click.command(cls=Command)
@click.argument("files", metavar="FILE…", nargs=-1, required=True, type=FILE)
@click.option("--otps", type=POSITIVE, help="Size a fleet for this many output tokens per second.")
@click.option("--requests-per-s", type=POSITIVE, help="Size a fleet for this many requests per second.")
@goal_option
@click.option(
    "--usd-per-hour",
    type=POSITIVE,
    help="Price of one instance, instead of the recorded price; for example with a savings plan.",
)
@click.option(
    "--used",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.3,
    help="Share of the capacity that you use over a day; idle hours cost the same.",
)
@global_options
@click.pass_obj
def cost(
    state: State,
    files: tuple[Path, ...],
    otps: float | None,
    requests_per_s: float | None,
    goals: tuple[str, ...],
    usd_per_hour: float | None,
    used: float,
) -> None:
    """Show what tokens cost: USD per million output tokens at each measured load.

    FILE is a results file of bench or compare. The cost is shown at full use and at the share --used. Its 95%
    confidence interval is over the requests of the measured deployment. A load with more than 1% failed
    requests is never reported as the cheapest, nor one that misses a --goal at p95.

    With --otps or --requests-per-s, also shows the instances and GPUs for that demand, with 30% of the
    measured throughput kept free. Prices come from the file. A missing price is looked up: by the free call
    pricing:GetProducts, else in the catalogue, with its date. Exit code 2 if no file contains a measured
    load; files of tune and verify do not.
    """
    from peagle_bench.report.costs import cheapest, cost_rows
    from peagle_bench.report.fleet import Demand
    from peagle_bench.report.merging import demand_loads, parts_of, uncosted_notes
    from peagle_bench.results.result_file import read_files

    if otps is not None and requests_per_s is not None:
        raise click.UsageError("--otps and --requests-per-s both set the demand; give only one.")
    objective = objective_of(goals)
    results = read_files(files)
    views = {part.name: part.view for part in parts_of(results)}
    for warning in (text for each in results for text in each.warnings):
        note(state, f"warning: {warning}")
    demand_loads(results)
    for line in (text for view in views.values() for text in (*view.interrupted, *view.empty)):
        note(state, f"note: {line}")
    for line in uncosted_notes(results):
        note(state, f"note: {line}")
    demand = Demand(otps, requests_per_s) if otps or requests_per_s else None
    pricing = pricing_for(state, list(views.values()), usd_per_hour)
    rows: list[CostRow] = []
    for run, view in views.items():
        rows += cost_rows(
            view.arms,
            view.points,
            pricing=pricing,
            demand=demand,
            objective=objective,
            label_of=view.label,
            run=run if len(views) > 1 else "",
            requests_of=view.requests_of,
            used=used,
        )
        for point in view.withheld:
            note(state, f"skipped: {view.label(point.arm)} at {point.load.label}: {point.client.reason}")
    first = next(iter(views.values()))
    best = cheapest(rows)
    emit(
        state,
        table=lambda: render_cost(caution_lines(first), rows, demand),
        data=lambda: cost_data(rows, demand, first.headers[0]),
        names=[f"{best.arm.name} {best.load.label}"] if best else [],
    )


def pricing_for(state: State, views: Sequence[View], usd_per_hour: float | None) -> Pricing:
    """Return a function for an arm's price per hour and its source.

    ``usd_per_hour`` is for one instance and overrides the others.
    """
    from peagle_bench.prices import HourlyPrice, hourly
    from peagle_bench.report.costs import recorded

    known: dict[tuple[str | None, int], HourlyPrice] = {}
    regions = {header.provenance.get("region") for view in views for header in view.headers} - {None}
    region = state.region(str(regions.pop()) if len(regions) == 1 else None)
    sessions: list[Session | None] = []

    def session() -> Session | None:
        if not sessions:
            sessions.append(_session(state, region))
        return sessions[0]

    def look_up(arm: ArmRecord) -> tuple[float | None, str]:
        key = arm.instance_type, arm.instance_count
        if key not in known:
            known[key] = hourly(session() if arm.instance_type else None, *key, region=region)
            if known[key].note:
                note(state, f"{(known[key].note or '').rstrip('.')}; used: {known[key].source}")
        return known[key].usd_per_hour, known[key].source

    def price(arm: ArmRecord) -> tuple[float | None, str]:
        if usd_per_hour is not None:
            return usd_per_hour * max(1, arm.instance_count), "the price given with --usd-per-hour"
        if arm.usd_per_hour is None:
            return look_up(arm)
        return recorded(arm)

    return price


def _session(state: State, region: str | None) -> Session | None:
    """Open a session for price lookups; None without a region or profile."""
    try:
        return open_session(state, region)
    except CredentialsError as error:
        note(state, error.message)
        return None


def render_cost(cautions: Sequence[str], rows: Sequence[CostRow], demand: Demand | None) -> str:
    """Render cautions, costs, the fleet for the demand, and the sources of the prices."""
    blocks = [*cautions, show(costs(rows, demand))]
    if demand is not None:
        blocks.append(_answer(rows, demand))
    blocks.append("\n".join(dict.fromkeys(f"price: {row.price_source}" for row in rows)))
    return "\n\n".join(block for block in blocks if block)


def costs(rows: Sequence[CostRow], demand: Demand | None) -> Table:
    """Make the table of costs; with a demand, also of the fleet for it."""
    from peagle_bench.report import formatting

    def of_fleet(row: CostRow, name: str, form: Callable[[Any], str]) -> str:
        value = getattr(row.fleet, name, None)
        return formatting.DASH if value is None else form(value)

    def interval(row: CostRow) -> str:
        if row.usd_low is None:
            return formatting.DASH
        return f"{formatting.usd(row.usd_low)} to {formatting.usd(row.usd_high)}"

    columns: dict[str, Callable[[CostRow], str]] = {
        "load": lambda row: row.load.label,
        "arm": lambda row: row.label,
    }
    if any(row.run for row in rows):
        columns["run"] = lambda row: row.run
    used = f"at {formatting.share(rows[0].used)} use" if rows else "at part use"
    figures: dict[str, Callable[[CostRow], str]] = {
        "OTPS": lambda row: formatting.number(row.otps),
        "USD/hour": lambda row: formatting.usd(row.usd_per_hour),
        "USD/1M tokens": lambda row: formatting.usd(row.usd_per_million),
        "95%": interval,
        used: lambda row: formatting.usd(row.usd_used),
    }
    if demand is not None:
        figures |= {
            "instances": lambda row: of_fleet(row, "instances", str),
            "GPUs": lambda row: of_fleet(row, "gpus", str),
            "USD/hour in total": lambda row: of_fleet(row, "usd_per_hour", formatting.usd),
            "used": lambda row: of_fleet(row, "use", formatting.share),
        }
    columns |= figures
    if any(row.misses for row in rows):
        columns["misses"] = lambda row: "; ".join(row.misses)
    lines = tuple(tuple(cell(row) for cell in columns.values()) for row in rows)
    return Table("Costs", tuple(columns), lines, tuple(figures))


def _answer(rows: Sequence[CostRow], demand: Demand) -> str:
    from peagle_bench.report import formatting
    from peagle_bench.report.costs import cheapest

    load = (
        f"{formatting.number(demand.otps)} tokens/s"
        if demand.otps is not None
        else f"{formatting.number(demand.requests_per_s)} requests/s"
    )
    load += f" with {formatting.share(demand.headroom)} headroom"
    best = cheapest(rows)
    if best is None or best.fleet is None:
        reason = "misses the objective, has failed requests, a window that is too short, or no price"
        return f"No measured load fits {load}: each {reason}."
    fleet = best.fleet
    gpus = f" ({formatting.plural(fleet.gpus, 'GPU')})" if fleet.gpus else ""
    return (
        f"Cheapest for {load}: {formatting.plural(fleet.instances, 'instance')}{gpus} of"
        f" {best.label} at {best.load.label} each,"
        f" {formatting.usd(fleet.usd_per_hour)} USD/hour;"
        f" uses {formatting.share(fleet.use)} of the measured throughput."
    )


def cost_data(rows: Sequence[CostRow], demand: Demand | None, header: Header) -> dict[str, Any]:
    """Return the same data for --format json; None means unknown."""
    from peagle_bench.report.costs import cheapest

    best = cheapest(rows)
    return {
        **header.target_data(),
        "demand": asdict(demand) if demand else None,
        "rows": [_row(row) for row in rows],
        "cheapest": _row(best) if best else None,
    }


def _row(row: CostRow) -> dict[str, Any]:
    return {**asdict(row), "arm": row.arm.name, "load": row.load.label, "usd_used": row.usd_used}
