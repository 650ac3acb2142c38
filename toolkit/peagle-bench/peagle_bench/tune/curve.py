"""Rate at every K, from the readings of a few K. Pure.

rate(K, c) = c AL(K) / T(K, c). The two factors are fitted separately, because they depend on different
things:

* AL, the acceptance length, depends neither on the concurrency nor on the hardware. A smaller K truncates
  the drafts of a larger one, so the survival rates of the largest K give AL at every K: AL(k) is 1 plus the
  sum of the first k rates. This is 3 to 7% too low at small K (a large K skips easy passages, so fewer steps
  start there). The readings at smaller K show how much, and the correction is interpolated between them.
* T, the step time at one concurrency, does not fall with K. The fit is the nearest sequence that does not
  fall (isotonic regression), with a straight line between two measured K.

The 95% intervals are those of a normal distribution of the logarithms. The noise is that of repeats, and
between two measured K the step time may be anywhere between theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peagle_bench.results.records import Interval, Reading

Array = NDArray[np.float64]

LEAST_NOISE = 0.001  #: lower bound of the relative noise
_ASSUMED_REPEATS = 6  #: weight of the assumed noise, in repeats


@dataclass(frozen=True)
class Noise:
    """Relative standard deviations of one reading: of AL over a window's prompts, and of the step time."""

    acceptance: float = 0.01
    step: float = 0.017


@dataclass(frozen=True)
class Ratio:
    """Ratio of two rates: its logarithm, and the standard deviation of that."""

    log: float
    error: float

    def interval(self) -> Interval:
        """Return the ratio with its 95% confidence interval."""
        half = NormalDist().inv_cdf(0.975) * self.error
        return Interval(*(float(np.exp(self.log + by)) for by in (0.0, -half, half)))


@dataclass(frozen=True)
class Rates:
    """Rates in tokens/s at one concurrency, at each of ``ks`` in ascending order; the arrays are parallel.

    ``measured`` are the K with a reading; only these can be chosen. ``acceptance_error`` and ``step_error``
    are the standard deviations of the logarithms of AL and T. ``ceiling`` is the rate if T rises
    only behind K, in one jump up to the next measured K.
    """

    concurrency: int
    ks: tuple[int, ...]
    measured: tuple[int, ...]
    rate: Array
    ceiling: Array
    acceptance: Array
    step_ms: Array
    acceptance_error: Array
    step_error: Array

    def of(self, k: int) -> float:
        """Return the expected rate at one K."""
        return float(self.rate[self.ks.index(k)])

    def error(self, k: int) -> float:
        """Return the standard deviation of the logarithm of the rate at one K."""
        index = self.ks.index(k)
        return float(np.hypot(self.acceptance_error[index], self.step_error[index]))

    def interval(self, k: int) -> Interval:
        """Return the rate at one K with its 95% interval."""
        return Ratio(float(np.log(self.of(k))), self.error(k)).interval()

    def ratio(self, k: int, other: int) -> Ratio:
        """Return rate(k) / rate(other)."""
        if k == other:
            return Ratio(0.0, 0.0)
        return Ratio(
            float(np.log(self.of(k) / self.of(other))), float(np.hypot(self.error(k), self.error(other)))
        )

    @property
    def best(self) -> int:
        """Measured K with the highest expected rate, the smallest of equal ones."""
        return max(self.measured, key=lambda k: (self.of(k), -k))

    @property
    def likely(self) -> int:
        """K with the highest expected rate, measured or not."""
        return max(self.ks, key=lambda k: (self.of(k), -k))

    def speculating(self) -> Rates:
        """Return the rates without K=0, which an endpoint of a mode with speculation cannot have."""
        first = 1 if self.ks[0] == 0 else 0
        return replace(
            self,
            ks=self.ks[first:],
            measured=tuple(k for k in self.measured if k),
            **{name: getattr(self, name)[first:] for name in _BY_K},
        )


_BY_K = ("rate", "ceiling", "acceptance", "step_ms", "acceptance_error", "step_error")


def together(rates: Mapping[int, Rates]) -> Rates:
    """Combine the concurrencies into one rate: the geometric mean. Only AL and its error are common."""
    every = list(rates.values())
    return replace(
        every[0],
        concurrency=0,
        measured=tuple(sorted(set.intersection(*(set(each.measured) for each in every)))),
        rate=np.exp(np.mean([np.log(each.rate) for each in every], axis=0)),
        ceiling=np.exp(np.mean([np.log(each.ceiling) for each in every], axis=0)),
        step_ms=np.exp(np.mean([np.log(each.step_ms) for each in every], axis=0)),
        step_error=np.sqrt(np.sum([each.step_error**2 for each in every], axis=0)) / len(every),
    )


def fit(readings: Sequence[Reading], noise: Noise | None = None) -> dict[int, Rates]:
    """Fit the rate at every K up to the largest measured one, by concurrency; at 0 if it was measured.

    Raises:
        ValueError: a concurrency has no reading with speculation, or the largest K has no survival rates.
    """
    noise = noise or Noise()
    noise = Noise(max(noise.acceptance, LEAST_NOISE), max(noise.step, LEAST_NOISE))
    drafted = [reading for reading in readings if reading.k]
    if not drafted:
        raise ValueError("fit: needs a reading with speculation")
    lengths = fit_acceptance(drafted)
    return {
        concurrency: _rates(
            [reading for reading in readings if reading.concurrency == concurrency], lengths, drafted, noise
        )
        for concurrency in sorted({reading.concurrency for reading in readings})
    }


def fit_acceptance(readings: Sequence[Reading]) -> Array:
    """Fit AL at K = 1 to the largest measured K, from readings with speculation."""
    largest = max(reading.k for reading in readings)
    deepest = [reading for reading in readings if reading.k == largest]
    if not all(len(reading.survival) >= largest for reading in deepest):
        raise ValueError("fit: a reading of the largest K has no survival rates")
    rates = np.average([reading.survival[:largest] for reading in deepest], axis=0, weights=_weights(deepest))
    truncated = 1 + np.cumsum(rates)
    ks = sorted({reading.k for reading in readings})
    corrections = []
    for k in ks:
        same_k = [reading for reading in readings if reading.k == k]
        length = np.average([reading.acceptance_length for reading in same_k], weights=_weights(same_k))
        corrections.append(np.log(length / truncated[k - 1]))
    lengths: Array = truncated * np.exp(np.interp(np.arange(1, largest + 1), ks, corrections))
    return np.maximum.accumulate(np.maximum(lengths, 1.0))


def fit_steps(ks: Sequence[int], step_ms: Sequence[float], repeats: Sequence[int], plain: float) -> Array:
    """Fit T in milliseconds at K = 1 to the largest of ``ks`` (ascending), the measured K.

    ``repeats`` are the numbers of readings; ``plain`` is T without drafts, 0 if unknown. Below the smallest
    measured K, T is between the line of the next two K continued and the line to ``plain``: their middle.
    """
    fitted = rising(step_ms, repeats)
    grid = np.arange(1, ks[-1] + 1)
    steps: Array = np.interp(grid, ks, fitted)
    least = min(plain, fitted[0]) if plain else fitted[0] / 2
    slope = (fitted[1] - fitted[0]) / (ks[1] - ks[0]) if len(ks) > 1 else 0.0
    below = grid[grid < ks[0]]
    continued = np.maximum(fitted[0] - slope * (ks[0] - below), least)
    from_plain = least + (fitted[0] - least) * below / ks[0] if plain else continued
    steps[below - 1] = (continued + from_plain) / 2
    return steps


def rising(values: Sequence[float], weights: Sequence[float]) -> Array:
    """Return the nearest sequence that does not fall (isotonic regression by pooling neighbours)."""
    pools: list[tuple[float, float, int]] = []  # value, weight, length
    for value, weight in zip(values, weights, strict=True):
        pool = (float(value), float(weight), 1)
        while pools and pools[-1][0] > pool[0]:
            before, its_weight, length = pools.pop()
            total = its_weight + pool[1]
            pool = ((before * its_weight + pool[0] * pool[1]) / total, total, length + pool[2])
        pools.append(pool)
    return np.concatenate([np.full(length, value) for value, _, length in pools])


def _rates(here: Sequence[Reading], lengths: Array, drafted: Sequence[Reading], noise: Noise) -> Rates:
    """Fit T at one concurrency, and combine it with AL; ``drafted`` are the readings behind AL."""
    times = {k: [r.step_ms for r in here if r.k == k] for k in sorted({reading.k for reading in here})}
    ks = [k for k in times if k]
    if not ks:
        raise ValueError("fit: a concurrency has no reading with speculation")
    mean = {k: float(np.exp(np.mean(np.log(each)))) for k, each in times.items()}
    steps = fit_steps(ks, [mean[k] for k in ks], [len(times[k]) for k in ks], mean.get(0, 0.0))
    grid, known = np.arange(1, len(lengths) + 1), np.asarray(ks)
    steps = np.concatenate([steps, np.full(len(lengths) - len(steps), steps[-1])])
    # A K that was not measured has the error of its neighbours, and T is uniform between theirs.
    step_error = np.interp(grid, known, [noise.step / np.sqrt(len(times[k])) for k in ks])
    above = np.minimum(np.searchsorted(known, grid), len(ks) - 1)
    under = np.maximum(np.searchsorted(known, grid, side="right") - 1, 0)
    span = np.abs(np.log(steps[known[above] - 1] / steps[known[under] - 1])) / np.sqrt(12)
    rounds = {k: len({r.block for r in drafted if r.k == k}) for k in {reading.k for reading in drafted}}
    deep = sorted(rounds)
    acceptance_error = np.interp(grid, deep, [noise.acceptance / np.sqrt(rounds[k]) for k in deep])
    concurrency = here[0].concurrency
    rates = Rates(
        concurrency,
        tuple(int(k) for k in grid),
        tuple(ks),
        1000 * concurrency * lengths / steps,
        1000 * concurrency * lengths / np.minimum(steps, steps[known[under] - 1]),
        lengths,
        steps,
        acceptance_error,
        np.hypot(step_error, span),
    )
    return rates if 0 not in times else _with_zero(rates, mean[0], noise.step / np.sqrt(len(times[0])))


def _with_zero(rates: Rates, step_ms: float, error: float) -> Rates:
    zero = (1000 * rates.concurrency / step_ms, 1000 * rates.concurrency / step_ms, 1.0, step_ms, 0.0, error)
    by_k: dict[str, Any] = {
        name: np.concatenate([[value], getattr(rates, name)]) for name, value in zip(_BY_K, zero, strict=True)
    }
    return replace(rates, ks=(0, *rates.ks), measured=(0, *rates.measured), **by_k)


def _weights(readings: Sequence[Reading]) -> list[int]:
    return [reading.steps or 1 for reading in readings]


# The effect of each round on all its readings is removed. The same step took 3.5 and 4.7 ms twenty-five
# minutes apart on one machine. K are therefore measured in rounds, and each logarithm is modelled as
# (K) + (round): the round's effect is estimated from the K that two rounds share.

_LOOSE = 0.05  #: squared ratio of noise to drift; shrinks the rounds' effects slightly


def level(readings: Sequence[Reading]) -> list[Reading]:
    """Remove the effects of the rounds from the readings, at each concurrency, relative to round 0."""
    levelled: list[Reading] = []
    for concurrency in sorted({reading.concurrency for reading in readings}):
        group = [reading for reading in readings if reading.concurrency == concurrency]
        steps = _effects(group, [np.log(reading.step_ms) for reading in group])
        drafted = [reading for reading in group if reading.k]
        lengths = _effects(drafted, [np.log(reading.acceptance_length) for reading in drafted])
        for reading in group:
            factor = float(np.exp(-lengths.get(reading.block, 0.0))) if reading.k else 1.0
            levelled.append(
                replace(
                    reading,
                    step_ms=float(reading.step_ms * np.exp(-steps.get(reading.block, 0.0))),
                    acceptance_length=max(1.0, reading.acceptance_length * factor),
                    survival=tuple(min(1.0, rate * factor) for rate in reading.survival),
                )
            )
    return levelled


def _effects(group: Sequence[Reading], values: Sequence[float]) -> dict[int, float]:
    """Estimate each round's effect on the logarithm; empty if no K was measured in two rounds."""
    ks = sorted({reading.k for reading in group})
    blocks = sorted({reading.block for reading in group})
    if len(group) == len(ks) or len(blocks) < 2:
        return {}
    width = len(ks) + len(blocks) - 1
    rows = np.zeros((len(group) + len(blocks) - 1, width))
    target = np.zeros(len(rows))
    for index, (reading, value) in enumerate(zip(group, values, strict=True)):
        rows[index, ks.index(reading.k)] = 1.0
        if reading.block != blocks[0]:
            rows[index, len(ks) + blocks.index(reading.block) - 1] = 1.0
        target[index] = value
    for extra in range(len(blocks) - 1):  # without a shared K a round's effect is 0
        rows[len(group) + extra, len(ks) + extra] = np.sqrt(_LOOSE)
    solved = np.linalg.lstsq(rows, target, rcond=None)[0]
    return {blocks[0]: 0.0} | {block: float(solved[len(ks) + i]) for i, block in enumerate(blocks[1:])}


def noise_of(readings: Sequence[Reading]) -> Noise:
    """Estimate the noise from repeats of the same K, with the assumed noise counting as a few repeats."""
    assumed = Noise()
    groups: dict[tuple[int, int], list[Reading]] = {}
    for reading in readings:
        groups.setdefault((reading.k, reading.concurrency), []).append(reading)
    repeated = [group for group in groups.values() if len(group) > 1]
    lengths = [[np.log(r.acceptance_length) for r in group] for group in repeated if group[0].k]
    return Noise(
        acceptance=_pooled(lengths, assumed.acceptance),
        step=_pooled([[np.log(r.step_ms) for r in group] for group in repeated], assumed.step),
    )


def _pooled(groups: Sequence[Sequence[float]], assumed: float) -> float:
    squares = _ASSUMED_REPEATS * assumed**2
    freedom = _ASSUMED_REPEATS
    for group in groups:
        squares += float(np.var(group)) * len(group)
        freedom += len(group) - 1
    return float(np.sqrt(squares / freedom))
