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

from peagle_bench.benchmark import managed_files
from peagle_bench.benchmark.endpoint_arm import Described
from peagle_bench.benchmark.managed_files import (
    DATASET,
    PROMPTS,
    Bundle,
    JobResources,
    point_record,
    read_bundle,
    request_records,
)
from peagle_bench.benchmark.plan import BenchPlan, check_plan, config_of
from peagle_bench.benchmark.run import notes_of
from peagle_bench.results.records import ArmRecord, Header, Load, PointRecord, RequestRecord
from peagle_bench.results.result_file import Outcome, ResultWriter, of_finished_loads, read
from peagle_bench.workloads import Workload
from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.control.sagemaker import JobFacts
from peagle_sm.aws.session.errors import is_unsettled
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage import s3
from peagle_sm.core.errors import BillableLeft, Interrupted, NotFound, PeagleError, ServiceFault
from peagle_sm.core.plan import tags_and_schedules as tags
from peagle_sm.service.progress import Event, Pacing, Progress

ARCHIVE = "output.tar.gz"
_LOOKS_THAT_MAY_FAIL = 10
_TAGS = {tags.MANAGED_BY: tags.MANAGER}
# How long to wait until a job has stopped; AWS documents no limit.
_STOPPING_S = 600.0
_LONGEST_LINE = 100

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Job:
    """Settings of one AI benchmark job."""

    name: str
    arm: ArmRecord
    resources: JobResources
    spec: Mapping[str, Any]
    prompts: bytes

    @property
    def base(self) -> str:
        """S3 prefix of everything that this job reads and writes."""
        return f"{self.resources.s3.rstrip('/')}/{self.name}"


def run_job(session: Session, job: Job, tell: Tell, pacing: Pacing) -> tuple[JobFacts, Bundle]:
    """Run a job; return its description and AIPerf's output.

    Raises:
        ServiceFault: the job failed without figures, or AWS stopped answering.
        Interrupted: Ctrl-C, and the job was stopped.
        BillableLeft: Ctrl-C or a fault, and the job may still run.
    """
    inputs = f"{job.base}/input"
    try:
        channels = job.resources.channels(session, inputs)
        s3.upload(session, f"{inputs}/{PROMPTS}", job.prompts)
        channels[DATASET] = f"{inputs}/{PROMPTS}"
        control.create_config(session, job.name, json.dumps(job.spec), channels, _TAGS)
        facts = _watched(session, job, tell, pacing)
        return facts, _bundle(session, facts, tell)
    finally:
        _clean_up(session, job.name, inputs, tell)


def _watched(session: Session, job: Job, tell: Tell, pacing: Pacing) -> JobFacts:
    """Start the job and wait until it has ended; stop it on an interruption."""
    try:
        control.create_job(
            session,
            job.name,
            endpoint=job.arm.endpoint,
            component=job.arm.component,
            config=job.name,
            output=f"{job.base}/",
            role_arn=job.resources.role_arn,
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
    """Stop a job and wait until it has stopped; raise BillableLeft if it may still run."""
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
    """Wait until the job has ended; return why it may still run, or None."""
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
    """Read the output of a job that has ended; also that of a failed job, if it has figures."""
    outcome = f"AI benchmark job {facts.name} ended with status {facts.status}"
    if facts.failure_reason:
        outcome += f": {facts.failure_reason}"
    try:
        bundle = read_bundle(s3.download_one(session, facts.output, ARCHIVE))
    except PeagleError as error:
        message = outcome if facts.status == "Failed" else f"{outcome}; {error.message}"
        raise _failed(facts, message) from error
    if not bundle.profile or facts.status == "Stopped":
        first = _first_error(bundle)
        raise _failed(facts, f"{outcome.splitlines()[0]} {first}" if first else outcome)
    if facts.status == "Failed":
        # AWS reports Failed when more than 1% of the requests failed; the others are valid.
        tell(f"{outcome}; its figures are kept")
    return bundle


def _first_error(bundle: Bundle) -> str:
    errors = (row["error"] for row in bundle.requests if row.get("error"))
    first = next(errors, None)
    return f"First failed request: {first.get('message')}" if first else ""


def _failed(facts: JobFacts, message: str) -> ServiceFault:
    logs = facts.raw.get("OutputConfig", {}).get("CloudWatchLogs", [])
    groups = [str(log.get("LogGroupArn", "")).partition(":log-group:")[2] for log in logs]
    return ServiceFault(
        message,
        operation="CreateAIBenchmarkJob",
        code=facts.status,
        next_step=f"Fix the cause above and run the command again with --resume. The job's log is in "
        f"{', '.join(groups) or 'CloudWatch'}; its files are under {facts.output}.",
        details={"job": facts.name, "output": facts.output},
    )


def _clean_up(session: Session, name: str, inputs: str, tell: Tell) -> None:
    """Delete the workload config and the dataset; a failure is reported and changes no result."""
    removals = {
        f"workload config {name}": partial(control.delete_config, session, name),
        f"dataset {inputs}": partial(s3.remove_prefix, session, inputs),
    }
    for what, remove in removals.items():
        try:
            remove()
        except PeagleError as error:
            tell(f"not deleted: {what} ({error.message}); it costs next to nothing")


# Published reports of such jobs give 10 to 30 minutes, most of it before the first request.
_START_S = 600.0


@dataclass(frozen=True)
class ManagedDependencies:
    """Services that a managed run depends on; tests replace them."""

    progress: Progress
    pacing: Pacing
    provenance: Callable[[], dict[str, Any]]
    now: Callable[[], datetime]
    token: Callable[[], str]


def count_of_jobs(plan: BenchPlan) -> str:
    """Format the number of jobs: one for each load."""
    jobs = len(plan.loads)
    return f"{jobs} AI benchmark job{'' if jobs == 1 else 's'}"


def price_note(arm: ArmRecord, plan: BenchPlan) -> str:
    """Describe what the jobs cost, before they start."""
    jobs, count = len(plan.loads), count_of_jobs(plan)
    if arm.usd_per_hour == 0:
        return f"{count} on the local SageMaker: nothing is billed."
    own = "AWS publishes no price for the jobs themselves (checked in November 2026): check your bill."
    seconds = jobs * (_START_S + (plan.seconds or 0.0))
    about = f"{count}, about {seconds / 60:.0f} minutes or more"
    if arm.usd_per_hour is None:
        return f"{about}; the endpoint's cost is unknown: no price found. {own}"
    usd = arm.usd_per_hour * seconds / 3600
    return f"{about}; the endpoint costs {usd:.2f} USD in that time ({arm.usd_per_hour:.2f} USD/h). {own}"


def run_managed(
    session: Session,
    described: Described,
    workload: Workload,
    plan: BenchPlan,
    resources: JobResources,
    path: Path,
    dependencies: ManagedDependencies,
    *,
    resume: bool = False,
) -> Outcome:
    """Measure every load of ``plan`` and write ``path``; with ``resume``, only the missing loads.

    Raises:
        SpecError: the plan or the file does not fit, or a managed job cannot send this workload.
        ServiceFault: a job failed and left no figures; earlier loads are in the file.
        Interrupted: Ctrl-C; the job was stopped, earlier loads are in the file.
        BillableLeft: a job may still run; the message says how to stop it.
    """
    check_plan(plan, workload)
    salt = dependencies.token()
    prompts = {load: managed_files.dataset(load, plan, workload, salt) for load in plan.loads}
    config = {**config_of(plan, workload, described.arm), "client": "managed"}
    writer = ResultWriter.resume(path, config, keep=of_finished_loads(path)) if resume else ResultWriter(path)
    notes = managed_files.notes(workload)
    with writer:
        if writer.found is None:
            writer.append(_header(described, config, dependencies))
        if writer.found is None or described.arm not in writer.found.arms:
            writer.append(described.arm)
        done = {point.load for point in (writer.found.points if writer.found else ())}
        for load in plan.loads:
            if load in done:
                continue
            job = Job(
                name=job_name(described.arm, load, dependencies.now(), salt),
                arm=described.arm,
                resources=resources,
                spec=managed_files.workload_spec(load, plan, workload, resources.tokenizer),
                prompts=prompts[load],
            )
            facts, bundle = _measured(session, job, load, path, dependencies)
            point, requests = _write(writer, bundle, described.arm, load, plan, workload)
            notes += _notes(described.arm, facts, point, requests, bundle)
            told = _ended(described.arm, load, facts, point, bundle)
            dependencies.progress(Event("done", told, load.label, facts.seconds or 0.0))
    return Outcome(path, read(path), (*workload.notes, *notes))


def _measured(
    session: Session, job: Job, load: Load, path: Path, dependencies: ManagedDependencies
) -> tuple[JobFacts, Bundle]:
    began = dependencies.pacing.monotonic()

    def tell(line: str) -> None:
        elapsed = dependencies.pacing.monotonic() - began
        hourly = job.arm.usd_per_hour
        spent = hourly * elapsed / 3600 if hourly else None
        dependencies.progress(Event("waiting", f"{load.label}: {line}", load.label, elapsed, spent))

    try:
        return run_job(session, job, tell, dependencies.pacing)
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
    found = [f"{point.load.label}: measured by AIPerf {bundle.version or '(unknown version)'}"]
    if facts.status == "Failed":
        found.append(f"{point.load.label}: the job's status is Failed: {facts.failure_reason}")
    times = Counter(record.prompt_id for record in requests if record.phase == "measured")
    again = sum(count - 1 for count in times.values())
    if again:
        found.append(
            f"{point.load.label}: {again} requests repeated a prompt: the prefix cache may have sped them up"
        )
    return [*found, *notes_of([point], requests, arm)]


def _ended(arm: ArmRecord, load: Load, facts: JobFacts, point: PointRecord, bundle: Bundle) -> str:
    took = facts.seconds
    cost = "" if not arm.usd_per_hour or took is None else f", {arm.usd_per_hour * took / 3600:.2f} USD"
    lasted = "" if took is None else f" after {took / 60:.1f} min{cost}"
    return f"{load.label}: {facts.status}{lasted}: {point.otps:.1f} tokens/s (AIPerf {bundle.version})"


def _header(described: Described, config: dict[str, Any], dependencies: ManagedDependencies) -> Header:
    return Header(
        run_id=f"bench-{dependencies.now():%Y%m%dT%H%M%SZ}-{dependencies.token()}",
        command="bench",
        config=config,
        provenance={
            **dependencies.provenance(),
            "endpoint": dict(described.origin),
            "client": "AIPerf, managed",
        },
        stand_in_weights=described.stand_in_weights,
    )


def job_name(arm: ArmRecord, load: Load, now: datetime, token: str) -> str:
    """Return a job's name: at most 63 letters, digits and single dashes; ``token`` distinguishes runs."""
    size = f"c{load.concurrency}" if load.kind == "closed" else f"r{load.rate_per_s:g}".replace(".", "p")
    end = f"{size}-{now:%m%d%H%M%S}-{token[:6]}"
    room = 63 - len("bench--") - len(end)
    return f"bench-{arm.endpoint[:room].rstrip('-')}-{end}"
