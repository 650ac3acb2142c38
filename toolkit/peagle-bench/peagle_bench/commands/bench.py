"""`peagle-sm bench`: measure an endpoint, or a vLLM server, at several loads, and render the results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from peagle_bench import results_file
from peagle_bench.commands.options import (
    COUNT,
    FILE,
    POSITIVE,
    Numbers,
    goal_option,
    max_tokens_option,
    objective_of,
    temperature_option,
    workload_option,
)
from peagle_sm.cli.arguments import follower, open_session
from peagle_sm.cli.base import Command, State, global_options
from peagle_sm.cli.console import emit, note, termination_is_ctrl_c
from peagle_sm.cli.terminal import render_fields, show
from peagle_sm.core.errors import PeagleError
from peagle_sm.core.words import usd

if TYPE_CHECKING:
    from peagle_bench.benchmark.endpoint_arm import Described
    from peagle_bench.benchmark.plan import BenchPlan
    from peagle_bench.results.records import ArmRecord
    from peagle_bench.results.result_file import Outcome
    from peagle_bench.workloads import Workload


@click.command(cls=Command)
@click.argument("endpoint")
@workload_option
@click.option("--prompts", type=COUNT, help="Number of prompts of the workload.  [default: all]")
@click.option(
    "--concurrency",
    type=Numbers(whole=True),
    help="Requests in flight (closed loop).  [default: 1,8 unless --rate is given]",
)
@click.option("--rate", type=Numbers(whole=False), help="Arrivals per second (open loop, Poisson).")
@click.option("--requests", type=COUNT, help="Requests measured per load.  [default: one per prompt]")
@click.option("--seconds", type=POSITIVE, help="Seconds measured per load.")
@max_tokens_option
@temperature_option
@goal_option
@click.option(
    "--usd-per-hour",
    type=click.FloatRange(min=0),
    help="Price of the endpoint, if it is unknown or you pay another one.",
)
@click.option("--seed", type=int, default=0, help="Seed for prompts, order and arrivals.")
@click.option("--out", "-o", type=FILE, help="Results file.  [default: results/bench-NAME-TIME.jsonl]")
@global_options
@click.pass_obj
def bench(state: State, /, endpoint: str, **options: Any) -> None:
    """Measure an endpoint under load.

    ENDPOINT is an endpoint's name (NAME/COMPONENT for one of several inference components), or the http(s)
    URL of a vLLM server. Each request is written to the results file (JSON lines) when it ends, so Ctrl-C
    loses no finished request. The figures do not include warm-up and drain. Answers end where the model ends
    them. If a load needs more requests than the workload has prompts, prompts repeat without prefix cache
    hits. Figures are withheld if this client was the bottleneck; exit code 1 if that was so at every load.
    """
    from peagle_bench.benchmark.endpoint_arm import describe_arm, is_url
    from peagle_bench.benchmark.plan import plan_of
    from peagle_bench.benchmark.run import BenchDependencies
    from peagle_bench.benchmark.run import bench as measure
    from peagle_bench.load import make_target
    from peagle_bench.load.points import is_withheld
    from peagle_bench.workloads import load_workload

    workload = load_workload(
        options["workload"],
        seed=options["seed"],
        count=options["prompts"],
        max_tokens=options["max_tokens"],
        temperature=options["temperature"],
        session=lambda: open_session(state),
    )
    plan = plan_of(
        workload,
        options["concurrency"] or (),
        options["rate"] or (),
        options["requests"],
        options["seconds"],
        seed=options["seed"],
        objective=objective_of(options["goals"]) if options["goals"] else None,
    )
    session = None if is_url(endpoint) else open_session(state)
    described = describe_arm(session, endpoint, usd_per_hour=options["usd_per_hour"])
    arm = described.arm
    note(state, render_before(described, workload, plan) + "\n")
    path = options["out"] or results_file("bench", arm.name)
    every_s = 5.0 if state.format == "json" else 0.5
    with termination_is_ctrl_c(), follower(state) as follow:
        dependencies = BenchDependencies.of(
            session, arm, follow, seed=plan.seed, every_s=every_s, sleep=state.sleep
        )
        outcome = measure(described, make_target(session, arm), workload, plan, path, dependencies)
    emit(
        state,
        table=lambda: render_outcome(outcome),
        data=lambda: outcome_data(outcome),
        names=[str(outcome.path)],
    )
    if all(is_withheld(point.client) for point in outcome.results.points):
        raise withheld(outcome)


def render_before(described: Described, workload: Workload, plan: BenchPlan) -> str:
    """Render what will be measured, and what it costs."""
    arm, label = described.arm, described.target.figures_of
    lines = [
        ("endpoint", f"{arm.name}, {_mode(arm)}" + (f" ({label})" if label else "")),
        ("workload", _workload(workload)),
        ("loads", ", ".join(load.label for load in plan.loads)),
        ("price", _price(arm, plan)),
    ]
    return render_fields(lines)


def _mode(arm: ArmRecord) -> str:
    tokens = f" K={arm.num_speculative_tokens}" if arm.num_speculative_tokens else ""
    return f"mode {arm.mode}{tokens}"


def _workload(workload: Workload) -> str:
    text = f"{workload.name}: {len(workload.items)} prompts"
    if workload.license:
        text += f"; licence: {workload.license}"
    return "\n".join([text, *workload.notes])


def _price(arm: ArmRecord, plan: BenchPlan) -> str:
    if not arm.usd_per_hour:
        return arm.price_source or "unknown"
    text = f"the endpoint costs {usd(arm.usd_per_hour, 'hour')}, also without this run ({arm.price_source})"
    if plan.seconds is not None:
        windows = arm.usd_per_hour * plan.seconds * len(plan.loads) / 3600
        text += f"; {usd(windows)} for the measured time of this run, plus warm-up"
    return text


def render_outcome(outcome: Outcome) -> str:
    """Render rates, latencies, survival and notes; leave out withheld loads."""
    from peagle_bench.report import tables
    from peagle_bench.report.merging import view_of

    view = view_of([outcome.results])
    parts = []
    if view.points:
        shown = (tables.points(view, tables.RATES), tables.latencies(view))
        parts += [
            *(show(table) for table in shown if table is not None),
            "(p50 / p95 / p99; ITL is between chunks, which may contain several tokens)",
            "\n".join(tables.survival(view)),
        ]
    notes = [*outcome.notes, *outcome.results.header.notes]
    parts += ["\n".join(f"note: {note}" for note in notes), f"results: {outcome.path}"]
    return "\n\n".join(part for part in parts if part)


def outcome_data(outcome: Outcome) -> dict[str, Any]:
    """Return the same data for --format json; a withheld point has no figures."""
    from peagle_bench.load.points import is_short, is_withheld
    from peagle_bench.results.result_file import encode

    points = []
    for point in outcome.results.points:
        published = not is_withheld(point.client)
        load = {"load": point.load.label}
        figures = encode(point) | load if published else {"client": encode(point.client)}
        known = {"published": published, "window_too_short": is_short(point)}
        points.append({**load, **known, **figures, "arm": point.arm})
    return {
        "file": str(outcome.path),
        **outcome.results.header.target_data(),
        "arm": encode(outcome.results.arms[-1]),
        "points": points,
        "notes": list(outcome.notes),
    }


def withheld(outcome: Outcome) -> PeagleError:
    """Return the error for a run in which the figures of every load are withheld."""
    return PeagleError(
        "all figures are withheld: at every load this client, not the endpoint, was the bottleneck",
        next_step="run `bench` on a machine with a free core, or at a lower concurrency; the requests are in"
        f" {outcome.path}",
        details={"file": str(outcome.path)},
    )
