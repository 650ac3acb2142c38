"""`peagle-sm learn train, status, stop`: one training job, from its plan to its head."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from peagle_learn.commands import learn_spec_argument
from peagle_sm.cli.arguments import follower, open_session
from peagle_sm.cli.base import Command, State, global_options
from peagle_sm.cli.commands.guard import with_guard
from peagle_sm.cli.console import asking, emit, need_terminal, note, termination_is_ctrl_c, to_json
from peagle_sm.cli.terminal import render_fields, render_table
from peagle_sm.core.words import elapsed, usd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peagle_learn.jobs import JobState
    from peagle_learn.train import TrainingOffer
    from peagle_sm.aws.session.session import Session


@click.command(cls=Command)
@learn_spec_argument
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Print the exact request as JSON; create nothing.")
@click.option("--wait/--no-wait", default=True, help="Follow the job to its end.")
@click.option(
    "--unguarded", is_flag=True, help="Train without a guard: only SageMaker's limits stop the job."
)
@global_options
@click.pass_obj
def train(
    state: State,
    spec_path: Path,
    yes: bool,
    dry_run: bool,
    wait: bool,
    unguarded: bool,
) -> None:
    """Train a head in a SageMaker training job, and follow it.

    SPEC is a YAML file (default: learn.yaml). The command reads target, head and data, shows the plan with
    memory and price, and asks. Data of this machine is sent to S3 after that. The job ends at
    train.max_hours at the latest, which must be within train.budget_usd.

    The same spec finds its job again: a running job is followed, a finished one is shown. After a failure or
    a stop it starts a further job, which resumes from the last checkpoint. Ctrl-C leaves the job running, and
    shows the command that stops it.
    """
    from peagle_learn import train as learning

    spec = learning.load_learn_spec(spec_path)
    if not dry_run:
        need_terminal(state, yes, f"peagle-sm learn train {spec_path} --dry-run{state.flags}")
    session = open_session(state)
    base = spec_path.parent
    if dry_run:
        plan = learning.plan_training(spec, session, base)
        if state.format == "table":
            note(state, str(plan) + "\n")
        click.echo(to_json(plan.to_dict() if state.format == "json" else plan.request.parameters))
        plan.refuse_errors()
        return
    with termination_is_ctrl_c(), follower(state) as follow:
        ask = asking(state, yes, "training", str, question, before=follow.pause)

        def attempt() -> JobState:
            return learning.train(
                spec, session, confirm=ask, progress=follow, wait=wait, unguarded=unguarded, base=base
            )

        done = with_guard(state, session, follow, yes, attempt)
    _emit(state, done, session)


def question(offer: TrainingOffer) -> str:
    """Return the confirmation prompt."""
    plan = offer.plan
    return f"Train {plan.job} ({plan.facts.price.words()})?"


@click.command(cls=Command)
@click.argument("job", required=False)
@click.option("--follow", "follows", is_flag=True, help="Follow the job to its end.")
@click.option("--lines", is_flag=True, help="Print the job's log.")
@global_options
@click.pass_obj
def status(state: State, job: str | None, follows: bool, lines: bool) -> None:
    """Show training jobs: steps, losses and cost.

    JOB is a job's name, or a part of the names of several jobs. Without it, all running training jobs of
    peagle-sm are listed. If no job's name contains JOB, the exit code is 4.
    """
    from peagle_learn import jobs
    from peagle_learn.aws.jobs import describe_job, log_lines

    session = open_session(state)
    exact = None if job is None else describe_job(session, job)
    if job is None or exact is None:
        rows = [] if job is not None and (follows or lines) else jobs.jobs_of(session, job)
        if job is not None and not rows:
            jobs.job_state(session, job)  # raises: there is no such job
        emit(
            state,
            table=lambda: render_jobs(rows),
            data=lambda: [row.to_dict() for row in rows],
            names=[row.job.name for row in rows],
        )
        return
    if lines:
        for line in log_lines(session, exact):
            click.echo(line.text)
        return
    if follows:
        with termination_is_ctrl_c(), follower(state) as follow:
            shown = jobs.follow(session, job, progress=follow)
    else:
        shown = jobs.job_state(session, job)
    _emit(state, shown, session)


@click.command(cls=Command)
@click.argument("job")
@global_options
@click.pass_obj
def stop(state: State, job: str) -> None:
    """Stop a training job.

    The job saves a checkpoint within two minutes and ends. `peagle-sm learn train` with the same spec
    continues from it.
    """
    from peagle_learn import jobs

    session = open_session(state)
    _emit(state, jobs.stop(session, job), session)


def _emit(state: State, shown: JobState, session: Session) -> None:
    emit(
        state,
        table=lambda: render_job(shown, session.command_flags()),
        data=shown.to_dict,
        names=[
            shown.job.artifact if shown.job.status == "Completed" and shown.job.artifact else shown.job.name
        ],
    )


def render_job(shown: JobState, flags: str) -> str:
    """Render one job."""
    job, last, checked = shown.job, shown.last, shown.checked
    step = "" if last is None else f"{last.step}{f' of {last.steps}' if last.steps else ''}"
    depths = {} if last is None else last.depth_accuracies()
    fields = [
        ("job", job.name),
        (
            "status",
            f"{job.status} ({job.secondary})" if job.secondary not in ("", job.status) else job.status,
        ),
        ("instance", f"{job.instances} x {job.instance_type}{', managed spot' * job.spot}"),
        ("step", step),
        ("training", _figures({} if last is None else last.figures)),
        ("by depth", " ".join(f"{value:.2f}" for value in depths.values())),
        ("validation", _figures({} if checked is None else checked.figures)),
        ("interrupted", f"{job.interruptions} times" * bool(job.interruptions)),
        ("billed", f"{elapsed(shown.billed_s)} of each instance, {usd(shown.usd)}"),
        ("reason", job.failure_reason or ""),
        ("head", job.artifact or ""),
    ]
    if job.running:
        fields.append(("stop it", f"peagle-sm learn stop {job.name}{flags}"))
    return render_fields([(name, value) for name, value in fields if value])


def _figures(figures: object) -> str:
    values = dict(figures) if isinstance(figures, dict) else {}
    named = {"loss": "loss {:.4f}", "accuracy": "accuracy {:.3f}", "tokens_per_second": "{:.0f} tokens/s"}
    return ", ".join(form.format(values[name]) for name, form in named.items() if name in values)


def render_jobs(rows: Sequence[JobState]) -> str:
    """Render the list of jobs."""
    if not rows:
        return "No training job of peagle-sm runs here."
    cells = [
        [
            row.job.name,
            row.job.secondary or row.job.status,
            f"{row.job.instances} x {row.job.instance_type}",
            elapsed(row.billed_s),
            usd(row.usd),
        ]
        for row in rows
    ]
    return render_table(("job", "status", "instance", "billed", "cost"), cells, right=("billed", "cost"))
