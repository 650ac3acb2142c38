"""Strategies of a tuning: which K to measure next, and which K to choose.

A tuning measures its K in one running engine, in several components, or in one deployment after another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np

from peagle_bench.tune.fit import Noise, fit, level, noise_of
from peagle_bench.tune.predict import Prediction, predict, together, without_baseline
from peagle_bench.tune.readings import Reading
from peagle_bench.tune.windows import WindowReader

#: A smaller K is chosen while it is not significantly slower than the best one at this level …
CHOICE_SHARE = 0.95
#: … and while its expected loss is at most this share of the rate above that of the best one.
#: Without this bound a wide interval would allow any K, so few readings would give a bad choice.
CHOICE_LOSS = 0.005
GUESS_GAIN = 0.01  #: an unmeasured K is reported if it is expected to be faster by at least this share


@dataclass(frozen=True)
class Choice:
    """Chosen K for one concurrency, one of the measured K.

    ``ratio`` is its rate over that of the best expected K, with a 95% confidence interval.
    """

    concurrency: int
    k: int
    expected_best: int
    ratio: tuple[float, float, float]
    expected_loss: float  #: expected share of the rate lost against the best of all K, measured or not
    open_ks: tuple[
        int, ...
    ] = ()  #: smaller K that are not significantly slower, but cost too much on average
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
                said = f"{best}, and no smaller K was measured"
            elif not self.open_ks:
                said = f"{best}, and every smaller one is significantly slower"
            else:
                named = ", ".join(map(str, self.open_ks))
                said = (
                    f"{best}; not certain: K={named} not significantly slower, but the expected loss is over "
                    f"{CHOICE_LOSS:.1%} higher (more measurements can decide)"
                )
        else:
            mean, low, high = self.ratio
            said = (
                f"K={self.k} reaches {mean:.3f} [{low:.3f}, {high:.3f}] of the rate expected at "
                f"K={self.expected_best}: not significantly slower, so the smaller K is chosen"
            )
        if self.guess is None:
            return said
        k, ratio = self.guess
        return f"{said}; K={k} was not measured, its predicted rate is {ratio:.3f} of that"


def choose(prediction: Prediction, share: float = CHOICE_SHARE, loss: float = CHOICE_LOSS) -> Choice:
    """Choose the smallest measured K that is not significantly slower and has a small expected loss.

    A smaller K needs less verification at loads above the measured ones, so it is preferred.
    """
    best = prediction.best
    known = sorted(prediction.measured)
    k = good_enough(prediction, share, loss)[0]
    likely = prediction.ks[int(np.argmax(prediction.mean))]
    ahead = float(prediction.mean[prediction.ks.index(likely)]) / float(prediction.of(k).mean())
    return Choice(
        prediction.concurrency,
        k,
        best,
        prediction.ratio(k, best),
        expected_loss(prediction, k),
        tuple(other for other in known if other < k and _not_slower(prediction, other, share)),
        sum(1 for other in known if other < k),
        (likely, ahead) if likely not in known and ahead > 1 + GUESS_GAIN else None,
    )


def good_enough(
    prediction: Prediction, share: float = CHOICE_SHARE, loss: float = CHOICE_LOSS
) -> tuple[int, ...]:
    """List the measured K that may be chosen, in ascending order; the best one is always among them.

    They are not significantly slower than the best one, and their expected loss is at most ``loss`` higher.
    """
    best = prediction.best
    most = expected_loss(prediction, best) + loss
    return tuple(
        k
        for k in sorted(prediction.measured)
        if k == best or (_not_slower(prediction, k, share) and expected_loss(prediction, k) <= most)
    )


def _not_slower(prediction: Prediction, k: int, share: float) -> bool:
    return prediction.ratio(k, prediction.best, share)[2] >= 1.0


def expected_loss(prediction: Prediction, k: int) -> float:
    """Compute the expected share of the best rate that is lost with ``k``, over the posterior draws."""
    draws = prediction.draws
    return float(np.mean(1 - draws[:, prediction.ks.index(k)] / draws.max(axis=1)))


def next_k(predictions: Mapping[int, Prediction], least_gain: float = 0.0) -> int | None:
    """Choose the unmeasured K with the largest expected improvement over all concurrencies.

    The expected improvement is the mean, over the posterior draws, of the gain over the best measured K. None
    if no K is expected to gain ``least_gain``, a share of the rate.
    """
    whole = together({c: without_baseline(prediction) for c, prediction in predictions.items()})
    now = whole.of(whole.best)
    gains = {
        k: float(np.mean(np.clip(whole.of(k) / now - 1, 0, None)))
        for k in whole.ks
        if k not in whole.measured
    }
    k = max(gains, key=lambda k: (gains[k], -k), default=None)
    return k if k is not None and gains[k] >= least_gain else None


def contenders(predictions: Mapping[int, Prediction], share: float, least_gain: float = 0.003) -> list[int]:
    """List the K above 0 worth another reading: they may beat the best one by ``least_gain``.

    ``share`` is the level of the interval whose upper end counts. The best K is included if any other is.
    """
    found: set[int] = set()
    for prediction in predictions.values():
        best = prediction.best
        rivals = {
            k for k in prediction.ks if k != best and prediction.ratio(k, best, share)[2] > 1 + least_gain
        }
        if rivals:
            found |= rivals | {best}
    return sorted(found - {0})


def leaders(prediction: Prediction, count: int = 4) -> list[int]:
    """Return the ``count`` K above 0 with the highest expected rates."""
    mean = dict(zip(prediction.ks, prediction.mean, strict=True))
    return sorted((k for k in prediction.ks if k), key=lambda k: -mean[k])[:count]


def first_probes(max_k: int) -> Sequence[int]:
    """Choose the first two K: a small one, and one beyond which most heads gain little."""
    if max_k < 3:
        return tuple(range(1, max_k + 1))
    small = max(1, round(0.65 * math.sqrt(max_k)))
    return (small, min(max_k, max(small + 1, round(2 * math.sqrt(max_k)))))


LEAST_GAIN = 0.002  #: deploy another K while its expected gain is at least this share of the rate
RUNTIME_ROUNDS = 4  #: rounds over the undecided K, if K changes inside one engine


def most_deployments(max_k: int) -> int:
    """Return the default limit of deployed K, besides the baseline."""
    return 4 if max_k <= 12 else 6


def next_deployment(
    readings: Sequence[Reading], max_k: int, most: int | None = None, noise: Noise | None = None
) -> int | None:
    """Choose the next K to deploy; None if ``most`` were deployed or no gain is expected."""
    deployed = {reading.k for reading in readings} - {0}
    if len(deployed) >= (most or most_deployments(max_k)):
        return None
    for k in first_probes(max_k):
        if k not in deployed:
            return k
    return next_k(predict(fit(readings, max_k, noise), readings, noise), LEAST_GAIN)


def next_round(
    readings: Sequence[Reading], max_k: int, concurrency: int, noise: Noise | None = None
) -> list[int]:
    """Choose the K of the next round at one concurrency: all, then the undecided; empty at the end.

    There is always a second round: without repeats the noise of this endpoint is unknown.
    """
    blocks = {reading.block for reading in readings if reading.k and reading.concurrency == concurrency}
    if not blocks:
        return list(range(1, max_k + 1))
    prediction = predict(fit(readings, max_k, noise), readings, noise)[concurrency]
    rivals = contenders({concurrency: prediction}, share=0.8)
    return sorted({*rivals, *leaders(prediction)}) if len(blocks) == 1 else rivals


Tell = Callable[[str], None]
Bring = Callable[[int], AbstractContextManager[WindowReader]]
"""Deploys one K; the end of the context deletes the endpoint."""


def in_one_engine(
    side: WindowReader,
    baseline: WindowReader | None,
    concurrencies: Sequence[int],
    max_k: int,
    tell: Tell,
    *,
    rounds: int = RUNTIME_ROUNDS,
) -> list[Reading]:
    """Measure every K once, then the undecided ones in rounds of alternating direction."""
    readings: list[Reading] = []
    for concurrency in concurrencies:
        for block in range(rounds):
            clean = level(readings)
            ks = next_round(clean, max_k, concurrency, noise_of(clean))
            if not ks:
                break
            tell(f"c={concurrency}, round {block + 1} of at most {rounds}: K {_listed(ks)}")
            readings += _round(side, baseline, ks, concurrency, block)
    return readings


def every_k(
    side: WindowReader,
    concurrencies: Sequence[int],
    max_k: int,
    rounds: int,
    tell: Tell,
    first_block: int = 0,
) -> list[Reading]:
    """Measure every K in every round: the exhaustive sweep."""
    readings: list[Reading] = []
    for concurrency in concurrencies:
        for block in range(rounds):
            tell(f"sweep, c={concurrency}, round {block + 1} of {rounds}")
            readings += _round(side, None, range(1, max_k + 1), concurrency, first_block + block)
    return readings


def side_by_side(
    sides: Mapping[tuple[str, int], WindowReader], concurrencies: Sequence[int], rounds: int, tell: Tell
) -> dict[str, list[Reading]]:
    """Measure running arms one at a time, in rounds of alternating direction.

    They share the host's processors, so an arm under load would slow the others. Returns the readings by
    mode.
    """
    found: dict[str, list[Reading]] = {mode: [] for mode, _ in sides}
    for concurrency in concurrencies:
        for block in range(rounds):
            tell(f"c={concurrency}, round {block + 1} of {rounds}: {len(sides)} arms in turns")
            order = list(sides)
            for mode, k in order if block % 2 == 0 else reversed(order):
                found[mode].append(sides[mode, k].read(k, concurrency, block))
    return found


def by_deployments(
    bring: Bring,
    baseline: WindowReader | None,
    concurrencies: Sequence[int],
    max_k: int,
    tell: Tell,
    *,
    most: int,
    beside: bool,
) -> tuple[list[Reading], int]:
    """Deploy and measure as few K as possible; return the readings and the number of deployments.

    ``beside``: measure the baseline again with each K, because both share one machine.
    """
    readings: list[Reading] = []
    block = 0
    if baseline is not None:
        readings += [baseline.read(0, concurrency, block) for concurrency in concurrencies]
    while (k := next_deployment(readings, max_k, most)) is not None:
        tell(f"deployment {block + 1} of at most {most}: K={k}")
        with bring(k) as side:
            for concurrency in concurrencies:
                readings.append(side.read(k, concurrency, block))
                if beside and baseline is not None and block:
                    readings.append(baseline.read(0, concurrency, block))
        block += 1
    return readings, block


def _round(
    side: WindowReader, baseline: WindowReader | None, ks: Sequence[int], concurrency: int, block: int
) -> list[Reading]:
    order = list(ks) if block % 2 == 0 else list(reversed(ks))
    found = [side.read(k, concurrency, block) for k in order]
    if baseline is not None:
        found.append(baseline.read(0, concurrency, block))
    return found


def _listed(ks: Sequence[int]) -> str:
    in_a_row = len(ks) > 3 and ks[-1] - ks[0] == len(ks) - 1
    return f"{ks[0]} to {ks[-1]}" if in_a_row else ", ".join(map(str, ks))
