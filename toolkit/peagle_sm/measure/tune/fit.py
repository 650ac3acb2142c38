"""Readings of a few K to acceptance length and step time at every K, with uncertainty. Pure.

rate(K, c) = c AL(K) / T(K, c). The two factors are fitted apart, because they are made of different stuff:

* AL does not depend on the concurrency or the hardware. The survival rates of the largest K deployed give
  AL at every smaller K, but 3 to 7% too low (a large K jumps over easy stretches, so fewer steps start
  there). What smaller deployed K read above that is the bias; it is interpolated.
* T at one concurrency is a line with a bend in K (verification of K + 1 tokens and K or one draft passes),
  with steps where a tile of the matrix unit is full: a random walk on top of it, as rough as the readings
  make likely.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from peagle_sm.measure.tune.curve import (
    Array,
    Curve,
    Prior,
    condition,
    from_basis,
    log_evidence,
    random_walk,
)
from peagle_sm.measure.tune.reading import Reading

LEAST_NOISE = 0.001  #: no clock and no set of prompts is better than that


@dataclass(frozen=True)
class Noise:
    """Relative standard deviations of one reading.

    ``acceptance`` is that of AL over one window's prompts (shared by all concurrencies of one K where they
    run the same prompts), ``step`` that of the step time.
    """

    acceptance: float = 0.01
    step: float = 0.017


@dataclass(frozen=True)
class Shape:
    """What is believed of the curves before anything is read; relative to AL, and to T at the lowest K read.

    The bias is from facts of both heads (3 to 7% at small K); slope, bend and steps span the tables of step
    times that were measured (docs/how-to/tuner.md).
    """

    bias: float = 0.05
    bias_sd: float = 0.03
    bias_walk: float = 0.004
    slope: float = 0.08
    slope_sd: float = 0.15
    bend_sd: float = 0.0025
    step_walks: tuple[float, ...] = (0.006, 0.018, 0.06, 0.2)  #: from smooth to cliffs: the readings decide


@dataclass(frozen=True)
class Fit:
    """One mode: ln AL over the grid, and T in milliseconds over the grid for each concurrency."""

    grid: tuple[int, ...]
    log_acceptance: Curve
    step_ms: dict[int, Curve]


def fit(
    readings: Sequence[Reading], max_k: int, noise: Noise | None = None, shape: Shape | None = None
) -> Fit:
    """Fit every K from 1 to ``max_k`` from the readings of speculative K (those of K=0 are passed over).

    Raises:
        ValueError: no reading with speculation, or one above ``max_k``.
    """
    noise, shape = noise or Noise(), shape or Shape()
    noise = Noise(max(noise.acceptance, LEAST_NOISE), max(noise.step, LEAST_NOISE))
    used = [reading for reading in readings if reading.k > 0]
    if not used or max(reading.k for reading in used) > max_k:
        raise ValueError("fit: needs readings with 1 <= k <= max_k")
    grid = tuple(range(1, max_k + 1))
    steps = {
        concurrency: fit_steps([r for r in used if r.concurrency == concurrency], grid, noise, shape)
        for concurrency in sorted({reading.concurrency for reading in used})
    }
    return Fit(grid, fit_acceptance(used, grid, noise, shape), steps)


def truncated(survival: Sequence[float], grid: tuple[int, ...]) -> Array:
    """AL at each K of the grid as the survival rates of a larger K tell it (too low by the bias).

    Beyond the rates that are known, each further one falls as the last ones did.
    """
    rates = list(survival)
    ratio = min(1.0, (rates[-1] / rates[0]) ** (1 / (len(rates) - 1))) if len(rates) > 1 and rates[0] else 0.8
    while len(rates) < grid[-1]:
        rates.append(rates[-1] * ratio)
    lengths: Array = 1 + np.cumsum(np.asarray(rates, dtype=float))[np.asarray(grid) - 1]
    return lengths


def fit_acceptance(readings: Sequence[Reading], grid: tuple[int, ...], noise: Noise, shape: Shape) -> Curve:
    """The curve of ln AL: survival of the largest K read, plus a bias that the other readings tell."""
    largest = max(reading.k for reading in readings)
    ks = np.asarray(grid, dtype=float)
    # The same prompts at every concurrency: pooling them takes out none of the prompts' own noise.
    pooled = {k: _pool([r for r in readings if r.k == k]) for k in sorted({r.k for r in readings})}
    base = np.log(truncated(_mean_survival([r for r in readings if r.k == largest]), grid))
    distance = 1 - ks / largest
    covariance = (
        from_basis([distance, np.ones_like(ks)], [shape.bias_sd, 0.05])
        + random_walk(grid, largest, shape.bias_walk)
        + from_basis([np.clip(ks - largest, 0, None)], [0.02])  # what lies beyond is extrapolated
    )
    prior = Prior(grid, base + shape.bias * distance, covariance)
    deviations = [noise.acceptance / np.sqrt(_rounds(readings, k)) for k in pooled]
    return condition(prior, list(pooled), [float(np.log(al)) for al in pooled.values()], deviations)


def fit_steps(readings: Sequence[Reading], grid: tuple[int, ...], noise: Noise, shape: Shape) -> Curve:
    """The curve of T at one concurrency, in milliseconds."""
    lowest = min(reading.k for reading in readings)
    unit = float(np.mean([reading.step_ms for reading in readings if reading.k == lowest]))
    offset = np.asarray(grid, dtype=float) - lowest
    line = from_basis([np.ones_like(offset), offset, offset**2], [0.1, shape.slope_sd, shape.bend_sd])
    ks = [reading.k for reading in readings]
    values = [reading.step_ms / unit for reading in readings]
    errors = [noise.step * value for value in values]
    priors = [
        Prior(grid, 1 + shape.slope * offset, line + random_walk(grid, lowest, walk))
        for walk in shape.step_walks
    ]
    prior = max(priors, key=lambda prior: log_evidence(prior, ks, values, errors))
    scaled = condition(prior, ks, values, errors)
    return Curve(grid, scaled.mean * unit, scaled.covariance * unit**2)


def _pool(readings: Sequence[Reading]) -> float:
    weights = [reading.steps or 1 for reading in readings]
    return float(np.average([reading.acceptance_length for reading in readings], weights=weights))


def _mean_survival(readings: Sequence[Reading]) -> list[float]:
    length = min(len(reading.survival) for reading in readings)
    if not length:
        raise ValueError("fit: a reading with speculation has no survival rates")
    weights = [reading.steps or 1 for reading in readings]
    rows = [reading.survival[:length] for reading in readings]
    return [float(value) for value in np.average(rows, axis=0, weights=weights)]


def _rounds(readings: Sequence[Reading], k: int) -> int:
    return len({reading.block for reading in readings if reading.k == k})
