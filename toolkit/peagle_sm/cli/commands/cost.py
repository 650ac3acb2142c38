"""`peagle-sm cost`: what measured tokens cost, what a load needs, when a head has paid for itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from peagle_sm.cli.lazy import Command
from peagle_sm.cli.measuring_options import RESULTS_FILE
from peagle_sm.cli.options import global_options
from peagle_sm.cli.output import emit, note
from peagle_sm.cli.state import State

if TYPE_CHECKING:
    from peagle_sm.measure.costs import HeadValue

_POSITIVE = click.FloatRange(min=0, min_open=True)


@click.command(cls=Command)
@click.argument("files", metavar="FILE…", nargs=-1, required=True, type=RESULTS_FILE)
@click.option("--otps", type=_POSITIVE, help="Size a fleet for this many output tokens per second.")
@click.option(
    "--requests-per-s", type=_POSITIVE, help="Size a fleet for this many requests like the measured ones."
)
@click.option(
    "--headroom",
    type=click.FloatRange(0, 0.95),
    default=0.3,
    show_default=True,
    help="Share of the measured throughput to keep free.",
)
@click.option("--ttft-ms", type=_POSITIVE, help="Only loads whose p95 time to first token is at most this.")
@click.option("--tpot-ms", type=_POSITIVE, help="Only loads whose p95 time per output token is at most this.")
@click.option("--e2e-ms", type=_POSITIVE, help="Only loads whose p95 whole answer takes at most this.")
@click.option(
    "--usd-per-hour",
    type=_POSITIVE,
    help="Price of one instance, in place of the recorded one (a savings plan, your own contract).",
)
@click.option("--reprice", is_flag=True, help="Look prices up anew: Price List API, else the catalogue.")
@click.option(
    "--used",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.3,
    show_default=True,
    help="Share of the capacity that your day uses: idle hours cost the same.",
)
@click.option("--training-usd", type=_POSITIVE, help="What training a custom head cost: show its break-even.")
@click.option("--head", metavar="ARM", help="The arm with the custom head.  [default: the P-EAGLE arm]")
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
    """Turn results into money: USD per million output tokens at each measured load.

    The price is for full use, and for the share of --used. Its 95% confidence interval is over the requests
    of the measured deployment. A load with more than 1% failed requests is never the cheapest.

    With --otps or --requests-per-s also the instances and GPUs for that load; with
    --training-usd also when a custom head has paid for its training. Prices are those of the file;
    one that is missing is looked up (the free call pricing:GetProducts, else the catalogue with its date).
    Exit code 2 when no file holds a measured load, as those of tune and verify do not.
    """
    from peagle_sm.cli.cost_text import cost_data, render_cost
    from peagle_sm.cli.pricing import pricing_for
    from peagle_sm.core.plan.unit_cost import Demand
    from peagle_sm.measure.costs import cheapest, cost_rows, head_value
    from peagle_sm.measure.load.points import Objective
    from peagle_sm.measure.report.files import read_files
    from peagle_sm.measure.report.merging import view_of
    from peagle_sm.measure.report.unfinished import demand_loads, uncosted_notes

    if otps is not None and requests_per_s is not None:
        raise click.UsageError("--otps and --requests-per-s ask for the same thing twice; give one.")
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
        note(state, f"left out: {view.label(point.arm)} at {point.load.label}: {point.client.reason}")
    best = cheapest(rows)
    emit(
        state,
        table=lambda: render_cost(view, rows, demand, values),
        data=lambda: cost_data(view, rows, demand, values),
        names=[f"{best.arm.name} {best.load.label}"] if best else [],
    )
