"""`peagle-sm tune --synthetic`: measure step times, for the rate of a head that does not exist."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from peagle_bench import results_file
from peagle_bench.commands.tuning_offer import run_offered
from peagle_sm.cli.arguments import open_session, read_spec
from peagle_sm.cli.base import State
from peagle_sm.cli.console import emit
from peagle_sm.cli.terminal import render_fields, show
from peagle_sm.core.errors import Declined

if TYPE_CHECKING:
    from peagle_bench.tune.estimate import Estimate
    from peagle_bench.tune.synthetic import SyntheticDone, SyntheticJob
    from peagle_sm.aws.session.session import Session
    from peagle_sm.core.spec.endpoint_spec import EndpointSpec

_OF_A_TUNING = ("modes", "max_k", "resume", "write")


def tune_synthetic(state: State, spec_path: Path, options: dict[str, Any]) -> None:
    """Show the price, ask, deploy, measure, delete; ``options`` are those of `tune`."""
    from peagle_bench.tune import synthetic

    context = click.get_current_context()
    for name in _OF_A_TUNING:
        if context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
            raise click.UsageError(f"--{name.replace('_', '-')} and --synthetic exclude each other.")
    spec = read_spec(spec_path)
    session = open_session(state, spec.placement.region)
    job = _job(session, options, spec)
    plans = synthetic.plans_of(job, session)
    cost = synthetic.price_of(job, plans, session)
    done = run_offered(
        state,
        session,
        options,
        plans,
        cost,
        lambda source: render_before(job, cost, source),
        Declined("Not confirmed: nothing was measured.", next_step="Run it again, or give --yes."),
        lambda follow, every_s: synthetic.run(job, session, progress=follow, every_s=every_s),
    )
    if done is None:
        return
    emit(
        state,
        table=lambda: render_synthetic(done, spec_path),
        data=lambda: synthetic_data(done),
        names=[str(done.out)],
    )


def _job(session: Session, options: dict[str, Any], spec: EndpointSpec) -> SyntheticJob:
    from peagle_bench.tune.estimate import MAX_TOKENS, is_runtime
    from peagle_bench.tune.synthetic import SyntheticJob, demand_drafter
    from peagle_bench.workloads import load_workload
    from peagle_sm.service import plan_for

    mode = spec.speculation.mode
    demand_drafter(mode)
    planned = plan_for(spec, session).draft.num_speculative_tokens
    return SyntheticJob(
        spec=spec,
        ks=tuple(sorted(options["ks"] or (planned or 1,))),
        concurrencies=options["concurrency"],
        runtime=is_runtime(options["by"], session.is_local, (mode,)),
        requests=options["requests"],
        workload=load_workload(
            options["workload"], max_tokens=MAX_TOKENS, first_turn_only=True, session=lambda: session
        ),
        max_tokens=MAX_TOKENS,
        out=options["out"] or results_file("synthetic", spec.name),
        unguarded=options["unguarded"],
    )


def render_before(job: SyntheticJob, cost: Estimate, price_source: str) -> str:
    """Render what will be measured, and what it costs."""
    ends = "no draft token is accepted, and all are"
    how = (
        f"two endpoints ({ends}), in which K changes"
        if job.runtime
        else f"two endpoints for each K ({ends}); another K is another deployment"
    )
    prompts = f"{job.workload.name}: {len(job.workload.items)} prompts, {job.max_tokens} tokens an answer"
    lines = [
        ("step times", f"{job.mode} of {job.spec.model_name}, K {', '.join(map(str, job.ks))}"),
        ("concurrency", ", ".join(map(str, job.concurrencies))),
        ("how", f"{how}; one endpoint without speculation"),
        ("caution", "the answers are wrong by design: send these endpoints no requests of yours"),
        ("workload", prompts),
        ("takes", cost.words()),
        ("price", price_source),
    ]
    return render_fields(lines)


def render_synthetic(done: SyntheticDone, spec_path: Path) -> str:
    """Render the step times, what they are, and what to run next."""
    from peagle_bench.report.tables import step_times
    from peagle_bench.tune.estimate import spent

    times = done.times
    example = 1 + times.ks[0] / 2
    notes = [
        *times.notes,
        "synthetic: no head has these rates; a rate follows from an acceptance length that you state",
    ]
    ending = [
        f"took {done.minutes:.1f} min, {spent(done.usd)}",
        f"step times: {done.out}",
        f"next: peagle-sm decide {spec_path} --step-times {done.out} \\",
        f"  --acceptance-length {example:g} --otps RATE --tokens IN/OUT",
    ]
    return "\n\n".join(
        [show(step_times(times)), "\n".join(f"note: {line}" for line in notes), "\n".join(ending)]
    )


def synthetic_data(done: SyntheticDone) -> dict[str, Any]:
    """Return the step times for --format json."""
    times = done.times
    return {
        "synthetic": True,
        "target": times.target,
        "mode": times.mode,
        "step_times": [
            {
                "k": k,
                "concurrency": concurrency,
                "step_ms": round(cell.step_ms, 4),
                "fixed_ms": round(cell.fixed_ms, 4),
                "otps_at_acceptance_length": {
                    str(length): round(cell.rate(length), 2) for length in range(1, k + 2)
                },
            }
            for (k, concurrency), cell in sorted(times.cells.items())
        ],
        "none_otps": {str(concurrency): round(rate, 2) for concurrency, rate in times.plain.items()},
        "usd": done.usd,
        "minutes": round(done.minutes, 2),
        "results": str(done.out),
        **times.header.target_data(),
        "warnings": list(times.doubts),
    }
