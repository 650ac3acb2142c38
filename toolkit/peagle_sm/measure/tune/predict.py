"""From a fit to the rate at every K, drawn jointly, and whether speculation pays at all. Pure.

Because all K are drawn together, the ratio of two K has its own interval. The fit is trusted at the K that
were measured. Between and beyond them physics bounds it:

* A step with drafts costs at least the step without, and a larger K costs at least as much as a smaller one.
  Between two measured K the step time rises by a random share at each K: evenly, in steps, or in one cliff.
* The acceptance length of K lies between those of its measured neighbours. Beyond the largest, each further
  token is accepted at most as often as the last measured one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from peagle_sm.measure.tune.fit import Array, Fit, Noise
from peagle_sm.measure.tune.readings import Reading

DRAWS = 600
_SEED = 20261120  # the same readings always give the same answer
#: Shape of the gamma shares by which a step time rises from K to K: at 0.3 most of the rise is in one place.
_ROUGHEST, _SMOOTHEST = 0.3, 5.0
_BEYOND_SD = 0.5  #: of the logarithm of the slope beyond the largest measured K


@dataclass(frozen=True)
class Prediction:
    """Rates in tokens a second at one concurrency: ``draws[i, j]`` is draw i at ``ks[j]``.

    ``measured``: the K with a reading at this concurrency. Only they can be chosen.
    """

    concurrency: int
    ks: tuple[int, ...]
    draws: Array
    measured: tuple[int, ...]
    acceptance: Array | None = None  #: expected acceptance length at each of ``ks``
    step_ms: Array | None = None  #: expected step time at each of ``ks``

    @property
    def mean(self) -> Array:
        """The expected rate at each K."""
        found: Array = self.draws.mean(axis=0)
        return found

    def of(self, k: int) -> Array:
        """The draws of one K."""
        found: Array = self.draws[:, self.ks.index(k)]
        return found

    def interval(self, k: int, share: float = 0.95) -> tuple[float, float]:
        """The interval that holds the rate at ``k`` with the probability ``share``."""
        tail = 50 * (1 - share)
        low, high = np.percentile(self.of(k), [tail, 100 - tail])
        return float(low), float(high)

    def ratio(self, k: int, other: int, share: float = 0.95) -> tuple[float, float, float]:
        """Mean and interval of rate(k) / rate(other)."""
        ratios = self.of(k) / self.of(other)
        tail = 50 * (1 - share)
        low, high = np.percentile(ratios, [tail, 100 - tail])
        return float(ratios.mean()), float(low), float(high)

    @property
    def best(self) -> int:
        """The measured K of the highest expected rate."""
        return max(self.measured, key=lambda k: (float(self.of(k).mean()), -k))


def predict(fit: Fit, readings: Sequence[Reading] = (), noise: Noise | None = None) -> dict[int, Prediction]:
    """The rate at every K of the grid, and at 0 where the baseline (readings with k = 0) was measured."""
    noise = noise or Noise()
    rng = np.random.default_rng(_SEED)
    drafted = [reading for reading in readings if reading.k]
    lengths = _bounded_lengths(
        np.exp(fit.log_acceptance.draw(rng.standard_normal((DRAWS, len(fit.grid))))), drafted
    )
    found = {}
    for concurrency, curve in fit.step_ms.items():
        here = [reading for reading in readings if reading.concurrency == concurrency]
        measured = tuple(sorted({reading.k for reading in here} - {0}))
        steps = curve.draw(rng.standard_normal((DRAWS, len(fit.grid))))
        plain = _plain_steps(here, steps, measured, noise, rng)
        steps = _bounded_steps(steps, plain, measured, rng)
        draws = 1000 * concurrency * lengths / steps
        ks, acceptance, step_ms = fit.grid, lengths.mean(axis=0), steps.mean(axis=0)
        if any(reading.k == 0 for reading in here):
            ks, measured = (0, *ks), (0, *measured)
            draws = np.column_stack([1000 * concurrency / plain, draws])
            acceptance = np.concatenate([[1.0], acceptance])
            step_ms = np.concatenate([[plain.mean()], step_ms])
        found[concurrency] = Prediction(concurrency, ks, draws, measured, acceptance, step_ms)
    return found


def without_baseline(prediction: Prediction) -> Prediction:
    """Only the K with speculation: an endpoint of the mode cannot have 0."""
    keep = [index for index, k in enumerate(prediction.ks) if k]
    measured = tuple(k for k in prediction.measured if k)
    return Prediction(
        prediction.concurrency, tuple(k for k in prediction.ks if k), prediction.draws[:, keep], measured
    )


def together(predictions: Mapping[int, Prediction]) -> Prediction:
    """One rate for all concurrencies: the geometric mean, in which each counts alike."""
    first = next(iter(predictions.values()))
    logs = np.mean([np.log(prediction.draws) for prediction in predictions.values()], axis=0)
    everywhere = set.intersection(*(set(prediction.measured) for prediction in predictions.values()))
    return Prediction(0, first.ks, np.exp(logs), tuple(sorted(everywhere)))


def _plain_steps(
    here: Sequence[Reading], steps: Array, measured: Sequence[int], noise: Noise, rng: np.random.Generator
) -> Array:
    """The step without drafts; where it was not measured, half to all of the smallest measured K's."""
    known = [reading.step_ms for reading in here if reading.k == 0]
    if known:
        spread = noise.step / np.sqrt(len(known))
        found: Array = float(np.mean(known)) * np.exp(spread * rng.standard_normal(DRAWS))
        return found
    return steps[:, measured[0] - 1] * rng.uniform(0.5, 1.0, DRAWS)


def _bounded_steps(steps: Array, plain: Array, measured: Sequence[int], rng: np.random.Generator) -> Array:
    """Step times of unmeasured K: a gamma process between the measured neighbours, and on beyond the last."""
    shape = np.exp(rng.uniform(np.log(_ROUGHEST), np.log(_SMOOTHEST), DRAWS))[:, None]
    found = steps.copy()
    points = [(0, plain), *((k, steps[:, k - 1]) for k in measured)]
    slope = plain
    for (low, at_low), (high, at_high) in pairwise(points):
        gaps = high - low
        rise = rng.gamma(np.broadcast_to(shape, (DRAWS, gaps))) + 1e-9
        if low == 0 and gaps > 1:  # the first draft token also pays for the draft pass itself
            rise[:, 0] += rng.gamma(shape[:, 0] * (gaps - 1))
        share = np.cumsum(rise, axis=1) / rise.sum(axis=1, keepdims=True)
        for index, k in enumerate(range(low + 1, high)):
            found[:, k - 1] = at_low + (at_high - at_low) * share[:, index]
        slope = np.maximum(at_high - at_low, 0.01 * plain) / gaps
    beyond = steps.shape[1] - measured[-1]
    if beyond:
        rise = rng.gamma(np.broadcast_to(shape, (DRAWS, beyond))) / shape
        rise *= (slope * np.exp(_BEYOND_SD * rng.standard_normal(DRAWS)))[:, None]
        found[:, measured[-1] :] = points[-1][1][:, None] + np.cumsum(rise, axis=1)
    return found


def _bounded_lengths(lengths: Array, readings: Sequence[Reading]) -> Array:
    """Acceptance lengths of unmeasured K, kept between those of the measured neighbours."""
    found = lengths.copy()
    measured = sorted({reading.k for reading in readings})
    last = float(np.mean([r.survival[measured[-1] - 1] for r in readings if r.k == measured[-1]]))
    for k in range(1, lengths.shape[1] + 1):
        if k in measured:
            continue
        below = max((other for other in measured if other < k), default=0)
        above = min((other for other in measured if other > k), default=None)
        low = lengths[:, below - 1] if below else np.ones(len(lengths))
        high = low + (k - below) * last if above is None else np.maximum(lengths[:, above - 1], low)
        found[:, k - 1] = np.clip(found[:, k - 1], low, high)
    return found


Verdict = Literal["faster", "slower", "not told apart"]


@dataclass(frozen=True)
class Against:
    """The rate at ``k`` over that without speculation, with its 95% interval; ``plain`` in tokens/s."""

    k: int
    plain: float
    ratio: float
    low: float
    high: float

    @property
    def verdict(self) -> Verdict:
        """Faster or slower only where the interval excludes 1."""
        return "faster" if self.low > 1 else "slower" if self.high < 1 else "not told apart"

    @property
    def words(self) -> str:
        """``K=2 is slower than no speculation: 0.912 [0.871, 0.956] of its 314 tokens/s``."""
        link = "from" if self.verdict == "not told apart" else "than"
        return (
            f"K={self.k} is {self.verdict} {link} no speculation: "
            f"{self.ratio:.3f} [{self.low:.3f}, {self.high:.3f}] of its {self.plain:.0f} tokens/s"
        )


def against_none(prediction: Prediction, k: int) -> Against | None:
    """Compare ``k`` (above 0) with the baseline; None where no baseline was measured at this load."""
    if 0 not in prediction.ks:
        return None
    plain = float(prediction.mean[prediction.ks.index(0)])
    return Against(k, plain, *prediction.ratio(k, 0))
