"""Which K to measure next, and which to choose. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from peagle_sm.measure.tune.predict import Prediction, together, without_baseline

#: A smaller K is chosen while it is not significantly slower than the best one at this level …
CHOICE_SHARE = 0.95
#: … and while it is expected to lose at most this share of the rate more than the best one.
#: Without this bound a wide interval would excuse any K: the fewer the readings, the worse the choice.
CHOICE_LOSS = 0.005
GUESS_GAIN = 0.01  #: an unmeasured K is named where it is expected to be faster by at least this share


@dataclass(frozen=True)
class Choice:
    """The K for one concurrency, out of those that were measured.

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
    def reason(self) -> str:
        """Why this K, in words."""
        if self.k == self.expected_best:
            best = f"K={self.k} has the highest expected rate of the measured K"
            if not self.smaller:
                said = f"{best}, and no smaller K was measured"
            elif not self.open_ks:
                said = f"{best}, and every smaller one is significantly slower"
            else:
                named = ", ".join(map(str, self.open_ks))
                said = (
                    f"{best}; not settled: K={named} not significantly slower, but expected to lose over "
                    f"{CHOICE_LOSS:.1%} more (measure more to settle it)"
                )
        else:
            mean, low, high = self.ratio
            said = (
                f"K={self.k} reaches {mean:.3f} [{low:.3f}, {high:.3f}] of the rate expected at "
                f"K={self.expected_best}: not significantly slower, so the smaller K"
            )
        if self.guess is None:
            return said
        k, ratio = self.guess
        return f"{said}; K={k} was not measured, a guess of its rate is {ratio:.3f} of that"


def choose(prediction: Prediction, share: float = CHOICE_SHARE, loss: float = CHOICE_LOSS) -> Choice:
    """The smallest measured K that is not significantly slower than the best one, and costs next to nothing.

    A smaller K costs less verification when the load grows beyond what was measured, so ties go to it.
    """
    best = prediction.best
    known = sorted(prediction.measured)
    most = expected_loss(prediction, best) + loss

    def not_slower(k: int) -> bool:
        return prediction.ratio(k, best, share)[2] >= 1.0

    k = next(k for k in known if k == best or (not_slower(k) and expected_loss(prediction, k) <= most))
    likely = prediction.ks[int(np.argmax(prediction.mean))]
    ahead = float(prediction.mean[prediction.ks.index(likely)]) / float(prediction.of(k).mean())
    return Choice(
        prediction.concurrency,
        k,
        best,
        prediction.ratio(k, best),
        expected_loss(prediction, k),
        tuple(other for other in known if other < k and not_slower(other)),
        sum(1 for other in known if other < k),
        (likely, ahead) if likely not in known and ahead > 1 + GUESS_GAIN else None,
    )


def expected_loss(prediction: Prediction, k: int) -> float:
    """The average share of the best rate that ``k`` gives away, over what the curves may be."""
    draws = prediction.draws
    return float(np.mean(1 - draws[:, prediction.ks.index(k)] / draws.max(axis=1)))


def next_k(predictions: Mapping[int, Prediction], least_gain: float = 0.0) -> int | None:
    """The unmeasured K that may add most to the best measured rate over all concurrencies together.

    Expected improvement: the mean, over what the curves may be, of how much faster it is than the K that
    would be chosen now. None when no K is expected to add ``least_gain``, a share of the rate.
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
    """The K above 0 worth another reading: those that may beat the one chosen now by ``least_gain``.

    ``share`` is the interval whose upper end counts. The chosen ones are among them, when any other is.
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
    """The ``count`` K above 0 with the highest expected rates."""
    mean = dict(zip(prediction.ks, prediction.mean, strict=True))
    return sorted((k for k in prediction.ks if k), key=lambda k: -mean[k])[:count]


def first_probes(max_k: int) -> Sequence[int]:
    """The two K to begin with: a small one, and one where most heads accept little more."""
    if max_k < 3:
        return tuple(range(1, max_k + 1))
    small = max(1, round(0.65 * math.sqrt(max_k)))
    return (small, min(max_k, max(small + 1, round(2 * math.sqrt(max_k)))))
