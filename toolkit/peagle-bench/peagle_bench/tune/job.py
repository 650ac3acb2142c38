"""`tune` from its options to its result: check, estimate, run, results file, and spec file.

The K and its evidence are written into the spec file as text, so the rest of the file and its comments stay
unchanged.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from peagle_bench.benchmark.endpoint_arm import targets_of
from peagle_bench.results.provenance import origin
from peagle_bench.results.records import FitRecord, Header
from peagle_bench.results.result_file import (
    Results,
    ResultWriter,
    demand_command,
    demand_same_config,
    read,
)
from peagle_bench.tune.arms import arm_spec, label
from peagle_bench.tune.choice import first_deployments
from peagle_bench.tune.estimate import Estimate, Settings, estimate, highest_price
from peagle_bench.tune.limits import too_deep
from peagle_bench.tune.outcome import ModeResult, common_against_none
from peagle_bench.tune.run import Tuned, Tuning
from peagle_bench.tune.windows import Measured
from peagle_bench.workloads import Workload
from peagle_sm.aws.files import write_file
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import Interrupted, SpecError
from peagle_sm.core.planning import Plan
from peagle_sm.core.spec.editing import edit_spec
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, parse_spec
from peagle_sm.core.spec.modes import Mode
from peagle_sm.service import plan_for
from peagle_sm.service.progress import Event, Progress


def evidence(
    result: ModeResult,
    fits: Sequence[FitRecord],
    *,
    workload: str,
    date: str,
    header: Header,
    file: str,
) -> list[str]:
    """Write the comment lines for the spec file, without ``#``; ``fits`` are the mode's."""
    plural = "" if result.deployments == 1 else "s"
    lines = [
        f"K={result.common.k} for {result.mode} on {date}, {workload}, "
        f"from {result.deployments} deployment{plural}"
    ]
    pays = common_against_none(result)
    for record in fits:
        point = next(point for point in record.points if point.k == result.common.k)
        lines.append(
            f"{record.load.label}: {point.otps:.0f} tokens/s [{point.low or 0:.0f}, {point.high or 0:.0f}], "
            f"acceptance length {point.acceptance_length:.2f}, step {point.step_ms:.2f} ms; "
            f"best K for this load alone (estimate): {record.best_k}"
        )
        if (against := pays.get(record.load.concurrency or 0)) is not None:
            lines.append(f"{record.load.label}: {against.words}")
    return [*lines, *header.notes, f"results: {file}"]


_MARK = "# tuned: "
_KEY = "num_speculative_tokens"
_TABLE = "num_speculative_tokens_per_batch_size"


def write_k(text: str, k: int, evidence: Sequence[str], origin: str = "spec") -> str:
    """Return the file's text with ``speculation.num_speculative_tokens: k`` and the evidence above it.

    A table of K by batch size is removed. The evidence of an earlier tuning (comment lines that begin with
    ``# tuned:``) is replaced.

    Raises:
        SpecError: the text is not a spec, or the position of the K cannot be found.
    """
    untuned = "\n".join(line for line in text.split("\n") if not line.strip().startswith(_MARK))
    wanted: dict[str, Any] = {f"speculation.{_KEY}": k}
    if parse_spec(untuned, origin).speculation.num_speculative_tokens_per_batch_size is not None:
        wanted[f"speculation.{_TABLE}"] = None
    written = edit_spec(untuned, wanted, origin)
    root = yaml.compose(written, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)  # it was read as a spec
    part, fields = _child(root, "speculation")
    assert isinstance(fields, yaml.MappingNode)  # the K was just written into it
    above = (part if fields.flow_style else _child(fields, _KEY)[0]).start_mark
    lines = written.split("\n")
    comments = [f"{' ' * above.column}{_MARK}{line}" for line in evidence]
    return "\n".join([*lines[: above.line], *comments, *lines[above.line :]])


def _child(node: yaml.MappingNode, key: str) -> tuple[yaml.Node, yaml.Node]:
    return next((name, value) for name, value in node.value if name.value == key)


@dataclass(frozen=True)
class Job:
    """Options of a tuning; ``spec_path`` None if the spec came from stdin."""

    spec: EndpointSpec
    spec_path: Path | None
    settings: Settings
    workload: Workload
    max_tokens: int
    out: Path
    resume: Path | None = None  #: results file of an interrupted run; its windows are not measured again


@dataclass(frozen=True)
class Done:
    """Result of a tuning: the choice, the content of its results file, and the changed spec file."""

    tuned: Tuned
    results: Results
    out: Path
    written: str | None  #: the spec's path if the K was written into it


def check(job: Job) -> None:
    """Check the options of a tuning.

    Raises:
        SpecError: the spec has no speculation and no mode was given, or the file to resume does not exist, is
            of another run, or is finished.
    """
    if not job.settings.modes:
        raise SpecError(
            "speculation.mode: found none, which has no K to tune.",
            next_step="Give the modes to tune, for example --modes p-eagle,eagle3.",
        )
    if job.resume is None:
        return
    demand_command(job.resume, "tune")
    results = read(job.resume)
    demand_same_config(job.resume, results.header.config, _config(job))
    if results.fits:
        raise SpecError(
            f"the tuning in {job.resume} is already finished.",
            next_step=f"Run `peagle-sm report {job.resume}` to see it, or leave --resume out to tune again.",
        )


def specs_of(job: Job) -> dict[str, EndpointSpec]:
    """Derive the first endpoints, by arm: the baseline, and each mode at its first K."""
    settings = job.settings
    k = settings.max_k if settings.runtime else first_deployments(settings.max_k)[0]
    specs = {"none": arm_spec(job.spec, "none", None)}
    for mode in settings.modes:
        specs[label(mode, k)] = arm_spec(job.spec, mode, k, runtime=settings.runtime)
    return specs


def plans_of(job: Job, session: Session) -> dict[str, Plan]:
    """Plan each of the first endpoints; creates nothing.

    Raises:
        SpecError: the largest K to try is beyond the depth that a head was trained for.
    """
    plans = {arm: plan_for(spec, session) for arm, spec in specs_of(job).items()}
    for arm, plan in plans.items():
        if (reason := too_deep(plan)) is not None:
            raise SpecError(
                f"--max-k: found {job.settings.max_k}, too many for {arm}: {reason}.",
                next_step="Give --max-k the head's trained depth or less.",
            )
    return plans


def price_of(job: Job, plans: dict[str, Plan], session: Session) -> Estimate:
    """Estimate the tuning's time and cost."""
    return estimate(
        job.settings,
        max_tokens=job.max_tokens,
        usd_per_hour=highest_price(plans.values()),
        max_lifetime_hours=job.spec.lifecycle.max_lifetime_hours,
        local=session.is_local,
    )


def run(
    job: Job,
    session: Session,
    *,
    progress: Progress | None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    token: Callable[[], str] = lambda: secrets.token_hex(4),
    write: bool = True,
    every_s: float = 0.5,
) -> Done:
    """Tune, write the results file during the run, and the K into the spec file at the end.

    ``every_s`` is the minimum time in seconds between two progress events of a window.

    Raises:
        SpecError: the results file already exists.
        Interrupted: Ctrl-C; the message says what was saved.
        PeagleError: a deployment or a measurement failed.
    """
    began = now()

    def tell(message: str) -> None:
        if progress is not None:
            progress(Event("check", message, elapsed_s=(now() - began).total_seconds()))

    earlier = () if job.resume is None else read(job.resume).windows
    with ResultWriter(job.out) as writer:
        writer.append(_header(job, session, began, token()))
        if earlier:
            tell(f"{len(earlier)} windows of {job.resume} are not measured again")
        tuning = Tuning(
            base=job.spec,
            settings=job.settings,
            items=job.workload.items,
            session=session,
            salt=token(),
            sink=writer.append,
            tell=tell,
            progress=progress,
            every_s=every_s,
            measured=Measured(earlier),
        )
        try:
            tuned = tuning.run()
        except KeyboardInterrupt:
            raise Interrupted(
                f"interrupted; the windows measured so far are in {job.out}",
                next_step=f"run the same command with --resume {job.out}; it does not measure them again",
            ) from None
    results = read(job.out)
    written = _write(job, tuned, results.fits, results.header) if write and job.spec_path else None
    return Done(tuned, results, job.out, written)


def _write(job: Job, tuned: Tuned, fits: tuple[FitRecord, ...], header: Header) -> str | None:
    """Write the K of the spec's own mode into the spec file; a change of mode is the user's decision."""
    path = job.spec_path
    own = next((result for result in tuned.results if result.mode == job.spec.speculation.mode), None)
    if own is None or path is None:
        return None
    lines = evidence(
        own,
        [record for record in fits if record.mode == own.mode],
        workload=job.workload.name,
        date=str(header.provenance.get("date", ""))[:10],
        header=header,
        file=str(job.out),
    )
    write_file(path, write_k(path.read_text(encoding="utf-8"), own.common.k, lines, str(path)))
    return str(path)


def _config(job: Job) -> dict[str, Any]:
    """Return all settings that a resumed run must share with the first run."""
    settings = job.settings
    return {
        "spec": job.spec.model_dump(mode="json", exclude_defaults=True),
        "modes": list(settings.modes),
        "concurrencies": list(settings.concurrencies),
        "max_k": settings.max_k,
        "by": "runtime" if settings.runtime else "deployments",
        "requests": settings.requests,
        "max_tokens": job.max_tokens,
        "workload": job.workload.describe(),
    }


def _header(job: Job, session: Session, began: datetime, token: str) -> Header:
    return Header(
        run_id=f"tune-{began:%Y%m%dT%H%M%SZ}-{token}",
        command="tune",
        config=_config(job),
        provenance=origin(0),
        **targets_of([plan_for(job.spec, session).target]),
    )


def modes_of(spec: EndpointSpec, modes: tuple[Mode, ...] | None) -> tuple[Mode, ...]:
    """Return the given modes, else the spec's own; empty if that is none."""
    if modes is not None:
        return modes
    return () if spec.speculation.mode == "none" else (spec.speculation.mode,)
