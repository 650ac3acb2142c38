"""Log-probabilities and sampling parameters: are they the target's, and are they applied? Pure.

A parameter that cuts off tokens (top_p, top_k, min_p) is judged token by token: none may come that it cuts
off by more than the noise floor. A temperature is judged by how likely the tokens are that come, among the
likeliest ones, since the rest of the vocabulary is not known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from peagle_sm.measure.verify.answers import Scored, Top
from peagle_sm.measure.verify.statistics import (
    ALPHA,
    LEAST_DELTA,
    Verdict,
    counted,
    not_applicable,
    self_normalised,
    self_normalised_limit,
    undecided,
    z_limit,
)

TIMES = 3  #: other kernels may err by more than the baseline's, and errors have long tails
WORTH = math.log(0.1)  #: alternatives less likely than this are not compared: nobody acts on them
LEAST_ANSWERS = 20  #: fewer cannot reach the bound of `self_normalised_limit`, whatever they say
LEAST_SHIFT = 1e-3  #: nats; a mean error below it is nobody's concern, however surely it is there


def judge_logprobs(candidate: Sequence[Scored], baseline: Sequence[Scored]) -> Verdict:
    """Whether what the candidate reports of its tokens is what the baseline says of the same tokens.

    ``answer.logprobs`` is what the engine reported, ``logprobs`` what the baseline scored. Faults: an entry
    too many or too few; an error above the tolerance, max(0.01, 3 x the largest error of the baseline's
    own reports); a mean error, with its sign, other than the baseline's (self-normalised over answers), if it
    is above 0.001 nats. Sizes of errors are not compared: other kernels may err by more, to either side.
    """
    if not any(one.answer.logprobs for one in baseline):
        return undecided("the baseline reports no log-probabilities")
    missing = [
        f"answer {n}: {len(one.answer.logprobs)} log-probabilities for {len(one.answer.ids)} tokens"
        for n, one in enumerate(candidate)
        if len(one.answer.logprobs) != len(one.answer.ids)
    ]
    pairs = [
        (_errors(mine), _errors(its))
        for mine, its in zip(candidate, baseline, strict=True)
        if len(mine.answer.logprobs) == len(mine.answer.ids) > 0
    ]
    own = [abs(error) for _, its in pairs for error in its]
    tolerance = max(LEAST_DELTA, TIMES * max(own, default=0.0))
    beyond = [
        f"answer {n}, token {at + 1}: reported {error:+.4g} nats off"
        for n, (mine, _) in enumerate(pairs)
        for at, error in enumerate(mine)
        if not abs(error) <= tolerance  # NaN counts
    ]
    drift = [_drift(mine) - _drift(its) for mine, its in zip(candidate, baseline, strict=True)]
    z, mean = self_normalised(drift), math.fsum(drift) / max(1, len(drift))
    drifting = abs(z) > self_normalised_limit(ALPHA / 2) and abs(mean) > LEAST_SHIFT
    count = sum(len(mine) for mine, _ in pairs)
    largest = max((abs(error) for mine, _ in pairs for error in mine), default=0.0)
    figures = {
        "tokens": count,
        "largest_error_nats": largest if math.isfinite(largest) else -1.0,
        "baseline_error_nats": max(own, default=0.0),
        "tolerance_nats": tolerance,
        "drift_nats": mean if math.isfinite(mean) else -1.0,
        "drift_z": z if math.isfinite(z) else -1.0,
    }
    said = f"{counted(count, 'token')}: largest error {largest:.2g} nats (tolerance {tolerance:.2g})"
    faults = [*missing, *beyond]
    if drifting:
        faults.append(f"reports are {mean:+.2g} nats off on average, beside the baseline's own: Z = {z:.1f}")
    if faults:
        said += f"; {counted(len(faults), 'fault')}"
    power = (
        f"an error above {tolerance:.2g} nats on any token is caught, and a lasting one above "
        f"{LEAST_SHIFT:g} nats if {LEAST_ANSWERS} or more answers carry it to the same side"
    )
    return Verdict(not faults, said, power, figures, faults)


def _errors(scored: Scored) -> list[float]:
    own = scored.answer
    found = [told - seen for told, seen in zip(own.logprobs, scored.logprobs, strict=False)]
    # The runner-up's too: an engine may report the token's own rightly and the alternatives wrongly.
    found += [
        told - seen
        for told, seen in zip(own.others, scored.others, strict=False)
        if seen > WORTH and math.isfinite(told)
    ]
    return found


def _drift(scored: Scored) -> float:
    """The mean error of what is said of the tokens themselves."""
    errors = [told - seen for told, seen in zip(scored.answer.logprobs, scored.logprobs, strict=False)]
    return math.fsum(errors) / len(errors) if errors else 0.0


LEAST_CUT = 10  #: expected tokens that an ignored parameter lets through: fewer decide nothing

Cut = Callable[[Top, float], float]
"""From the likeliest tokens and the noise floor in nats: the least log-probability that may come."""


def top_k(k: int) -> Cut:
    """Only the ``k`` likeliest tokens."""
    return lambda top, noise: top[k - 1][1] - noise if len(top) >= k else -math.inf


def min_p(share: float) -> Cut:
    """Only tokens with this share of the best one's probability."""
    return lambda top, noise: top[0][1] + math.log(share) - noise


def top_p(mass: float) -> Cut:
    """Only the likeliest tokens that together reach this probability."""

    def least(top: Top, noise: float) -> float:
        whole = 0.0
        for _, logprob in top:
            whole += math.exp(logprob - noise)
            if whole >= mass:
                return logprob - noise
        return -math.inf  # the set reaches beyond the tokens that are known

    return least


#: What is asked for: name, fields of the request, and the rule that cuts off tokens.
CUTS: tuple[tuple[str, Mapping[str, Any], Cut], ...] = (
    ("top_p", {"top_p": 0.6}, top_p(0.6)),
    ("top_k", {"top_k": 2}, top_k(2)),
    ("min_p", {"min_p": 0.3}, min_p(0.3)),
)
TEMPERATURES = (0.5, 1.5)
#: What vLLM 0.32 says of min_p and logit_bias: it refuses them, so they cannot change an answer unseen.
UNSUPPORTED = "not yet supported with speculative decoding"


@dataclass(frozen=True)
class ParameterCase:
    """The samples of both sides under one parameter."""

    name: str
    candidate: Sequence[Scored]
    baseline: Sequence[Scored]
    cut: Cut | None = None
    temperature: float = 1.0
    refused: bool = False  #: the engine does not support it with speculation, and says so


def judge_parameters(cases: Sequence[ParameterCase], noise: float) -> Verdict:
    """Whether each parameter is applied; ``noise`` is the floor's least gap that counts, in nats.

    Where the baseline itself breaks a rule, something between sampling and scoring makes it void.
    """
    if not cases:
        return undecided("no parameter was asked for")
    refused = [f"{case.name} is not applicable: {UNSUPPORTED}" for case in cases if case.refused]
    cases = [case for case in cases if not case.refused]
    if not cases:
        return not_applicable("; ".join(refused))
    parts = [_cut(case, noise) if case.cut else _tempered(case) for case in cases]
    figures = {name: value for part in parts for name, value in part.figures.items()}
    faults = [fault for part in parts for fault in part.examples]
    said = "; ".join([*(part.summary for part in parts if part.passed is not None), *refused])
    power = "; ".join(part.power for part in parts if part.passed is not None)
    if faults:
        return Verdict(False, said, power, figures, faults)
    # One temperature that is seen to be applied is enough: the other may shift too little here.
    warm = any(part.passed for part, case in zip(parts, cases, strict=True) if case.cut is None)
    void = [
        part
        for part, case in zip(parts, cases, strict=True)
        if part.passed is None and not (warm and case.cut is None)
    ]
    if void:
        return Verdict(None, "; ".join(p.summary for p in void), power, figures)
    return Verdict(True, said, power, figures)


def _cut(case: ParameterCase, noise: float) -> Verdict:
    assert case.cut is not None
    mine, its = _beyond(case.candidate, case.cut, noise), _beyond(case.baseline, case.cut, noise)
    # If ignored, the tokens come as at temperature 1: by the probability of what is cut off.
    expected = sum(
        max(0.0, 1 - sum(math.exp(lp) for _, lp in top if lp >= case.cut(top, noise)))
        for scored in case.candidate
        for top in scored.tops[1:]
        if case.cut(top, noise) > -math.inf
    )
    tokens = sum(max(0, len(scored.tops) - 1) for scored in case.candidate)
    figures = {f"{case.name}_cut_off": float(len(mine)), f"{case.name}_expected_if_ignored": expected}
    if its:
        return undecided(f"the baseline does not keep {case.name} either", figures)
    power = (
        f"{case.name}: one token that it cuts off is caught; ignored, it would let through about "
        f"{expected:.0f} of {tokens:,}"
    )
    if mine:
        said = f"{case.name} is not applied: {len(mine)} of {tokens:,} tokens are cut off by it"
        return Verdict(False, said, power, figures, [f"{case.name}: {mine[0]}"])
    if expected < LEAST_CUT:
        return undecided(f"{case.name}: too few tokens that it would cut off ({expected:.1f})", figures)
    return Verdict(True, f"{case.name} is applied", power, figures)


def _beyond(samples: Sequence[Scored], cut: Cut, noise: float) -> list[str]:
    """The tokens that may not come; the first of each sample is left out, as it is not speculated."""
    found = []
    for n, scored in enumerate(samples):
        rows = list(zip(scored.logprobs, scored.tops, strict=False))
        for at, (logprob, top) in enumerate(rows[1:], 2):
            if top and logprob < cut(top, noise):
                found.append(f"sample {n}, token {at}: {top[0][1] - logprob:.3g} nats below the best")
    return found


def _tempered(case: ParameterCase) -> Verdict:
    name = f"temperature {case.temperature:g}"
    mine, its = (_warmth(samples, case.temperature) for samples in (case.candidate, case.baseline))
    limit = z_limit(ALPHA / len(TEMPERATURES))
    figures = {f"z_{name}".replace(" ", "_"): mine.z}
    if abs(its.z) > limit:
        return undecided(f"the baseline's own samples do not fit {name}, Z = {its.z:.1f}", figures)
    power = f"{name}: Z would be about {mine.if_ignored:.0f} if it were ignored (limit {limit:.1f})"
    if abs(mine.z) > limit:
        return Verdict(
            False, f"{name} is not applied: Z = {mine.z:.1f}", power, figures, [f"{name}: Z = {mine.z:.1f}"]
        )
    if abs(mine.if_ignored) < limit + 2:
        return undecided(f"{name}: too few tokens to see whether it is ignored", figures)
    return Verdict(True, f"{name} is applied", power, figures)


@dataclass(frozen=True)
class _Warmth:
    z: float  #: of the tokens' log-probabilities, beside those expected at the temperature
    if_ignored: float  #: the same for samples at temperature 1


def _warmth(samples: Sequence[Scored], temperature: float) -> _Warmth:
    """Compare the log-probabilities of tokens with those expected, among the likeliest tokens alone.

    Given that one of the likeliest tokens comes, their shares do not depend on the rest of the vocabulary.
    """
    surplus = variance = ignored = 0.0
    for scored in samples:
        for token, top in list(zip(scored.answer.ids, scored.tops, strict=False))[1:]:
            known = dict(top)
            if token not in known:
                continue
            mean, spread = _moments(known.values(), temperature)
            surplus += known[token] - mean
            variance += spread
            ignored += _moments(known.values(), 1.0)[0] - mean
    deviation = math.sqrt(variance) or math.inf
    return _Warmth(surplus / deviation, ignored / deviation)


def _moments(logprobs: Collection[float], temperature: float) -> tuple[float, float]:
    weights = [math.exp(logprob / temperature) for logprob in logprobs]
    whole = sum(weights)
    mean = sum(w * logprob for w, logprob in zip(weights, logprobs, strict=True)) / whole
    square = sum(w * logprob**2 for w, logprob in zip(weights, logprobs, strict=True)) / whole
    return mean, max(0.0, square - mean**2)
