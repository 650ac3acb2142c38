"""`peagle-sm bench`: measure an endpoint, or a bare vLLM, under one load after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from peagle_sm.cli.lazy import Command
from peagle_sm.cli.measuring_options import (
    FILE,
    Numbers,
    api_option,
    chosen_workload,
    first_turn_option,
    max_tokens_option,
    repeat_option,
    temperature_option,
    workload_file_option,
    workload_option,
)
from peagle_sm.cli.options import global_options
from peagle_sm.cli.output import emit, note
from peagle_sm.cli.state import State
from peagle_sm.measure.needs import need_packages, results_file

if TYPE_CHECKING:
    from peagle_sm.aws.session.session import Session
    from peagle_sm.measure.bench import Outcome
    from peagle_sm.measure.bench_plan import BenchPlan
    from peagle_sm.measure.endpoint_arm import Described
    from peagle_sm.measure.workloads import Workload

_CONCURRENCIES = (1, 8)
_MODES = ("none", "eagle3", "p-eagle")


@click.command(cls=Command)
@click.argument("endpoint")
@workload_option
@workload_file_option
@click.option("--prompts", type=click.IntRange(min=1), help="How many of its prompts.  [default: all]")
@click.option(
    "--concurrency",
    type=Numbers(whole=True),
    help="Requests in flight (closed loop).  [default: 1,8 unless --rate is given]",
)
@click.option("--rate", type=Numbers(whole=False), help="Arrivals per second (open loop, Poisson).")
@click.option(
    "--requests", type=click.IntRange(min=1), help="Requests measured per load.  [default: each prompt]"
)
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), help="Seconds measured per load.")
@click.option(
    "--warm-up",
    type=click.IntRange(min=0),
    help="Requests sent before measuring.  [default: the concurrency]",
)
@click.option("--ramp", type=click.FloatRange(min=0), default=0.0, help="Seconds in which a load builds up.")
@repeat_option
@max_tokens_option
@temperature_option
@api_option
@first_turn_option
@click.option("--ttft-ms", type=click.FloatRange(min=0, min_open=True), help="Objective for goodput.")
@click.option("--tpot-ms", type=click.FloatRange(min=0, min_open=True), help="Objective for goodput.")
@click.option("--e2e-ms", type=click.FloatRange(min=0, min_open=True), help="Objective for goodput.")
@click.option(
    "--expect-mode", type=click.Choice(_MODES), help="Refuse to measure an endpoint in another mode."
)
@click.option("--component", help="The inference component to measure.")
@click.option(
    "--usd-per-hour",
    type=click.FloatRange(min=0),
    help="What the machine costs, where no price is known or another one holds.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Chooses prompts, order and arrivals.")
@click.option("--keep-text", is_flag=True, help="Keep the answers in the results file.")
@click.option("--out", "-o", type=FILE, help="The results file.  [default: results/bench-NAME-TIME.jsonl]")
@click.option("--resume", type=FILE, help="Continue this results file: same command, unfinished loads.")
@click.option("--managed", is_flag=True, help="Let SageMaker's own AI benchmark jobs (AIPerf) measure.")
@click.option("--role-arn", help="Role of the managed jobs.  [default: the model's]")
@click.option(
    "--s3-output",
    metavar="S3URI",
    help="Where the managed jobs write.  [default: SageMaker's default bucket]",
)
@click.option(
    "--tokenizer",
    metavar="ID|DIR",
    help="Tokenizer with which the managed jobs count tokens.  [default: the target's]",
)
@global_options
@click.pass_obj
def bench(state: State, /, endpoint: str, **options: Any) -> None:
    """Measure an endpoint under load.

    ENDPOINT is an endpoint's name, or the http(s) address of a bare vLLM. Every request is written to the
    results file (JSON lines) as it ends, so that Ctrl-C keeps what is there. Warm-up and drain are left out
    of the figures, answers end where the model ends them, and no prompt is sent twice at one load unless
    --repeat says so. Figures are withheld where this client was the bottleneck; where that is so at every
    load, the exit code is 1.
    """
    need_packages()
    outcome, stand_in = _run(state, endpoint, options)
    from peagle_sm.cli.bench_text import outcome_data, render_outcome, withheld
    from peagle_sm.measure.withholding import is_withheld

    emit(
        state,
        table=lambda: render_outcome(outcome, stand_in=stand_in),
        data=lambda: outcome_data(outcome, stand_in=stand_in),
        names=[str(outcome.path)],
    )
    if all(is_withheld(point.client) for point in outcome.results.points):
        raise withheld(outcome)


def _run(state: State, endpoint: str, options: dict[str, Any]) -> tuple[Outcome, bool]:
    from peagle_sm.cli.progress import follower
    from peagle_sm.cli.signals import termination_is_ctrl_c
    from peagle_sm.measure.bench import Around, bench
    from peagle_sm.measure.bench_counters import engine_source
    from peagle_sm.measure.bench_plan import check_plan
    from peagle_sm.measure.endpoint_arm import look_at
    from peagle_sm.measure.load import make_target
    from peagle_sm.measure.provenance import origin

    workload = chosen_workload(options)
    plan = _plan(options, len(workload.items))
    check_plan(plan, workload)
    session, described = _describe(state, endpoint, options)
    arm = described.arm
    _show_before(state, described, workload, plan)
    path = options["resume"] or options["out"] or results_file("bench", arm.name)
    if options["managed"]:
        from peagle_sm.cli.managed_bench import run_managed

        managed = run_managed(state, session, described, workload, plan, path, options)
        return managed, described.stand_in_weights
    with termination_is_ctrl_c(), follower(state) as follow:
        outcome = bench(
            described,
            make_target(session, arm),
            workload,
            plan,
            path,
            Around(
                progress=follow,
                look=lambda: look_at(session, arm),
                provenance=lambda: origin(plan.seed),
                source=engine_source(session, arm, state.sleep),
                every_s=5.0 if state.format == "json" else 0.5,
            ),
            expected=options["expect_mode"],
            resume=options["resume"] is not None,
        )
    return outcome, described.stand_in_weights


def _plan(options: dict[str, Any], prompts: int) -> BenchPlan:
    from peagle_sm.measure.bench_plan import BenchPlan, loads_of
    from peagle_sm.measure.load.points import Objective

    rates = options["rate"] or ()
    usual = tuple(each for each in _CONCURRENCIES if each <= prompts or options["repeat"])
    concurrencies = options["concurrency"] or (() if rates else usual)
    limits = [options[name] for name in ("ttft_ms", "tpot_ms", "e2e_ms")]
    return BenchPlan(
        loads=loads_of(concurrencies, rates),
        requests=options["requests"],
        seconds=options["seconds"],
        warm_up_requests=options["warm_up"],
        ramp_s=options["ramp"],
        repeat=options["repeat"],
        seed=options["seed"],
        keep_text=options["keep_text"],
        objective=Objective(*limits) if any(limits) else None,
    )


def _describe(state: State, endpoint: str, options: dict[str, Any]) -> tuple[Session | None, Described]:
    from peagle_sm.measure.endpoint_arm import demand_mode, describe_endpoint, describe_url, is_url

    session = None
    if is_url(endpoint):
        described = describe_url(endpoint, usd_per_hour=options["usd_per_hour"])
    else:
        from peagle_sm.cli.connect import open_session

        session = open_session(state)
        described = describe_endpoint(session, endpoint, component=options["component"])
        if options["usd_per_hour"] is not None:
            described = described.priced(options["usd_per_hour"])
    expected = options["expect_mode"]
    return session, described if expected is None else demand_mode(described, expected)


def _show_before(state: State, described: Described, workload: Workload, plan: BenchPlan) -> None:
    from peagle_sm.cli.bench_text import render_before

    note(state, render_before(described.arm, workload, plan, stand_in=described.stand_in_weights) + "\n")
