"""`peagle-sm bench`: measure an endpoint, or a vLLM server, at several loads.

`--managed` runs SageMaker benchmark jobs instead of the built-in client. This module also renders the text
before the run and the results.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from peagle_bench import results_file
from peagle_bench.commands.options import (
    COUNT,
    FILE,
    POSITIVE,
    Numbers,
    api_option,
    chosen_workload,
    first_turn_option,
    max_tokens_option,
    render_slices,
    repeat_option,
    slices_data,
    temperature_option,
    workload_file_option,
    workload_option,
)
from peagle_bench.commands.packs import (
    context_option,
    failure_of,
    pack_of,
    render_scorecard,
    scorecard_data,
    workload_of,
)
from peagle_sm.cli.arguments import follower, open_session
from peagle_sm.cli.base import Command, State, global_options
from peagle_sm.cli.console import confirmed, emit, note, termination_is_ctrl_c
from peagle_sm.cli.terminal import STAND_IN, render_fields, show
from peagle_sm.core.errors import Declined, PeagleError, SpecError
from peagle_sm.core.words import usd

if TYPE_CHECKING:
    from peagle_bench.benchmark.endpoint_arm import Described
    from peagle_bench.benchmark.plan import BenchPlan
    from peagle_bench.results.records import ArmRecord
    from peagle_bench.results.result_file import Outcome
    from peagle_bench.workloads import Workload
    from peagle_sm.aws.session.session import Session


_CONCURRENCIES = (1, 8)
_MODES = ("none", "eagle3", "p-eagle")


@click.command(cls=Command)
@click.argument("endpoint")
@workload_option
@workload_file_option
@click.option("--prompts", type=COUNT, help="Number of prompts of the workload.  [default: all]")
@click.option(
    "--concurrency",
    type=Numbers(whole=True),
    help="Requests in flight (closed loop).  [default: 1,8 unless --rate is given]",
)
@click.option("--rate", type=Numbers(whole=False), help="Arrivals per second (open loop, Poisson).")
@click.option("--requests", type=COUNT, help="Requests measured per load.  [default: one per prompt]")
@click.option("--seconds", type=POSITIVE, help="Seconds measured per load.")
@click.option(
    "--warm-up",
    type=click.IntRange(min=0),
    help="Requests sent before measuring.  [default: the concurrency]",
)
@click.option("--ramp", type=click.FloatRange(min=0), default=0.0, help="Ramp-up time of a load in seconds.")
@context_option
@repeat_option
@max_tokens_option
@temperature_option
@api_option
@first_turn_option
@click.option("--ttft-ms", type=POSITIVE, help="Goodput limit: time to first token.")
@click.option("--tpot-ms", type=POSITIVE, help="Goodput limit: time per output token.")
@click.option("--e2e-ms", type=POSITIVE, help="Goodput limit: end-to-end latency.")
@click.option("--expect-mode", type=click.Choice(_MODES), help="Fail if the endpoint runs in another mode.")
@click.option("--component", help="Inference component to measure.")
@click.option(
    "--usd-per-hour",
    type=click.FloatRange(min=0),
    help="Price of the endpoint, if it is unknown or you pay another one.",
)
@click.option("--seed", type=int, default=0, help="Seed for prompts, order and arrivals.")
@click.option("--keep-text", is_flag=True, help="Save the answers in the results file.")
@click.option("--out", "-o", type=FILE, help="Results file.  [default: results/bench-NAME-TIME.jsonl]")
@click.option("--resume", type=FILE, help="Run the unfinished loads of this results file; same command.")
@click.option("--managed", is_flag=True, help="Measure with SageMaker AI benchmark jobs (AIPerf).")
@click.option("--role-arn", help="--managed: execution role of the jobs.  [default: the model's role]")
@click.option(
    "--s3-output",
    metavar="S3URI",
    help="--managed: output of the jobs.  [default: SageMaker's default bucket]",
)
@click.option(
    "--tokenizer",
    metavar="ID|DIR",
    help="--managed: tokenizer for counting tokens.  [default: the target's]",
)
@click.option("--yes", "-y", is_flag=True, help="--managed: do not ask for confirmation.")
@global_options
@click.pass_obj
def bench(state: State, /, endpoint: str, **options: Any) -> None:
    """Measure an endpoint under load.

    ENDPOINT is an endpoint's name, or the http(s) URL of a vLLM server. Each request is written to the
    results file (JSON lines) when it ends, so Ctrl-C loses no finished request. The figures do not include
    warm-up and drain. Answers end where the model ends them. At each load every prompt is sent only once,
    unless you give --repeat. Figures are withheld if this client was the bottleneck; exit code 1 if that was
    so at every load.
    """
    if options["yes"] and not options["managed"]:
        raise click.UsageError("peagle-sm bench asks for confirmation only with --managed. Leave out --yes.")
    outcome, stand_in = _run(state, endpoint, options)
    from peagle_bench.load.points import is_withheld

    emit(
        state,
        table=lambda: render_outcome(outcome, stand_in=stand_in),
        data=lambda: outcome_data(outcome, stand_in=stand_in),
        names=[str(outcome.path)],
    )
    if all(is_withheld(point.client) for point in outcome.results.points):
        raise withheld(outcome)
    if (failed := failure_of(outcome.results.packs, outcome.path)) is not None:
        raise failed


def _run(state: State, endpoint: str, options: dict[str, Any]) -> tuple[Outcome, bool]:
    from peagle_bench.benchmark.endpoint_arm import describe_arm, is_url
    from peagle_bench.benchmark.plan import check_plan
    from peagle_bench.benchmark.run import BenchDependencies, bench
    from peagle_bench.load import make_target
    from peagle_bench.packs.run import judge_alone

    pack, work = pack_of(options), None
    if pack is None:
        workload = chosen_workload(state, options)
        check_plan(_plan(options, len(workload.items)), workload)
    session = None if is_url(endpoint) else open_session(state)
    described = describe_arm(
        session,
        endpoint,
        component=options["component"],
        expected=options["expect_mode"],
        usd_per_hour=options["usd_per_hour"],
    )
    if pack is not None:
        workload, work = workload_of(pack, described, session, options)
    plan = _plan(options, len(workload.items))
    check_plan(plan, workload)
    arm = described.arm
    note(state, render_before(arm, workload, plan, stand_in=described.stand_in_weights) + "\n")
    path = options["resume"] or options["out"] or results_file("bench", arm.name)
    if options["managed"]:
        managed = run_managed(state, session, described, workload, plan, path, options)
        return managed, described.stand_in_weights
    with termination_is_ctrl_c(), follower(state) as follow:
        outcome = bench(
            described,
            make_target(session, arm),
            workload,
            plan,
            path,
            BenchDependencies.of(
                session,
                arm,
                follow,
                seed=plan.seed,
                every_s=5.0 if state.format == "json" else 0.5,
                sleep=state.sleep,
            ),
            expected=options["expect_mode"],
            resume=options["resume"] is not None,
            conclude=lambda results: (
                [judge_alone(pack, work, results, seed=plan.seed)] if pack and work else []
            ),
        )
    return outcome, described.stand_in_weights


def _plan(options: dict[str, Any], prompts: int) -> BenchPlan:
    from peagle_bench.benchmark.plan import BenchPlan, loads_of
    from peagle_bench.load.points import Objective

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


# Options that AI benchmark jobs do not support, with their defaults.
_NOT_MANAGED = {"ramp": 0.0, "keep_text": False}


def run_managed(
    state: State,
    session: Session | None,
    described: Described,
    workload: Workload,
    plan: BenchPlan,
    path: Path,
    options: dict[str, Any],
) -> Outcome:
    """Show the price, ask for confirmation, run the jobs and wait for them.

    Raises:
        Declined: the user said no; nothing was created.
        SpecError: the endpoint is a URL, or an option is not supported by the jobs.
    """
    import secrets

    from peagle_bench.benchmark import managed
    from peagle_bench.benchmark.managed_files import find_job_resources
    from peagle_bench.results.provenance import origin
    from peagle_sm.service.progress import Pacing

    if session is None:
        raise SpecError(
            "--managed measures only SageMaker endpoints, but a URL was given",
            next_step="give an endpoint's name, or leave out --managed",
        )
    asked = [name for name, unset in _NOT_MANAGED.items() if options[name] != unset]
    if asked:
        words = ", ".join(f"--{name.replace('_', '-')}" for name in asked)
        raise SpecError(
            f"--managed cannot be used with {words}: SageMaker AI benchmark jobs do not support it",
            next_step=f"leave out {words}",
        )
    note(state, f"jobs        {managed.price_note(described.arm, plan)}\n")
    # find_job_resources creates the default bucket if it does not exist
    if not confirmed(
        state, f"Start {managed.count_of_jobs(plan)} on {described.arm.endpoint}?", options["yes"]
    ):
        raise Declined("Not confirmed: no job was started.", next_step="Run it again, or give --yes.")
    resources = find_job_resources(
        session,
        described.arm.endpoint,
        stand_in_weights=described.stand_in_weights,
        role_arn=options["role_arn"],
        s3=options["s3_output"],
        tokenizer=options["tokenizer"],
    )
    with termination_is_ctrl_c(), follower(state) as follow:
        around = managed.ManagedDependencies(
            progress=follow,
            pacing=Pacing.for_session(session),
            provenance=lambda: origin(plan.seed),
            now=lambda: datetime.now(UTC),
            token=lambda: secrets.token_hex(4),
        )
        resume = options["resume"] is not None
        return managed.run_managed(session, described, workload, plan, resources, path, around, resume=resume)


def render_before(arm: ArmRecord, workload: Workload, plan: BenchPlan, *, stand_in: bool) -> str:
    """Render what will be measured, and what it costs."""
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


def render_outcome(outcome: Outcome, *, stand_in: bool) -> str:
    """Render rates, latencies, survival and notes; leave out withheld loads."""
    from peagle_bench.load.points import is_late, is_short, is_withheld
    from peagle_bench.report import outcomes

    results = outcome.results
    arm = results.arms[-1]
    published = [point for point in results.points if not is_withheld(point.client)]
    parts = []
    if published:
        parts += [
            show(outcomes.rates(published, arm))
            + _star(any(map(is_short, published)), "tokens/s and requests/s"),
            show(outcomes.latencies(published))
            + "\n(p50 / p95 / p99; ITL is between chunks, which may contain several tokens)"
            + _star(any(is_late(point.client) for point in published), "latencies"),
            outcomes.survival(published),
            render_slices(results),
        ]
    parts.append(render_scorecard(results.packs))
    notes = [*outcome.notes, *([STAND_IN] if stand_in else [])]
    parts += ["\n".join(f"note: {note}" for note in notes), f"results: {outcome.path}"]
    return "\n\n".join(part for part in parts if part)


def _star(marked: bool, what: str) -> str:
    """Return the footnote of a table with marked loads."""
    return f"\n(* these {what} are uncertain: see the note)" if marked else ""


def outcome_data(outcome: Outcome, *, stand_in: bool) -> dict[str, Any]:
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
        "stand_in_weights": stand_in,
        "arm": encode(outcome.results.arms[-1]),
        "points": points,
        "slices": slices_data(outcome.results),
        "packs": scorecard_data(outcome.results.packs),
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
