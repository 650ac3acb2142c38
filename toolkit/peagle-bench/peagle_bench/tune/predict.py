"""Prediction of the rate at every K from a fit, and comparison with no speculation. Pure.

All K are drawn jointly, so the ratio of two K has its own interval. The fit is used as it is at measured K.
Between and beyond them it is bounded:

* A step with drafts takes at least as long as one without, and the step time never falls with K. Between two
  measured K it rises by a random share at each K: evenly, in steps, or in one jump.
* The acceptance length of K is between those of its measured neighbours. Beyond the largest, each further
  token is accepted at most as often as the last measured one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from peagle_bench.tune.fit import Array, Fit, Noise
from peagle_bench.tune.readings import Reading

DRAWS = 600
_SEED = 20261120  # the same readings always give the same result
#: Shape of the gamma shares by which the step time rises from K to K: at 0.3 mostly in one jump.
_ROUGHEST, _SMOOTHEST = 0.3, 5.0
_BEYOND_SD = 0.5  #: standard deviation of the log slope beyond the largest measured K


@dataclass(frozen=True)
class Prediction:
    """Predicted rates in tokens/s at one concurrency: ``draws[i, j]`` is draw i at ``ks[j]``.

    ``measured`` are the K with a reading at this concurrency; only these can be chosen.
    """

    concurrency: int
    ks: tuple[int, ...]
    draws: Array
    measured: tuple[int, ...]
    acceptance: Array | None = None  #: expected acceptance length at each of ``ks``
    step_ms: Array | None = None  #: expected step time at each of ``ks``

    @property
    def mean(self) -> Array:
        """Expected rate at each K."""
        found: Array = self.draws.mean(axis=0)
        return found

    def of(self, k: int) -> Array:
        """Return the draws of one K."""
        found: Array = self.draws[:, self.ks.index(k)]
        return found

    def interval(self, k: int, share: float = 0.95) -> tuple[float, float]:
        """Return the interval that contains the rate at ``k`` with probability ``share``."""
        tail = 50 * (1 - share)
        low, high = np.percentile(self.of(k), [tail, 100 - tail])
        return float(low), float(high)

    def ratio(self, k: int, other: int, share: float = 0.95) -> tuple[float, float, float]:
        """Return mean and interval of rate(k) / rate(other)."""
        ratios = self.of(k) / self.of(other)
        tail = 50 * (1 - share)
        low, high = np.percentile(ratios, [tail, 100 - tail])
        return float(ratios.mean()), float(low), float(high)

    @property
    def best(self) -> int:
        """Measured K with the highest expected rate."""
        return max(self.measured, key=lambda k: (float(self.of(k).mean()), -k))


def predict(fit: Fit, readings: Sequence[Reading] = (), noise: Noise | None = None) -> dict[int, Prediction]:
    """Predict the rate at every K of the grid, and at 0 if the baseline was measured."""
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
    """Return the prediction without K=0, which an endpoint of the mode cannot have."""
    keep = [index for index, k in enumerate(prediction.ks) if k]
    measured = tuple(k for k in prediction.measured if k)
    return Prediction(
        prediction.concurrency, tuple(k for k in prediction.ks if k), prediction.draws[:, keep], measured
    )


def together(predictions: Mapping[int, Prediction]) -> Prediction:
    """Combine the concurrencies into one rate: the geometric mean."""
    first = next(iter(predictions.values()))
    logs = np.mean([np.log(prediction.draws) for prediction in predictions.values()], axis=0)
    everywhere = set.intersection(*(set(prediction.measured) for prediction in predictions.values()))
    return Prediction(0, first.ks, np.exp(logs), tuple(sorted(everywhere)))


def _plain_steps(
    here: Sequence[Reading], steps: Array, measured: Sequence[int], noise: Noise, rng: np.random.Generator
) -> Array:
    """Draw the step time without drafts; if unmeasured, half to all of the smallest measured K's."""
    known = [reading.step_ms for reading in here if reading.k == 0]
    if known:
        spread = noise.step / np.sqrt(len(known))
        found: Array = float(np.mean(known)) * np.exp(spread * rng.standard_normal(DRAWS))
        return found
    return steps[:, measured[0] - 1] * rng.uniform(0.5, 1.0, DRAWS)


def _bounded_steps(steps: Array, plain: Array, measured: Sequence[int], rng: np.random.Generator) -> Array:
    """Draw step times of unmeasured K by a gamma process between and beyond the measured ones."""
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
    """Clip acceptance lengths of unmeasured K to those of the measured neighbours."""
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
class BaselineRatio:
    """Ratio of the rate at ``k`` to that without speculation (``plain`` tokens/s), with 95% interval."""

    k: int
    plain: float
    ratio: float
    low: float
    high: float

    @property
    def verdict(self) -> Verdict:
        """Result of the comparison: faster or slower only if the interval excludes 1."""
        return "faster" if self.low > 1 else "slower" if self.high < 1 else "not told apart"

    @property
    def words(self) -> str:
        """Return ``K=2 is slower than no speculation: 0.912 [0.871, 0.956] of its 314 tokens/s``."""
        verdict = self.verdict
        said = "not significantly different from" if verdict == "not told apart" else f"{verdict} than"
        return (
            f"K={self.k} is {said} no speculation: "
            f"{self.ratio:.3f} [{self.low:.3f}, {self.high:.3f}] of its {self.plain:.0f} tokens/s"
        )


def against_none(prediction: Prediction, k: int) -> BaselineRatio | None:
    """Compare ``k`` (above 0) with the baseline; None if no baseline was measured at this load."""
    if 0 not in prediction.ks:
        return None
    plain = float(prediction.mean[prediction.ks.index(0)])
    return BaselineRatio(k, plain, *prediction.ratio(k, 0))
