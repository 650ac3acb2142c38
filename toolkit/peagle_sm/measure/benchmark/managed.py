"""`bench --managed`: SageMaker's own AI benchmark jobs (AIPerf) measure the endpoint, one job a load.

On any ending the job is stopped and its inputs are removed. The results file is the one that `bench` writes,
requests and points, so that reports and costs read it alike; its header's config says ``client: managed``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.control.sagemaker import JobFacts
from peagle_sm.aws.session.errors import is_unsettled
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage import s3
from peagle_sm.core.errors import BillableLeft, Interrupted, NotFound, PeagleError, ServiceFault
from peagle_sm.core.plan import tags
from peagle_sm.measure.benchmark import managed_files
from peagle_sm.measure.benchmark.endpoint_arm import Described
from peagle_sm.measure.benchmark.managed_files import (
    DATASET,
    PROMPTS,
    Bundle,
    Place,
    point_record,
    read_bundle,
    request_records,
)
from peagle_sm.measure.benchmark.plan import BenchPlan, check_plan, config_of
from peagle_sm.measure.benchmark.run import Outcome, notes_of
from peagle_sm.measure.results.records import ArmRecord, Header, Load, PointRecord, RequestRecord
from peagle_sm.measure.results.result_file import ResultWriter, of_finished_loads, read
from peagle_sm.measure.workloads import Workload
from peagle_sm.service.progress import Event, Pacing, Progress

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
        s3.upload(session, f"{inputs}/{PROMPTS}", job.prompts)
        channels[DATASET] = f"{inputs}/{PROMPTS}"
        control.create_config(session, job.name, json.dumps(job.spec), channels, _TAGS)
        facts = _watched(session, job, tell, pacing)
        return facts, _bundle(session, facts, tell)
    finally:
        _clean_up(session, job.name, inputs, tell)


def _watched(session: Session, job: Job, tell: Tell, pacing: Pacing) -> JobFacts:
    """Start the job and see its end; nobody leaves here while it runs."""
    try:
        control.create_job(
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
            facts = control.describe_job(session, job.name)
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
            if facts.status in control.ENDED:
                return facts
            line = (control.last_line(session, facts) or "")[:_LONGEST_LINE]
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
            facts = control.describe_job(session, name)
            if facts is None or facts.status in control.ENDED:
                return None
            if not asked:
                control.stop_job(session, name)
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
        bundle = read_bundle(s3.download_one(session, facts.output, ARCHIVE))
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
        f"workload configuration {name}": partial(control.delete_config, session, name),
        f"dataset {inputs}": partial(s3.remove_prefix, session, inputs),
    }
    for what, remove in removals.items():
        try:
            remove()
        except PeagleError as error:
            tell(f"left behind: {what} ({error.message}); it bills next to nothing")


# Public accounts of such jobs speak of 10 to 30 minutes, most of it before the first request.
_START_S = 600.0


@dataclass(frozen=True)
class Surroundings:
    """The outside world of a run, all of it replaceable."""

    progress: Progress
    pacing: Pacing
    provenance: Callable[[], dict[str, Any]]
    now: Callable[[], datetime]
    token: Callable[[], str]


def price_note(arm: ArmRecord, plan: BenchPlan) -> str:
    """What the jobs cost, in words, before they are started."""
    jobs = len(plan.loads)
    count = f"{jobs} AI benchmark job{'' if jobs == 1 else 's'}"
    if arm.usd_per_hour == 0:
        return f"{count} on the local SageMaker: nothing is billed."
    own = "For the jobs themselves AWS publishes no price (none found in November 2026): watch the bill."
    seconds = jobs * (_START_S + (plan.seconds or 0.0))
    about = f"{count}, about {seconds / 60:.0f} minutes or more"
    if arm.usd_per_hour is None:
        return f"{about}; what the endpoint costs meanwhile is not known. {own}"
    usd = arm.usd_per_hour * seconds / 3600
    return f"{about}, in which the endpoint costs {usd:.2f} USD ({arm.usd_per_hour:.2f} USD/h). {own}"


def run_managed(
    session: Session,
    described: Described,
    workload: Workload,
    plan: BenchPlan,
    place: Place,
    path: Path,
    around: Surroundings,
    *,
    resume: bool = False,
) -> Outcome:
    """Measure every load of ``plan`` and write ``path``; with ``resume``, those that it does not have yet.

    Raises:
        SpecError: the plan or the file does not fit, or the workload is not one that such a job can send.
        ServiceFault: a job failed and left no figures; earlier loads are in the file.
        Interrupted: Ctrl-C; the job was stopped, earlier loads are in the file.
        BillableLeft: a job may still run; the message says how to stop it.
    """
    check_plan(plan, workload)
    salt = around.token()
    prompts = {load: managed_files.dataset(load, plan, workload, salt) for load in plan.loads}
    config = {**config_of(plan, workload, described.arm), "client": "managed"}
    writer = ResultWriter.resume(path, config, keep=of_finished_loads(path)) if resume else ResultWriter(path)
    notes = managed_files.notes(workload)
    with writer:
        if writer.found is None:
            writer.append(_header(described, config, around))
        if writer.found is None or described.arm not in writer.found.arms:
            writer.append(described.arm)
        done = {point.load for point in (writer.found.points if writer.found else ())}
        for load in plan.loads:
            if load in done:
                continue
            job = Job(
                name=job_name(described.arm, load, around.now(), salt),
                arm=described.arm,
                place=place,
                spec=managed_files.workload_spec(load, plan, workload, place.tokenizer),
                prompts=prompts[load],
            )
            facts, bundle = _measured(session, job, load, path, around)
            point, requests = _write(writer, bundle, described.arm, load, plan, workload)
            notes += _notes(described.arm, facts, point, requests, bundle)
            told = _ended(described.arm, load, facts, point, bundle)
            around.progress(Event("done", told, load.label, facts.seconds or 0.0))
    return Outcome(path, read(path), (*workload.notes, *notes))


def _measured(
    session: Session, job: Job, load: Load, path: Path, around: Surroundings
) -> tuple[JobFacts, Bundle]:
    began = around.pacing.monotonic()

    def tell(line: str) -> None:
        elapsed = around.pacing.monotonic() - began
        hourly = job.arm.usd_per_hour
        spent = hourly * elapsed / 3600 if hourly else None
        around.progress(Event("waiting", f"{load.label}: {line}", load.label, elapsed, spent))

    try:
        return run_job(session, job, tell, around.pacing)
    except Interrupted as interrupted:
        raise Interrupted(
            f"{interrupted.message}; earlier loads are in {path}",
            next_step=f"run the same command with --resume {path}: finished loads are not measured again",
        ) from None


def _write(
    writer: ResultWriter, bundle: Bundle, arm: ArmRecord, load: Load, plan: BenchPlan, workload: Workload
) -> tuple[PointRecord, Sequence[RequestRecord]]:
    requests = [
        replace(record, prompt_id=managed_files.prompt_id(record.prompt_id))
        for record in request_records(bundle, arm.name, load)
    ]
    point = point_record(
        bundle,
        requests,
        arm.name,
        load,
        temperature=workload.temperature,
        objective=plan.objective,
        usd_per_hour=arm.usd_per_hour,
    )
    for record in requests:
        writer.append(record)
    writer.append(point)
    return point, requests


def _notes(
    arm: ArmRecord,
    facts: JobFacts,
    point: PointRecord,
    requests: Sequence[RequestRecord],
    bundle: Bundle,
) -> list[str]:
    found = [f"{point.load.label}: measured by AIPerf {bundle.version or 'of an unknown version'}"]
    if facts.status == "Failed":
        found.append(f"{point.load.label}: the job counts as failed: {facts.failure_reason}")
    times = Counter(record.prompt_id for record in requests if record.phase == "measured")
    again = sum(count - 1 for count in times.values())
    if again:
        found.append(f"{point.load.label}: {again} requests asked a prompt again: the prefix cache may help")
    return [*found, *notes_of([point], requests, arm)]


def _ended(arm: ArmRecord, load: Load, facts: JobFacts, point: PointRecord, bundle: Bundle) -> str:
    took = facts.seconds
    cost = "" if not arm.usd_per_hour or took is None else f", {arm.usd_per_hour * took / 3600:.2f} USD"
    lasted = "" if took is None else f" after {took / 60:.1f} min{cost}"
    return f"{load.label}: {facts.status}{lasted}: {point.otps:.1f} tokens/s (AIPerf {bundle.version})"


def _header(described: Described, config: dict[str, Any], around: Surroundings) -> Header:
    return Header(
        run_id=f"bench-{around.now():%Y%m%dT%H%M%SZ}-{around.token()}",
        command="bench",
        config=config,
        provenance={**around.provenance(), "endpoint": dict(described.origin), "client": "AIPerf, managed"},
        stand_in_weights=described.stand_in_weights,
    )


def job_name(arm: ArmRecord, load: Load, now: datetime, token: str) -> str:
    """A job's name: at most 63 letters, digits and single dashes within; ``token`` tells runs apart."""
    size = f"c{load.concurrency}" if load.kind == "closed" else f"r{load.rate_per_s:g}".replace(".", "p")
    end = f"{size}-{now:%m%d%H%M%S}-{token[:6]}"
    room = 63 - len("bench--") - len(end)
    return f"bench-{arm.endpoint[:room].rstrip('-')}-{end}"
