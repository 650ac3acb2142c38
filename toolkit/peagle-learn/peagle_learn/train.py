"""train(): plan a head's training, start its job once, follow it to its end; and its status and stop.

A job belongs to what it trains: the same spec finds its running or finished job again, and after a failure
goes on from its checkpoints. Nothing is sent or created before the plan is confirmed. A job runs on when this
program ends; it stops at its own limits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from peagle_learn.aws import training
from peagle_learn.aws.jobs import demand_ours, price_in
from peagle_learn.aws.training import TrainingJob
from peagle_learn.core.job_names import TrainerLine, attempt_of, newest_attempt, read_lines
from peagle_learn.core.plan import LearnPlan, make_training_plan
from peagle_learn.core.spec import LearnSpec, parse_learn_spec
from peagle_learn.core.training_request import ChannelFacts
from peagle_learn.facts import read_facts
from peagle_learn.stored_data import data_uri
from peagle_sm.aws.session.errors import is_taken, is_unsettled
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage.s3 import has_object, split_uri
from peagle_sm.aws.storage.uploads import checksum_of, digests, put_file
from peagle_sm.core.errors import (
    Declined,
    Interrupted,
    NotFound,
    PeagleError,
    PlanRefused,
    ServiceFault,
    SpecError,
    TrainingFailed,
)
from peagle_sm.core.plan.tags_and_schedules import LEARN
from peagle_sm.core.words import Finding, elapsed, usd
from peagle_sm.service.inventory.guard_state import require_guard
from peagle_sm.service.progress import Event, Pacing, Progress, Reporter, once_visible

RUNNING_JOB = "running-job"
"""Check of the findings that name other running jobs of the spec."""
_TOO_LONG = "it reached train.max_hours"
REPEAT = timedelta(minutes=1)
"""Log lines may arrive late: each look begins this much before the newest line."""


@dataclass(frozen=True)
class TrainingState:
    """One job as it is: billed seconds of each instance, cost so far, and the trainer's lines."""

    job: TrainingJob
    spec_name: str
    billed_s: float
    usd: float | None
    usd_per_hour: float | None
    lines: tuple[TrainerLine, ...] = ()

    @property
    def last(self) -> TrainerLine | None:
        """Newest line about a training step."""
        return next((one for one in reversed(self.lines) if one.kind == "training"), None)

    @property
    def checked(self) -> TrainerLine | None:
        """Newest line about the validation data."""
        return next((one for one in reversed(self.lines) if one.kind == "validation"), None)

    @property
    def interruptions(self) -> int:
        """Spot interruptions so far."""
        return self.job.transitions.count("Interrupted")

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types; None for what is not known."""
        last, checked = self.last, self.checked
        return {
            "job": self.job.name,
            "name": self.spec_name,
            "status": self.job.status,
            "secondary_status": self.job.secondary,
            "running": self.job.running,
            "step": None if last is None else last.step,
            "steps": None if last is None else last.steps,
            "training": None if last is None else dict(last.figures),
            "validation": None if checked is None else dict(checked.figures),
            "billed_seconds": round(self.billed_s, 1),
            "usd": None if self.usd is None else round(self.usd, 4),
            "usd_per_hour": self.usd_per_hour,
            "interruptions": self.interruptions,
            "failure_reason": self.job.failure_reason,
            "artifact": self.job.artifact,
        }


@dataclass(frozen=True)
class TrainingOffer:
    """What `train` asks about: the plan, and the earlier job that it continues or replaces."""

    plan: LearnPlan
    earlier: TrainingJob | None = None

    def __str__(self) -> str:
        if self.earlier is None:
            return str(self.plan)
        what = f"{self.earlier.name} ended as {self.earlier.status}"
        if self.earlier.status == "Completed":
            what += f", but its head is gone from {self.earlier.artifact}"
        return f"{self.plan}\n\n{what}; this job goes on from its last checkpoint, if it saved one."

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {**self.plan.to_dict(), "earlier": None if self.earlier is None else self.earlier.name}


Confirm = Callable[[TrainingOffer], bool]


def load_learn_spec(path: Path | str) -> LearnSpec:
    """Read learn.yaml.

    Raises:
        SpecError: it cannot be read, is not YAML, or has a bad field.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(
            f"{path}: cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8 text'}",
            next_step="Give an existing learn.yaml; `peagle-sm help train-a-head` has one.",
        ) from error
    return parse_learn_spec(text, origin=str(path))


def plan_training(
    spec: LearnSpec, session: Session, base: Path = Path(), *, data_is_to_come: bool = False
) -> LearnPlan:
    """Plan the job of a spec for the session's account and region; reads only.

    ``data_is_to_come``: `learn data` has yet to store the data, so only the rest is read and checked.

    Raises:
        SpecError: the model has no recipe, or the spec names an unknown head.
        CredentialsError, ServiceFault: AWS refuses, or does not answer.
    """
    facts = read_facts(spec, session, base, data_is_to_come=data_is_to_come)
    plan = make_training_plan(spec, facts)
    return replace(plan, findings=(*plan.findings, *_running_findings(plan, session)))


def _running_findings(plan: LearnPlan, session: Session) -> list[Finding]:
    """Name the spec's other jobs that run: with other data or settings the plan starts one beside them."""
    spec, flags, to_come = plan.spec, session.command_flags(), plan.facts.data_is_to_come
    try:
        states = jobs_of(session, f"{spec.name}-", running=True)
    except PeagleError as error:
        return [Finding("info", f"running jobs could not be listed: {error.message}", "", RUNNING_JOB)]
    found = []
    for state in states:
        job = state.job
        is_this = not to_come and attempt_of(job.name, plan.base) is not None
        if state.spec_name != spec.name or not job.running or is_this:
            continue
        cost = (
            "nothing is billed"
            if state.usd_per_hour == 0
            else f"{usd(state.usd_per_hour, 'hour')}, {usd(state.usd)} so far"
        )
        step = f"Stop it with `peagle-sm learn stop {job.name}{flags}`, unless "
        step += "it trains on the same data, which continues it, or " if to_come else ""
        message = f"{job.name}, a job of {spec.name}, runs on beside the new one: "
        message += f"{job.instances} x {job.instance_type}{', managed spot' * job.spot}, {cost}"
        found.append(Finding("warning", message, f"{step}you want both.", RUNNING_JOB))
    return found


def train(
    spec: LearnSpec,
    session: Session,
    *,
    confirm: Confirm,
    progress: Progress | None = None,
    pacing: Pacing | None = None,
    wait: bool = True,
    unguarded: bool = False,
    base: Path = Path(),
) -> TrainingState:
    """Train the head of a spec, unless a job of the same data, target and recipe runs or is done.

    ``confirm`` is asked before anything is sent or created; a running job, and a finished one whose head is
    in S3, need no question.

    Raises:
        PlanRefused: the plan has an error; nothing was created.
        Declined: it was not confirmed; nothing was created.
        GuardMissing: no guard is installed, and ``unguarded`` is False.
        Interrupted: Ctrl-C; the job runs on.
        TrainingFailed: the job failed or was stopped.
    """
    pacing = pacing or Pacing.for_session(session)
    plan = plan_training(spec, session, base)
    found = find_job(session, plan.base)
    usable = found is not None and _is_usable(session, found)
    sent = False
    if not usable:
        plan.refuse_errors()
        if found is not None:
            plan = plan.as_attempt((attempt_of(found.name, plan.base) or 1) + 1)
        if not unguarded:
            require_guard(session, "training")
        if not confirm(TrainingOffer(plan, found)):
            raise Declined(
                "Nothing was created: it was not confirmed.", next_step="Run it again and confirm."
            )
        sent = _send_data(plan, session, progress)
    name = found.name if found is not None and usable else plan.job
    try:
        if not usable:
            _start(plan, session, sent, progress, pacing)
        if not wait:
            return training_state(session, name, lines=False)
        return follow(session, name, progress=progress, pacing=pacing, budget_usd=spec.train.budget_usd)
    except KeyboardInterrupt as error:  # before `follow` has seen the job
        limit = plan.request.parameters["StoppingCondition"]["MaxRuntimeInSeconds"]
        raise _interrupted(session, name, plan.facts.price.usd_per_hour, limit) from error


def _is_usable(session: Session, job: TrainingJob) -> bool:
    """Return whether a job runs, or is done and its head was not deleted."""
    if job.status != "Completed" or job.artifact is None:
        return job.running
    return has_object(session, job.artifact)


def find_job(session: Session, base: str) -> TrainingJob | None:
    """Return the newest attempt of a job, by the name of the first; None without one."""
    newest = newest_attempt(training.training_job_names(session, base), base)
    return None if newest is None else training.describe_training_job(session, newest)


def _send_data(plan: LearnPlan, session: Session, progress: Progress | None) -> bool:
    """Upload this machine's data; return whether there was any."""
    channels = [each for each in (plan.facts.training, plan.facts.validation) if each and each.files]
    for channel in channels:
        _send_channel(channel, session, progress)
    return bool(channels)


def _send_channel(channel: ChannelFacts, session: Session, progress: Progress | None) -> None:
    """Upload a channel's files; one that is there with the same checksum is kept."""
    bucket, prefix = split_uri(channel.uri)
    for name in channel.files:
        path = Path(name)
        found = digests(path)
        key = f"{prefix}{path.name}"
        if checksum_of(session, bucket, key) == (found.size, found.s3):
            continue
        if progress is not None:
            progress(
                Event("check", f"sending {path.name} ({found.size / 1e6:.1f} MB) to s3://{bucket}/{key}")
            )
        put_file(session, bucket, key, path, found, lambda _: None)


def _start(
    plan: LearnPlan,
    session: Session,
    sent: bool = False,
    progress: Progress | None = None,
    pacing: Pacing | None = None,
) -> None:
    """Create the job once; one that another run of the same spec created is taken.

    Raises:
        ServiceFault: refused; the message says that nothing is billed, or how to look, and what was ``sent``.
    """
    pacing = pacing or Pacing.for_session(session)
    try:
        once_visible(
            lambda: training.create_training_job(session, plan.parameters_at(session.now())),
            pacing,
            Reporter(progress, pacing),
        )
    except ServiceFault as error:
        if is_taken(error):
            return
        if not is_unsettled(error):
            error.message += "\nNo job was created, and no instance is billed."
            if sent:
                error.message += (
                    f"\nThe data that was sent stays below {data_uri(plan.spec)}; "
                    f"`peagle-sm learn delete-data{session.command_flags()}` deletes it."
                )
            raise
        if training.describe_training_job(session, plan.job) is not None:
            return
        flags = session.command_flags()
        error.next_step = (
            f"Look with `peagle-sm learn status {plan.job}{flags}`: if it is there, it is billed, and "
            f"`peagle-sm learn stop {plan.job}{flags}` stops it. If not, run this command again."
        )
        raise


def training_state(session: Session, name: str, *, lines: bool = True) -> TrainingState:
    """Return one job as it is now.

    Raises:
        NotFound: there is no such job.
        PlanRefused: peagle-sm did not create it.
    """
    job, tags = _ours(session, name)
    texts = [line.text for line in training.log_lines(session, name, job.created_at)] if lines else []
    return _state(job, tags, session.now(), tuple(read_lines(texts)))


def _ours(session: Session, name: str) -> tuple[TrainingJob, dict[str, str]]:
    return demand_ours(session, training.describe_training_job(session, name), f"training job {name}")


def _state(
    job: TrainingJob, tags: dict[str, str], now: datetime, lines: tuple[TrainerLine, ...]
) -> TrainingState:
    billed = job.billed_seconds(now)
    price = price_in(tags)
    return TrainingState(
        job=job,
        spec_name=tags.get(LEARN, ""),
        billed_s=billed,
        usd=None if price is None else billed / 3600 * price,
        usd_per_hour=price,
        lines=lines,
    )


def jobs_of(session: Session, name: str | None = None, *, running: bool = False) -> list[TrainingState]:
    """Return peagle-sm's jobs, newest first: those whose name has the text; without one, all that run."""
    found = []
    for job_name in training.training_job_names(session, name or "", running=running or name is None):
        try:
            found.append(training_state(session, job_name, lines=False))
        except (NotFound, PlanRefused):
            continue  # another program's, or gone
    return found


def stop(session: Session, name: str) -> TrainingState:
    """Stop a job; one that has ended stays as it is.

    Raises:
        NotFound: there is no such job.
        PlanRefused: peagle-sm did not create it.
    """
    job, _ = _ours(session, name)
    if job.status == "InProgress":
        training.stop_training_job(session, name)
    return training_state(session, name, lines=False)


def follow(
    session: Session,
    name: str,
    *,
    progress: Progress | None = None,
    pacing: Pacing | None = None,
    budget_usd: float | None = None,
) -> TrainingState:
    """Follow a job to its end; stop it if it costs more than the budget.

    Raises:
        NotFound, PlanRefused: there is no such job of peagle-sm.
        Interrupted: Ctrl-C; the job runs on.
        TrainingFailed: the job failed or was stopped.
    """
    pacing = pacing or Pacing.for_session(session)
    job, tags = _ours(session, name)
    began = pacing.monotonic()
    texts: dict[str, str] = {}
    stopped_for: str | None = None
    since = job.created_at
    try:
        while True:
            for line in training.log_lines(session, name, since - REPEAT):
                texts[line.id] = line.text
                since = max(since, line.at)
            state = _state(job, tags, session.now(), tuple(read_lines(texts.values())))
            if progress is not None:
                progress(_event(state, pacing.monotonic() - began))
            if not job.running:
                break
            over = budget_usd is not None and (state.usd or 0.0) > budget_usd
            if over and stopped_for is None and job.status == "InProgress":
                stopped = training.stop_training_job(session, name)
                stopped_for = _why_stopped(state, budget_usd) if stopped else None
            pacing.sleep(pacing.poll_s)
            job = training.describe_training_job(session, name) or job
    except KeyboardInterrupt as error:
        raise _interrupted(session, job.name, price_in(tags), job.max_runtime_s, job.status) from error
    return _ended(state, session, stopped_for)


def _why_stopped(state: TrainingState, budget_usd: float | None) -> str:
    """Return why the follower stops a job: a budget of just its longest run ends with that."""
    if state.job.max_runtime_s is not None and state.billed_s >= state.job.max_runtime_s:
        return _TOO_LONG
    return f"its budget of {usd(budget_usd)} is spent"


def _interrupted(
    session: Session, name: str, price: float | None, max_runtime_s: int | None, status: str | None = None
) -> Interrupted:
    """Return the error of Ctrl-C; ``status`` None: the job was not seen, and may not be there."""
    flags = session.command_flags()
    limit = "" if max_runtime_s is None else f", for at most {elapsed(max_runtime_s)} of training"
    cost = f" for {usd(price, 'hour')}" if price else ""
    what = f"The job {name} runs" if status is not None else f"If the job {name} was created, it runs"
    return Interrupted(
        f"Stopped following. {what} on{cost}{limit}.",
        next_step=f"Follow it with `peagle-sm learn status {name} --follow{flags}`; stop it with "
        f"`peagle-sm learn stop {name}{flags}`.",
        details={"job": name, "status": status, "usd_per_hour": price},
    )


def _event(state: TrainingState, elapsed_s: float) -> Event:
    last = state.last
    return Event(
        "waiting",
        f"{state.job.name} is {state.job.secondary or state.job.status}{_figures(state)}",
        status=state.job.secondary or state.job.status,
        elapsed_s=elapsed_s,
        spent_usd=state.usd,
        resource=f"training-job/{state.job.name}",
        done=None if last is None else last.step,
        total=None if last is None else last.steps,
        left_s=None if last is None else last.figures.get("seconds_left"),
    )


def _figures(state: TrainingState) -> str:
    last = state.last
    if last is None or not state.job.running:
        return ""
    parts = [f"step {last.step}{f'/{last.steps}' if last.steps else ''}"]
    named = {"loss": "loss {:.3f}", "accuracy": "accuracy {:.2f}", "tokens_per_second": "{:.0f} tokens/s"}
    parts += [form.format(last.figures[name]) for name, form in named.items() if name in last.figures]
    depths = list(last.depth_accuracies().values())
    if depths:
        parts.insert(-1, "by depth " + " ".join(f"{value:.2f}" for value in depths))
    left = last.figures.get("seconds_left")
    if left:
        parts.append(f"{elapsed(left)} left")
    return ": " + ", ".join(parts)


def _ended(state: TrainingState, session: Session, stopped_for: str | None) -> TrainingState:
    job, flags = state.job, session.command_flags()
    if job.status == "Completed":
        return state
    cost = "" if not state.usd else f" It cost {usd(state.usd)}."
    details = state.to_dict()
    again = "Run the same command again: it goes on from the last checkpoint, if one was saved"
    if job.status == "Stopped":
        why = {
            "MaxRuntimeExceeded": _TOO_LONG,
            "MaxWaitTimeExceeded": "it reached train.max_wait_hours",
        }.get(job.secondary, stopped_for or "somebody, or the guard, stopped it")
        raise TrainingFailed(
            f"The job {job.name} was stopped: {why}.{cost} Nothing is billed any more.",
            next_step=f"{again}; a higher train.max_hours or budget lets it train longer.",
            details=details,
        )
    reason = job.failure_reason or "SageMaker gives no reason"
    raise TrainingFailed(
        f"The job {job.name} failed: {reason}{cost} Nothing is billed any more.",
        next_step=f"Correct what the reason names. {again}. Its log: `peagle-sm learn status {job.name} "
        f"--lines{flags}`.",
        details=details,
    )
