"""`peagle-sm tune`: find the best num_speculative_tokens (K) for a spec, or measure step times."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from peagle_bench import results_file
from peagle_bench.commands.options import FILE, Numbers, workload_option
from peagle_bench.commands.tuning_offer import run_offered
from peagle_sm.cli.arguments import open_session, read_spec, spec_argument
from peagle_sm.cli.base import Command, State, global_options
from peagle_sm.cli.console import emit
from peagle_sm.cli.terminal import render_fields, show
from peagle_sm.core.errors import Declined

if TYPE_CHECKING:
    from peagle_bench.tune.estimate import Estimate
    from peagle_bench.tune.job import Done, Job
    from peagle_bench.tune.outcome import BaselineRatio
    from peagle_sm.aws.session.session import Session


@click.command(cls=Command)
@spec_argument
@click.option("--modes", metavar="LIST", help="Modes to tune: p-eagle,ngram.  [default: the spec's]")
@click.option(
    "--concurrency",
    type=Numbers(whole=True),
    default="1,8",
    help="Requests in flight, separated by commas.",
)
@click.option(
    "--max-k",
    type=click.IntRange(2, 32),
    help="Largest K to try.  [default: 11, or what the head was trained for if that is less]",
)
@click.option(
    "--by",
    type=click.Choice(("auto", "runtime", "deployments")),
    default="auto",
    help="runtime: change K inside one engine (the local one, or an image with the plugin in container/); "
    "deployments: deploy each K; auto: runtime locally, else deployments.",
)
@click.option(
    "--synthetic",
    is_flag=True,
    help="Measure step times with made-up acceptance: what a better head would be worth. Writes no K.",
)
@click.option(
    "--k",
    "ks",
    metavar="LIST",
    type=Numbers(whole=True),
    help="With --synthetic: the K to measure.  [default: the spec's]",
)
@workload_option
@click.option("--requests", type=click.IntRange(min=4), default=24, help="Requests measured per window.")
@click.option("--out", "-o", type=FILE, help="Results file.  [default: results/tune-NAME-TIME.jsonl]")
@click.option("--resume", type=FILE, help="Use the windows of this interrupted tuning; same options.")
@click.option("--write/--no-write", default=True, help="Write the chosen K into SPEC.")
@click.option("--dry-run", is_flag=True, help="Print the first requests as JSON; create nothing.")
@click.option("--unguarded", is_flag=True, help="Deploy without an installed guard.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@global_options
@click.pass_obj
def tune(state: State, /, spec_path: Path, **options: Any) -> None:
    """Find the best num_speculative_tokens (K) for each concurrency, and the best mode.

    SPEC is a YAML file (default: peagle.yaml). The command shows the price and asks for confirmation. It
    deploys the model without and with speculation and measures a few K. The largest one shows the
    acceptance at every smaller K, and the step time between two K is interpolated. The most promising K are
    measured next. At the end it deletes everything that it deployed.

    Only a measured K is chosen: the smallest one that is expected to lose at most 0.5%. One K for all
    concurrencies is written into SPEC, with the evidence in a comment above it. The best K of each
    load alone is an estimate.

    With --synthetic it measures the time of a step instead, whatever the head is worth: the engine accepts
    no draft token, and then all. `decide` and `learn plan` compute rates and costs from that file, for an
    acceptance length that you state. The answers of these endpoints are wrong. Their names begin with
    synthetic-, other commands refuse them, and they are deleted at the end.
    """
    if options["synthetic"]:
        from peagle_bench.commands.tune_synthetic import tune_synthetic

        tune_synthetic(state, spec_path, options)
        return
    if options["ks"]:
        raise click.UsageError("--k needs --synthetic; a tuning tries every K up to --max-k.")
    from peagle_bench.tune import job as tuning

    spec = read_spec(spec_path)
    session = open_session(state, spec.placement.region)
    job = _job(spec_path, session, options, spec)
    tuning.check(job)
    plans = tuning.plans_of(job, session)
    cost = tuning.price_of(job, plans, session)
    done = run_offered(
        state,
        session,
        options,
        plans,
        cost,
        lambda source: render_before(job, cost, source),
        Declined("Not confirmed: nothing was tuned.", next_step="Run it again, or give --yes."),
        lambda follow, every_s: tuning.run(
            job, session, progress=follow, write=options["write"], every_s=every_s
        ),
    )
    if done is None:
        return
    emit(
        state,
        table=lambda: render_done(done),
        data=lambda: done_data(done),
        names=[str(result.common.k) for result in done.tuned.results],
    )


def _job(spec_path: Path, session: Session, options: dict[str, Any], spec: Any) -> Job:
    from peagle_bench.tune.arms import parse_modes
    from peagle_bench.tune.estimate import MAX_TOKENS, Settings, is_runtime
    from peagle_bench.tune.job import Job, modes_of
    from peagle_bench.tune.limits import largest_k
    from peagle_bench.workloads import load_workload

    modes = modes_of(spec, parse_modes(options["modes"]) if options["modes"] else None)
    return Job(
        spec=spec,
        spec_path=None if str(spec_path) == "-" else spec_path,
        settings=Settings(
            modes=modes,
            concurrencies=options["concurrency"],
            max_k=options["max_k"] or largest_k(spec, modes),
            runtime=is_runtime(options["by"], session.is_local, modes),
            requests=options["requests"],
            unguarded=options["unguarded"],
        ),
        workload=load_workload(
            options["workload"], max_tokens=MAX_TOKENS, first_turn_only=True, session=lambda: session
        ),
        max_tokens=MAX_TOKENS,
        out=options["out"] or results_file("tune", spec.name),
        resume=options["resume"],
    )


def render_before(job: Job, cost: Estimate, price_source: str) -> str:
    """Render what will be measured, and what it costs."""
    from peagle_bench.tune.choice import MOST_DEPLOYED

    settings = job.settings
    how = (
        "K changes inside one engine"
        if settings.runtime
        else f"at most {MOST_DEPLOYED} deployments of K for each mode, besides the baseline"
    )
    lines = [
        ("tune", f"{', '.join(settings.modes)} of {job.spec.model_name}, K 1 to {settings.max_k}"),
        ("concurrency", ", ".join(map(str, settings.concurrencies))),
        ("how", how),
        ("workload", f"{job.workload.name}: {len(job.workload.items)} prompts"),
        ("takes", cost.words()),
        ("price", price_source),
    ]
    return render_fields(lines)


def render_done(done: Done) -> str:
    """Render the best K of each mode and load, the rate at each K, the best mode, the cost."""
    from peagle_bench.report import tables
    from peagle_bench.report.merging import view_of
    from peagle_bench.tune.estimate import spent
    from peagle_bench.tune.outcome import best_mode, common_against_none

    tuned, view = done.tuned, view_of([done.results])
    parts = [show(table) for table in (tables.rates(view), tables.best_k(view)) if table is not None]
    lines = []
    for result in tuned.results:
        lines.append(f"{result.mode}: one K for all loads, measured at each load: {result.common.reason}")
        lines += [f"  at c={c}: {ratio.words}" for c, ratio in common_against_none(result).items()]
    for concurrency in tuned.results[0].choices:
        mode, k, rate = best_mode(tuned.results, concurrency)
        lines.append(f"best estimate at c={concurrency}: {mode}{f' K={k}' if k else ''}, {rate:.0f} tokens/s")
    parts.append("\n".join(lines))
    notes = [f"do not publish: {line}" for line in tuned.untrusted]
    notes += done.results.header.notes
    notes.append("the confidence intervals cover only the windows of this deployment")
    parts.append("\n".join(f"note: {line}" for line in notes))
    ending = [f"took {tuned.minutes:.1f} min, {spent(tuned.usd)}", f"results: {done.out}"]
    if done.written:
        ending.append(f"written into {done.written}")
    return "\n\n".join([*parts, "\n".join(ending)])


def done_data(done: Done) -> dict[str, Any]:
    """Return the results for --format json."""
    from peagle_bench.tune.outcome import against_none, best_mode, common_against_none

    tuned = done.tuned
    return {
        "modes": [
            {
                "mode": result.mode,
                "k": result.common.k,
                "deployments": result.deployments,
                "by_concurrency": {
                    str(concurrency): {
                        "k": choice.k,
                        "reason": choice.reason,
                        "expected_loss": round(choice.expected_loss, 5),
                        "against_none": _against_data(against_none(result.rates[concurrency], choice.k)),
                        "common_against_none": _against_data(common_against_none(result).get(concurrency)),
                    }
                    for concurrency, choice in result.choices.items()
                },
            }
            for result in tuned.results
        ],
        "best": [
            {"concurrency": c, "mode": mode, "k": k, "otps": round(rate, 1)}
            for c in tuned.results[0].choices
            for mode, k, rate in [best_mode(tuned.results, c)]
        ],
        "usd": tuned.usd,
        "minutes": round(tuned.minutes, 2),
        "results": str(done.out),
        "written": done.written,
        **done.results.header.target_data(),
        "warnings": list(tuned.untrusted),
    }


def _against_data(against: BaselineRatio | None) -> dict[str, Any] | None:
    """Return the comparison with the baseline; None if no baseline was measured."""
    if against is None:
        return None
    figures = {"ratio": against.ratio, "low": against.low, "high": against.high}
    return {
        "k": against.k,
        "verdict": against.verdict,
        "none_otps": round(against.plain, 1),
        **{name: round(value, 4) for name, value in figures.items()},
    }
