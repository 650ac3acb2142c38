"""The log-probabilities that an answer reports: are they the target's? Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from peagle_sm.measure.verify.answers import Scored
from peagle_sm.measure.verify.figures import ALPHA, self_normalised, self_normalised_limit
from peagle_sm.measure.verify.floor import LEAST_DELTA
from peagle_sm.measure.verify.verdict import Verdict, counted, undecided

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
