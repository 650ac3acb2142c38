"""`compare`: deployment after deployment, every request written as it ends, and the ratios of complete data.

Progress shows how far the comparison is and how fast each arm has been so far. The notes tell the reader what
the ratios alone do not show: failed controls, failed requests, different answers, a single deployment.
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

from peagle_sm.core.errors import Interrupted, PeagleError, ServiceFault
from peagle_sm.measure.benchmark.endpoint_arm import Described
from peagle_sm.measure.benchmark.plan import check_evidence, probe
from peagle_sm.measure.benchmark.progress import Spending
from peagle_sm.measure.compare.alternating import Took, Way
from peagle_sm.measure.compare.analysis import CONTROL, Side, control_of, in_order
from peagle_sm.measure.compare.deployments import Round
from peagle_sm.measure.compare.measurement import Contest, Setup
from peagle_sm.measure.load import LoadStopped, Target, Timeouts, measure_point
from peagle_sm.measure.load.http_client import open_sender
from peagle_sm.measure.load.points import doubt_lines, separate_withheld, withheld_lines
from peagle_sm.measure.load.run import Connect, run_quietly
from peagle_sm.measure.results.records import (
    ArmRecord,
    ComparisonRecord,
    Header,
    Load,
    Phase,
    PointRecord,
    RequestRecord,
)
from peagle_sm.measure.results.result_file import Results, ResultWriter, read
from peagle_sm.measure.workloads import Workload
from peagle_sm.service.progress import Event, Progress


def notes_of(
    arms: Sequence[ArmRecord],
    requests: Sequence[RequestRecord],
    points: Sequence[PointRecord],
    comparisons: Sequence[ComparisonRecord],
) -> list[str]:
    """Each said once; the gravest first. Of a comparison that is withheld nothing is told."""
    comparisons = separate_withheld(points, comparisons).comparisons
    said = [
        *_failed_controls(comparisons),
        *withheld_lines(points),
        *doubt_lines(points),
        *_failed_requests(requests),
        *_silent_drafts(arms, points),
        *_different_answers(comparisons),
        *_one_deployment(comparisons),
    ]
    return list(dict.fromkeys(said))


def _failed_controls(comparisons: Sequence[ComparisonRecord]) -> Iterator[str]:
    for one in comparisons:
        if one.control and one.ratio.shown:
            yield (
                f"{one.load.label}: {one.slower} beside itself came out as {one.ratio.value:.3f} "
                f"[{one.ratio.low:.3f}, {one.ratio.high:.3f}], which excludes 1: something else than the "
                "arms made a difference (by chance this happens in 1 of 20 runs); measure again before you "
                "believe the other ratios"
            )


def _failed_requests(requests: Sequence[RequestRecord]) -> Iterator[str]:
    by_arm: dict[str, list[RequestRecord]] = {}
    for record in requests:
        if record.phase == "measured" and record.error is not None:
            by_arm.setdefault(record.arm, []).append(record)
    for arm, failed in by_arm.items():
        prompts = len({record.prompt_id for record in failed})
        yield (
            f"{arm}: {len(failed)} requests failed, and their {prompts} prompts count for no arm; the first: "
            f"{failed[0].error}: {failed[0].error_message}"
        )


def _silent_drafts(arms: Sequence[ArmRecord], points: Sequence[PointRecord]) -> Iterator[str]:
    for arm in arms:
        own = [point for point in points if point.arm == arm.name]
        if arm.mode in ("eagle3", "p-eagle") and own and not any(point.acceptance for point in own):
            yield (
                f"{arm.name}: no answer tells of its drafts, so its ratio is not split; per-request "
                "acceptance needs vLLM 0.32 or later and SM_VLLM_PER_REQUEST_SPEC_DECODE_METRICS=summary"
            )


def _different_answers(comparisons: Sequence[ComparisonRecord]) -> Iterator[str]:
    for one in comparisons:
        same, both = one.identical_outputs, one.compared_outputs
        if same is not None and both is not None and same < both:
            yield (
                f"{one.load.label}: {one.faster} and {one.slower} answered {both - same} of {both} prompts "
                + (
                    "differently although they are the same endpoint: rounding depends on what else is in "
                    "the batch"
                    if one.faster.endswith(CONTROL)
                    else "differently; `peagle-sm verify` tells ties of rounding from faults"
                )
            )


def _one_deployment(comparisons: Sequence[ComparisonRecord]) -> Iterator[str]:
    if any(one.deployments == 1 and not one.control for one in comparisons):
        yield (
            "this deployment only: the intervals say nothing of the next one, which may lie some percent "
            "off; several deployments of each arm do (--deployments with --modes, or ARM,ARM)"
        )


class Watch:
    """The observer of all turns of a comparison; the rates are those that a single request sees."""

    def __init__(self, progress: Progress, spending: Spending, *, every_s: float = 0.5) -> None:
        self._progress = progress
        self._spending = spending
        self._every_s = every_s
        self._told_s = float("-inf")
        self.begin(Load("closed", concurrency=1), 0)

    def begin(self, load: Load, total: int) -> None:
        """Another load, or the same in another deployment, of ``total`` measured prompts of all arms."""
        self._load, self._total = load, total
        self._done = self._failed = 0
        self._turns = False
        self._tokens: dict[str, int] = defaultdict(int)
        self._seconds: dict[str, float] = defaultdict(float)

    def end(self) -> None:
        """The load is over."""
        seconds = self._spending.seconds
        self._progress(Event("done", self.line(), self._load.label, seconds, self._spending.usd))

    def phase(self, phase: Phase) -> None:
        """Turns begin and end too often to be told."""

    def request(self, record: RequestRecord) -> None:
        """A request has ended."""
        if record.phase == "measured" and not record.prompt_id.endswith("#warm-up"):
            self._done += record.turn == 0
            self._turns |= record.turn > 0
            self._failed += record.error is not None
            self._tokens[record.arm] += record.output_tokens or 0
            self._seconds[record.arm] += record.done_s - record.sent_s
        if self._spending.seconds - self._told_s >= self._every_s:
            self._told_s = self._spending.seconds
            self._progress(Event("waiting", self.line(), self._load.label, self._told_s, self._spending.usd))

    def line(self) -> str:
        """``c=1: 57 of 492 requests; tokens/s a request: none 92, p-eagle 131``."""
        rates = [
            f"{arm} {tokens / self._seconds[arm]:,.0f}"
            for arm, tokens in self._tokens.items()
            if self._seconds[arm] > 0
        ]
        # Each prompt goes to every arm; of a conversation, each with an arm counts once.
        what = "conversations" if self._turns else "requests"
        told = f"{self._load.label}: {self._done} of {self._total} {what}"
        told += f"; tokens/s a request: {', '.join(rates)}" if rates else ""
        return told + (f"; {self._failed} failed" if self._failed else "")


@dataclass(frozen=True)
class Around:
    """The outside world of a comparison, all of it replaceable.

    ``look``: how an arm that stopped answering looks now, in words; None where nothing is known.
    ``drafts_of``: whether an arm's engine drafts, by its own counters; None where they cannot be read.
    """

    progress: Progress
    target_of: Callable[[ArmRecord], Target]
    look: Callable[[ArmRecord], str | None]
    provenance: Callable[[], dict[str, Any]]
    drafts_of: Callable[[ArmRecord], bool | None] = lambda arm: None
    measure: Any = measure_point
    run: Callable[..., None] = run_quietly
    connect: Connect = open_sender
    clock: Callable[[], float] = time.perf_counter
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    token: Callable[[], str] = lambda: secrets.token_hex(4)
    timeouts: Timeouts = field(default_factory=Timeouts)
    every_s: float = 0.5  #: between two lines of progress


@dataclass(frozen=True)
class Outcome:
    """The file, what it holds, and what a reader of the ratios must know."""

    path: Path
    results: Results
    notes: tuple[str, ...]
    arms: tuple[str, ...] = ()


def compare(
    rounds: Sequence[Round],
    setup: Setup,
    workload: Workload,
    path: Path,
    around: Around,
    *,
    control: bool = True,
    config: Mapping[str, Any] | None = None,
) -> Outcome:
    """Measure every round's arms in turns, and compare them; ``control`` asks the first of them twice.

    Whatever ends it early, what was whole by then is compared and written, and the endpoints of a round are
    gone before this returns.

    Raises:
        SpecError: the setup, the file, a context or a mode does not fit.
        Interrupted: Ctrl-C; the message says what was saved.
        ServiceFault: an endpoint stopped answering; likewise.
        PeagleError: whatever a deployment may say (nothing billable is left, or BillableLeft names it).
    """
    setup.check()
    with ResultWriter(path) as writer:
        run = _Run(setup, workload, writer, around, control, dict(config or {}))
        ended = run.all_rounds(rounds)
        run.conclude()
    if ended is not None:
        raise _told(ended, run, path)
    results = read(path)
    notes = notes_of(results.arms, results.requests, results.points, results.comparisons)
    return Outcome(path, results, (*workload.notes, *run.contest.notes, *notes))


class _Run:
    def __init__(
        self,
        setup: Setup,
        workload: Workload,
        writer: ResultWriter,
        around: Around,
        control: bool,
        config: dict[str, Any],
    ) -> None:
        self._setup, self._workload, self._writer = setup, workload, writer
        self._around, self._control, self._config = around, control, config
        self._salt = around.token()
        self._began = around.clock()
        self._watch = self._watch_at(None)
        self._by_place: list[list[ArmRecord]] = []
        self.begun = False
        self.comparisons = 0
        self.contest = Contest(
            setup,
            writer,
            self._salt,
            self._way,
            run=around.run,
            on_load=lambda *load: self._watch.begin(*load),
            on_end=lambda: self._watch.end(),
        )

    def _watch_at(self, usd_per_hour: float | None) -> Watch:
        spending = Spending(usd_per_hour, self._around.clock)
        return Watch(self._around.progress, spending, every_s=self._around.every_s)

    def _way(self, took: Took) -> Way:
        around = self._around
        return Way(around.timeouts, self._began, self._watch, took, around.clock, around.connect)

    def all_rounds(self, rounds: Sequence[Round]) -> BaseException | None:
        """Measure each; returns what ended it early."""
        try:
            for number, each in enumerate(rounds):
                with each as described:
                    self._one_round(number, described)
        except (KeyboardInterrupt, PeagleError) as error:
            return error
        return None

    def _one_round(self, number: int, described: Sequence[Described]) -> None:
        described = [self._probed(one, number) for one in described]
        if not self.begun:
            self._writer.append(self._header(described))
            self.begun = True
        if number == 0:
            self._by_place = [[] for _ in described]
        for place, one in zip(self._by_place, described, strict=True):
            place.append(one.arm)
        prices = [one.arm.usd_per_hour for one in described]
        self._watch = self._watch_at(sum(price or 0.0 for price in prices))
        arms = [side.arms[number] for side in self._sides()]
        self._around.progress(Event("check", f"measuring {', '.join(arm.name for arm in arms)}"))
        self.contest.measure(number, arms, self._around.target_of)

    def _probed(self, one: Described, number: int) -> Described:
        """Ask once before anything counts: the longest prompt fits, and the engine drafts as it should."""
        target, salt = self._around.target_of(one.arm), f"{self._salt}/{number}/{one.arm.name}"
        evidence = probe(target, self._workload, one, salt, self._around.measure)
        if evidence.tokens is None:
            evidence = replace(evidence, engine_drafts=self._around.drafts_of(one.arm))
        check_evidence(one.arm, evidence, None if one.arm.mode == "unknown" else one.arm.mode)
        if one.arm.num_speculative_tokens is not None or not evidence.tokens:
            return one
        return replace(one, arm=replace(one.arm, num_speculative_tokens=evidence.tokens))

    def _sides(self) -> list[Side]:
        sides = in_order([Side(tuple(arms)) for arms in self._by_place])
        return [*sides, control_of(sides[0])] if self._control else sides

    def conclude(self) -> None:
        """Compare what is there."""
        if self.begun:
            self.comparisons = len(self.contest.conclude(self._sides()))

    def _header(self, described: Sequence[Described]) -> Header:
        setup, moment = self._setup, self._around.now()
        return Header(
            run_id=f"compare-{moment:%Y%m%dT%H%M%SZ}-{self._salt}",
            command="compare",
            config={
                **self._config,
                "workload": self._workload.describe(),
                "loads": [load.label for load in setup.loads],
                "blocks": setup.blocks,
                "repeat": setup.repeat,
                "control": self._control,
            },
            provenance={
                **self._around.provenance(),
                "endpoints": {one.arm.name: dict(one.origin) for one in described},
                "timeouts": asdict(self._around.timeouts),
            },
            stand_in_weights=any(one.stand_in_weights for one in described),
        )

    def look(self, message: str) -> str | None:
        """How the arm that a message begins with looks now."""
        for arm in (arm for place in self._by_place for arm in place):
            if message.startswith((f"{arm.name}:", f"{arm.name}{CONTROL}:")):
                return self._around.look(arm)
        return None


def _told(ended: BaseException, run: _Run, path: Path) -> BaseException:
    """The error that ended a comparison, with what was saved of it."""
    if not run.begun:
        if isinstance(ended, KeyboardInterrupt):
            return Interrupted("Interrupted: nothing was measured.")
        if isinstance(ended, Interrupted):
            ended.message = f"{ended.message.rstrip('.')}; nothing was measured."
        return ended
    saved = f"saved in {path}: {run.comparisons} comparisons of what was whole"
    report = f"peagle-sm report {path}"
    if isinstance(ended, KeyboardInterrupt):
        return Interrupted(f"Interrupted; {saved}", next_step=report, details={"file": str(path)})
    if isinstance(ended, Interrupted):  # by the deployments, which say what became of them
        step = "; ".join(each for each in (ended.next_step, report) if each)
        details = {**ended.details, "file": str(path)}
        return Interrupted(f"{ended.message}; {saved}", next_step=step, details=details)
    if isinstance(ended, LoadStopped):
        why = run.look(ended.message)
        return ServiceFault(
            f"{ended.message}" + (f"; {why}" if why else "") + f"; {saved}",
            operation="compare",
            code="EndpointStopped",
            next_step=report,
            details={"file": str(path)},
        )
    if isinstance(ended, PeagleError):
        ended.message = f"{ended.message} ({saved})"
        ended.details["file"] = str(path)
    return ended
