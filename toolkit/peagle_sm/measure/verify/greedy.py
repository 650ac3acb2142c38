"""Greedy answers: equal where the baseline is exact, else each token judged under the baseline. Pure.

Long prompts, up to the last token of the context, must give the same answers as the baseline's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peagle_sm.measure.verify.answers import Answer, Scored
from peagle_sm.measure.verify.statistics import (
    ALPHA,
    EXACT_NOISE,
    Floor,
    Verdict,
    counted,
    excess_found,
    mcnemar_greater,
    mcnemar_rate_found,
    percent,
    rate_found,
    self_normalised,
    self_normalised_limit,
    undecided,
)


@dataclass(frozen=True)
class GreedyCase:
    """One prompt: two greedy answers of the baseline at different batch shapes, and the candidate's."""

    prompt_id: str
    first: Scored
    repeat: Scored
    candidate: Scored


def judge_greedy(cases: Sequence[GreedyCase], floor: Floor, max_tokens: int) -> Verdict:
    """Whether the candidate's greedy answers are the target's own.

    Faults: a broken shape (`shape_faults`); another text for the same token ids; where the floor is exact,
    any difference beyond a tie of the arithmetic; elsewhere any gap above ``floor.delta``, more prompts that
    diverge from the baseline's first answer than the baseline's repeat does (McNemar, on the same prompts,
    one look each), or more tokens per prompt that are not the target's best (self-normalised sum over
    prompts).
    """
    if not cases:
        return undecided("no prompt was answered by both")
    ends = ends_of(cases)
    shape = [f"{c.prompt_id}: {f}" for c in cases for f in shape_faults(c.candidate.answer, ends, max_tokens)]
    texts = [f"{case.prompt_id}: {fault}" for case in cases if (fault := text_fault(case)) is not None]
    shape += texts
    differing = [case for case in cases if case.candidate.answer.ids != case.first.answer.ids]
    tokens = sum(len(case.candidate.answer.ids) for case in cases)
    figures: dict[str, float] = {
        "prompts": len(cases),
        "tokens": tokens,
        "equal_prompts": len(cases) - len(differing),
        "broken_shapes": len(shape),
        "other_texts": len(texts),
        "noise_nats": floor.noise,
        "delta_nats": floor.delta,
        "exact": floor.exact,
    }
    if floor.exact:
        return _exact(cases, differing, shape, floor, figures)
    return _noisy(cases, differing, shape, floor, figures)


def ends_of(cases: Sequence[GreedyCase]) -> frozenset[int]:
    """The tokens with which the baseline ends an answer of its own accord.

    vLLM names a token in ``stop_reason`` where a model has several that end it; a string there was asked for.
    """
    own = (scored.answer for case in cases for scored in (case.first, case.repeat))
    return frozenset(a.ids[-1] for a in own if a.ids and _ended_itself(a))


def _ended_itself(answer: Answer) -> bool:
    return answer.finish_reason == "stop" and not isinstance(answer.stop_reason, str)


def text_fault(case: GreedyCase) -> str | None:
    """Another text than the baseline's for the same token ids; None where they agree."""
    for own in (case.first.answer, case.repeat.answer):
        mine = case.candidate.answer
        if mine.ids == own.ids and mine.text != own.text:
            at = next((n for n, (a, b) in enumerate(zip(own.text, mine.text, strict=False)) if a != b), None)
            where = min(len(own.text), len(mine.text)) if at is None else at
            return (
                f"the same tokens and another text at character {where + 1}: "
                f"{mine.text[where : where + 12]!r} for {own.text[where : where + 12]!r}"
            )
    return None


def shape_faults(answer: Answer, ends: frozenset[int], max_tokens: int) -> list[str]:
    """What no sampling and no arithmetic explains: counts and endings that contradict each other."""
    count, found = len(answer.ids), []
    if answer.output_tokens is not None and answer.output_tokens != count:
        found.append(f"usage counts {answer.output_tokens} tokens, {count} came")
    if answer.finish_reason == "length" and count != max_tokens:
        found.append(f"ended for length after {count} of {max_tokens} tokens")
    known = ends | {answer.stop_reason}
    if _ended_itself(answer) and ends and count and answer.ids[-1] not in known:
        found.append(f"ended after {count} tokens without an end token")
    if any(token in ends for token in answer.ids[:-1]):
        found.append("went on after an end token")
    if answer.finish_reason not in ("stop", "length"):
        found.append(f"finish_reason is {answer.finish_reason!r}")
    return found


def first_difference(case: GreedyCase) -> int:
    """The position of the first token that differs from the baseline's first answer."""
    pairs = enumerate(zip(case.first.answer.ids, case.candidate.answer.ids, strict=False))
    shorter = min(len(case.first.answer.ids), len(case.candidate.answer.ids))
    return next((at for at, (a, b) in pairs if a != b), shorter)


def gap_at(case: GreedyCase, at: int) -> float:
    """The candidate's gap there; infinite where its answer has ended and the baseline's has not."""
    return case.candidate.gaps[at] if at < len(case.candidate.gaps) else float("inf")


def _example(case: GreedyCase, at: int) -> str:
    return f"{case.prompt_id}: token {at + 1} is {gap_at(case, at):.4g} nats below the target's best"


def _exact(
    cases: Sequence[GreedyCase],
    differing: Sequence[GreedyCase],
    shape: Sequence[str],
    floor: Floor,
    figures: dict[str, float],
) -> Verdict:
    # After a tie the two go different ways, so the rest of the answer is judged by its own gaps.
    tied = [case for case in differing if _only_ties(case, floor.tie)]
    wrong = [case for case in differing if case not in tied]
    figures |= {"ties": len(tied), "wrong_prompts": len(wrong)}
    said = f"{len(cases) - len(differing)} of {counted(len(cases), 'prompt')} answered token for token alike"
    if tied:
        said += f", {len(tied)} after a tie within {floor.tie:.1g} nats"
    if wrong:
        said += f", {len(wrong)} otherwise"
    if shape:
        said += f"; {counted(len(shape), 'answer')} contradict themselves"
    tokens = int(figures["tokens"])
    excepted = f", a tie within {floor.tie:.1g} nats excepted" if floor.tie else ""
    power = (
        f"{floor.words}. Another text for the same tokens, and one altered, lost or doubled token anywhere "
        f"in {tokens:,} are caught{excepted}; "
        f"one that strikes by chance is met with 90% if it touches {percent(rate_found(tokens))} of tokens"
    )
    examples = [*shape, *(_example(case, first_difference(case)) for case in wrong)]
    return Verdict(not wrong and not shape, said, power, figures, examples)


def _only_ties(case: GreedyCase, tie: float) -> bool:
    candidate = case.candidate
    return gap_at(case, first_difference(case)) <= tie and max(candidate.gaps, default=0.0) <= tie


def _noisy(
    cases: Sequence[GreedyCase],
    differing: Sequence[GreedyCase],
    shape: Sequence[str],
    floor: Floor,
    figures: dict[str, float],
) -> Verdict:
    beyond = [(case, at) for case in cases for at, gap in enumerate(case.candidate.gaps) if gap > floor.delta]
    pairs = [
        (case.candidate.answer.ids != case.first.answer.ids, case.repeat.answer.ids != case.first.answer.ids)
        for case in cases
    ]
    own = sum(its for _, its in pairs)
    p = mcnemar_greater(pairs.count((True, False)), pairs.count((False, True)))
    flips = [_flips(case.candidate) for case in cases]
    own_flips = [(_flips(case.first) + _flips(case.repeat)) / 2 for case in cases]
    z = self_normalised([mine - its for mine, its in zip(flips, own_flips, strict=True)])
    figures |= {
        "gaps_above_delta": len(beyond),
        "diverging_prompts": len(differing),
        "baseline_diverging_prompts": own,
        "mcnemar_p": p,
        "not_best_tokens": sum(flips),
        "baseline_not_best_tokens": sum(own_flips),
        "excess_z": z,
    }
    faults = list(shape) + [_example(case, at) for case, at in beyond]
    said = f"{counted(len(differing), 'prompt')} of {len(cases)} diverge (baseline from itself: {own})"
    said += f", {counted(len(beyond), 'token')} beyond the noise floor of {floor.delta:.2g} nats"
    if p < ALPHA:
        faults.append(f"more prompts diverge than the baseline's own: p = {p:.1g}")
    if z > self_normalised_limit():
        faults.append(f"{sum(flips)} tokens are not the target's best, the baseline's own {sum(own_flips):g}")
    if shape:
        said += f"; {counted(len(shape), 'answer')} contradict themselves"
    return Verdict(not faults, said, _noisy_power(cases, floor, own, sum(own_flips)), figures, faults)


def _flips(scored: Scored) -> int:
    return sum([gap > 0 for gap in scored.gaps])


def _noisy_power(cases: Sequence[GreedyCase], floor: Floor, own: int, own_flips: float) -> str:
    rate = mcnemar_rate_found(len(cases), own)
    by_prompt = (
        f"if they make {percent(rate)} of prompts diverge"
        if rate is not None
        else "never by the share of diverging prompts (too few prompts, or the baseline diverges in most)"
    )
    excess = excess_found(own_flips)
    by_token = (
        f"or number {excess} or more, each in another prompt"
        if excess <= len(cases)
        else "and not by their number in so few prompts"
    )
    return (
        f"{floor.words}. A single token beyond it is caught, and another text for the same tokens; wrong "
        "choices between nearer tokens are caught "
        f"with 90% {by_prompt}, {by_token}"
    )


@dataclass(frozen=True)
class LongCase:
    """One prompt of ``length`` tokens, at most ``max_tokens`` asked for.

    ``gaps`` are the candidate's, scored under the baseline; empty where the answers are equal or the scoring
    was refused. ``noise`` is the largest difference in nats between the baseline's two readings of a margin
    of its own answer here: a batch's shape splits sums over thousands of tokens where it leaves short ones.
    """

    length: int
    max_tokens: int
    baseline: Answer
    candidate: Answer
    gaps: tuple[float, ...] = ()
    noise: float = 0.0


def judge_long_context(cases: Sequence[LongCase], floor: Floor) -> Verdict:
    """Whether the candidate's greedy answers to long prompts are the target's own.

    There are too few prompts for rates: a difference is a fault by its gap, or where the floor is exact, here
    as in the greedy runs.
    """
    if not cases:
        return undecided("no prompt is longer than those of the greedy check")
    noise = max(case.noise for case in cases)
    exact = floor.exact and noise <= EXACT_NOISE
    limit = max(2 * noise, floor.tie if exact else floor.delta)
    faults, unscored = [], []
    for case in cases:
        ends = frozenset(case.baseline.ids[-1:]) if case.baseline.finish_reason == "stop" else frozenset()
        found = shape_faults(case.candidate, ends, case.max_tokens)
        if case.candidate.ids != case.baseline.ids:
            largest = max(case.gaps, default=None)
            if largest is None:
                unscored.append(case)
            elif largest > limit:
                found.append(f"a token is {largest:.3g} nats below the target's best")
            elif not any(case.gaps):
                found += ["the answer ends elsewhere"] if exact else []
        faults += [f"prompt of {case.length:,} tokens: {fault}" for fault in found]
    equal = sum(case.candidate.ids == case.baseline.ids for case in cases)
    figures: dict[str, float] = {"prompts": len(cases), "equal_prompts": equal}
    figures["longest_tokens"] = max(case.length + len(case.candidate.ids) for case in cases)
    for case in cases:
        if case.candidate.acceptance_length is not None:
            figures[f"acceptance_length_at_{case.length}"] = case.candidate.acceptance_length
    longest = figures["longest_tokens"]
    said = f"{equal} of {counted(len(cases), 'prompt')} up to {longest:,.0f} tokens answered alike"
    figures["noise_nats"] = noise
    power = (
        f"{f'a gap above {limit:.2g} nats' if limit else 'a difference'} on any of "
        f"{sum(len(case.candidate.ids) for case in cases)} tokens at {len(cases)} lengths is caught; "
        "faults that are rarer, or lie beyond the longest prompt, are not"
    )
    if faults:
        return Verdict(False, f"{said}; {counted(len(faults), 'fault')}", power, figures, faults)
    if unscored:
        return undecided(f"{len(unscored)} answers differ and the baseline would not score them", figures)
    return Verdict(True, said, power, figures)
