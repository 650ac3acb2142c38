"""`learn run`: data, training, proof and promotion, one after the other; after a kill it continues.

The state file only spares work. What a step was made from is in it, so other prompts, another account or
another local server are new work. Each step finds its own result again: answers in the journal, a job by its
name, a proof by the head's hash, a promotion by the endpoint's tag. So losing the file loses nothing, and a
step that ran twice does nothing the second time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from peagle_sm.aws.files import write_file
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import Declined, SpecError
from peagle_sm.core.learn.spec import LearnSpec
from peagle_sm.core.learn.steps import (
    SUPPOSED,
    PayBack,
    RunState,
    Step,
    StepCost,
    StepDone,
    inputs_hash,
    parse_state,
    pay_back,
    steps_until,
    total,
)
from peagle_sm.service.progress import Event, Progress

STATE = "state.json"


@dataclass(frozen=True)
class RunOffer:
    """What a run would do and cost, before it starts; ``usd`` is the estimate, ``most_usd`` the most.

    Each is None if that of a step is not known.
    """

    name: str
    costs: tuple[StepCost, ...]
    usd: float | None
    most_usd: float | None
    usd_per_hour: float | None
    pays_back: tuple[PayBack, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)


@dataclass(frozen=True)
class StepResult:
    """What a step gives to the next one, and what it cost."""

    result: Mapping[str, Any]
    usd: float | None = None


@dataclass(frozen=True)
class RunStep:
    """One step of a run: its inputs as plain JSON types, its price, and what it does.

    ``inputs`` and ``run`` get the results of the steps before. ``run`` may be repeated at any time. ``cost``
    is called before anything is done, with the results that exist.
    """

    step: Step
    inputs: Callable[[Mapping[str, Mapping[str, Any]]], Any]
    cost: Callable[[Mapping[str, Mapping[str, Any]]], StepCost]
    run: Callable[[Mapping[str, Mapping[str, Any]]], StepResult]


def open_state(path: Path, name: str) -> RunState:
    """Read the state of a run, or begin one.

    Raises:
        SpecError: the file is damaged, or another spec's.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return RunState(name)
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(
            f"{path} cannot be read: {error}", next_step=f"Delete {path}; nothing is done twice."
        ) from error
    return parse_state(text, name, str(path))


def offer_of(name: str, steps: Sequence[RunStep], state: RunState, usd_per_hour: float | None) -> RunOffer:
    """Price the steps that are left."""
    results, costs = dict[str, Mapping[str, Any]](), list[StepCost]()
    known = True
    for step in steps:
        found = state.result(step.step, inputs_hash(step.inputs(results))) if known else None
        if found is None:
            known = False
            costs.append(step.cost(results))
        else:
            results[step.step] = found.result
            costs.append(StepCost(step.step, "done", 0.0, 0.0, is_done=True))
    usd, most = total(costs)
    days = tuple(pay_back(usd, usd_per_hour, ratio) for ratio in SUPPOSED)
    return RunOffer(name, tuple(costs), usd, most, usd_per_hour, days)


def run(
    spec: LearnSpec,
    steps: Sequence[RunStep],
    session: Session,
    work: Path,
    *,
    until: Step | None = None,
    usd_per_hour: float | None,
    confirm: Callable[[RunOffer], bool],
    progress: Progress,
) -> RunState:
    """Confirm once, then run what is left, up to a step.

    Raises:
        Declined: ``confirm`` declined; nothing was sent, stored or created.
        PeagleError: from a step; what is done is kept, and the next run continues there.
    """
    wanted = steps_until(until)
    chosen = [each for each in steps if each.step in wanted]
    path = work / STATE
    state = open_state(path, spec.name)
    offer = offer_of(spec.name, chosen, state, usd_per_hour)
    if all(each.is_done for each in offer.costs):
        progress(Event("done", f"every step of {spec.name} is done"))
        return state
    if not confirm(offer):
        raise Declined("Nothing was done: the run was not confirmed.", next_step="Run it again and confirm.")
    results: dict[str, Mapping[str, Any]] = {}
    for number, step in enumerate(chosen, start=1):
        inputs = inputs_hash(step.inputs(results))
        done = state.result(step.step, inputs)
        if done is None:
            progress(Event("check", f"step {number} of {len(chosen)}: {step.step}"))
            found = step.run(results)
            at = session.now().isoformat(timespec="seconds")
            done = StepDone(inputs, found.result, at, found.usd)
            state = state.with_step(step.step, done)
            write_file(path, state.to_json(), parents=True)
        results[step.step] = done.result
    return state
