"""Pack "reasoning-effort": acceptance by reasoning effort, and what the budget costs in USD an answer.

The same questions go to both endpoints with each effort, one request at a time. More effort means more
tokens, and tokens of another kind: a draft head trained on short answers may guess reasoning badly. A model
has efforts if the effort changes its prompt; a template that ignores the field gives one prompt for all.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from peagle_bench.compare.confidence_intervals import ratio
from peagle_bench.load import WorkItem
from peagle_bench.packs.judges import (
    FEWEST_UNITS,
    acceptance_by,
    answered,
    drafts_applicable,
    falls,
    judge_answered,
    no_fall,
    part_of,
    unit_of,
    unsteady,
)
from peagle_bench.packs.pack import Judgement, Make, Observed, Pack, PackNotMeasured, PackWork
from peagle_bench.packs.texts import LICENSE, SOURCE
from peagle_bench.results.records import Interval, RequestRecord
from peagle_bench.verify.statistics import CheckVerdict, undecided
from peagle_sm.core.errors import SpecError

EFFORTS = ("low", "medium", "high")
UNITS = 8  #: questions, each asked at every effort
MAX_TOKENS = 2048  #: reasoning and answer together; a shorter context allows fewer
STAND_IN_TOKENS = 64  #: the small stand-in does not reason, so longer answers of it show no more


def _question(rng: random.Random) -> str:
    boxes, each, lost = rng.randint(4, 30), rng.randint(3, 40), rng.randint(1, 12)
    kinds: tuple[str, ...] = (
        f"A lorry carries {boxes} crates of {each} bottles; {lost} crates fall off. How many bottles arrive?",
        f"Trains leave every {each} minutes from {rng.randint(5, 9)}:{rng.randint(10, 59)}. When does train "
        f"number {boxes} leave?",
        f"Is {boxes * each + lost} divisible by {each}? Explain each step.",
        f"Write a Python function that shares {boxes} sweets among {lost + 1} children; check it by hand.",
        f"Three friends are {boxes}, {each} and {lost} years old. In how many years will they be "
        f"{boxes + each + lost + 3 * rng.randint(2, 20)} together?",
    )
    return rng.choice(kinds)


def has_efforts(prompt_ids: Mapping[str, Sequence[int]]) -> bool:
    """Decide whether a model has efforts: one question's prompt must differ between all of them."""
    return len({tuple(ids) for ids in prompt_ids.values()}) == len(prompt_ids) > 1


NO_EFFORTS = PackNotMeasured(
    "the model has no reasoning effort: its chat template ignores reasoning_effort",
    next_step="measure a model that has it, such as GPT-OSS",
)


def make(asked: Make) -> PackWork:
    """Make the questions at each effort.

    Raises:
        PackNotMeasured: the model has no reasoning effort.
    """
    limit = min(STAND_IN_TOKENS if asked.model.stand_in else MAX_TOKENS, asked.model.context // 2)
    items = []
    for number in range(asked.units or UNITS):
        text = _question(random.Random(f"reasoning {asked.seed} {number}"))
        for effort in EFFORTS:
            body = {
                "messages": [{"role": "user", "content": text}],
                "reasoning_effort": effort,
                "max_tokens": limit,
                "temperature": 0.0,
            }
            items.append(WorkItem(f"{number:03}/{effort}", body, category=effort))
    _demand_efforts(asked, items[: len(EFFORTS)])
    return PackWork(tuple(items), SOURCE, LICENSE)


def _demand_efforts(asked: Make, items: Sequence[WorkItem]) -> None:
    """Refuse a model without efforts, from the prompts of one question at each effort.

    Raises:
        PackNotMeasured: the model has none, or refuses the field.
    """
    render = asked.model.render
    if render is None:
        return
    try:
        prompts = {item.body["reasoning_effort"]: render(item.body) for item in items}
    except SpecError as refused:
        raise PackNotMeasured(
            f"the model refuses a chat with reasoning_effort: {refused.message}",
            next_step=NO_EFFORTS.next_step,
        ) from refused
    if not has_efforts(prompts):
        raise NO_EFFORTS


@dataclass(frozen=True)
class EffortCost:
    """Costs of one effort; USD an answer are None if a price is unknown or 0.

    ``ratio``: USD an answer with speculation over that without, on the same questions, one request at a time;
    prices that are unknown count as equal. ``to_first``: USD an answer over that at the first effort.
    ``dearer``: the ratio is above 1 at the stated false alarm rate.
    """

    effort: str
    answers: int
    tokens: float
    ratio: Interval
    to_first: float
    usd: float | None
    usd_plain: float | None
    dearer: bool


def costs_of(
    requests: Sequence[RequestRecord],
    baseline: Sequence[RequestRecord],
    usd_per_hour: float | None,
    plain_usd_per_hour: float | None,
    alpha: float,
) -> list[EffortCost]:
    """Compute the costs of each effort with enough questions that both answered."""
    mine, its = _by_effort(requests), _by_effort(baseline)
    shared = {
        effort: {
            unit: (one, its[effort][unit])
            for unit, one in mine.get(effort, {}).items()
            if unit in its[effort]
        }
        for effort in EFFORTS
        if effort in its
    }
    shared = {effort: rows for effort, rows in shared.items() if len(rows) >= FEWEST_UNITS}
    price = (usd_per_hour / plain_usd_per_hour) if usd_per_hour and plain_usd_per_hour else 1.0
    found: list[EffortCost] = []
    first_s = 0.0
    for effort, rows in shared.items():
        table = {unit: (_seconds(one), _seconds(other)) for unit, (one, other) in rows.items()}
        mean_s = sum(seconds for seconds, _ in table.values()) / len(table)
        plain_s = sum(seconds for _, seconds in table.values()) / len(table)
        first_s = first_s or mean_s
        shown = _times(ratio([table], (1, -1), 1 - 0.05 / len(shared)), price)
        strict = _times(ratio([table], (1, -1), 1 - 2 * alpha / len(shared)), price)
        tokens = sum(one.output_tokens or 0 for one, _ in rows.values()) / len(rows)
        found.append(
            EffortCost(
                effort,
                len(rows),
                tokens,
                shown,
                mean_s / first_s,
                usd_per_hour * mean_s / 3600 if usd_per_hour else None,
                plain_usd_per_hour * plain_s / 3600 if plain_usd_per_hour else None,
                strict.low > 1,
            )
        )
    return found


def _by_effort(records: Sequence[RequestRecord]) -> dict[str, dict[str, RequestRecord]]:
    found: dict[str, dict[str, RequestRecord]] = {}
    for one in answered(records):
        found.setdefault(part_of(one), {})[unit_of(one)] = one
    return found


def _seconds(record: RequestRecord) -> float:
    return record.done_s - record.sent_s


def _times(interval: Interval, factor: float) -> Interval:
    return Interval(interval.value * factor, interval.low * factor, interval.high * factor)


def judge_cost(found: Sequence[EffortCost], alpha: float) -> CheckVerdict:
    """Judge whether an answer costs more with speculation than without, at any effort."""
    if not found:
        return undecided(f"no effort has {FEWEST_UNITS} questions that both answered")
    figures: dict[str, float] = {}
    for each in found:
        figures[f"tokens_{each.effort}"] = each.tokens
        figures[f"usd_ratio_{each.effort}"] = each.ratio.value
        figures[f"usd_to_{found[0].effort}_{each.effort}"] = each.to_first
        if each.usd is not None:
            figures[f"usd_an_answer_{each.effort}"] = each.usd
        if each.usd_plain is not None:
            figures[f"usd_an_answer_plain_{each.effort}"] = each.usd_plain
    dearer = [_said(each) for each in found if each.dearer]
    power = (
        f"false alarm rate {alpha:g} over all efforts; detects answers that cost more by the width of the "
        "interval"
    )
    if dearer:
        return CheckVerdict(
            False, f"dearer than without speculation: {'; '.join(dearer)}", power, figures, dearer
        )
    return CheckVerdict(True, "; ".join(_said(each) for each in found), power, figures)


def _said(each: EffortCost) -> str:
    interval = f"{each.ratio.value:.2f} [{each.ratio.low:.2f}, {each.ratio.high:.2f}]"
    usd = "" if each.usd is None else f", {each.usd:.2g} USD an answer"
    return f"{each.effort}: {each.tokens:.0f} tokens{usd}, {interval} times the cost without speculation"


def judge(observed: Observed) -> Judgement:
    """Judge acceptance by effort and the cost of an answer."""
    checks = {"answered": judge_answered(observed.requests, observed.baseline_requests)}
    by_effort = falls(observed.requests, EFFORTS, alpha=observed.alpha / 2, by="{} effort")
    checks["acceptance by effort"] = drafts_applicable(observed.arm.mode, by_effort)
    if observed.baseline is not None:
        prices = observed.arm.usd_per_hour, observed.baseline.usd_per_hour
        found = costs_of(observed.requests, observed.baseline_requests, *prices, observed.alpha / 2)
        cost = judge_cost(found, observed.alpha / 2)
        busy = unsteady(observed.baseline_requests)
        checks["cost by effort"] = cost if busy is None else undecided(busy, cost.figures)
    if observed.identity is not None:
        checks["identity"] = observed.identity
    lengths = acceptance_by(observed.requests, part_of)
    said = ", ".join(f"{lengths[effort]:.2f} at {effort}" for effort in EFFORTS if effort in lengths)
    return Judgement(checks, f"acceptance {said}" if said else "")


PACK = Pack(
    name="reasoning-effort",
    shows="low, medium and high reasoning effort: acceptance, tokens, and USD an answer",
    passes=(
        f"{no_fall('low effort')}; no answer costs more than without speculation; the answers are the"
        " target's own"
    ),
    finds="a head that guesses long reasoning badly; an effort at which speculation costs money",
    needs=("a model with reasoning_effort, such as GPT-OSS", "an arm without speculation, for the cost"),
    data=f"{SOURCE}; {LICENSE}",
    stand_ins="not measured: the stand-in has no reasoning effort, unless a chat template gives it some",
    make=make,
    judge=judge,
    least_context=1024,
)
