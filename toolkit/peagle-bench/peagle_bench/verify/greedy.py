"""Checks of greedy answers, also for long prompts. Pure.

If the baseline is exact, answers must be equal; else each token is judged by its score under the baseline.
Long prompts, up to the full context, must give the baseline's answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peagle_bench.verify.answers import Scored, TokenAnswer
from peagle_bench.verify.statistics import (
    ALPHA,
    EXACT_NOISE,
    CheckVerdict,
    NoiseFloor,
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
    """One prompt with two greedy answers of the baseline at different batch shapes, and the candidate's."""

    prompt_id: str
    first: Scored
    repeat: Scored
    candidate: Scored


def judge_greedy(cases: Sequence[GreedyCase], floor: NoiseFloor, max_tokens: int) -> CheckVerdict:
    """Judge whether the candidate's greedy answers are the target's own.

    Faults: inconsistent counts or endings (`shape_faults`); another text for the same token ids; with an
    exact floor, any difference beyond an arithmetic tie; else any gap above ``floor.delta``, more prompts
    that diverge from the baseline's first answer than the baseline's repeat has (McNemar on the same
    prompts), or more tokens per prompt that differ from the target's best token (self-normalised sum).
    """
    if not cases:
        return undecided("no prompt was answered by both engines")
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
    """Return the end tokens of the baseline's answers, without requested stop strings.

    vLLM gives a token in ``stop_reason`` if a model has several end tokens; a string there is a requested
    stop.
    """
    own = (scored.answer for case in cases for scored in (case.first, case.repeat))
    return frozenset(a.ids[-1] for a in own if a.ids and _ended_itself(a))


def _ended_itself(answer: TokenAnswer) -> bool:
    return answer.finish_reason == "stop" and not isinstance(answer.stop_reason, str)


def text_fault(case: GreedyCase) -> str | None:
    """Describe another text than the baseline's for the same token ids; None if they agree."""
    for own in (case.first.answer, case.repeat.answer):
        mine = case.candidate.answer
        if mine.ids == own.ids and mine.text != own.text:
            at = next((n for n, (a, b) in enumerate(zip(own.text, mine.text, strict=False)) if a != b), None)
            where = min(len(own.text), len(mine.text)) if at is None else at
            return (
                f"same tokens but another text at character {where + 1}: "
                f"{mine.text[where : where + 12]!r} instead of {own.text[where : where + 12]!r}"
            )
    return None


def shape_faults(answer: TokenAnswer, ends: frozenset[int], max_tokens: int) -> list[str]:
    """List contradictions between counts and endings, which neither sampling nor arithmetic explains."""
    count, faults = len(answer.ids), []
    if answer.output_tokens is not None and answer.output_tokens != count:
        faults.append(f"usage counts {answer.output_tokens} tokens, the answer has {count}")
    if answer.finish_reason == "length" and count != max_tokens:
        faults.append(f"finish_reason length after {count} of {max_tokens} tokens")
    known = ends | {answer.stop_reason}
    if _ended_itself(answer) and ends and count and answer.ids[-1] not in known:
        faults.append(f"ended after {count} tokens without an end token")
    if any(token in ends for token in answer.ids[:-1]):
        faults.append("continued after an end token")
    if answer.finish_reason not in ("stop", "length"):
        faults.append(f"finish_reason is {answer.finish_reason!r}")
    return faults


def first_difference(case: GreedyCase) -> int:
    """Return the position of the first token that differs from the baseline's first answer."""
    pairs = enumerate(zip(case.first.answer.ids, case.candidate.answer.ids, strict=False))
    shorter = min(len(case.first.answer.ids), len(case.candidate.answer.ids))
    return next((at for at, (a, b) in pairs if a != b), shorter)


def gap_at(case: GreedyCase, at: int) -> float:
    """Return the candidate's gap at a position; infinite if its answer has already ended."""
    return case.candidate.gaps[at] if at < len(case.candidate.gaps) else float("inf")


def _example(case: GreedyCase, at: int) -> str:
    return f"{case.prompt_id}: token {at + 1} is {gap_at(case, at):.4g} nats below the target's best token"


def _exact(
    cases: Sequence[GreedyCase],
    differing: Sequence[GreedyCase],
    shape: Sequence[str],
    floor: NoiseFloor,
    figures: dict[str, float],
) -> CheckVerdict:
    # After a tie the two answers diverge, so the rest of the answer is judged by its own gaps.
    tied = [case for case in differing if _only_ties(case, floor.tie)]
    wrong = [case for case in differing if case not in tied]
    figures |= {"ties": len(tied), "wrong_prompts": len(wrong)}
    summary = (
        f"{len(cases) - len(differing)} of {counted(len(cases), 'prompt')} answered with identical tokens"
    )
    if tied:
        summary += f", {len(tied)} differ after a tie within {floor.tie:.1g} nats"
    if wrong:
        summary += f", {len(wrong)} differ otherwise"
    if shape:
        summary += f"; {counted(len(shape), 'inconsistent answer')}"
    tokens = int(figures["tokens"])
    excepted = f", except at a tie within {floor.tie:.1g} nats" if floor.tie else ""
    power = (
        f"{floor.words}. Detects another text for the same tokens, and a single changed, lost or doubled "
        f"token among {tokens:,}{excepted}; detects a random fault with 90% probability if it affects "
        f"{percent(rate_found(tokens))} of tokens"
    )
    examples = [*shape, *(_example(case, first_difference(case)) for case in wrong)]
    return CheckVerdict(not wrong and not shape, summary, power, figures, examples)


def _only_ties(case: GreedyCase, tie: float) -> bool:
    candidate = case.candidate
    return gap_at(case, first_difference(case)) <= tie and max(candidate.gaps, default=0.0) <= tie


def _noisy(
    cases: Sequence[GreedyCase],
    differing: Sequence[GreedyCase],
    shape: Sequence[str],
    floor: NoiseFloor,
    figures: dict[str, float],
) -> CheckVerdict:
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
    summary = f"{len(differing)} of {counted(len(cases), 'prompt')} diverge (two runs of the baseline: {own})"
    summary += f", {counted(len(beyond), 'token')} above the noise floor of {floor.delta:.2g} nats"
    if p < ALPHA:
        faults.append(f"more prompts diverge than for the baseline itself: p = {p:.1g}")
    if z > self_normalised_limit():
        faults.append(
            f"{sum(flips)} tokens differ from the target's best token (baseline: {sum(own_flips):g})"
        )
    if shape:
        summary += f"; {counted(len(shape), 'inconsistent answer')}"
    return CheckVerdict(not faults, summary, _noisy_power(cases, floor, own, sum(own_flips)), figures, faults)


def _flips(scored: Scored) -> int:
    return sum([gap > 0 for gap in scored.gaps])


def _noisy_power(cases: Sequence[GreedyCase], floor: NoiseFloor, own: int, own_flips: float) -> str:
    rate = mcnemar_rate_found(len(cases), own)
    by_prompt = (
        f"if {percent(rate)} of prompts diverge because of them"
        if rate is not None
        else "never by the share of diverging prompts (too few prompts, or the baseline diverges in most)"
    )
    excess = excess_found(own_flips)
    by_token = (
        f"or if there are {excess} or more, each in another prompt"
        if excess <= len(cases)
        else "and not by their number, since there are too few prompts"
    )
    return (
        f"{floor.words}. Detects a single token above the noise floor, and another text for the same "
        f"tokens; detects wrong choices between closer tokens with 90% probability {by_prompt}, {by_token}"
    )


@dataclass(frozen=True)
class LongCase:
    """One long prompt of ``length`` tokens, with answers of at most ``max_tokens``.

    ``gaps`` are the candidate's, scored under the baseline; empty if the answers are equal or scoring was
    refused. ``noise`` is the largest difference in nats between the baseline's two readings of a margin of
    its own answer here: with thousands of tokens the batch shape changes how sums are split.
    """

    length: int
    max_tokens: int
    baseline: TokenAnswer
    candidate: TokenAnswer
    gaps: tuple[float, ...] = ()
    noise: float = 0.0


def judge_long_context(cases: Sequence[LongCase], floor: NoiseFloor) -> CheckVerdict:
    """Judge whether the candidate's greedy answers to long prompts are the target's own.

    There are too few prompts for rates: a difference is a fault if its gap is above the limit, or if the
    floor is exact here and in the greedy runs.
    """
    if not cases:
        return undecided("the context allows no longer prompts than those of the greedy check")
    noise = max(case.noise for case in cases)
    exact = floor.exact and noise <= EXACT_NOISE
    limit = max(2 * noise, floor.tie if exact else floor.delta)
    faults, unscored = [], []
    for case in cases:
        ends = frozenset(case.baseline.ids[-1:]) if case.baseline.finish_reason == "stop" else frozenset()
        contradictions = shape_faults(case.candidate, ends, case.max_tokens)
        if case.candidate.ids != case.baseline.ids:
            largest = max(case.gaps, default=None)
            if largest is None:
                unscored.append(case)
            elif largest > limit:
                contradictions.append(f"a token is {largest:.3g} nats below the target's best token")
            elif not any(case.gaps):
                contradictions += ["the answer ends at another token"] if exact else []
        faults += [f"prompt of {case.length:,} tokens: {fault}" for fault in contradictions]
    equal = sum(case.candidate.ids == case.baseline.ids for case in cases)
    figures: dict[str, float] = {"prompts": len(cases), "equal_prompts": equal}
    figures["longest_tokens"] = max(case.length + len(case.candidate.ids) for case in cases)
    for case in cases:
        if case.candidate.acceptance is not None:
            figures[f"acceptance_length_at_{case.length}"] = case.candidate.acceptance.acceptance_length
    longest = figures["longest_tokens"]
    summary = f"{equal} of {counted(len(cases), 'prompt')} up to {longest:,.0f} tokens answered identically"
    tied = [max(case.gaps) for case in cases if case.candidate.ids != case.baseline.ids and case.gaps]
    tied = [gap for gap in tied if gap <= limit]
    if tied:
        figures |= {"near_ties": len(tied), "largest_near_tie_nats": max(tied)}
        summary += (
            f", {len(tied)} differ{'s' if len(tied) == 1 else ''} at a near tie: the token is at most"
            f" {max(tied):.2g} nats below the target's best (allowed: {limit:.2g})"
        )
    figures["noise_nats"] = noise
    power = (
        f"detects {f'a gap above {limit:.2g} nats' if limit else 'a difference'} on any of "
        f"{sum(len(case.candidate.ids) for case in cases)} tokens at {len(cases)} lengths; does not detect "
        "rarer faults, or faults beyond the longest prompt"
    )
    if faults:
        return CheckVerdict(False, f"{summary}; {counted(len(faults), 'fault')}", power, figures, faults)
    if unscored:
        return undecided(f"{len(unscored)} answers differ, and the baseline refused to score them", figures)
    return CheckVerdict(True, summary, power, figures)
