"""Choice of K, and which K to measure next. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from peagle_bench.results.records import Interval, Reading
from peagle_bench.tune.curve import Rates, fit, level, noise_of, together

#: Share of the highest rate that a smaller K may lose to be chosen. A smaller K needs less verification at
#: loads above the measured ones, so it is preferred.
CHOICE_LOSS = 0.005
LEAST_GAIN = 0.01  #: a K that was not measured is reported if it is expected to be this much faster
MOST_DEPLOYED = 5  #: limit of deployed K, besides the baseline
WORTH_DEPLOYING = 0.004  #: least expected gain for which another K is deployed
FIRST_KS = 6  #: number of K above 0 in the first round inside one engine
LATER_KS = 5  #: maximum number of K above 0 in each later round
ROUNDS = 3  #: number of rounds inside one engine
RIVAL = 1.3  #: a K may be the best while its rate and this many standard deviations reach the highest rate


@dataclass(frozen=True)
class Choice:
    """Chosen K for one concurrency, one of the measured K.

    ``ratio`` is its rate over that of the measured K with the highest expected rate.
    """

    concurrency: int
    k: int
    expected_best: int
    ratio: Interval
    expected_loss: float  #: expected share of the rate lost against the best of all K, measured or not
    open_ks: tuple[int, ...] = ()  #: smaller K that are not significantly slower, but expected to lose more
    smaller: int = 0  #: how many smaller K were measured
    guess: tuple[int, float] | None = None  #: a K that was not measured and is expected faster, and the ratio

    @property
    def is_certain(self) -> bool:
        """Whether no smaller K may be as fast, and no K that was not measured may be faster."""
        return not self.open_ks and self.guess is None

    @property
    def reason(self) -> str:
        """Reason for this K, in words."""
        if self.k == self.expected_best:
            best = f"K={self.k} has the highest expected rate of the measured K"
            if not self.smaller:
                words = f"{best}, and no smaller K was measured"
            elif not self.open_ks:
                words = f"{best}, and every smaller one is significantly slower"
            else:
                words = f"{best}; {self._open}"
        else:
            ratio = self.ratio
            words = (
                f"K={self.k} reaches {ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}] of the rate "
                f"expected at K={self.expected_best}: at most {CHOICE_LOSS:.1%} less, so the smaller "
                "K is chosen"
            )
            words += f"; {self._open}" if self.open_ks else ""
        if self.guess is None:
            return words
        k, ahead = self.guess
        return f"{words}; K={k} was not measured, its predicted rate is {ahead:.3f} of that"

    @property
    def _open(self) -> str:
        ks = ", ".join(map(str, self.open_ks))
        return (
            f"not certain: K={ks} not significantly slower, but expected to lose more than {CHOICE_LOSS:.1%} "
            "(more measurements can decide)"
        )


def choose(rates: Rates) -> Choice:
    """Choose the smallest measured K that is expected to lose at most `CHOICE_LOSS` of the highest rate."""
    best = rates.best
    least = rates.of(best) * (1 - CHOICE_LOSS)
    k = min(k for k in rates.measured if rates.of(k) >= least)
    likely = rates.likely
    ahead = rates.of(likely) / rates.of(k)
    smaller = [other for other in rates.measured if other < k]
    return Choice(
        rates.concurrency,
        k,
        best,
        rates.ratio(k, best).interval(),
        1 - rates.of(k) / rates.of(likely),
        tuple(other for other in smaller if rates.ratio(other, best).interval().high >= 1),
        len(smaller),
        (likely, ahead) if likely not in rates.measured and ahead > 1 + LEAST_GAIN else None,
    )


def spread(max_k: int, count: int) -> tuple[int, ...]:
    """Choose ``count`` K (2 or more) up to ``max_k``, denser at small K: 1, 2, 3, 4, 7, 11."""
    if count >= max_k:
        return tuple(range(1, max_k + 1))
    ratio = max_k ** (1 / (count - 1))
    ks: list[int] = []
    for index in range(count):
        wanted = round(ratio**index)
        ks.append(max(wanted, ks[-1] + 1) if ks else wanted)
    return tuple(min(k, max_k - (count - 1 - index)) for index, k in enumerate(ks))


def first_deployments(max_k: int) -> tuple[int, ...]:
    """Return the K that are deployed in any case: the largest gives the acceptance curve.

    K=7 verifies 8 tokens for each request, a size at which CUDA graphs are captured, so its step time has no
    padding.
    """
    return (max_k, 7, 2) if max_k > 8 else (max_k, 2) if max_k > 2 else (2, 1)


def next_deployment(readings: Sequence[Reading], max_k: int, most: int = MOST_DEPLOYED) -> int | None:
    """Choose the next K to deploy: the largest, two smaller ones, then the K that may gain most.

    None if ``most`` were deployed, or no K is expected to gain `WORTH_DEPLOYING`.
    """
    deployed = {reading.k for reading in readings} - {0}
    if len(deployed) >= most:
        return None
    for k in first_deployments(max_k):
        if k not in deployed:
            return k
    rates = together({c: each.speculating() for c, each in fit(readings).items()})
    gains = {k: expected_gain(rates, k) for k in rates.ks if k not in deployed}
    worth = [k for k in gains if gains[k] > WORTH_DEPLOYING]
    return max(worth, key=lambda k: (gains[k], -k), default=None)


def expected_gain(rates: Rates, k: int) -> float:
    """Return the share of the best measured K's rate that an unmeasured K is expected to gain.

    Between two measured K the step time rises evenly, or in one jump, which may be at any K: each has half of
    the probability.
    """
    below = max((other for other in rates.measured if other < k), default=0)
    above = min((other for other in rates.measured if other > k), default=k)
    best = rates.of(rates.best)
    even = max(0.0, rates.of(k) / best - 1)
    before_jump = max(0.0, float(rates.ceiling[rates.ks.index(k)]) / best - 1)
    return (even + before_jump * (above - k) / (above - below)) / 2


def next_round(readings: Sequence[Reading], max_k: int, concurrency: int) -> list[int]:
    """Choose the K above 0 of the next round at one concurrency, inside one engine; empty at the end.

    First a few from small to large; then those that may be the best, measured or not. There is always
    a second round: without repeats the noise of this engine is unknown.
    """
    blocks = {reading.block for reading in readings if reading.k and reading.concurrency == concurrency}
    if not blocks:
        return list(spread(max_k, min(FIRST_KS, max_k)))
    clean = level(readings)
    rates = fit(clean, noise_of(clean))[concurrency].speculating()
    ranked = sorted(rates.ks, key=rates.of, reverse=True)
    highest = rates.of(ranked[0])
    rivals = [k for k in ranked if rates.of(k) * math.exp(RIVAL * rates.error(k)) > highest][:LATER_KS]
    if len(rivals) > 1:
        return sorted(rivals)
    return sorted(ranked[:2]) if len(blocks) == 1 else []
