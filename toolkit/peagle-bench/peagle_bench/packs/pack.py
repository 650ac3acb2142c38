"""What a workload pack is: its prompts, what a pass means, its judge, and the fault that it must find.

A pack is a `Pack`. `make` returns its requests for a model, `judge` decides from what was observed. What the
load client cannot show (a cancelled request, the events of a stream) a pack asks for itself in `probe`.
Everything but `probe` is pure. `peagle_bench.packs.run` sends the requests and calls the judge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from peagle_bench.load import WorkItem
from peagle_bench.results.records import ArmRecord, ComparisonRecord, PackRecord, RequestRecord
from peagle_bench.verify.engines import Engine
from peagle_bench.verify.statistics import MOST_EXAMPLES, CheckVerdict

ALPHA = 0.01  #: chance that the tests of one pack, all together, fail an arm that has no fault
PREFIX = "pack:"  #: of a pack's name in --workload


class PackNotMeasured(Exception):
    """A pack cannot be measured here; the row of the scorecard says why and what to do.

    ``data``: its data is missing.
    """

    def __init__(self, why: str, *, next_step: str, data: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.next_step = next_step
        self.data = data


@dataclass(frozen=True)
class ServedModel:
    """What a pack needs to know of the served model; all arms of a run serve the same one.

    ``context`` is in tokens, prompt and answer together, and at most ``limit``, which is the model's own
    (None: not known). ``tokenize`` asks the baseline's tokenizer.
    ``stand_in``: the small model of the local SageMaker, which only continues code. ``render`` asks the
    baseline for the token ids of a chat's prompt; None before an endpoint exists.
    """

    context: int
    stand_in: bool
    tokenize: Callable[[str], Sequence[int]]
    render: Callable[[Mapping[str, Any]], Sequence[int]] | None = None
    limit: int | None = None


@dataclass(frozen=True)
class PackWork:
    """Requests of a pack in the order in which each arm gets them, and their source.

    The prompt ids are ``UNIT/PART``: intervals are over units, a judge compares parts. ``facts`` are the
    pack's own, most of them by prompt id. ``notes`` are for the reader of the scorecard, for example on a
    smaller context.
    """

    items: tuple[WorkItem, ...]
    source: str
    license: str
    notes: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Make:
    """What decides a pack's requests: the model, a seed, and the number of units (None: the pack's own).

    ``file`` is data that the user prepared, for packs whose data may not ship.
    """

    model: ServedModel
    seed: int = 0
    units: int | None = None
    file: str | None = None


@dataclass(frozen=True)
class Probe:
    """Engines that a pack may ask itself; ``metrics`` reads the arm's metrics route, None if it cannot."""

    engine: Engine
    baseline: Engine | None
    work: PackWork
    make: Make
    metrics: Callable[[], str] | None = None


@dataclass(frozen=True)
class Observed:
    """What was observed of an arm, and of the baseline beside it; one request at a time.

    ``identity`` is the verdict on the answers that differ from the baseline's, None without a baseline.
    ``comparison`` is the arm's speed over the baseline's, over prompts, at a confidence of 1 - alpha.
    ``probed`` is what the pack's ``probe`` returned.
    """

    work: PackWork
    arm: ArmRecord
    requests: tuple[RequestRecord, ...]
    baseline: ArmRecord | None = None
    baseline_requests: tuple[RequestRecord, ...] = ()
    identity: CheckVerdict | None = None
    comparison: ComparisonRecord | None = None
    probed: Any = None
    alpha: float = ALPHA


@dataclass(frozen=True)
class Judgement:
    """A judge's verdicts by the name of the check; ``figure`` is the pack's figure in a few words."""

    checks: Mapping[str, CheckVerdict]
    figure: str = ""


@dataclass(frozen=True)
class Pack:
    """A workload pack; the texts are shown by `peagle-sm packs` and on the page of the packs."""

    name: str
    shows: str
    passes: str  #: what a pass means
    finds: str  #: the fault that it must find
    needs: tuple[str, ...]
    data: str  #: where the prompts come from, and their licence
    stand_ins: str  #: what its figures on the small stand-in weights mean
    make: Callable[[Make], PackWork]
    judge: Callable[[Observed], Judgement]
    probe: Callable[[Probe], Any] | None = None
    least_context: int = 256  #: tokens
    takes_file: bool = False  #: whether its data can be given with --workload-file
    identity: bool = True  #: whether its judge demands the target's own answers
    alone: bool = True  #: whether an arm can be judged without a baseline


def pack_record(
    pack: Pack, observed: Observed, judged: Judgement, *, seed: int, seconds: float = 0.0
) -> PackRecord:
    """Make the row of the scorecard: failed if a check failed, passed if all applicable ones passed."""
    checks = dict(judged.checks)
    applicable = {name: one for name, one in checks.items() if one.applicable}
    results = [one.passed for one in applicable.values()]
    passed = False if False in results else None if None in results or not results else True
    wanted = {False: False, None: None, True: True}[passed]
    reasons = [f"{name}: {one.summary}" for name, one in applicable.items() if one.passed is wanted]
    baseline = observed.baseline.name if observed.baseline else None
    return PackRecord(
        pack=pack.name,
        arm=observed.arm.name,
        baseline=baseline,
        passed=passed,
        figure=judged.figure,
        why="; ".join(reasons) or "; ".join(one.summary for one in checks.values()),
        checks=tuple(
            one.record(name, observed.arm.name, baseline or observed.arm.name) for name, one in checks.items()
        ),
        notes=observed.work.notes,
        requests=sum(one.phase == "measured" for one in observed.requests),
        seconds=seconds,
        seed=seed,
        examples=tuple(
            example for one in applicable.values() if one.passed is False for example in one.examples
        )[:MOST_EXAMPLES],
    )


def not_measured(
    pack: str, arm: ArmRecord, baseline: ArmRecord | None, reason: PackNotMeasured, *, seed: int
) -> PackRecord:
    """Make the row of a pack that could not be measured."""
    return PackRecord(
        pack=pack,
        arm=arm.name,
        baseline=baseline.name if baseline else None,
        passed=None,
        figure="",
        why=f"{reason.why}; {reason.next_step}",
        seed=seed,
    )
