"""Checks of reported log-probabilities and of sampling parameters. Pure.

A parameter that cuts off tokens (top_p, top_k, min_p) is judged token by token: no token may be more than the
noise floor below the cut-off. A temperature is judged by the log-probabilities of the sampled tokens among
the most likely ones, since the rest of the vocabulary is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from peagle_bench.verify.answers import Scored, Top
from peagle_bench.verify.statistics import (
    ALPHA,
    LEAST_DELTA,
    CheckVerdict,
    counted,
    not_applicable,
    self_normalised,
    self_normalised_limit,
    undecided,
    z_limit,
)

TIMES = 3  #: tolerance factor: other kernels may have larger errors, and errors have long tails
WORTH = math.log(0.1)  #: less likely alternatives are not compared: they do not matter to users
LEAST_ANSWERS = 20  #: fewer answers cannot reach the bound of `self_normalised_limit`
LEAST_SHIFT = 1e-3  #: nats; a smaller mean error does not matter, even if significant


def judge_logprobs(candidate: Sequence[Scored], baseline: Sequence[Scored]) -> CheckVerdict:
    """Judge whether the candidate's reported log-probabilities agree with the baseline's scores.

    ``answer.logprobs`` are reported by the engine, ``logprobs`` are the baseline's scores. Faults: a missing
    or additional entry; an error above the tolerance, max(0.01, 3 x the largest error of the baseline's own
    reports); a signed mean error that differs from the baseline's (self-normalised over answers) by more than
    0.001 nats. Sizes of errors are not compared: other kernels may have larger ones, in both directions.
    """
    if not any(scored.answer.logprobs for scored in baseline):
        return undecided("the baseline reports no log-probabilities")
    missing = [
        f"answer {n}: {len(scored.answer.logprobs)} log-probabilities for {len(scored.answer.ids)} tokens"
        for n, scored in enumerate(candidate)
        if len(scored.answer.logprobs) != len(scored.answer.ids)
    ]
    pairs = [
        (_errors(mine), _errors(its))
        for mine, its in zip(candidate, baseline, strict=True)
        if len(mine.answer.logprobs) == len(mine.answer.ids) > 0
    ]
    own = [abs(error) for _, its in pairs for error in its]
    tolerance = max(LEAST_DELTA, TIMES * max(own, default=0.0))
    beyond = [
        f"answer {n}, token {at + 1}: reported value {error:+.4g} nats off"
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
    summary = f"{counted(count, 'token')}: largest error {largest:.2g} nats (tolerance {tolerance:.2g})"
    faults = [*missing, *beyond]
    if drifting:
        faults.append(
            f"reported values are {mean:+.2g} nats off on average, compared with the baseline's: Z = {z:.1f}"
        )
    if faults:
        summary += f"; {counted(len(faults), 'fault')}"
    power = (
        f"detects an error above {tolerance:.2g} nats on any token, and a systematic one above "
        f"{LEAST_SHIFT:g} nats if {LEAST_ANSWERS} or more answers have it in the same direction"
    )
    return CheckVerdict(not faults, summary, power, figures, faults)


def _errors(scored: Scored) -> list[float]:
    own = scored.answer
    errors = [reported - seen for reported, seen in zip(own.logprobs, scored.logprobs, strict=False)]
    # The alternative's too: an engine may report the token correctly and the alternatives wrongly.
    errors += [
        reported - seen
        for reported, seen in zip(own.others, scored.others, strict=False)
        if seen > WORTH and math.isfinite(reported)
    ]
    return errors


def _drift(scored: Scored) -> float:
    """Compute the mean error of the generated tokens' reported log-probabilities."""
    errors = [
        reported - seen for reported, seen in zip(scored.answer.logprobs, scored.logprobs, strict=False)
    ]
    return math.fsum(errors) / len(errors) if errors else 0.0


LEAST_CUT = 10  #: expected number of cut-off tokens if a parameter were ignored; with fewer it is undecided

Cut = Callable[[Top, float], float]
"""Function of the most likely tokens and the noise floor (nats): the lowest allowed log-probability."""


def top_k(k: int) -> Cut:
    """Make the cut-off of top_k: only the ``k`` most likely tokens."""
    return lambda top, noise: top[k - 1][1] - noise if len(top) >= k else -math.inf


def min_p(share: float) -> Cut:
    """Make the cut-off of min_p: only tokens with this share of the best one's probability."""
    return lambda top, noise: top[0][1] + math.log(share) - noise


def top_p(mass: float) -> Cut:
    """Make the cut-off of top_p: only the most likely tokens that together reach this probability."""

    def least(top: Top, noise: float) -> float:
        whole = 0.0
        for _, logprob in top:
            whole += math.exp(logprob - noise)
            if whole >= mass:
                return logprob - noise
        return -math.inf  # the set extends beyond the known tokens

    return least


#: Tested parameters: name, fields of the request, and the cut-off.
CUTS: tuple[tuple[str, Mapping[str, Any], Cut], ...] = (
    ("top_p", {"top_p": 0.6}, top_p(0.6)),
    ("top_k", {"top_k": 2}, top_k(2)),
    ("min_p", {"min_p": 0.3}, min_p(0.3)),
)
TEMPERATURES = (0.5, 1.5)
#: vLLM 0.32's refusal of min_p and logit_bias; a refused parameter cannot change an answer unnoticed.
UNSUPPORTED = "not yet supported with speculative decoding"


@dataclass(frozen=True)
class ParameterCase:
    """Samples of both engines with one parameter."""

    name: str
    candidate: Sequence[Scored]
    baseline: Sequence[Scored]
    cut: Cut | None = None
    temperature: float = 1.0
    refused: bool = False  #: the engine refuses it with speculation


def judge_parameters(cases: Sequence[ParameterCase], noise: float) -> CheckVerdict:
    """Judge whether each parameter is applied; ``noise`` is the smallest gap that counts, in nats.

    If the baseline itself violates a cut-off, the test is void: something changes tokens between sampling and
    scoring.
    """
    if not cases:
        return undecided("no parameter was tested")
    refused = [f"{case.name} is not applicable: {UNSUPPORTED}" for case in cases if case.refused]
    cases = [case for case in cases if not case.refused]
    if not cases:
        return not_applicable("; ".join(refused))
    parts = [_cut(case, noise) if case.cut else _tempered(case) for case in cases]
    figures = {name: value for part in parts for name, value in part.figures.items()}
    faults = [fault for part in parts for fault in part.examples]
    summary = "; ".join([*(part.summary for part in parts if part.passed is not None), *refused])
    power = "; ".join(part.power for part in parts if part.passed is not None)
    if faults:
        return CheckVerdict(False, summary, power, figures, faults)
    # One temperature that is shown to be applied is enough: the other may have too little effect here.
    warm = any(part.passed for part, case in zip(parts, cases, strict=True) if case.cut is None)
    void = [
        part
        for part, case in zip(parts, cases, strict=True)
        if part.passed is None and not (warm and case.cut is None)
    ]
    if void:
        return CheckVerdict(None, "; ".join(p.summary for p in void), power, figures)
    return CheckVerdict(True, summary, power, figures)


def _cut(case: ParameterCase, noise: float) -> CheckVerdict:
    assert case.cut is not None
    mine, baseline = _beyond(case.candidate, case.cut, noise), _beyond(case.baseline, case.cut, noise)
    # Without the parameter, tokens are sampled as at temperature 1: this is the expected number cut off.
    expected = sum(
        max(0.0, 1 - sum(math.exp(lp) for _, lp in top if lp >= case.cut(top, noise)))
        for scored in case.candidate
        for top in scored.tops[1:]
        if case.cut(top, noise) > -math.inf
    )
    tokens = sum(max(0, len(scored.tops) - 1) for scored in case.candidate)
    figures = {f"{case.name}_cut_off": float(len(mine)), f"{case.name}_expected_if_ignored": expected}
    if baseline:
        return undecided(f"the baseline itself does not apply {case.name}", figures)
    power = (
        f"{case.name}: detects a single cut-off token; if it were ignored, about {expected:.0f} of "
        f"{tokens:,} tokens would be beyond the cut-off"
    )
    if mine:
        summary = f"{case.name} is not applied: {len(mine)} of {tokens:,} tokens are beyond the cut-off"
        return CheckVerdict(False, summary, power, figures, [f"{case.name}: {mine[0]}"])
    if expected < LEAST_CUT:
        return undecided(f"{case.name}: it would cut off too few tokens ({expected:.1f})", figures)
    return CheckVerdict(True, f"{case.name} is applied", power, figures)


def _beyond(samples: Sequence[Scored], cut: Cut, noise: float) -> list[str]:
    """List tokens beyond the cut-off, without the first of each sample, which is not speculated."""
    faults = []
    for n, scored in enumerate(samples):
        rows = list(zip(scored.logprobs, scored.tops, strict=False))
        for at, (logprob, top) in enumerate(rows[1:], 2):
            if top and logprob < cut(top, noise):
                faults.append(f"sample {n}, token {at}: {top[0][1] - logprob:.3g} nats below the best")
    return faults


def _tempered(case: ParameterCase) -> CheckVerdict:
    name = f"temperature {case.temperature:g}"
    z, if_ignored = _warmth(case.candidate, case.temperature)
    own, _ = _warmth(case.baseline, case.temperature)
    limit = z_limit(ALPHA / len(TEMPERATURES))
    figures = {f"z_{name}".replace(" ", "_"): z}
    if abs(own) > limit:
        return undecided(f"the baseline's own samples do not fit {name}: Z = {own:.1f}", figures)
    power = f"if the engine ignored {name}, Z would be about {if_ignored:.0f} (limit {limit:.1f})"
    if abs(z) > limit:
        return CheckVerdict(
            False, f"{name} is not applied: Z = {z:.1f}", power, figures, [f"{name}: Z = {z:.1f}"]
        )
    if abs(if_ignored) < limit + 2:
        return undecided(f"{name}: too few tokens to decide whether it is ignored", figures)
    return CheckVerdict(True, f"{name} is applied", power, figures)


def _warmth(samples: Sequence[Scored], temperature: float) -> tuple[float, float]:
    """Compare the log-probabilities of tokens with those expected, among the most likely tokens.

    Given that the token is one of these, their shares do not depend on the rest of the vocabulary.

    Returns:
        Z, and about what it would be for samples at temperature 1.
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
    return surplus / deviation, ignored / deviation


def _moments(logprobs: Collection[float], temperature: float) -> tuple[float, float]:
    weights = [math.exp(logprob / temperature) for logprob in logprobs]
    whole = sum(weights)
    mean = sum(w * logprob for w, logprob in zip(weights, logprobs, strict=True)) / whole
    square = sum(w * logprob**2 for w, logprob in zip(weights, logprobs, strict=True)) / whole
    return mean, max(0.0, square - mean**2)
