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
from peagle_bench.packs.judges import judge_answered
from peagle_bench.results.records import ArmRecord, PackRecord, RequestRecord, all_passed
from peagle_bench.verify.engines import Engine
from peagle_bench.verify.statistics import MOST_EXAMPLES, CheckVerdict

ALPHA = 0.01  #: chance that the tests of one pack, all together, fail an arm that has no fault


class PackNotMeasured(Exception):
    """A pack cannot be measured here; the row of the scorecard says why and what to do."""

    def __init__(self, why: str, *, next_step: str) -> None:
        super().__init__(why)
        self.why = why
        self.next_step = next_step


@dataclass(frozen=True)
class ServedModel:
    """What a pack needs to know of the served model; all arms of a run serve the same one.

    ``context`` is in tokens, prompt and answer together, and at most ``limit``, which is the model's own
    (None: not known). ``ids_of`` returns the token ids of a request's prompt, by the baseline's chat template
    and tokenizer. ``stand_in``: the tests' small model, which only continues code.
    """

    context: int
    stand_in: bool
    ids_of: Callable[[Mapping[str, Any]], Sequence[int]]
    limit: int | None = None

    def tokenize(self, text: str) -> Sequence[int]:
        """Return the token ids of a text, without a chat template."""
        return self.ids_of({"prompt": text})


@dataclass(frozen=True)
class PackWork:
    """Requests of a pack in the order in which each arm gets them.

    The prompt ids are ``UNIT/PART``: intervals are over units, a judge compares parts. ``facts`` are the
    pack's own, most of them by prompt id. ``notes`` are for the reader of the scorecard, for example on a
    smaller context.
    """

    items: tuple[WorkItem, ...]
    notes: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Make:
    """What decides a pack's requests: the model, a seed, and the number of units (None: the pack's own)."""

    model: ServedModel
    seed: int = 0
    units: int | None = None


@dataclass(frozen=True)
class Probe:
    """Engines that a pack may ask itself; ``metrics`` reads the arm's metrics route, None if it cannot."""

    engine: Engine
    baseline: Engine
    work: PackWork
    make: Make
    metrics: Callable[[], str] | None = None


@dataclass(frozen=True)
class Observed:
    """What was observed of an arm, and of the baseline beside it; one request at a time.

    ``identity`` is the verdict on the answers that differ from the baseline's, None if the pack needs none.
    ``probed`` is what the pack's ``probe`` returned.
    """

    work: PackWork
    arm: ArmRecord
    requests: tuple[RequestRecord, ...]
    baseline: ArmRecord
    baseline_requests: tuple[RequestRecord, ...]
    identity: CheckVerdict | None = None
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
    make: Callable[[Make], PackWork]
    judge: Callable[[Observed], Judgement]
    probe: Callable[[Probe], Any] | None = None
    least_context: int = 256  #: tokens
    identity: bool = True  #: whether its judge demands the target's own answers


def pack_record(
    pack: Pack, observed: Observed, judged: Judgement, *, seed: int, seconds: float = 0.0
) -> PackRecord:
    """Make the row of the scorecard: failed if a check failed, passed if all applicable ones passed.

    Checks of every pack are added: whether the arm answered, and the identity of its answers.
    """
    checks = {
        "answered": judge_answered(observed.requests, observed.baseline_requests),
        **judged.checks,
        **({} if observed.identity is None else {"identity": observed.identity}),
    }
    applicable = {name: check for name, check in checks.items() if check.applicable}
    baseline = observed.baseline.name
    records = tuple(check.record(name, observed.arm.name, baseline) for name, check in checks.items())
    passed = all_passed(records)
    reasons = [f"{name}: {check.summary}" for name, check in applicable.items() if check.passed is passed]
    return PackRecord(
        pack=pack.name,
        arm=observed.arm.name,
        baseline=baseline,
        passed=passed,
        figure=judged.figure,
        why="; ".join(reasons) or "; ".join(check.summary for check in checks.values()),
        checks=records,
        notes=observed.work.notes,
        requests=sum(request.phase == "measured" for request in observed.requests),
        seconds=seconds,
        seed=seed,
        examples=tuple(
            example for check in applicable.values() if check.passed is False for example in check.examples
        )[:MOST_EXAMPLES],
    )


def not_measured(
    pack: str, arm: ArmRecord, baseline: ArmRecord, reason: PackNotMeasured, *, seed: int
) -> PackRecord:
    """Make the row of a pack that could not be measured."""
    return PackRecord(
        pack=pack,
        arm=arm.name,
        baseline=baseline.name,
        passed=None,
        figure="",
        why=f"{reason.why}; {reason.next_step}",
        seed=seed,
    )
