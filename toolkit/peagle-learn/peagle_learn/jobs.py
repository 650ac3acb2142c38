"""One training job of SageMaker: start it once, find it again, follow it, stop it.

A job belongs to what it is made from: its name has a hash of that, so the same spec finds its running or
finished job again. A job runs on when this program ends; it stops at its own limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any, TypeVar

from peagle_learn.aws.jobs import create_job, describe_job, job_names, log_lines, stop_job
from peagle_learn.core.job_names import MARK, TrainerLine, newest_attempt, read_lines
from peagle_learn.core.jobs import Job
from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.session.errors import is_taken, is_unsettled
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import Declined, Interrupted, NotFound, PlanRefused, ServiceFault, TrainingFailed
from peagle_sm.core.plan.tags_and_schedules import LEARN, MANAGED_BY, MANAGER, USD_PER_HOUR
from peagle_sm.core.words import elapsed, usd
from peagle_sm.service.inventory.guard_state import require_guard
from peagle_sm.service.progress import Event, Pacing, Progress, Reporter, once_visible

_REPEAT = timedelta(minutes=1)
"""Log lines may arrive late: each poll begins this much before the newest line."""
_AGAIN = "Run the same command again: it resumes from the last checkpoint, if one was saved"
Offer = TypeVar("Offer")


@dataclass(frozen=True)
class JobState:
    """One job as it is: billed seconds of each instance, cost so far, and the lines about its progress."""

    job: Job
    spec_name: str
    billed_s: float
    usd: float | None
    usd_per_hour: float | None
    texts: tuple[str, ...] = ()

    @cached_property
    def lines(self) -> list[TrainerLine]:
        """The trainer's lines."""
        return read_lines(self.texts)

    @property
    def last(self) -> TrainerLine | None:
        """Newest line about a training step."""
        return next((line for line in reversed(self.lines) if line.kind == "training"), None)

    @property
    def checked(self) -> TrainerLine | None:
        """Newest line about the validation data."""
        return next((line for line in reversed(self.lines) if line.kind == "validation"), None)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types; None for what is not known."""
        job, last, checked = self.job, self.last, self.checked
        return {
            "job": job.name,
            "name": self.spec_name,
            "status": job.status,
            "running": job.running,
            "billed_seconds": round(self.billed_s, 1),
            "usd": None if self.usd is None else round(self.usd, 4),
            "usd_per_hour": self.usd_per_hour,
            "failure_reason": job.failure_reason,
            "secondary_status": job.secondary,
            "step": None if last is None else last.step,
            "steps": None if last is None else last.steps,
            "training": None if last is None else dict(last.figures),
            "validation": None if checked is None else dict(checked.figures),
            "interruptions": job.interruptions,
            "artifact": job.artifact,
        }


def find_job(session: Session, base: str) -> Job | None:
    """Return the newest attempt of a job, by the name of the first; None without one."""
    newest = newest_attempt(job_names(session, base), base)
    return None if newest is None else describe_job(session, newest)


def job_state(session: Session, name: str, *, lines: bool = True) -> JobState:
    """Return one job as it is now, with the progress lines of its log unless ``lines`` is False.

    Raises:
        NotFound: there is no such job.
        PlanRefused: peagle-sm did not create it.
    """
    job, tags = _own_job(session, name)
    texts = [line.text for line in log_lines(session, job) if MARK in line.text] if lines else []
    return _state(session, job, tags, texts)


def jobs_of(session: Session, name: str | None = None, *, running: bool = False) -> list[JobState]:
    """Return peagle-sm's jobs, newest first: those whose name has the text; without one, all that run."""
    states = []
    for job_name in job_names(session, name or "", running=running or name is None):
        try:
            states.append(job_state(session, job_name, lines=False))
        except (NotFound, PlanRefused):
            continue  # another program's, or gone
    return states


def demand_consent(
    session: Session, offer: Offer, confirm: Callable[[Offer], bool], *, unguarded: bool
) -> None:
    """Ask whether to start what ``offer`` shows, where a guard is installed.

    Raises:
        GuardMissing: no guard is installed, and ``unguarded`` is False.
        Declined: it was not confirmed.
    """
    if not unguarded:
        require_guard(session, training=True)
    if not confirm(offer):
        raise Declined("Nothing was created: it was not confirmed.", next_step="Run it again and confirm.")


def start(
    session: Session,
    parameters: Mapping[str, Any],
    *,
    progress: Progress | None = None,
    pacing: Pacing | None = None,
    remaining: str = "",
) -> None:
    """Create the job once; one that another run of the same spec created is taken.

    Raises:
        ServiceFault: refused; the message says that nothing is billed, with ``remaining`` resources, or how
            to check.
    """
    name, flags = str(parameters["TrainingJobName"]), session.command_flags()
    pacing = pacing or Pacing.for_session(session)
    try:
        once_visible(lambda: create_job(session, parameters), pacing, Reporter(progress, pacing))
    except ServiceFault as error:
        if is_taken(error):
            return
        if not is_unsettled(error):
            error.message += f"\nThis job was not created, and no instance is billed.{remaining}"
            raise
        if describe_job(session, name) is not None:
            return
        error.next_step = (
            f"Look with `peagle-sm learn status {name}{flags}`: if it is there, it is billed, and "
            f"`peagle-sm learn stop {name}{flags}` stops it. If not, run this command again."
        )
        raise


def run_job(
    session: Session,
    name: str,
    parameters: Mapping[str, Any] | None,
    *,
    usd_per_hour: float | None,
    max_runtime_s: int,
    progress: Progress | None = None,
    pacing: Pacing | None = None,
    wait: bool = True,
    budget_usd: float | None = None,
    remaining: str = "",
) -> JobState:
    """Create a job with ``parameters``, or take the one that exists if they are None; follow it if ``wait``.

    Price and limit are for the message if Ctrl-C comes while the job is created.

    Raises:
        ServiceFault: see `start`.
        Interrupted, TrainingFailed: see `follow`.
    """
    try:
        if parameters is not None:
            start(session, parameters, progress=progress, pacing=pacing, remaining=remaining)
        if not wait:
            return job_state(session, name, lines=False)
        return follow(session, name, progress=progress, pacing=pacing, budget_usd=budget_usd)
    except KeyboardInterrupt as error:  # before `follow` has seen the job
        raise _interrupted(session, name, usd_per_hour, max_runtime_s) from error


def stop(session: Session, name: str) -> JobState:
    """Stop a job; one that has ended stays as it is.

    Raises:
        NotFound: there is no such job.
        PlanRefused: peagle-sm did not create it.
    """
    job, _ = _own_job(session, name)
    if job.status == "InProgress":
        stop_job(session, name)
    return job_state(session, name, lines=False)


def follow(
    session: Session,
    name: str,
    *,
    progress: Progress | None = None,
    pacing: Pacing | None = None,
    budget_usd: float | None = None,
) -> JobState:
    """Follow a job to its end; stop it if it costs more than the budget.

    Raises:
        NotFound, PlanRefused: there is no such job of peagle-sm.
        Interrupted: Ctrl-C; the job runs on.
        TrainingFailed: the job failed or was stopped.
    """
    pacing = pacing or Pacing.for_session(session)
    job, tags = _own_job(session, name)
    began, since = pacing.monotonic(), job.created_at
    texts: dict[str, str] = {}
    stopped_for: str | None = None
    try:
        while True:
            for line in log_lines(session, job, since - _REPEAT):
                since = max(since, line.at)
                if MARK in line.text:
                    texts[line.id] = line.text
            state = _state(session, job, tags, texts.values())
            if progress is not None:
                progress(_event(state, pacing.monotonic() - began))
            if not job.running:
                break
            over = budget_usd is not None and (state.usd or 0.0) > budget_usd
            if over and stopped_for is None and job.status == "InProgress":
                spent = f"its budget of {usd(budget_usd)} is spent"
                stopped = stop_job(session, name)
                stopped_for = (_limit_reached(state) or spent) if stopped else None
            pacing.sleep(pacing.poll_s)
            job = describe_job(session, name) or job
    except KeyboardInterrupt as error:
        raise _interrupted(session, name, price_in(tags), job.max_runtime_s, job.status) from error
    if job.status != "Completed":
        raise _failure(state, session, stopped_for)
    return state


def price_in(tags: Mapping[str, str]) -> float | None:
    """Return the price of all instances from the job's tag; absent means that nothing is billed, as local."""
    try:
        return float(tags.get(USD_PER_HOUR, "0"))
    except ValueError:
        return None


def _own_job(session: Session, name: str) -> tuple[Job, dict[str, str]]:
    """Return a job of peagle-sm with its tags."""
    job = describe_job(session, name)
    if job is None:
        raise NotFound(
            f"there is no training job {name} in {session.region}",
            next_step=f"List them with `peagle-sm learn status{session.command_flags()}`.",
        )
    tags = control.tags_of(session, job.arn) or {}
    if tags.get(MANAGED_BY) != MANAGER or LEARN not in tags:
        raise PlanRefused(
            f"peagle-sm did not create the training job {name}",
            next_step="Use SageMaker's console or the AWS CLI for it.",
        )
    return job, tags


def _state(session: Session, job: Job, tags: Mapping[str, str], texts: Iterable[str]) -> JobState:
    billed, price = job.billed_seconds(session.now()), price_in(tags)
    cost = None if price is None else billed / 3600 * price
    return JobState(job, tags.get(LEARN, ""), billed, cost, price, tuple(texts))


def _limit_reached(state: JobState) -> str | None:
    """Return that a job has reached its maximum run time; None if it has not."""
    longest = state.job.max_runtime_s
    return "it reached train.max_hours" if longest and state.billed_s >= longest else None


def _interrupted(
    session: Session,
    name: str,
    price: float | None,
    max_runtime_s: int | None,
    status: str | None = None,
) -> Interrupted:
    """Return the error of Ctrl-C; ``status`` None: the job was not seen, and may not exist."""
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


def _event(state: JobState, elapsed_s: float) -> Event:
    job = state.job
    status, last = job.secondary or job.status, state.last
    figures = {} if last is None else last.figures
    return Event(
        "waiting",
        f"{job.name} is {status}{_progress_words(last) if last is not None and job.running else ''}",
        status=status,
        elapsed_s=elapsed_s,
        spent_usd=state.usd,
        resource=f"training-job/{job.name}",
        done=None if last is None else last.step,
        total=None if last is None else last.steps,
        left_s=figures.get("seconds_left"),
    )


def _progress_words(last: TrainerLine) -> str:
    parts = [f"step {last.step}{f'/{last.steps}' if last.steps else ''}"]
    named = {"loss": "loss {:.3f}", "accuracy": "accuracy {:.2f}", "tokens_per_second": "{:.0f} tokens/s"}
    parts += [form.format(last.figures[name]) for name, form in named.items() if name in last.figures]
    depths = list(last.depth_accuracies().values())
    if depths:
        parts.insert(-1, "by depth " + " ".join(f"{value:.2f}" for value in depths))
    left = last.figures.get("seconds_left")
    return ": " + ", ".join([*parts, *([f"{elapsed(left)} left"] if left else [])])


def _failure(state: JobState, session: Session, stopped_for: str | None) -> TrainingFailed:
    """Return the error of a job that failed or was stopped."""
    job = state.job
    cost = "" if not state.usd else f" It cost {usd(state.usd)}."
    if job.status == "Stopped":
        limits = {
            "MaxRuntimeExceeded": "it reached train.max_hours",
            "MaxWaitTimeExceeded": "it reached train.max_wait_hours",
        }
        known = limits.get(job.secondary) or stopped_for or _limit_reached(state)
        return TrainingFailed(
            f"The job {job.name} was stopped: {known or 'a user or the guard stopped it'}.{cost}"
            " Nothing is billed any more.",
            next_step=f"{_AGAIN}; a higher train.max_hours or budget lets it train longer.",
            details=state.to_dict(),
        )
    reason = job.failure_reason or "SageMaker gives no reason"
    return TrainingFailed(
        f"The job {job.name} failed: {reason}\nNothing is billed any more.{cost}",
        next_step=f"Correct what the reason names. {_AGAIN}. Its log: `peagle-sm learn status {job.name} "
        f"--lines{session.command_flags()}`.",
        details=state.to_dict(),
    )
