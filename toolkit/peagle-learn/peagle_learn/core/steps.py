"""The steps of `learn run`: what is done and next, its price, and when it has paid for itself. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

from pydantic import TypeAdapter, ValidationError

from peagle_sm.core.errors import SpecError
from peagle_sm.core.words import Finding, first_fault

SCHEMA = "peagle-sm/learn-state/1"
Step = Literal["data", "train", "prove", "promote"]
STEPS: tuple[Step, ...] = get_args(Step)


@dataclass(frozen=True)
class StepDone:
    """A finished step: the hash of what it was made from, its result, and what it cost."""

    inputs: str
    result: Mapping[str, Any]
    at: str
    usd: float | None = None


@dataclass(frozen=True)
class RunState:
    """Finished steps by name; what is not here is done again, which is safe: each step continues itself."""

    name: str
    steps: Mapping[str, StepDone] = field(default_factory=dict)
    schema: str = SCHEMA

    def to_json(self) -> str:
        """Return the file's text."""
        return json.dumps(asdict(self), indent=1) + "\n"

    def with_step(self, step: Step, done: StepDone) -> RunState:
        """Return the state after a step; later steps were made from something else."""
        place = STEPS.index(step)
        before = {name: each for name, each in self.steps.items() if STEPS.index(_step(name)) < place}
        same = self.steps.get(step)
        if same is not None and same.inputs == done.inputs and same.result == done.result:
            return replace(self, steps={**self.steps, step: done})
        return replace(self, steps={**before, step: done})


def _step(name: str) -> Step:
    step: Step
    for step in STEPS:
        if step == name:
            return step
    raise ValueError(f"step: found {name!r}; allowed: {', '.join(STEPS)}")


def parse_state(text: str, name: str, origin: str) -> RunState:
    """Parse a state file.

    Raises:
        SpecError: it is damaged, or another spec's.
    """
    try:
        state = TypeAdapter(RunState).validate_json(text)
        if state.schema != SCHEMA:
            raise ValueError(f"schema: found {state.schema!r}; this version reads {SCHEMA}")
        for each in state.steps:
            _step(each)
    except ValidationError as error:
        raise _bad(origin, first_fault(error)) from error
    except ValueError as error:
        raise _bad(origin, str(error)) from error
    if state.name != name:
        raise _bad(origin, f"name: found {state.name!r}; allowed: {name!r}")
    return state


def _bad(origin: str, why: str) -> SpecError:
    return SpecError(
        f"{origin} is not the state of this run: {why}",
        next_step=f"Delete {origin}: each step then looks for its own result, and nothing is done twice.",
    )


def inputs_hash(*parts: Any) -> str:
    """Return the hash of a step's inputs, each of plain JSON types."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def steps_until(until: Step | None) -> tuple[Step, ...]:
    """Return the steps up to and with one."""
    return STEPS if until is None else STEPS[: STEPS.index(until) + 1]


@dataclass(frozen=True)
class StepCost:
    """What a step costs: the estimate, and the most; None: not known, ``unknown`` says why and what to do.

    ``findings`` name what is billed beside it, such as running jobs of an earlier run.
    ``notes`` are for whoever confirms it.
    """

    step: Step
    what: str
    usd: float | None
    most_usd: float | None
    is_done: bool = False
    unknown: str = ""
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class PayBack:
    """After how many days of full use the cost is saved, if the endpoint answers ``ratio`` times as fast.

    ``days`` None: never, or not known, where the cost or the endpoint's price is not.
    """

    ratio: float
    days: float | None


#: Speed-ups for which the pay-back is shown before anything is measured.
SUPPOSED = (1.05, 1.1, 1.2)


def pay_back(usd: float | None, usd_per_hour: float | None, ratio: float) -> PayBack:
    """Compute when a head has paid for itself: the same tokens need 1 / ratio of the hours."""
    if usd is None:
        return PayBack(ratio, None)
    if usd_per_hour is None or ratio <= 1:
        return PayBack(ratio, 0.0 if usd <= 0 else None)
    saved = usd_per_hour * (1 - 1 / ratio)
    if saved <= 0:
        return PayBack(ratio, 0.0 if usd <= 0 else None)
    return PayBack(ratio, usd / saved / 24)


def total(costs: Sequence[StepCost]) -> tuple[float | None, float | None]:
    """Return the sum of the estimates of what is not done, and of the most; None: one is unknown."""
    left = [each for each in costs if not each.is_done]
    return _sum([each.usd for each in left]), _sum([each.most_usd for each in left])


def _sum(amounts: Sequence[float | None]) -> float | None:
    known = [each for each in amounts if each is not None]
    return sum(known, 0.0) if len(known) == len(amounts) else None
