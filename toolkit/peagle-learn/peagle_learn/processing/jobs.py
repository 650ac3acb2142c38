"""prepare(): the two jobs of a preparation, each created once and followed to its end; status and stop.

A job belongs to what it reads: the same spec finds its running or finished jobs again. Nothing is sent or
created before the plan is confirmed. A job runs on when this program ends; it stops at its own limit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from peagle_learn.aws import processing
from peagle_learn.aws.jobs import demand_ours, price_in
from peagle_learn.aws.processing import ProcessingJob
from peagle_learn.core.job_names import attempt_of, newest_attempt
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
from peagle_learn.processing.facts import read_preparation_facts
from peagle_learn.train import REPEAT
from peagle_sm.aws.session.errors import is_taken, is_unsettled
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage.s3 import list_sizes, split_uri
from peagle_sm.aws.storage.uploads import put_bytes
from peagle_sm.core.errors import Declined, Interrupted, NotFound, PlanRefused, ServiceFault, TrainingFailed
from peagle_sm.core.plan.tags_and_schedules import LEARN
from peagle_sm.core.words import elapsed, usd
from peagle_sm.service.heads.checking import Sources
from peagle_sm.service.inventory.guard_state import require_guard
from peagle_sm.service.progress import Event, Pacing, Progress, Reporter, once_visible

_LINE = re.compile(
    r"peagle-prepare read host=(\S+) files=(\d+)/(\d+) prompts=(\d+) bytes=(\d+)/(\d+) seconds_left=(\d+)"
)


@dataclass(frozen=True)
class ProcessingState:
    """One job as it is: billed seconds of each instance, and cost so far."""

    job: ProcessingJob
    spec_name: str
    billed_s: float
    usd: float | None
    usd_per_hour: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types; None for what is not known."""
        return {
            "job": self.job.name,
            "name": self.spec_name,
            "status": self.job.status,
            "running": self.job.running,
            "billed_seconds": round(self.billed_s, 1),
            "usd": None if self.usd is None else round(self.usd, 4),
            "usd_per_hour": self.usd_per_hour,
            "failure_reason": self.job.failure_reason,
            "exit_message": self.job.exit_message,
        }


@dataclass(frozen=True)
class PreparationOffer:
    """What `--processing` asks about: the plan, and the jobs that exist already, by stage."""

    plan: PreparationPlan
    existing: Mapping[Stage, ProcessingJob]

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


def find_jobs(plan: PreparationPlan, session: Session) -> dict[Stage, ProcessingJob]:
    """Return the newest attempt of each of the plan's jobs, where there is one."""
    found = {stage: find_job(session, plan.bases[stage]) for stage in STAGES}
    return {stage: job for stage, job in found.items() if job is not None}


def find_job(session: Session, base: str) -> ProcessingJob | None:
    """Return the newest attempt of a job, by the name of the first; None without one."""
    newest = newest_attempt(processing.processing_job_names(session, base), base)
    return None if newest is None else processing.describe_processing_job(session, newest)


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
    pacing = pacing or Pacing.for_session(session)
    existing = find_jobs(plan, session)
    done = finished(plan, session, existing)
    if done is not None:
        return done
    usable = {stage for stage, job in existing.items() if _is_usable(plan.spec, session, job)}
    if len(usable) < len(STAGES):
        plan.refuse_errors()
        if not unguarded:
            require_guard(session, "processing")
        if not confirm(PreparationOffer(plan, existing)):
            raise Declined(
                "Nothing was created: it was not confirmed.", next_step="Run it again and confirm."
            )
        _send_settings(plan, session)
    read = _ended(plan, session, "read", existing.get("read"), None, progress, pacing)
    return _ended(plan, session, "split", existing.get("split"), read, progress, pacing)


def finished(
    plan: PreparationPlan, session: Session, existing: Mapping[Stage, ProcessingJob] | None = None
) -> str | None:
    """Return the name of the second job if it is done and what it left is there; None otherwise."""
    split = (find_jobs(plan, session) if existing is None else existing).get("split")
    done = split is not None and not split.running and _is_usable(plan.spec, session, split)
    return split.name if split is not None and done else None


def _is_usable(spec: LearnSpec, session: Session, job: ProcessingJob) -> bool:
    """Return whether a job runs, or is done and what it left was not deleted."""
    if job.status != "Completed":
        return job.status == "InProgress"
    return bool(list_sizes(session, *split_uri(prepared_uri(spec, job.name))))


def _send_settings(plan: PreparationPlan, session: Session) -> None:
    bucket, prefix = split_uri(settings_uri(plan.spec, plan.bases["split"]))
    content = json.dumps(plan.settings, sort_keys=True).encode()
    put_bytes(session, bucket, prefix + SETTINGS_FILE, content)


def _ended(
    plan: PreparationPlan,
    session: Session,
    stage: Stage,
    found: ProcessingJob | None,
    read_job: str | None,
    progress: Progress | None,
    pacing: Pacing,
) -> str:
    """Create a job where there is none that runs or is done, follow it, and return its name."""
    parameters: Mapping[str, Any] | None = None
    if found is None or not _is_usable(plan.spec, session, found):
        attempt = 1 if found is None else (attempt_of(found.name, plan.bases[stage]) or 1) + 1
        parameters = plan.request(stage, attempt, read_job, session.now()).parameters
        name = str(parameters["ProcessingJobName"])
    else:
        name = found.name
    try:
        if parameters is not None:
            start(session, parameters, progress, pacing)
        follow(session, name, progress=progress, pacing=pacing)
    except KeyboardInterrupt as error:  # before `follow` has seen the job
        raise _interrupted(session, name, plan.usd_per_hour[stage], max_seconds(plan.spec)) from error
    return name


def start(
    session: Session,
    parameters: Mapping[str, Any],
    progress: Progress | None = None,
    pacing: Pacing | None = None,
) -> None:
    """Create the job once; one that another run of the same spec created is taken.

    Raises:
        ServiceFault: refused; the message says that nothing is billed, or how to look.
    """
    name, flags = str(parameters["ProcessingJobName"]), session.command_flags()
    pacing = pacing or Pacing.for_session(session)
    report = Reporter(progress, pacing)
    try:
        once_visible(lambda: processing.create_processing_job(session, parameters), pacing, report)
    except ServiceFault as error:
        if is_taken(error):
            return
        if not is_unsettled(error):
            error.message += "\nThis job was not created, and no instance is billed."
            raise
        if processing.describe_processing_job(session, name) is not None:
            return
        error.next_step = (
            f"Look with `peagle-sm learn status {name}{flags}`: if it is there, it is billed, and "
            f"`peagle-sm learn stop {name}{flags}` stops it. If not, run this command again."
        )
        raise


def processing_state(session: Session, name: str) -> ProcessingState:
    """Return one job as it is now.

    Raises:
        NotFound: there is no such job.
        PlanRefused: peagle-sm did not create it.
    """
    return _state(*_ours(session, name), session)


def _ours(session: Session, name: str) -> tuple[ProcessingJob, dict[str, str]]:
    return demand_ours(session, processing.describe_processing_job(session, name), f"processing job {name}")


def _state(job: ProcessingJob, tags: Mapping[str, str], session: Session) -> ProcessingState:
    billed, price = job.billed_seconds(session.now()), price_in(tags)
    cost = None if price is None else billed / 3600 * price
    return ProcessingState(job, tags.get(LEARN, ""), billed, cost, price)


def running_jobs(session: Session) -> list[ProcessingState]:
    """Return peagle-sm's processing jobs that run, newest first."""
    found = []
    for name in processing.processing_job_names(session, "", running=True):
        try:
            found.append(processing_state(session, name))
        except (NotFound, PlanRefused):
            continue  # another program's, or gone
    return found


def stop(session: Session, name: str) -> ProcessingState:
    """Stop a job; one that has ended stays as it is.

    Raises:
        NotFound: there is no such job.
        PlanRefused: peagle-sm did not create it.
    """
    job, _ = _ours(session, name)
    if job.status == "InProgress":
        processing.stop_processing_job(session, name)
    return processing_state(session, name)


def follow(
    session: Session, name: str, *, progress: Progress | None = None, pacing: Pacing | None = None
) -> ProcessingState:
    """Follow a job to its end.

    Raises:
        NotFound, PlanRefused: there is no such job of peagle-sm.
        Interrupted: Ctrl-C; the job runs on.
        TrainingFailed: the job failed or was stopped.
    """
    pacing = pacing or Pacing.for_session(session)
    job, tags = _ours(session, name)
    began, since = pacing.monotonic(), job.created_at
    newest: dict[str, tuple[int, ...]] = {}
    try:
        while True:
            for line in processing.log_lines(session, name, since - REPEAT):
                since = max(since, line.at)
                found = _LINE.search(line.text)
                if found is not None:
                    figures = tuple(map(int, found.groups()[1:]))
                    newest[found[1]] = max(figures, newest.get(found[1], figures))
            state = _state(job, tags, session)
            if progress is not None:
                progress(_event(state, newest, pacing.monotonic() - began))
            if not job.running:
                break
            pacing.sleep(pacing.poll_s)
            job = processing.describe_processing_job(session, name) or job
    except KeyboardInterrupt as error:
        raise _interrupted(session, job.name, price_in(tags), job.max_runtime_s, job.status) from error
    return _checked(state, session)


def _event(state: ProcessingState, newest: Mapping[str, tuple[int, ...]], elapsed_s: float) -> Event:
    """Sum the lines of all instances; the slowest one says how long it still takes."""
    files, of, prompts = (sum(each[at] for each in newest.values()) for at in range(3))
    left = max((each[5] for each in newest.values()), default=None)
    whole = len(newest) == state.job.instances
    said = f"{state.job.name} is {state.job.status}"
    said += f": {files:,} of {of:,} files, {prompts:,} prompts" if newest and state.job.running else ""
    said += f", about {elapsed(left)} left" if left and whole and state.job.running else ""
    return Event(
        "waiting",
        said,
        status=state.job.status,
        elapsed_s=elapsed_s,
        spent_usd=state.usd,
        resource=f"processing-job/{state.job.name}",
        done=files if newest else None,
        total=of if newest and whole else None,
        left_s=left if whole else None,
    )


def _interrupted(
    session: Session, name: str, price: float | None, max_runtime_s: int | None, status: str | None = None
) -> Interrupted:
    """Return the error of Ctrl-C; ``status`` None: the job was not seen, and may not be there."""
    limit = "" if max_runtime_s is None else f", for at most {elapsed(max_runtime_s)}"
    cost = f" for {usd(price, 'hour')}" if price else ""
    what = f"The job {name} runs" if status is not None else f"If the job {name} was created, it runs"
    return Interrupted(
        f"Stopped following. {what} on{cost}{limit}.",
        next_step=f"Run the same command again to follow it; stop it with `peagle-sm learn stop "
        f"{name}{session.command_flags()}`.",
        details={"job": name, "status": status, "usd_per_hour": price},
    )


def _checked(state: ProcessingState, session: Session) -> ProcessingState:
    job, flags = state.job, session.command_flags()
    if job.status == "Completed":
        return state
    cost = "" if not state.usd else f" It cost {usd(state.usd)}."
    if job.status == "Stopped":
        timed_out = job.max_runtime_s is not None and state.billed_s >= job.max_runtime_s
        why = "it reached data.processing.max_hours" if timed_out else "somebody, or the guard, stopped it"
        raise TrainingFailed(
            f"The job {job.name} was stopped: {why}.{cost} Nothing is billed any more.",
            next_step="Run the same command again: it starts this job anew."
            " A higher data.processing.max_hours, or more instances, lets it come to its end.",
            details=state.to_dict(),
        )
    reason = job.exit_message or job.failure_reason or "SageMaker gives no reason"
    raise TrainingFailed(
        f"The job {job.name} failed: {reason}\nNothing is billed any more.{cost}",
        next_step="Correct what the reason names, and run the same command again. Its log: `peagle-sm learn"
        f" status {job.name} --lines{flags}`.",
        details=state.to_dict(),
    )
