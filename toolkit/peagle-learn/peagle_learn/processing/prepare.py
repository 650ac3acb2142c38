"""prepare(): the two jobs of a preparation, each created once and followed to its end.

A job belongs to what it reads: the same spec finds its running or finished jobs again. Nothing is sent or
created before the plan is confirmed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from peagle_learn.core.job_names import next_attempt
from peagle_learn.core.jobs import PROCESSING_JOB, Job
from peagle_learn.core.processing.plan import PreparationPlan, make_preparation_plan
from peagle_learn.core.processing.requests import (
    SETTINGS_FILE,
    STAGES,
    Stage,
    max_seconds,
    prepared_uri,
    settings_uri,
)
from peagle_learn.core.spec import LearnSpec
from peagle_learn.jobs import demand_consent, find_job, run_job
from peagle_learn.processing.facts import read_preparation_facts
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage.s3 import list_sizes, split_uri
from peagle_sm.aws.storage.uploads import put_bytes
from peagle_sm.service.heads.checking import Sources
from peagle_sm.service.progress import Pacing, Progress


@dataclass(frozen=True)
class PreparationOffer:
    """What `--processing` asks about: the plan, and the jobs that exist already, by stage."""

    plan: PreparationPlan
    existing: Mapping[Stage, Job]

    def __str__(self) -> str:
        told = [f"{job.name} is {job.status}" for job in self.existing.values()]
        return "\n\n".join([str(self.plan), *(["; ".join(told)] if told else [])])

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        existing = {stage: job.name for stage, job in self.existing.items()}
        return {**self.plan.to_dict(), "existing": existing}


Confirm = Callable[[PreparationOffer], bool]


def plan_preparation(spec: LearnSpec, session: Session, sources: Sources | None = None) -> PreparationPlan:
    """Plan the jobs of a spec for the session's account and region; reads only.

    Raises:
        SpecError: no prompts are named, or not all are in S3, or a source has no files.
        CredentialsError, ServiceFault: AWS refuses, or does not answer.
    """
    return make_preparation_plan(spec, read_preparation_facts(spec, session, sources))


def find_jobs(plan: PreparationPlan, session: Session) -> dict[Stage, Job]:
    """Return the newest attempt of each of the plan's jobs, where there is one."""
    found = {stage: find_job(session, PROCESSING_JOB, plan.bases[stage]) for stage in STAGES}
    return {stage: job for stage, job in found.items() if job is not None}


def prepare(
    plan: PreparationPlan,
    session: Session,
    *,
    confirm: Confirm,
    progress: Progress | None = None,
    pacing: Pacing | None = None,
    unguarded: bool = False,
) -> str:
    """Run both jobs, unless they run or are done; return the name of the second one.

    ``confirm`` is asked before anything is sent or created; running and finished jobs need no question.

    Raises:
        PlanRefused: the plan has an error; nothing was created.
        Declined: it was not confirmed; nothing was created.
        GuardMissing: no guard is installed, and ``unguarded`` is False.
        Interrupted: Ctrl-C; the job runs on.
        TrainingFailed: a job failed or was stopped.
    """
    existing = find_jobs(plan, session)
    done = finished(plan, session, existing)
    if done is not None:
        return done
    usable = {stage for stage, job in existing.items() if _is_usable(plan.spec, session, job)}
    if len(usable) < len(STAGES):
        plan.refuse_errors()
        demand_consent(
            session, PROCESSING_JOB, PreparationOffer(plan, existing), confirm, unguarded=unguarded
        )
        send_settings(plan, session)
    read_job: str | None = None
    for stage in STAGES:
        job = existing.get(stage)
        parameters: Mapping[str, Any] | None = None
        if job is not None and stage in usable:
            name = job.name
        else:
            attempt = next_attempt(None if job is None else job.name, plan.bases[stage])
            parameters = plan.request(stage, attempt, read_job, session.now()).parameters
            name = str(parameters["ProcessingJobName"])
        run_job(
            session,
            PROCESSING_JOB,
            name,
            parameters,
            usd_per_hour=plan.usd_per_hour[stage],
            max_runtime_s=max_seconds(plan.spec),
            progress=progress,
            pacing=pacing,
        )
        read_job = name
    return str(read_job)


def finished(
    plan: PreparationPlan, session: Session, existing: Mapping[Stage, Job] | None = None
) -> str | None:
    """Return the name of the second job if it is done and what it left is there; None otherwise."""
    split = (find_jobs(plan, session) if existing is None else existing).get("split")
    done = split is not None and not split.running and _is_usable(plan.spec, session, split)
    return split.name if split is not None and done else None


def _is_usable(spec: LearnSpec, session: Session, job: Job) -> bool:
    """Return whether a job runs, or is done and what it left was not deleted."""
    if job.status != "Completed":
        return job.status == "InProgress"
    return bool(list_sizes(session, *split_uri(prepared_uri(spec, job.name))))


def send_settings(plan: PreparationPlan, session: Session) -> None:
    """Write the settings that both jobs read."""
    bucket, prefix = split_uri(settings_uri(plan.spec, plan.bases["split"]))
    content = json.dumps(plan.settings, sort_keys=True).encode()
    put_bytes(session, bucket, prefix + SETTINGS_FILE, content)
