"""`bench`: measure one arm under each load in turn, and write every request as it ends.

`plan` says what to send, the load client (`load`) sends it, `progress` reports meanwhile, and `acceptance`
reads the engine's counters where the answers carry no draft statistics. The notes name what the figures
alone do not show: failed requests, drafts without effect, withheld figures.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from peagle_bench.benchmark import acceptance
from peagle_bench.benchmark.acceptance import EngineSource, is_ineffective
from peagle_bench.benchmark.endpoint_arm import Described, look_at, targets_of
from peagle_bench.benchmark.plan import (
    BenchPlan,
    check_plan,
    items_of,
    measured_of,
    options_of,
    probed,
)
from peagle_bench.benchmark.progress import LoadWatch, Spending
from peagle_bench.load import LoadStopped, Target, measure_point
from peagle_bench.load.points import doubt_lines, is_withheld, withheld_lines
from peagle_bench.results.provenance import origin
from peagle_bench.results.records import (
    Acceptance,
    ArmRecord,
    Header,
    Load,
    PointRecord,
    RequestRecord,
)
from peagle_bench.results.result_file import (
    Outcome,
    Results,
    ResultWriter,
    read,
)
from peagle_bench.workloads import Workload
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import Interrupted, ServiceFault
from peagle_sm.core.spec.modes import SPECULATING
from peagle_sm.service.progress import Event, Progress


def notes_of(points: Sequence[PointRecord], requests: Sequence[RequestRecord], arm: ArmRecord) -> list[str]:
    """List withheld and doubtful figures, failed requests, and drafts without effect; by load."""
    notes = [*withheld_lines(points), *doubt_lines(points)]
    for point in points:
        if point.errors:
            notes.append(_failed(point, requests))
        notes += _drafting(point, arm)
    return notes


def _repeats(results: Results, prompts: int) -> list[str]:
    """Note the loads with more requests than prompts; a conversation counts once."""
    sent = Counter(
        request.load.label for request in results.requests if request.phase == "measured" and not request.turn
    )
    loads = [f"{label} ({count} requests)" for label, count in sent.items() if count > prompts]
    if not loads:
        return []
    return [f"the {prompts} prompts repeat, each time with another cache salt: {', '.join(loads)}"]


def errors_in_words(point: PointRecord) -> str:
    """Count the errors of a point: ``2 x ModelError, 1 x StreamError``."""
    return ", ".join(f"{count} x {name}" for name, count in sorted(point.errors.items())) or "nothing sent"


def _failed(point: PointRecord, requests: Sequence[RequestRecord]) -> str:
    first = next(
        request.error_message
        for request in requests
        if request.load == point.load and request.phase == "measured" and request.error in point.errors
    )
    return (
        f"{point.load.label}: {sum(point.errors.values())} of {point.requests} requests failed"
        f" ({errors_in_words(point)}); the first: {first}"
    )


def _drafting(point: PointRecord, arm: ArmRecord) -> list[str]:
    acceptance = point.acceptance
    if arm.mode in SPECULATING and acceptance is None:
        return [f"{point.load.label}: acceptance unknown: neither the answers nor the engine report drafts"]
    if arm.mode == "p-eagle" and acceptance is not None and is_ineffective(acceptance):
        return [
            f"{point.load.label}: parallel drafting ineffective: the second draft token is almost never"
            " accepted"
        ]
    return []


@dataclass(frozen=True)
class BenchDependencies:
    """Services that a benchmark run depends on; tests replace them."""

    progress: Progress
    #: Returns why an endpoint stopped answering, in words; None if unknown.
    look: Callable[[], str | None]
    provenance: Callable[[], dict[str, Any]]
    source: EngineSource | None = None
    measure: Callable[..., tuple[list[RequestRecord], PointRecord]] = measure_point
    clock: Callable[[], float] = time.perf_counter
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    token: Callable[[], str] = lambda: secrets.token_hex(4)
    every_s: float = 0.5  #: seconds between two lines of progress

    @classmethod
    def of(
        cls,
        session: Session | None,
        arm: ArmRecord,
        progress: Progress,
        *,
        seed: int,
        every_s: float = 0.5,
        sleep: Callable[[float], None] = time.sleep,
    ) -> BenchDependencies:
        """Return the real services for an arm of this session (None: a bare server)."""
        return cls(
            progress=progress,
            look=lambda: look_at(session, arm),
            provenance=lambda: origin(seed),
            source=acceptance.engine_source(session, arm, sleep),
            every_s=every_s,
        )


def bench(
    described: Described,
    target: Target,
    workload: Workload,
    plan: BenchPlan,
    path: Path,
    dependencies: BenchDependencies,
) -> Outcome:
    """Measure every load of ``plan`` and write ``path``.

    A probe with the longest prompt comes first: it shows whether the prompt fits into the context, and
    whether answers report their acceptance.

    Raises:
        SpecError: the plan, the file or the context does not fit; nothing was measured.
        ServiceFault: the endpoint stopped answering; the message says what was saved.
        Interrupted: Ctrl-C; the message says what was saved.
    """
    check_plan(plan, workload)
    try:
        salt = dependencies.token()
        with ResultWriter(path) as writer:
            described = probed(target, workload, described, salt, dependencies.measure)
            run = _Run(described.arm, target, workload, plan, writer, dependencies, salt)
            writer.append(_header(described, workload, plan, dependencies))
            writer.append(described.arm)
            run.all_loads()
        results = read(path)
        return Outcome(
            path,
            results,
            (
                *workload.notes,
                *results.warnings,
                *_repeats(results, len(workload.items)),
                *notes_of(results.points, results.requests, described.arm),
            ),
        )
    except KeyboardInterrupt:
        kept = path.exists()
        raise Interrupted(
            f"interrupted; {f'the finished loads are in {path}' if kept else 'nothing was saved'}",
            next_step=f"see them with `peagle-sm report {path}`" if kept else "run the same command again",
        ) from None


@dataclass
class _Run:
    arm: ArmRecord
    target: Target
    workload: Workload
    plan: BenchPlan
    writer: ResultWriter
    dependencies: BenchDependencies
    salt: str

    def __post_init__(self) -> None:
        self.finished = 0
        self.began = self.dependencies.clock()
        self.spending = Spending(self.arm.usd_per_hour, self.dependencies.clock)

    def all_loads(self) -> None:
        for load in self.plan.loads:
            self._one(load)
            self.finished += 1

    def _one(self, load: Load) -> None:
        watch = LoadWatch(
            load,
            self.writer.append,
            self.dependencies.progress,
            self.spending,
            total=measured_of(self.plan, self.workload),
            seconds=self.plan.seconds,
            loads_after=len(self.plan.loads) - self.finished - 1,
            every_s=self.dependencies.every_s,
        )
        try:
            point = self._measured(load, watch)
        except LoadStopped as stopped:
            raise self._stopped(load, watch, stopped.message.removeprefix(f"{self.arm.name}: ")) from stopped
        except KeyboardInterrupt:
            raise Interrupted(
                f"interrupted at {load.label}; {self._saved(watch)}",
                next_step=f"see it with `peagle-sm report {self.writer.path}`, and measure the other loads",
            ) from None
        if sum(point.errors.values()) >= point.requests:
            raise self._stopped(load, watch, "every request failed: " + errors_in_words(point))
        self.writer.append(point)
        self.dependencies.progress(
            Event("done", _in_a_line(point), load.label, self.spending.seconds, self.spending.usd)
        )

    def _measured(self, load: Load, watch: LoadWatch) -> PointRecord:
        source = self.dependencies.source
        if source is not None:
            source.begin()

        def accepted(records: Sequence[RequestRecord]) -> Acceptance | None:
            own = acceptance.from_requests(records)
            return own if own is not None or source is None or self.arm.mode == "none" else source.end()

        _, point = self.dependencies.measure(
            self.target,
            load,
            items_of(self.plan, self.workload, load, self.salt),
            options_of(self.plan, self.workload, load, self.began),
            observer=watch,
            temperature=self.workload.temperature,
            objective=self.plan.objective,
            acceptance=accepted,
            usd_per_hour=self.arm.usd_per_hour,
        )
        return point

    def _stopped(self, load: Load, watch: LoadWatch, message: str) -> ServiceFault:
        why = self.dependencies.look()
        return ServiceFault(
            f"{self.arm.name} stopped answering at {load.label} ({message})"
            + (f"; {_first_line(why)}" if why else "")
            + f"; {self._saved(watch)}",
            operation="bench",
            code="EndpointStopped",
            next_step="when the endpoint answers again, measure the other loads",
            details={"file": str(self.writer.path), "points": self.finished, "why": why},
        )

    def _saved(self, watch: LoadWatch) -> str:
        points = self.finished
        return (
            f"saved in {self.writer.path}: {points} finished load{'' if points == 1 else 's'}, and"
            f" {watch.requests - watch.errors} answered requests of this load"
        )


def _in_a_line(point: PointRecord) -> str:
    words = [f"{point.load.label}: done, {point.requests} requests in {point.seconds:.1f} s"]
    if not is_withheld(point.client):
        words.append(f"{point.otps:,.0f} tokens/s")
        if point.acceptance is not None and point.acceptance.per_step is not None:
            words.append(f"acceptance length {point.acceptance.per_step:.2f}")
    return ", ".join(words)


def _header(
    described: Described, workload: Workload, plan: BenchPlan, dependencies: BenchDependencies
) -> Header:
    moment = dependencies.now()
    return Header(
        run_id=f"bench-{moment:%Y%m%dT%H%M%SZ}-{dependencies.token()}",
        command="bench",
        config={
            "endpoint": described.arm.endpoint,
            "workload": workload.describe(),
            **asdict(plan),
            "loads": [load.label for load in plan.loads],
        },
        provenance={**dependencies.provenance(), "endpoint": dict(described.origin)},
        **targets_of([described.target]),
    )


def _first_line(text: str) -> str:
    """Return the reason without the engine's log that follows it; --format json has all of it."""
    line = text.splitlines()[0] if text else ""
    return line if len(line) <= 200 else line[:199] + "…"
