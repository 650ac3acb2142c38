"""`compare`: measure each deployment, write every request as it ends, and compare the complete data.

Progress shows how far the comparison is and each arm's rate so far. The notes name what the ratios alone do
not show: failed controls, failed requests, different answers, a single deployment.
"""

from __future__ import annotations

import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from peagle_bench.benchmark.acceptance import engine_source
from peagle_bench.benchmark.endpoint_arm import Described, look_at, targets_of
from peagle_bench.benchmark.plan import probed
from peagle_bench.benchmark.progress import Spending
from peagle_bench.compare.alternating import OnRun, TurnContext
from peagle_bench.compare.analysis import CONTROL, ArmDeployments, control_of, in_order
from peagle_bench.compare.deployments import Round
from peagle_bench.compare.measurement import Contest, Setup
from peagle_bench.load import LoadStopped, Target, Timeouts, make_target, measure_point
from peagle_bench.load.http_client import open_sender
from peagle_bench.load.points import doubt_lines, doubted_lines, separate_withheld, withheld_lines
from peagle_bench.load.run import Connect, run_quietly
from peagle_bench.results.provenance import origin
from peagle_bench.results.records import (
    ArmRecord,
    ComparisonRecord,
    Header,
    Load,
    Phase,
    PointRecord,
    RequestRecord,
)
from peagle_bench.results.result_file import Outcome, ResultWriter, read
from peagle_bench.workloads import Workload, requests_sha256
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import Interrupted, PeagleError, ServiceFault
from peagle_sm.core.spec.modes import SPECULATING
from peagle_sm.core.words import elapsed
from peagle_sm.service.progress import Event, Progress


def notes_of(
    arms: Sequence[ArmRecord],
    requests: Sequence[RequestRecord],
    points: Sequence[PointRecord],
    comparisons: Sequence[ComparisonRecord],
) -> list[str]:
    """List the notes without repetition, most serious first; withheld comparisons are left out."""
    comparisons = separate_withheld(points, comparisons).comparisons
    notes = [
        *_failed_controls(comparisons),
        *withheld_lines(points),
        *doubt_lines(points),
        *doubted_lines(comparisons),
        *_failed_requests(requests),
        *_silent_drafts(arms, points),
        *_different_answers(comparisons),
        *_one_deployment(comparisons),
    ]
    return list(dict.fromkeys(notes))


def _failed_controls(comparisons: Sequence[ComparisonRecord]) -> Iterator[str]:
    for comparison in comparisons:
        ratio = comparison.ratio
        if comparison.control and ratio.shown:
            yield (
                f"{comparison.load.label}: A/A control failed: {comparison.slower} compared with itself gave "
                f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}], which excludes 1. By chance this "
                "happens in 1 of 20 runs; measure again before you trust the other ratios"
            )


def _failed_requests(requests: Sequence[RequestRecord]) -> Iterator[str]:
    by_arm: dict[str, list[RequestRecord]] = {}
    for record in requests:
        if record.phase == "measured" and record.error is not None:
            by_arm.setdefault(record.arm, []).append(record)
    for arm, failed in by_arm.items():
        prompts = len({record.prompt_id for record in failed})
        alone = all(record.load.concurrency == 1 for record in failed)
        # Requests that share a window also share its seconds, so none can be taken out of another arm's.
        effect = "are left out for all arms" if alone else "are missing in this arm's rates alone"
        yield (
            f"{arm}: {len(failed)} requests failed, so their {prompts} prompts {effect}; "
            f"first error: {failed[0].error}: {failed[0].error_message}"
        )


def _silent_drafts(arms: Sequence[ArmRecord], points: Sequence[PointRecord]) -> Iterator[str]:
    for arm in arms:
        own = [point for point in points if point.arm == arm.name]
        if arm.mode in SPECULATING and own and not any(point.acceptance for point in own):
            yield (
                f"{arm.name}: its answers do not report drafts, so its ratio is not split into acceptance "
                "and step time; this needs vLLM 0.29 or later and "
                "SM_VLLM_PER_REQUEST_SPEC_DECODE_METRICS=summary"
            )


def _different_answers(comparisons: Sequence[ComparisonRecord]) -> Iterator[str]:
    for comparison in comparisons:
        same, both = comparison.identical_outputs, comparison.compared_outputs
        if same is not None and both is not None and same < both:
            yield (
                f"{comparison.load.label}: {comparison.faster} and {comparison.slower} answered "
                f"{both - same} of {both} prompts "
                + (
                    "differently although they are the same endpoint: rounding depends on the other requests "
                    "in the batch"
                    if comparison.faster.endswith(CONTROL)
                    else "differently; `peagle-sm verify` distinguishes rounding from faults"
                )
            )


def _one_deployment(comparisons: Sequence[ComparisonRecord]) -> Iterator[str]:
    if any(comparison.deployments == 1 and not comparison.control for comparison in comparisons):
        yield (
            "one deployment only: the intervals do not cover the spread between deployments, which is some "
            "percent; measure several deployments of each arm (--deployments with --modes, or ARM,ARM)"
        )


class Watch:
    """Observer of all turns of a comparison; its rates are tokens per second of a single request."""

    def __init__(self, progress: Progress, spending: Spending, *, every_s: float = 0.5) -> None:
        self._progress = progress
        self._spending = spending
        self._every_s = every_s
        self._reported_s = float("-inf")
        self.begin(Load("closed", concurrency=1), 0)

    def begin(self, load: Load, total: int) -> None:
        """Begin a load in a deployment; ``total`` counts the measured prompts of all arms."""
        self._load, self._total = load, total
        self._began_s = self._spending.seconds
        self._done = self._failed = 0
        self._turns = False
        self._tokens: dict[str, int] = defaultdict(int)
        self._seconds: dict[str, float] = defaultdict(float)

    def end(self) -> None:
        """Report the end of a load."""
        seconds = self._spending.seconds
        self._progress(Event("done", self.line(), self._load.label, seconds, self._spending.usd))

    def phase(self, phase: Phase) -> None:
        """Ignore phases: turns begin and end too often to be reported."""

    def request(self, record: RequestRecord) -> None:
        """Count a request that has ended, and report progress if it is time."""
        if record.phase == "measured" and not record.prompt_id.endswith("#warm-up"):
            self._done += record.turn == 0
            self._turns |= record.turn > 0
            self._failed += record.error is not None
            self._tokens[record.arm] += record.output_tokens or 0
            self._seconds[record.arm] += record.done_s - record.sent_s
        if self._spending.seconds - self._reported_s >= self._every_s:
            self._reported_s = self._spending.seconds
            event = Event("waiting", self.line(), self._load.label, self._reported_s, self._spending.usd)
            self._progress(replace(event, done=self._done, total=self._total, left_s=self.left_s()))

    def left_s(self) -> float | None:
        """Estimate the seconds left of this load; None before its first request and at its end."""
        if not 0 < self._done < self._total:
            return None
        return (self._spending.seconds - self._began_s) * (self._total - self._done) / self._done

    def line(self) -> str:
        """Return ``c=1: 57 of 492 requests; tokens/s per request: none 92, p-eagle 131, about 4m left``."""
        rates = [
            f"{arm} {tokens / self._seconds[arm]:,.0f}"
            for arm, tokens in self._tokens.items()
            if self._seconds[arm] > 0
        ]
        # Each prompt goes to every arm; a conversation with one arm counts once.
        what = "conversations" if self._turns else "requests"
        line = f"{self._load.label}: {self._done} of {self._total} {what}"
        line += f"; tokens/s per request: {', '.join(rates)}" if rates else ""
        line += f"; {self._failed} failed" if self._failed else ""
        left = self.left_s()
        return line if left is None else f"{line}, about {elapsed(left)} left"


@dataclass(frozen=True)
class CompareDependencies:
    """Services that a comparison depends on; tests replace them.

    ``look`` returns the present state of an arm that stopped answering, in words; None if unknown.
    ``drafts_of`` returns whether an arm's engine drafts, by its own counters; None if they cannot be read.
    ``demand`` gets the endpoints of a deployment before anything is sent to them, and may refuse them.
    """

    progress: Progress
    target_of: Callable[[ArmRecord], Target]
    look: Callable[[ArmRecord], str | None]
    provenance: Callable[[], dict[str, Any]]
    drafts_of: Callable[[ArmRecord], bool | None] = lambda arm: None
    demand: Callable[[Sequence[Described]], None] = lambda described: None
    measure: Any = measure_point
    run: Callable[..., None] = run_quietly
    connect: Connect = open_sender
    clock: Callable[[], float] = time.perf_counter
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    token: Callable[[], str] = lambda: secrets.token_hex(4)
    timeouts: Timeouts = field(default_factory=Timeouts)
    every_s: float = 0.5  #: seconds between two lines of progress

    @classmethod
    def of(
        cls, session: Session | None, progress: Progress, *, seed: int, every_s: float = 0.5
    ) -> CompareDependencies:
        """Return the real services for arms of this session (None: bare servers only)."""

        def drafts_of(arm: ArmRecord) -> bool | None:
            # The mode of a SageMaker endpoint is read from its model; that of a URL is only the user's label.
            source = engine_source(session, arm) if arm.transport == "http" else None
            return source.drafts if source is not None else None

        return cls(
            progress=progress,
            target_of=lambda arm: make_target(session, arm),
            look=lambda arm: look_at(session, arm),
            drafts_of=drafts_of,
            provenance=lambda: origin(seed),
            every_s=every_s,
        )


def compare(
    rounds: Sequence[Round],
    setup: Setup,
    workload: Workload,
    path: Path,
    dependencies: CompareDependencies,
    *,
    control: bool = True,
    config: Mapping[str, Any] | None = None,
) -> Outcome:
    """Measure every round's arms in turns, and compare them; ``control`` adds an A/A pair.

    If it ends early, the complete data so far are compared and written, and the endpoints of the round are
    deleted before this returns.

    Raises:
        SpecError: the setup, the file, a context or a mode does not fit.
        Interrupted: Ctrl-C; the message says what was saved.
        ServiceFault: an endpoint stopped answering; the message says what was saved.
        PeagleError: a deployment failed (nothing billable remains, or BillableLeft names it).
    """
    setup.check()
    with ResultWriter(path) as writer:
        run = _Run(setup, workload, writer, dependencies, control, dict(config or {}))
        ended = run.all_rounds(rounds)
        run.conclude()
    if ended is not None:
        saved = f"{run.comparisons} comparisons of the complete data" if run.begun else None
        raise with_saved(ended, path, saved, f"peagle-sm report {path}", run.look)
    results = read(path)
    notes = notes_of(results.arms, results.requests, results.points, results.comparisons)
    return Outcome(path, results, (*workload.notes, *_repeated(setup), *run.contest.notes, *notes))


def _repeated(setup: Setup) -> list[str]:
    if not setup.repeat:
        return []
    return [
        f"the {len(setup.items)} prompts were sent more than once, each time without prefix cache hits;"
        " the intervals count each prompt once"
    ]


def settings_of_run(setup: Setup, workload: Workload) -> dict[str, Any]:
    """Return what the header of a results file says of the requests and loads."""
    return {
        "workload": workload.describe(),
        "requests_sha256": requests_sha256(setup.items),
        "loads": [load.label for load in setup.loads],
        "blocks": setup.blocks,
        "repeat": setup.repeat,
    }


class _Run:
    def __init__(
        self,
        setup: Setup,
        workload: Workload,
        writer: ResultWriter,
        dependencies: CompareDependencies,
        control: bool,
        config: dict[str, Any],
    ) -> None:
        self._setup, self._workload, self._writer = setup, workload, writer
        self._dependencies, self._control, self._config = dependencies, control, config
        self._salt = dependencies.token()
        self._began = dependencies.clock()
        self._watch = self._watch_at(None)
        self._by_side: list[list[ArmRecord]] = []
        self.begun = False
        self.comparisons = 0
        self.contest = Contest(
            setup,
            writer,
            self._salt,
            self._context,
            run=dependencies.run,
            on_load=lambda *load: self._watch.begin(*load),
            on_end=lambda: self._watch.end(),
        )

    def _watch_at(self, usd_per_hour: float | None) -> Watch:
        spending = Spending(usd_per_hour, self._dependencies.clock)
        return Watch(self._dependencies.progress, spending, every_s=self._dependencies.every_s)

    def _context(self, on_run: OnRun) -> TurnContext:
        given = self._dependencies
        return TurnContext(given.timeouts, self._began, self._watch, on_run, given.clock, given.connect)

    def all_rounds(self, rounds: Sequence[Round]) -> BaseException | None:
        """Measure each round; return the error that ended it early."""
        try:
            for number, each in enumerate(rounds):
                with each as described:
                    self._one_round(number, described)
        except (KeyboardInterrupt, PeagleError) as error:
            return error
        return None

    def _one_round(self, number: int, described: Sequence[Described]) -> None:
        self._dependencies.demand(described)
        described = [self._probed(endpoint, number) for endpoint in described]
        if not self.begun:
            self._writer.append(self._header(described))
            self.begun = True
        if number == 0:
            self._by_side = [[] for _ in described]
        for place, endpoint in zip(self._by_side, described, strict=True):
            place.append(endpoint.arm)
        prices = [endpoint.arm.usd_per_hour for endpoint in described]
        self._watch = self._watch_at(sum(price or 0.0 for price in prices))
        arms = [side.arms[number] for side in self._sides()]
        self._dependencies.progress(Event("check", f"measuring {', '.join(arm.name for arm in arms)}"))
        self.contest.measure(number, arms, self._dependencies.target_of)

    def _probed(self, endpoint: Described, number: int) -> Described:
        arm, given = endpoint.arm, self._dependencies
        return probed(
            given.target_of(arm),
            self._workload,
            endpoint,
            f"{self._salt}/{number}/{arm.name}",
            given.measure,
            drafts_of=lambda: given.drafts_of(arm),
            expected=None if arm.mode == "unknown" else arm.mode,
        )

    def _sides(self) -> list[ArmDeployments]:
        sides = in_order([ArmDeployments(tuple(arms)) for arms in self._by_side])
        return [*sides, control_of(sides[0])] if self._control else sides

    def conclude(self) -> None:
        """Compare the complete data."""
        if self.begun:
            self.comparisons = len(self.contest.conclude(self._sides()))

    def _header(self, described: Sequence[Described]) -> Header:
        setup, moment = self._setup, self._dependencies.now()
        return Header(
            run_id=f"compare-{moment:%Y%m%dT%H%M%SZ}-{self._salt}",
            command="compare",
            config={
                **self._config,
                **settings_of_run(setup, self._workload),
                "control": self._control,
            },
            provenance={
                **self._dependencies.provenance(),
                "endpoints": {endpoint.arm.name: dict(endpoint.origin) for endpoint in described},
                "timeouts": asdict(self._dependencies.timeouts),
            },
            **targets_of(endpoint.target for endpoint in described),
        )

    def look(self, message: str) -> str | None:
        """Describe the present state of the arm that a message begins with."""
        for arm in (arm for place in self._by_side for arm in place):
            if message.startswith((f"{arm.name}:", f"{arm.name}{CONTROL}:")):
                return self._dependencies.look(arm)
        return None


def with_saved(
    ended: BaseException,
    path: Path,
    saved: str | None,
    next_step: str,
    look: Callable[[str], str | None] = lambda message: None,
) -> BaseException:
    """Add to the error that ended a run what was saved in ``path``; None: nothing was measured.

    ``look`` describes the present state of the arm that a message begins with.
    """
    if saved is None:
        if isinstance(ended, KeyboardInterrupt):
            return Interrupted("Interrupted: nothing was measured.")
        if isinstance(ended, Interrupted):
            ended.message = f"{ended.message.rstrip('.')}; nothing was measured."
        return ended
    saved = f"saved in {path}: {saved}"
    if isinstance(ended, KeyboardInterrupt):
        return Interrupted(f"Interrupted; {saved}", next_step=next_step, details={"file": str(path)})
    if isinstance(ended, Interrupted):  # raised by the deployments; its message says what was deleted
        step = "; ".join(each for each in (ended.next_step, next_step) if each)
        details = {**ended.details, "file": str(path)}
        return Interrupted(f"{ended.message}; {saved}", next_step=step, details=details)
    if isinstance(ended, LoadStopped):
        why = look(ended.message)
        return ServiceFault(
            f"{ended.message}" + (f"; {why}" if why else "") + f"; {saved}",
            operation="compare",
            code="EndpointStopped",
            next_step=next_step,
            details={"file": str(path)},
        )
    if isinstance(ended, PeagleError):
        ended.message = f"{ended.message} ({saved})"
        ended.details["file"] = str(path)
    return ended
