"""`learn run`: data, training, proof and promotion, one after the other; after a kill it continues.

The state file only spares work. What a step was made from is in it, so other prompts, another account or
another local server are new work. Each step finds its own result again: answers in the journal, a job by its
name, a proof by the head's hash, a promotion by the endpoint's tag. So losing the file loses nothing, and a
step that ran twice does nothing the second time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from peagle_learn.core.spec import LearnSpec
from peagle_learn.core.steps import (
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
from peagle_sm.aws.files import write_file
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import Declined, SpecError
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
    is called before anything is done, with the results that exist. ``exists`` tells whether an earlier result
    can still be used; ``last_use`` is the last step that reads it.
    """

    step: Step
    inputs: Callable[[Mapping[str, Mapping[str, Any]]], Any]
    cost: Callable[[Mapping[str, Mapping[str, Any]]], StepCost]
    run: Callable[[Mapping[str, Mapping[str, Any]]], StepResult]
    exists: Callable[[Mapping[str, Any]], bool] = lambda result: True
    last_use: Step = "promote"


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


@dataclass(frozen=True)
class Finished:
    """Steps whose results are used, and why the result of another one is not, in words."""

    steps: Mapping[Step, StepDone]
    repeated: Mapping[Step, str]


def finished_of(steps: Sequence[RunStep], state: RunState) -> Finished:
    """Return the steps that are done, by their inputs; a result that a step that is left reads must exist.

    A result that finished steps alone have read is not needed any more: it may be deleted.
    """
    done: dict[Step, StepDone] = {}
    why = ""
    for step in steps:
        earlier = state.steps.get(step.step)
        if earlier is None or earlier.inputs != inputs_hash(step.inputs(_results(done))):
            why = "its inputs changed"
            break
        done[step.step] = earlier
    left = [each.step for each in steps[len(done) :]]
    for number, step in enumerate(steps[: len(done)]):
        if step.last_use in left and not step.exists(done[step.step].result):
            done = {each.step: done[each.step] for each in steps[:number]}
            why = "its result was deleted or replaced"
            break
    repeated: dict[Step, str] = {}
    for step in steps:
        earlier = state.steps.get(step.step)
        if step.step not in done and earlier is not None:
            repeated[step.step] = f"done {earlier.at[:10]}, but {why}; it starts again"
            why = "an earlier step starts again"
    return Finished(done, repeated)


def _results(done: Mapping[Step, StepDone]) -> dict[str, Mapping[str, Any]]:
    return {step: each.result for step, each in done.items()}


def offer_of(name: str, steps: Sequence[RunStep], finished: Finished, usd_per_hour: float | None) -> RunOffer:
    """Price the steps that are left."""
    costs = list[StepCost]()
    for step in steps:
        if step.step in finished.steps:
            costs.append(StepCost(step.step, "done", 0.0, 0.0, is_done=True))
            continue
        cost = step.cost(_results(finished.steps))
        repeated = finished.repeated.get(step.step)
        costs.append(cost if repeated is None else replace(cost, notes=(repeated, *cost.notes)))
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
    finished = finished_of(steps, state)
    offer = offer_of(spec.name, chosen, finished, usd_per_hour)
    if all(each.is_done for each in offer.costs):
        progress(Event("done", f"every step of {spec.name} is done"))
        return state
    if not confirm(offer):
        raise Declined("Nothing was done: the run was not confirmed.", next_step="Run it again and confirm.")
    results: dict[str, Mapping[str, Any]] = {}
    for number, step in enumerate(chosen, start=1):
        done = finished.steps.get(step.step)
        if done is None:
            inputs = inputs_hash(step.inputs(results))
            progress(Event("check", f"step {number} of {len(chosen)}: {step.step}"))
            outcome = step.run(results)
            at = session.now().isoformat(timespec="seconds")
            done = StepDone(inputs, outcome.result, at, outcome.usd)
            state = state.with_step(step.step, done)
            write_file(path, state.to_json(), parents=True)
        results[step.step] = done.result
    return state
