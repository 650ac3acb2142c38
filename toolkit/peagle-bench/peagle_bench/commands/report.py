"""`peagle-sm report` and `cost`: results files as text, HTML or Markdown; what their tokens cost.

Prices come from an option or the results file, or are looked up once for each instance type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from peagle_bench.commands.options import POSITIVE, RESULTS_FILE, slices_data
from peagle_bench.commands.packs import scorecard_data
from peagle_sm.cli.arguments import open_session
from peagle_sm.cli.base import Command, State, global_options
from peagle_sm.cli.console import emit, note
from peagle_sm.cli.terminal import show
from peagle_sm.core.errors import CredentialsError

if TYPE_CHECKING:
    from peagle_bench.report.costs import CostRow, HeadValue, Pricing
    from peagle_bench.report.merging import Part
    from peagle_bench.report.view import View
    from peagle_bench.results.records import ArmRecord
    from peagle_sm.aws.session.session import Session
    from peagle_sm.core.plan.cost import Demand


_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(cls=Command)
@click.argument("files", metavar="FILE…", nargs=-1, required=True, type=RESULTS_FILE)
@click.option("--html", "page", type=_FILE, help="Write an HTML page to this file; it contains its data.")
@click.option("--markdown", is_flag=True, help="Print Markdown, for example for a pull request.")
@click.option("--title", help="Title of the report.  [default: P-EAGLE report]")
@global_options
@click.pass_obj
def report(
    state: State, files: tuple[Path, ...], page: Path | None, markdown: bool, title: str | None
) -> None:
    """Summarise results files: in the terminal, as an HTML page, or as Markdown.

    FILE is a results file of bench, compare, tune or verify, or an HTML page that this command wrote. Several
    files make one report with one part for each run; figures of different runs cannot be compared. Exit code
    2 if a file is not a results file, or if no file contains a finished load.
    """
    from peagle_bench.report.files import read_files, write_page
    from peagle_bench.report.merging import demand_figures, parts_of, view_of
    from peagle_bench.report.page import html_page
    from peagle_bench.report.tables import markdown as as_markdown
    from peagle_bench.report.tables import table_data
    from peagle_bench.report.verdict import verdict

    results = read_files(files)
    view = view_of(results)
    for warning in view.warnings:
        note(state, f"warning: {warning}")
    demand_figures(results)
    for line in view.empty:
        note(state, f"note: {line}")
    if page is not None:
        write_page(page, html_page(results, title=title))
        note(state, f"wrote {page}")
    if markdown:
        click.echo(as_markdown(results, title=title), nl=False)
        return
    emit(
        state,
        table=lambda: render_reports(parts_of(results)),
        data=lambda: {
            **asdict(verdict(view)),
            "stand_in_weights": view.stand_in,
            "tables": [table_data(table) for table in view.tables],
            "packs": scorecard_data(view.packs),
            "slices": [one for each in results for one in slices_data(each)],
            "html": str(page) if page else None,
        },
        names=[str(page)] if page else [],
    )


def render_reports(parts: Sequence[Part]) -> str:
    """Render the report of one run, or of several runs with their titles."""
    if len(parts) == 1:
        return render_report(parts[0].view)
    blocks = [f"{part.title}\n{'=' * len(part.title)}\n{render_report(part.view)}" for part in parts]
    return "\n\n\n".join([*blocks, "Compare modes within one run only."])


def render_report(view: View) -> str:
    """Render the verdict with its limits, then every table that has rows."""
    from peagle_bench.load.points import doubt_lines
    from peagle_bench.report import tables
    from peagle_bench.report.trust import trust
    from peagle_bench.report.verdict import checked, verdict

    outcome = verdict(view)
    first = [*caution_lines(view), outcome.headline]
    first += [f"  {line}" for line in (outcome.second, "; ".join(outcome.limits)) if line]
    blocks = ["\n".join(first)]
    blocks += [show(table) for table in tables.tables_of(view)]
    if view.checks:
        blocks.append(checked(view.checks))
    if warning := trust(view):
        blocks.append("\n".join([warning, *(f"note: {line}" for line in doubt_lines(view.points))]))
    return "\n\n".join(blocks)


def caution_lines(view: View) -> list[str]:
    """Render the cautions that a reader must see before any figure."""
    from peagle_bench.report.view import cautions

    return [f"{one.name.upper()}. {one.text}" for one in cautions(view)]


@click.command(cls=Command)
@click.argument("files", metavar="FILE…", nargs=-1, required=True, type=RESULTS_FILE)
@click.option("--otps", type=POSITIVE, help="Size a fleet for this many output tokens per second.")
@click.option("--requests-per-s", type=POSITIVE, help="Size a fleet for this many requests per second.")
@click.option(
    "--headroom",
    type=click.FloatRange(0, 0.95),
    default=0.3,
    help="Share of the measured throughput to keep free.",
)
@click.option("--ttft-ms", type=POSITIVE, help="Only loads with at most this p95 time to first token.")
@click.option("--tpot-ms", type=POSITIVE, help="Only loads with at most this p95 time per output token.")
@click.option("--e2e-ms", type=POSITIVE, help="Only loads with at most this p95 end-to-end latency.")
@click.option(
    "--usd-per-hour",
    type=POSITIVE,
    help="Price of one instance, instead of the recorded price; for example with a savings plan.",
)
@click.option("--reprice", is_flag=True, help="Look up prices again: Price List API, else the catalogue.")
@click.option(
    "--used",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.3,
    help="Share of the capacity that you use over a day; idle hours cost the same.",
)
@click.option("--training-usd", type=POSITIVE, help="Training cost of a custom head; shows its break-even.")
@click.option("--head", metavar="ARM", help="Arm with the custom head.  [default: the P-EAGLE arm]")
@click.option("--baseline", metavar="ARM", help="Arm to compare it with.  [default: EAGLE-3, else none]")
@global_options
@click.pass_obj
def cost(
    state: State,
    files: tuple[Path, ...],
    otps: float | None,
    requests_per_s: float | None,
    headroom: float,
    ttft_ms: float | None,
    tpot_ms: float | None,
    e2e_ms: float | None,
    usd_per_hour: float | None,
    reprice: bool,
    used: float,
    training_usd: float | None,
    head: str | None,
    baseline: str | None,
) -> None:
    """Show what tokens cost: USD per million output tokens at each measured load.

    FILE is a results file of bench or compare. The cost is shown at full use and at the share --used. Its 95%
    confidence interval is over the requests of the measured deployment. A load with more than 1% failed
    requests is never reported as the cheapest.

    With --otps or --requests-per-s, also shows the instances and GPUs for that demand. With --training-usd,
    also shows when a custom head has paid for its training. Prices come from the file. A missing price is
    looked up: by the free call pricing:GetProducts, else in the catalogue, with its date. Exit code 2 if no
    file contains a measured load; files of tune and verify do not.
    """
    from peagle_bench.load.points import Objective
    from peagle_bench.report.costs import cheapest, cost_rows, head_value
    from peagle_bench.report.files import read_files
    from peagle_bench.report.merging import demand_loads, uncosted_notes, view_of
    from peagle_sm.core.plan.cost import Demand

    if otps is not None and requests_per_s is not None:
        raise click.UsageError("--otps and --requests-per-s both set the demand; give only one.")
    results = read_files(files)
    view = view_of(results)
    for warning in view.warnings:
        note(state, f"warning: {warning}")
    demand_loads(results)
    for line in (*view.interrupted, *view.empty, *uncosted_notes(results)):
        note(state, f"note: {line}")
    demand = Demand(otps, requests_per_s, headroom) if otps or requests_per_s else None
    rows = cost_rows(
        view.arms,
        view.points,
        pricing=pricing_for(state, view, usd_per_hour, reprice),
        demand=demand,
        objective=Objective(ttft_ms, tpot_ms, e2e_ms),
        run_of=view.run_of,
        requests_of=view.requests_of,
        used=used,
    )
    values: tuple[HeadValue, ...] = ()
    if training_usd is not None:
        pair = head or view.name_of("p-eagle"), baseline or view.name_of("eagle3", "none")
        values = head_value(rows, view.comparisons, head=pair[0], baseline=pair[1], training_usd=training_usd)
    for point in view.withheld:
        note(state, f"skipped: {view.label(point.arm)} at {point.load.label}: {point.client.reason}")
    best = cheapest(rows)
    emit(
        state,
        table=lambda: render_cost(view, rows, demand, values),
        data=lambda: cost_data(view, rows, demand, values),
        names=[f"{best.arm.name} {best.load.label}"] if best else [],
    )


def pricing_for(state: State, view: View, usd_per_hour: float | None, reprice: bool) -> Pricing:
    """Return a function for an arm's price per hour and its source.

    ``usd_per_hour`` is for one instance and overrides the others; ``reprice`` also looks up recorded prices.
    """
    from peagle_bench.report.costs import recorded
    from peagle_sm.aws.control.prices import HourlyPrice, hourly

    known: dict[tuple[str | None, int], HourlyPrice] = {}
    region = state.region(_region_of(view))
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
        if arm.usd_per_hour is None or reprice:
            return look_up(arm)
        return recorded(arm)

    return price


def _region_of(view: View) -> str | None:
    found = {header.provenance.get("region") for header in view.headers} - {None}
    return str(found.pop()) if len(found) == 1 else None


def _session(state: State, region: str | None) -> Session | None:
    """Open a session for price lookups; None without a region or profile."""
    try:
        return open_session(state, region)
    except CredentialsError as error:
        note(state, error.message)
        return None


def render_cost(
    view: View, rows: Sequence[CostRow], demand: Demand | None, values: Sequence[HeadValue]
) -> str:
    """Render cautions, costs, the fleet for the demand, break-even, price sources."""
    from peagle_bench.report.outcomes import costs

    blocks = [*caution_lines(view), show(costs(view, rows, demand))]
    if demand is not None:
        blocks.append(_answer(view, rows, demand))
    if values:
        blocks.append("\n".join([_training(view, values), *(_value(each) for each in values)]))
    blocks.append("\n".join(_sources(rows)))
    return "\n\n".join(block for block in blocks if block)


def _answer(view: View, rows: Sequence[CostRow], demand: Demand) -> str:
    from peagle_bench.report import formatting
    from peagle_bench.report.costs import cheapest

    asked = (
        f"{formatting.number(demand.otps)} tokens/s"
        if demand.otps is not None
        else f"{formatting.number(demand.requests_per_s)} requests/s"
    )
    asked += f" with {formatting.share(demand.headroom)} headroom"
    best = cheapest(rows)
    if best is None or best.fleet is None:
        reason = "misses the objective, has failed requests, a window that is too short, or no price"
        return f"No measured load fits {asked}: each {reason}."
    fleet = best.fleet
    gpus = f" ({formatting.plural(fleet.gpus, 'GPU')})" if fleet.gpus else ""
    return (
        f"Cheapest for {asked}: {formatting.plural(fleet.instances, 'instance')}{gpus} of"
        f" {view.label(best.arm.name)} at {best.load.label} each,"
        f" {formatting.usd(fleet.usd_per_hour)} USD/hour;"
        f" uses {formatting.share(fleet.use)} of the measured throughput."
    )


def _training(view: View, values: Sequence[HeadValue]) -> str:
    from peagle_bench.report import formatting

    first = values[0]
    worth = first.break_even
    title = (
        f"Training for {formatting.usd(worth.training_usd)} USD:"
        f" {view.label(first.head)} compared with {view.label(first.baseline)}"
    )
    if worth.days is not None:
        return (
            f"{title}; the cheapest fleet for this demand saves {formatting.usd(worth.saved_usd_per_hour)}"
            f" USD/hour: paid back after {formatting.number(worth.days)} days"
        )
    if worth.saved_usd_per_hour is not None:
        return f"{title}; the cheapest fleet for this demand is not cheaper: not paid back"
    return title


def _value(each: HeadValue) -> str:
    from peagle_bench.report import formatting

    at = f"  {each.load.label}:"
    worth = each.break_even
    if each.shown is False:
        return f"{at} no significant difference ({formatting.ratio(each.ratio)}), so no saving"
    if worth.million_tokens is None:
        return f"{at} saves nothing ({formatting.ratio(each.ratio)}): not paid back"
    saving = (
        f"{at} saves {formatting.usd(worth.saved_usd_per_million)} USD/1M tokens, paid back after"
        f" {formatting.tokens(worth.million_tokens)} output tokens"
    )
    if each.shown is None:
        return f"{saving} (no interval was measured)"
    latest = formatting.tokens(each.latest) if each.latest is not None else "never"
    return f"{saving} [{formatting.tokens(each.soonest)}, {latest}]"


def _sources(rows: Sequence[CostRow]) -> list[str]:
    return [f"price: {source}" for source in dict.fromkeys(row.price_source for row in rows)]


def cost_data(
    view: View, rows: Sequence[CostRow], demand: Demand | None, values: Sequence[HeadValue]
) -> dict[str, Any]:
    """Return the same data for --format json; None means unknown."""
    from peagle_bench.report.costs import cheapest

    best = cheapest(rows)
    return {
        "stand_in_weights": view.stand_in,
        "demand": asdict(demand) if demand else None,
        "rows": [_row(row) for row in rows],
        "cheapest": _row(best) if best else None,
        "break_even": [asdict(each) for each in values],
    }


def _row(row: CostRow) -> dict[str, Any]:
    return {**asdict(row), "arm": row.arm.name, "load": row.load.label, "usd_used": row.usd_used}
