"""Seeds: the same seed gives the same answer again, another seed another one. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peagle_sm.measure.verify.answers import Answer
from peagle_sm.measure.verify.figures import ALPHA, fisher_greater, fisher_rate_found
from peagle_sm.measure.verify.verdict import Verdict, percent, undecided


@dataclass(frozen=True)
class SeedCase:
    """One prompt, sampled at temperature 1: twice with a seed on each side, once with another seed."""

    prompt_id: str
    baseline: tuple[Answer, Answer]
    candidate: tuple[Answer, Answer]
    other: Answer  #: of the candidate


def judge_seeds(cases: Sequence[SeedCase], exact: bool) -> Verdict:
    """Whether the candidate repeats itself under a seed as the baseline does.

    Its answers need not be the baseline's: speculation uses the random numbers otherwise.
    """
    if not cases:
        return undecided("no prompt was answered by both")
    own = sum(not _same(*case.baseline) for case in cases)
    broken = [case.prompt_id for case in cases if not _same(*case.candidate)]
    constant = all(_same(case.candidate[0], case.other) for case in cases)
    p = fisher_greater(len(broken), len(cases), own, len(cases))
    figures = {
        "prompts": len(cases),
        "not_repeated": len(broken),
        "baseline_not_repeated": own,
        "fisher_p": p,
    }
    repeated = f"{len(cases) - len(broken)} of {len(cases)} prompts repeat"
    said = f"{repeated} under their seed (baseline {len(cases) - own})"
    if constant:
        return Verdict(False, f"{said}; another seed changes nothing", _power(cases, exact, own), figures)
    if own == len(cases):
        return undecided("the baseline itself repeats no answer under a seed", figures)
    if not broken:
        return Verdict(True, said, _power(cases, exact, own), figures)
    if (exact and own == 0) or p < ALPHA:
        faults = [f"{prompt}: two answers to one seed" for prompt in broken]
        return Verdict(False, said, _power(cases, exact, own), figures, faults)
    return undecided(f"{said}, which the arithmetic's noise may explain", figures)


def _same(one: Answer, other: Answer) -> bool:
    return (one.ids, one.text) == (other.ids, other.text)


def _power(cases: Sequence[SeedCase], exact: bool, own: int) -> str:
    if exact and own == 0:
        return "one answer that its seed does not bring back is caught, of those tested"
    rate = fisher_rate_found(len(cases), own, len(cases))
    if rate is None:
        return "none by number: too few prompts for the noise of the baseline"
    return f"a seed that is lost in {percent(rate)} of answers is caught 9 times in 10"
