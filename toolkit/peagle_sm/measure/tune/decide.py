"""Which K to measure next, and which to choose. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from peagle_sm.measure.tune.predict import Prediction

#: A smaller K is chosen while this interval of its rate over the best one's does not exclude 1 …
CHOICE_SHARE = 0.95
#: … and while it gives away at most so much more than the best one, as a share of the rate, on average.
#: Without this bound a wide interval would excuse any K: the fewer the readings, the worse the choice.
CHOICE_LOSS = 0.005


@dataclass(frozen=True)
class Choice:
    """The K for one concurrency. ``ratio`` is its rate over that of the best expected K, with interval."""

    concurrency: int
    k: int
    expected_best: int
    ratio: tuple[float, float, float]
    expected_loss: float  #: the share of the best rate given away on average, as far as is known
    open_ks: tuple[int, ...] = ()  #: smaller K that the interval does not exclude; they would cost too much
    smaller: int = 0  #: how many smaller K were in question

    @property
    def reason(self) -> str:
        """Why this K, in words."""
        if self.k == self.expected_best:
            best = f"K={self.k} has the highest expected rate"
            if not self.smaller:
                return f"{best}, and there is no smaller one"
            if not self.open_ks:
                return f"{best}, and every smaller K is excluded"
            named = ", ".join(map(str, self.open_ks))
            return (
                f"{best}; not settled: K={named} not excluded, but giving away over {CHOICE_LOSS:.1%} more "
                "on average (measure more to settle it)"
            )
        mean, low, high = self.ratio
        return (
            f"K={self.k} reaches {mean:.3f} [{low:.3f}, {high:.3f}] of the rate expected at "
            f"K={self.expected_best}: not excluded as its equal, so the smaller K"
        )


def choose(prediction: Prediction, share: float = CHOICE_SHARE, loss: float = CHOICE_LOSS) -> Choice:
    """The smallest K that is not excluded as an equal of the best expected one, and costs next to nothing.

    A smaller K costs less verification when the load grows beyond what was measured, so ties go to it.
    """
    best = prediction.best
    most = expected_loss(prediction, best) + loss
    for k in sorted(prediction.ks):
        equal = prediction.ratio(k, best, share)[2] >= 1.0 and expected_loss(prediction, k) <= most
        if k == best or equal:
            still_open = tuple(
                other
                for other in prediction.ks
                if other < k and prediction.ratio(other, best, share)[2] >= 1.0
            )
            loss_here = expected_loss(prediction, k)
            ratio = prediction.ratio(k, best)
            smaller = sum(1 for other in prediction.ks if other < k)
            return Choice(prediction.concurrency, k, best, ratio, loss_here, still_open, smaller)
    raise AssertionError("the best K is one of them")


def expected_loss(prediction: Prediction, k: int) -> float:
    """The average share of the best rate that ``k`` gives away, over what the curves may be."""
    draws = prediction.draws
    return float(np.mean(1 - draws[:, prediction.ks.index(k)] / draws.max(axis=1)))


def next_k(predictions: Mapping[int, Prediction], measured: Collection[int]) -> int | None:
    """The unmeasured K that may add most to the best measured rate, over all concurrencies together.

    Expected improvement: the mean, over what the curves may be, of what it would be faster than the K that
    would be chosen now. None when every K was measured.
    """
    gains: dict[int, float] = {}
    for prediction in predictions.values():
        now = prediction.draws[:, prediction.ks.index(prediction.best)]
        for index, k in enumerate(prediction.ks):
            if k and k not in measured:
                gain = float(np.mean(np.clip(prediction.draws[:, index] / now - 1, 0, None)))
                chance = gain if k != prediction.best else gain + expected_loss(prediction, k)
                gains[k] = gains.get(k, 0.0) + chance
    return max(gains, key=lambda k: (gains[k], -k)) if gains else None


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
    """The two K to begin with: the largest (its survival rates bound every smaller K) and a small one."""
    return (max_k,) if max_k < 3 else (max(1, round(max_k * 3 / 11)), max_k)
