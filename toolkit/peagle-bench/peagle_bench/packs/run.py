"""Measurement of workload packs: each pack's requests to every arm in turns, then its judge.

One results file has the requests of all packs (without their texts) and a record for each pack and arm. A
pack that cannot be measured does not stop the others. If the run ends early, the finished packs are kept.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from peagle_bench.benchmark.endpoint_arm import Described, targets_of
from peagle_bench.benchmark.plan import probed
from peagle_bench.benchmark.progress import Spending
from peagle_bench.compare.alternating import Contender, TurnContext, by_prompt, warming
from peagle_bench.compare.analysis import Measured
from peagle_bench.compare.deployments import Round
from peagle_bench.compare.run import CompareDependencies, Watch, with_saved
from peagle_bench.load import LoadRun, LoadStopped, WorkItem
from peagle_bench.packs.identity import MOST_ASKED, judge_same
from peagle_bench.packs.judges import judge_failed
from peagle_bench.packs.pack import (
    Judgement,
    Make,
    Observed,
    Pack,
    PackNotMeasured,
    PackWork,
    Probe,
    ServedModel,
    not_measured,
    pack_record,
)
from peagle_bench.packs.texts import tokens_a_character
from peagle_bench.results.records import (
    ArmRecord,
    Header,
    Load,
    PackRecord,
    RequestRecord,
)
from peagle_bench.results.result_file import Outcome, ResultWriter, read
from peagle_bench.verify.engines import Engine, EnginePair, Options, SideFailed, TokenPrompt
from peagle_bench.verify.probes import context_of
from peagle_bench.verify.statistics import counted
from peagle_bench.workloads import Workload, size_of
from peagle_sm.core.errors import PeagleError, ServiceFault, SpecError
from peagle_sm.service.progress import Event

ALONE = Load("closed", concurrency=1)
_LONGEST = 131_072  #: tokens of a prompt that asks for the context length, where nothing else says it


@dataclass(frozen=True)
class PackOptions:
    """Size of all packs: ``units`` of each (None: its own number), and the longest ``context`` in tokens.

    Of the answers that differ, ``asked_again`` are asked for again and scored.
    """

    seed: int = 0
    units: int | None = None
    context: int | None = None
    asked_again: int = MOST_ASKED


@dataclass(frozen=True)
class PackDependencies:
    """Services that packs depend on besides those of a comparison; tests replace them."""

    turns: CompareDependencies
    engine_of: Callable[[ArmRecord], Engine]
    metrics_of: Callable[[ArmRecord], Callable[[], str] | None] = lambda arm: None


def model_of(described: Described, engine: Engine, most: int | None) -> ServedModel:
    """Describe the served model to packs; ``most`` limits the context.

    Raises:
        ServiceFault: the engine failed, or does not report its context length or token ids.
    """
    pair = EnginePair(engine, engine, Options(longest_tokens=_LONGEST, concurrency=1))

    def ids_of(body: Mapping[str, Any]) -> tuple[int, ...]:
        try:
            (prompt,) = pair.prompts([("prompt", body)])
        except SideFailed as failed:
            raise failed.error from failed
        return prompt.ids

    context = described.context or context_of(pair, TokenPrompt("context", ids_of({"prompt": "a b c"})))
    if context is None:
        raise ServiceFault(
            f"{described.arm.name} does not report its context length",
            operation="packs",
            next_step="give the longest prompts that you send, with --context TOKENS",
        )
    served = min(context, most or context)
    # A context that was only tried, and not refused, is not the limit.
    limit = None if described.context is None and context > _LONGEST else context
    return ServedModel(served, described.target.stand_in, ids_of, limit)


def demand_context(pack: Pack, model: ServedModel) -> None:
    """Refuse a context that is too short for a pack.

    Raises:
        PackNotMeasured: it is.
    """
    if model.context < pack.least_context:
        raise PackNotMeasured(
            f"needs a context of {pack.least_context:,} tokens; this one has {model.context:,}",
            next_step="give a larger --context, or deploy with a larger serving.max_model_len",
        )


def demand_baseline(arms: Sequence[ArmRecord]) -> None:
    """Refuse arms of which none is known to run without speculation.

    Raises:
        SpecError: so it is; every pack compares with such an arm.
    """
    if any(arm.mode == "none" for arm in arms):
        return
    modes = ", ".join(f"{arm.name} (mode {arm.mode})" for arm in arms)
    unknown = [_argument(arm) for arm in arms if arm.mode == "unknown"]
    example = f"none={unknown[0]}" if len(unknown) == 1 else "none=NAME"
    raise SpecError(
        f"packs compare with an endpoint without speculation, and no arm is known to be one: {modes}",
        next_step=f"name an endpoint that does not speculate, as {example}",
        details={"modes": {arm.name: arm.mode for arm in arms}},
    )


def _argument(arm: ArmRecord) -> str:
    own = arm.component in (None, arm.endpoint)
    return arm.endpoint if own else f"{arm.endpoint}/{arm.component}"


def size_of_run(works: Sequence[PackWork | PackNotMeasured], model: ServedModel) -> str:
    """Say how much the packs send to each arm; tokens are estimated from the characters."""
    requests, tokens, rate = 0, 0.0, tokens_a_character(model)
    for work in works:
        for item in work.items if isinstance(work, PackWork) else ():
            turn: WorkItem | None = item
            while turn is not None:
                requests += 1
                tokens += size_of(turn) * (1 if isinstance(turn.body.get("prompt"), list) else rate)
                turn = turn.then("") if turn.then is not None else None
    return f"to each arm at least {counted(requests, 'request')} with about {tokens:,.0f} prompt tokens"


def run_packs(
    rounds: Sequence[Round],
    packs: Sequence[Pack],
    path: Path,
    options: PackOptions,
    around: PackDependencies,
    *,
    config: Mapping[str, Any] | None = None,
) -> Outcome:
    """Measure every pack on the arms of every round.

    Raises:
        SpecError: the file exists, no arm is a baseline, or an arm runs another mode than it says.
        Interrupted: Ctrl-C; the message says what was saved.
        ServiceFault: an endpoint stopped answering; the message says what was saved.
    """
    with ResultWriter(path) as writer:
        run = _Run(packs, writer, options, around, dict(config or {}))
        try:
            for number, each in enumerate(rounds):
                with each as described:
                    run.one_round(number, described)
        except (KeyboardInterrupt, PeagleError) as error:
            raise run.with_saved(error) from error
    results = read(path)
    return Outcome(path, results, tuple(dict.fromkeys(note for pack in results.packs for note in pack.notes)))


@dataclass
class _Run:
    packs: Sequence[Pack]
    writer: ResultWriter
    options: PackOptions
    around: PackDependencies
    config: dict[str, Any]
    finished: int = 0
    begun: bool = False
    salt: str = field(default_factory=lambda: secrets.token_hex(4))

    def __post_init__(self) -> None:
        self.turns = self.around.turns
        self.began = self.turns.clock()

    def one_round(self, number: int, described: Sequence[Described]) -> None:
        arms = [endpoint.arm for endpoint in described]
        demand_baseline(arms)
        if not self.begun:
            self.writer.append(self._header(described))
            self.begun = True
        for arm in arms:
            self.writer.append(arm)
        prices = [arm.usd_per_hour or 0.0 for arm in arms]
        self.spending = Spending(sum(prices), self.turns.clock)
        first = next(endpoint for endpoint in described if endpoint.arm.mode == "none")
        self._progress(f"measuring {', '.join(arm.name for arm in arms)}")
        model = model_of(first, self.around.engine_of(first.arm), self.options.context)
        settings = Make(model, self.options.seed, self.options.units)
        works = [self._work(pack, settings) for pack in self.packs]
        if any(isinstance(work, PackWork) for work in works):
            self._progress(size_of_run(works, model))
        checked: set[str] = set()
        for place, (pack, work) in enumerate(zip(self.packs, works, strict=True), start=1):
            self._progress(f"pack {pack.name}, {place} of {len(self.packs)}")
            self._one(pack, work, settings, described, f"{self.salt}/{number}/{pack.name}", checked)

    def _work(self, pack: Pack, settings: Make) -> PackWork | PackNotMeasured:
        """Return a pack's requests, or why it has none here."""
        try:
            demand_context(pack, settings.model)
            return pack.make(settings)
        except PackNotMeasured as reason:
            return reason

    def _one(
        self,
        pack: Pack,
        work: PackWork | PackNotMeasured,
        settings: Make,
        described: Sequence[Described],
        salt: str,
        checked: set[str],
    ) -> None:
        arms = [endpoint.arm for endpoint in described]
        baseline = next(arm for arm in arms if arm.mode == "none")
        judged = [arm for arm in arms if arm is not baseline]
        if isinstance(work, PackNotMeasured):
            for arm in judged:
                self._append(not_measured(pack.name, arm, baseline, work, seed=self.options.seed))
            return
        began = self.turns.clock()
        measured = self._measured(work, described, salt, checked) if work.items else Measured(ALONE)
        for arm in judged:
            observed = self._observed(pack, work, measured, arm, baseline, settings.model.limit)
            try:
                judgement = self._judgement(pack, observed, settings)
            except PackNotMeasured as reason:
                self._append(not_measured(pack.name, arm, baseline, reason, seed=self.options.seed))
                continue
            seconds = self.turns.clock() - began
            record = pack_record(pack, observed, judgement, seed=self.options.seed, seconds=round(seconds, 3))
            self._append(record)

    def _measured(
        self, work: PackWork, described: Sequence[Described], salt: str, checked: set[str]
    ) -> Measured:
        """Send a pack's requests to every arm in turns; requests are written without their texts."""
        measured = Measured(ALONE)

        def on_run(run: LoadRun) -> None:
            measured.take(run)
            for record in run.records:
                self.writer.append(replace(record, text=None))

        for endpoint in described:
            self._check_mode(endpoint, work, salt, checked)
        watch = Watch(self.turns.progress, self.spending, every_s=self.turns.every_s)
        watch.begin(ALONE, len(work.items) * len(described))
        context = TurnContext(
            self.turns.timeouts,
            self.began,
            watch,
            on_run,
            self.turns.clock,
            self.turns.connect,
            keep_text=True,
        )
        contenders = [
            Contender(self.turns.target_of(endpoint.arm), f"{salt}/{endpoint.arm.name}/")
            for endpoint in described
        ]
        warm_up = [warming(work.items[0])]  # the shortest: a long one would cost as much as a unit
        try:
            self.turns.run(partial(by_prompt, contenders, ALONE, work.items, warm_up, context))
        except LoadStopped as stopped:
            for endpoint in described:
                self._demand_alive(endpoint.arm, stopped)
        watch.end()
        return measured

    def _check_mode(self, endpoint: Described, work: PackWork, salt: str, checked: set[str]) -> None:
        """Check once that the engine drafts as its mode says: by a request of the first pack with prompts."""
        if endpoint.arm.name in checked:
            return
        checked.add(endpoint.arm.name)
        first = Workload("", work.items[:1], None, None, "", 1)
        probed(
            self.turns.target_of(endpoint.arm),
            first,
            endpoint,
            f"{salt}/{endpoint.arm.name}",
            self.turns.measure,
            drafts_of=lambda: self.turns.drafts_of(endpoint.arm),
            expected=None if endpoint.arm.mode == "unknown" else endpoint.arm.mode,
        )

    def _demand_alive(self, arm: ArmRecord, stopped: LoadStopped) -> None:
        """Raise unless the arm still answers: a pack that an arm fails is a result, a dead arm is not."""
        try:
            self.around.engine_of(arm).ask({"prompt": "def f", "max_tokens": 1})
        except PeagleError as error:
            why = self.turns.look(arm)
            raise ServiceFault(
                f"{stopped.message}; {arm.name} stopped answering" + (f": {why}" if why else ""),
                operation="packs",
                code="EndpointStopped",
                next_step=stopped.next_step,
            ) from error

    def _judgement(self, pack: Pack, observed: Observed, settings: Make) -> Judgement:
        """Let the pack ask the engines itself, and judge; a failure of these requests is a result, too."""
        if pack.probe is None:
            return pack.judge(observed)
        engine = self.around.engine_of(observed.arm)
        plain = self.around.engine_of(observed.baseline)
        own = Probe(engine, plain, observed.work, settings, self.around.metrics_of(observed.arm))
        try:
            probed = pack.probe(own)
        except SideFailed as failed:
            verdict = judge_failed(failed.side == "candidate", str(failed.error))
            return Judgement({"requests of its own": verdict})
        return pack.judge(replace(observed, probed=probed))

    def _observed(
        self,
        pack: Pack,
        work: PackWork,
        measured: Measured,
        arm: ArmRecord,
        baseline: ArmRecord,
        limit: int | None,
    ) -> Observed:
        mine, theirs = _measured_of(measured, arm), _measured_of(measured, baseline)
        identity = None
        if work.items and pack.identity:
            engines = self.around.engine_of(baseline), self.around.engine_of(arm)
            pair = EnginePair(*engines, Options(concurrency=1))
            identity = judge_same(mine, theirs, work.items, pair, limit, self.options.asked_again)
        return Observed(work, arm, mine, baseline, theirs, identity)

    def _append(self, record: PackRecord) -> None:
        self.writer.append(record)
        self.finished += 1
        result = {True: "pass", False: "fail", None: "not measured"}[record.passed]
        self._progress(f"pack {record.pack}, {record.arm}: {result}", "done")

    def _progress(self, message: str, phase: Any = "check") -> None:
        self.turns.progress(Event(phase, message))

    def _header(self, described: Sequence[Described]) -> Header:
        moment = self.turns.now()
        return Header(
            run_id=f"packs-{moment:%Y%m%dT%H%M%SZ}-{self.salt}",
            command="packs",
            config={
                **self.config,
                "packs": [pack.name for pack in self.packs],
                "seed": self.options.seed,
                "units": self.options.units,
                "context": self.options.context,
            },
            provenance={
                **self.turns.provenance(),
                "endpoints": {endpoint.arm.name: dict(endpoint.origin) for endpoint in described},
            },
            **targets_of(endpoint.target for endpoint in described),
        )

    def with_saved(self, ended: BaseException) -> BaseException:
        """Add to the error that ended the run what was saved."""
        path = self.writer.path
        again = f"run the command again with a new --out: no pack was finished, {path} can go"
        next_step = f"peagle-sm report {path}" if self.finished else again
        saved = f"{self.finished} finished rows of the scorecard" if self.begun else None
        return with_saved(ended, path, saved, next_step)


def _measured_of(measured: Measured, arm: ArmRecord) -> tuple[RequestRecord, ...]:
    return tuple(request for request in measured.requests(arm.name) if request.phase == "measured")
