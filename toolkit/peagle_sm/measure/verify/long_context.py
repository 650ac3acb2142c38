"""Long prompts, up to the last token of the context: the same answers as the baseline's. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peagle_sm.measure.verify.answers import Answer
from peagle_sm.measure.verify.floor import EXACT_NOISE, Floor
from peagle_sm.measure.verify.greedy import shape_faults
from peagle_sm.measure.verify.verdict import Verdict, counted, undecided


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
