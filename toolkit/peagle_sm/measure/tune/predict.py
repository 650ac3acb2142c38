"""From a fit to the rate at every K, drawn together: so a ratio of two K has an interval of its own. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from peagle_sm.measure.tune.curve import Array
from peagle_sm.measure.tune.fit import Fit, Noise
from peagle_sm.measure.tune.reading import Reading

DRAWS = 600
_SEED = 20261120  # the draws are arithmetic, not chance: the same readings always give the same answer


@dataclass(frozen=True)
class Prediction:
    """Rates in tokens a second at one concurrency: ``draws[i, j]`` is draw i at ``ks[j]``."""

    concurrency: int
    ks: tuple[int, ...]
    draws: Array

    @property
    def mean(self) -> Array:
        """The expected rate at each K."""
        found: Array = self.draws.mean(axis=0)
        return found

    def interval(self, k: int, share: float = 0.95) -> tuple[float, float]:
        """Where the rate at ``k`` lies with the probability ``share``."""
        tail = 50 * (1 - share)
        low, high = np.percentile(self.draws[:, self.ks.index(k)], [tail, 100 - tail])
        return float(low), float(high)

    def ratio(self, k: int, other: int, share: float = 0.95) -> tuple[float, float, float]:
        """Mean and interval of rate(k) / rate(other)."""
        ratios = self.draws[:, self.ks.index(k)] / self.draws[:, self.ks.index(other)]
        tail = 50 * (1 - share)
        low, high = np.percentile(ratios, [tail, 100 - tail])
        return float(ratios.mean()), float(low), float(high)

    @property
    def best(self) -> int:
        """The K of the highest expected rate."""
        return self.ks[int(np.argmax(self.mean))]


def predict(fit: Fit, baseline: Sequence[Reading] = (), noise: Noise | None = None) -> dict[int, Prediction]:
    """The rate at every K of the grid, and at 0 where a baseline (readings with k = 0) was measured."""
    noise = noise or Noise()
    rng = np.random.default_rng(_SEED)
    acceptance = np.exp(fit.log_acceptance.draw(rng.standard_normal((DRAWS, len(fit.grid)))))
    found = {}
    for concurrency, curve in fit.step_ms.items():
        # A step cannot take no time, whatever a wide prior says of a K far from any reading.
        floor = 0.2 * float(curve.mean.min())
        steps = np.maximum(curve.draw(rng.standard_normal((DRAWS, len(fit.grid)))), floor)
        draws = 1000 * concurrency * acceptance / steps
        ks = fit.grid
        plain = [r.rate for r in baseline if r.k == 0 and r.concurrency == concurrency]
        if plain:
            spread = noise.step / np.sqrt(len(plain))
            column = float(np.mean(plain)) * np.exp(spread * rng.standard_normal(DRAWS))
            draws, ks = np.column_stack([column, draws]), (0, *ks)
        found[concurrency] = Prediction(concurrency, ks, draws)
    return found
