"""train(): plan a head's training, start its job once and follow it to its end.

A job belongs to what it trains: the same spec finds its running or finished job again, and after a failure
resumes from its checkpoints. Nothing is sent or created before the plan is confirmed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from peagle_learn.core.job_names import attempt_of, next_attempt
from peagle_learn.core.jobs import Job
from peagle_learn.core.spec import LearnSpec, parse_learn_spec
from peagle_learn.core.training_plan import LearnPlan, make_training_plan
from peagle_learn.core.training_request import ChannelFacts
from peagle_learn.jobs import JobState, demand_consent, find_job, jobs_of, run_job
from peagle_learn.stored_data import data_uri, has_object
from peagle_learn.training_facts import read_facts
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage.s3 import split_uri
from peagle_sm.aws.storage.uploads import checksum_of, digests, put_file
from peagle_sm.core.errors import PeagleError, SpecError
from peagle_sm.core.words import Finding, usd
from peagle_sm.service.progress import Event, Pacing, Progress

RUNNING_JOB = "running-job"
"""Check of the findings that name other running jobs of the spec."""


@dataclass(frozen=True)
class TrainingOffer:
    """What `train` asks about: the plan, and the earlier job that it continues or replaces."""

    plan: LearnPlan
    earlier: Job | None = None

    def __str__(self) -> str:
        if self.earlier is None:
            return str(self.plan)
        what = f"{self.earlier.name} ended as {self.earlier.status}"
        if self.earlier.status == "Completed":
            what += f", but its head is gone from {self.earlier.artifact}"
        return f"{self.plan}\n\n{what}; this job resumes from its last checkpoint, if it saved one."

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
        SpecError: the model has no recipe, or the spec has an unknown head.
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
    findings = []
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
        message = f"{job.name}, a job of {spec.name}, runs beside the new one: "
        message += f"{job.instances} x {job.instance_type}{', managed spot' * job.spot}, {cost}"
        findings.append(Finding("warning", message, f"{step}you want both.", RUNNING_JOB))
    return findings


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
) -> JobState:
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
    plan = plan_training(spec, session, base)
    earlier = find_job(session, plan.base)
    parameters: dict[str, Any] | None = None
    remaining = ""
    if earlier is not None and _is_usable(session, earlier):
        name = earlier.name
    else:
        plan.refuse_errors()
        if earlier is not None:
            plan = plan.as_attempt(next_attempt(earlier.name, plan.base))
        demand_consent(session, TrainingOffer(plan, earlier), confirm, unguarded=unguarded)
        remaining = send_data(plan, session, progress)
        name, parameters = plan.job, plan.parameters_at(session.now())
    return run_job(
        session,
        name,
        parameters,
        usd_per_hour=plan.facts.price.usd_per_hour,
        max_runtime_s=plan.request.parameters["StoppingCondition"]["MaxRuntimeInSeconds"],
        progress=progress,
        pacing=pacing,
        wait=wait,
        budget_usd=spec.train.budget_usd,
        remaining=remaining,
    )


def _is_usable(session: Session, job: Job) -> bool:
    """Return whether a job runs, or is done and its head was not deleted."""
    if job.status != "Completed" or job.artifact is None:
        return job.running
    return has_object(session, job.artifact)


def send_data(plan: LearnPlan, session: Session, progress: Progress | None = None) -> str:
    """Upload this machine's data; return the sentence for an error message if no job follows."""
    channels = [each for each in (plan.facts.training, plan.facts.validation) if each and each.files]
    for channel in channels:
        _send_channel(channel, session, progress)
    return (
        f"\nThe data that was sent stays below {data_uri(plan.spec)}; "
        f"`peagle-sm learn delete-data{session.command_flags()}` deletes it."
        if channels
        else ""
    )


def _send_channel(channel: ChannelFacts, session: Session, progress: Progress | None) -> None:
    """Upload a channel's files; one that is there with the same checksum is kept."""
    bucket, prefix = split_uri(channel.uri)
    for name in channel.files:
        path = Path(name)
        sums = digests(path)
        key = f"{prefix}{path.name}"
        if checksum_of(session, bucket, key) == (sums.size, sums.s3):
            continue
        if progress is not None:
            progress(Event("check", f"sending {path.name} ({sums.size / 1e6:.1f} MB) to s3://{bucket}/{key}"))
        put_file(session, bucket, key, path, sums, lambda _: None)
