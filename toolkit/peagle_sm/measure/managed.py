"""`bench --managed`: SageMaker's own AI benchmark jobs (AIPerf) measure the endpoint, one job a load.

The results file is the one that `bench` writes, requests and points, so that reports and costs read it alike;
its header's config says ``client: managed``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from peagle_sm.aws.control.benchmark_jobs import JobFacts
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import Interrupted
from peagle_sm.measure import managed_spec
from peagle_sm.measure.aiperf_output import Bundle, point_record, request_records
from peagle_sm.measure.bench import Outcome
from peagle_sm.measure.bench_notes import notes_of
from peagle_sm.measure.bench_plan import BenchPlan, check_plan, config_of
from peagle_sm.measure.endpoint_arm import Described
from peagle_sm.measure.managed_job import Job, run_job
from peagle_sm.measure.managed_place import Place
from peagle_sm.measure.records import ArmRecord, Header, Load, PointRecord, RequestRecord
from peagle_sm.measure.result_file import ResultWriter, of_finished_loads, read
from peagle_sm.measure.workloads import Workload
from peagle_sm.service.events import Event, Pacing, Progress

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
    prompts = {load: managed_spec.dataset(load, plan, workload, salt) for load in plan.loads}
    config = {**config_of(plan, workload, described.arm), "client": "managed"}
    writer = ResultWriter.resume(path, config, keep=of_finished_loads(path)) if resume else ResultWriter(path)
    notes = managed_spec.notes(workload)
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
                spec=managed_spec.workload_spec(load, plan, workload, place.tokenizer),
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
        replace(record, prompt_id=managed_spec.prompt_id(record.prompt_id))
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
