"""One AI benchmark job from start to archive; on any ending it is stopped and its inputs are removed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from peagle_sm.aws.control import benchmark_jobs as jobs
from peagle_sm.aws.control.benchmark_jobs import JobFacts
from peagle_sm.aws.session.errors import is_unsettled
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage import objects
from peagle_sm.core.errors import BillableLeft, Interrupted, NotFound, PeagleError, ServiceFault
from peagle_sm.core.plan import tags
from peagle_sm.measure.aiperf_output import Bundle, read_bundle
from peagle_sm.measure.managed_place import Place
from peagle_sm.measure.managed_spec import DATASET, PROMPTS
from peagle_sm.measure.records import ArmRecord
from peagle_sm.service.events import Pacing

ARCHIVE = "output.tar.gz"
_LOOKS_THAT_MAY_FAIL = 10
_TAGS = {tags.MANAGED_BY: tags.MANAGER}
# How long a job that is asked to stop may take; AWS names no limit.
_STOPPING_S = 600.0
_LONGEST_LINE = 100

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Job:
    """What is asked of one job."""

    name: str
    arm: ArmRecord
    place: Place
    spec: Mapping[str, Any]
    prompts: bytes

    @property
    def base(self) -> str:
        """S3 prefix of everything that this job reads and writes."""
        return f"{self.place.s3.rstrip('/')}/{self.name}"


def run_job(session: Session, job: Job, tell: Tell, pacing: Pacing) -> tuple[JobFacts, Bundle]:
    """Run a job; its facts and what AIPerf wrote.

    Raises:
        ServiceFault: it failed and left no figures, or AWS could not be asked any more.
        Interrupted: Ctrl-C, and the job was stopped.
        BillableLeft: Ctrl-C or a fault, and the job may still run.
    """
    inputs = f"{job.base}/input"
    try:
        channels = job.place.channels(session, inputs)
        objects.upload(session, f"{inputs}/{PROMPTS}", job.prompts)
        channels[DATASET] = f"{inputs}/{PROMPTS}"
        jobs.create_config(session, job.name, json.dumps(job.spec), channels, _TAGS)
        facts = _watched(session, job, tell, pacing)
        return facts, _bundle(session, facts, tell)
    finally:
        _clean_up(session, job.name, inputs, tell)


def _watched(session: Session, job: Job, tell: Tell, pacing: Pacing) -> JobFacts:
    """Start the job and see its end; nobody leaves here while it runs."""
    try:
        jobs.create_job(
            session,
            job.name,
            endpoint=job.arm.endpoint,
            component=job.arm.component,
            config=job.name,
            output=f"{job.base}/",
            role_arn=job.place.role_arn,
            tags=_TAGS,
        )
        tell(f"AI benchmark job {job.name} started")
        return _followed(session, job, tell, pacing)
    except KeyboardInterrupt:
        _stop(session, job.name, tell, pacing)
        raise Interrupted(f"interrupted: AI benchmark job {job.name} was stopped") from None
    except PeagleError as error:
        if is_unsettled(error):  # it may have been started, and may run
            _stop(session, job.name, tell, pacing)
        raise


def _followed(session: Session, job: Job, tell: Tell, pacing: Pacing) -> JobFacts:
    failed = 0
    while True:
        try:
            facts = jobs.describe_job(session, job.name)
            failed = 0
        except PeagleError as error:
            failed += 1
            if failed >= _LOOKS_THAT_MAY_FAIL or not is_unsettled(error):
                raise
        else:
            if facts is None:
                raise ServiceFault(
                    f"AI benchmark job {job.name} was deleted while it ran",
                    operation="DescribeAIBenchmarkJob",
                    next_step="run the command again with --resume",
                )
            if facts.status in jobs.ENDED:
                return facts
            line = (jobs.last_line(session, facts) or "")[:_LONGEST_LINE]
            tell(f"{facts.status}: {line}" if line else facts.status)
        pacing.sleep(pacing.poll_s)


def _stop(session: Session, name: str, tell: Tell, pacing: Pacing) -> None:
    """Stop a job and see it stopped; a second Ctrl-C, or a refusal, says what is left to do."""
    try:
        tell(f"stopping AI benchmark job {name}")
        reason = _stopped(session, name, pacing)
    except KeyboardInterrupt:
        reason = "interrupted again"
    if reason is not None:
        raise BillableLeft(
            f"AI benchmark job {name} may still run: {reason}",
            next_step="Stop it with `aws sagemaker stop-ai-benchmark-job --ai-benchmark-job-name"
            f" {name} --region {session.region}`.",
            details={"resources": [f"ai-benchmark-job/{name}"]},
        )


def _stopped(session: Session, name: str, pacing: Pacing) -> str | None:
    """None once the job has ended, else why it may run on."""
    deadline = pacing.monotonic() + _STOPPING_S
    reason = f"it was still Stopping after {_STOPPING_S / 60:.0f} minutes"
    asked = False
    while pacing.monotonic() < deadline:
        try:
            facts = jobs.describe_job(session, name)
            if facts is None or facts.status in jobs.ENDED:
                return None
            if not asked:
                jobs.stop_job(session, name)
                asked = True
        except NotFound:
            return None
        except PeagleError as error:
            reason = error.message
            if not is_unsettled(error):
                return reason
        pacing.sleep(min(pacing.poll_s, 5.0))
    return reason


def _bundle(session: Session, facts: JobFacts, tell: Tell) -> Bundle:
    """What a job that has ended wrote; a failed one's figures count where there are any."""
    told = f"AI benchmark job {facts.name} ended as {facts.status}"
    if facts.failure_reason:
        told += f": {facts.failure_reason}"
    try:
        bundle = read_bundle(objects.download_one(session, facts.output, ARCHIVE))
    except PeagleError as error:
        raise _failed(facts, told if facts.status == "Failed" else f"{told}; {error.message}") from error
    if not bundle.profile or facts.status == "Stopped":
        first = _first_error(bundle)
        raise _failed(facts, f"{told.splitlines()[0]} {first}" if first else told)
    if facts.status == "Failed":
        # AWS calls a job failed when more than 1% of its requests were; the rest is sound.
        tell(f"{told}; its figures are kept")
    return bundle


def _first_error(bundle: Bundle) -> str:
    errors = (row["error"] for row in bundle.requests if row.get("error"))
    first = next(errors, None)
    return f"Its first failed request: {first.get('message')}" if first else ""


def _failed(facts: JobFacts, message: str) -> ServiceFault:
    logs = facts.raw.get("OutputConfig", {}).get("CloudWatchLogs", [])
    groups = [str(log.get("LogGroupArn", "")).partition(":log-group:")[2] for log in logs]
    return ServiceFault(
        message,
        operation="CreateAIBenchmarkJob",
        code=facts.status,
        next_step=f"Mend what it names and run the command again with --resume; the job's log is in "
        f"{', '.join(groups) or 'CloudWatch'}, its files are below {facts.output}.",
        details={"job": facts.name, "output": facts.output},
    )


def _clean_up(session: Session, name: str, inputs: str, tell: Tell) -> None:
    """Remove the configuration and the dataset; failing at that is told and changes no result."""
    removals = {
        f"workload configuration {name}": partial(jobs.delete_config, session, name),
        f"dataset {inputs}": partial(objects.remove_prefix, session, inputs),
    }
    for what, remove in removals.items():
        try:
            remove()
        except PeagleError as error:
            tell(f"left behind: {what} ({error.message}); it bills next to nothing")
