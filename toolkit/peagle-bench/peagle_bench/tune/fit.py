"""Fit of acceptance length and step time at every K, with uncertainty, from a few readings. Pure.

rate(K, c) = c AL(K) / T(K, c). The two factors are fitted separately, because they depend on different
things:

* AL does not depend on the concurrency or the hardware. The survival rates of the largest K deployed give
  AL at every smaller K, but 3 to 7% too low (a large K skips easy passages, so fewer steps start there).
  Readings at smaller K show this bias; it is interpolated.
* T at one concurrency is a line with a bend in K (verification of K + 1 tokens and K or one draft passes),
  with jumps where a tile of the matrix unit is full: a random walk on top of it, whose roughness is chosen by
  the evidence of the readings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from peagle_bench.tune.readings import Reading

# Gaussian curves over K: a few noisy readings and a prior in, every K with its uncertainty out. Pure.
#
# Both curves of the tuner, acceptance and step time, are fitted by the same rule: the posterior of a
# Gaussian process whose prior is a few basis functions with Gaussian weights (a line, a bend) plus a random
# walk. The random walk accounts for jumps: a jump of the step time between two measured K (a full tile of the
# matrix unit) is invisible at these K, so the uncertainty must grow with the distance.

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """Prior or posterior of a curve: mean and covariance over ``grid``."""

    grid: tuple[int, ...]
    mean: Array
    covariance: Array

    def at(self, k: int) -> tuple[float, float]:
        """Return mean and standard deviation at one K of the grid."""
        index = self.grid.index(k)
        return float(self.mean[index]), float(np.sqrt(max(self.covariance[index, index], 0.0)))

    def draw(self, normals: Array) -> Array:
        """Draw curves, one per row; ``normals`` has one row of standard normals for each."""
        values, vectors = np.linalg.eigh(self.covariance)
        drawn: Array = self.mean + normals @ (vectors * np.sqrt(np.clip(values, 0.0, None))).T
        return drawn


def random_walk(grid: tuple[int, ...], start: int, step_sd: float) -> Array:
    """Compute the covariance of a random walk from 0 at ``start``, with ``step_sd`` per K."""
    offset = np.asarray(grid, dtype=float) - start
    same_side = np.sign(offset)[:, None] == np.sign(offset)[None, :]
    walk: Array = step_sd**2 * np.where(same_side, np.minimum.outer(abs(offset), abs(offset)), 0.0)
    return walk


def from_basis(columns: list[Array], sds: list[float]) -> Array:
    """Compute the covariance of a sum of ``columns`` with independent Gaussian weights."""
    total = np.zeros((len(columns[0]), len(columns[0])))
    for column, sd in zip(columns, sds, strict=True):
        total += sd**2 * np.outer(column, column)
    return total


def condition(prior: Curve, ks: list[int], values: list[float], noise: list[float] | Array) -> Curve:
    """Compute the posterior after ``values`` at ``ks``; ``noise`` is deviations or a covariance.

    Without readings it is the prior itself.
    """
    if not ks:
        return prior
    rows = [prior.grid.index(k) for k in ks]
    cross = prior.covariance[:, rows]
    within = _expected_scatter(prior, rows, noise)
    gain = np.linalg.solve(within, cross.T).T
    mean = prior.mean + gain @ (np.asarray(values, dtype=float) - prior.mean[rows])
    covariance = prior.covariance - gain @ cross.T
    return Curve(prior.grid, mean, (covariance + covariance.T) / 2)


def log_evidence(prior: Curve, ks: list[int], values: list[float], noise: list[float] | Array) -> float:
    """Compute the log likelihood of the readings under the prior, up to a constant."""
    rows = [prior.grid.index(k) for k in ks]
    within = _expected_scatter(prior, rows, noise)
    off = np.asarray(values, dtype=float) - prior.mean[rows]
    return float(-0.5 * off @ np.linalg.solve(within, off) - 0.5 * np.linalg.slogdet(within)[1])


def _expected_scatter(prior: Curve, rows: list[int], noise: list[float] | Array) -> Array:
    errors = np.asarray(noise, dtype=float)
    found: Array = prior.covariance[np.ix_(rows, rows)] + (errors if errors.ndim == 2 else np.diag(errors**2))
    return found


LEAST_NOISE = 0.001  #: lower bound of the relative noise


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
    """Parameters of the priors, relative to AL and to T at the lowest measured K.

    The bias is from measurements of both heads (3 to 7% at small K); slope, bend and steps cover the measured
    tables of step times (docs/how-to/tuner.md).
    """

    bias: float = 0.05
    bias_sd: float = 0.03
    bias_walk: float = 0.004
    slope: float = 0.08
    slope_sd: float = 0.15
    bend_sd: float = 0.0025
    step_walks: tuple[float, ...] = (0.006, 0.018, 0.06, 0.2)  #: candidates from smooth to large jumps


@dataclass(frozen=True)
class Fit:
    """Fit of one mode: ln AL, and T in milliseconds for each concurrency, over the grid of K."""

    grid: tuple[int, ...]
    log_acceptance: Curve
    step_ms: dict[int, Curve]


def fit(
    readings: Sequence[Reading], max_k: int, noise: Noise | None = None, shape: Shape | None = None
) -> Fit:
    """Fit every K from 1 to ``max_k`` to the readings with speculation (K=0 is ignored).

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
    """Compute AL at each K of the grid from the survival rates of a larger K (too low by the bias).

    Beyond the known rates, each further one falls by the same ratio.
    """
    rates = list(survival)
    ratio = min(1.0, (rates[-1] / rates[0]) ** (1 / (len(rates) - 1))) if len(rates) > 1 and rates[0] else 0.8
    while len(rates) < grid[-1]:
        rates.append(rates[-1] * ratio)
    lengths: Array = 1 + np.cumsum(np.asarray(rates, dtype=float))[np.asarray(grid) - 1]
    return lengths


def fit_acceptance(readings: Sequence[Reading], grid: tuple[int, ...], noise: Noise, shape: Shape) -> Curve:
    """Fit ln AL: survival of the largest measured K, plus a bias estimated from the other readings."""
    largest = max(reading.k for reading in readings)
    ks = np.asarray(grid, dtype=float)
    # The same prompts at every concurrency: pooling them takes out none of the prompts' own noise.
    pooled = {k: _pool([r for r in readings if r.k == k]) for k in sorted({r.k for r in readings})}
    base = np.log(truncated(_mean_survival([r for r in readings if r.k == largest]), grid))
    distance = 1 - ks / largest
    covariance = (
        from_basis([distance, np.ones_like(ks)], [shape.bias_sd, 0.05])
        + random_walk(grid, largest, shape.bias_walk)
        + from_basis([np.clip(ks - largest, 0, None)], [0.02])  # extrapolation beyond the largest K
    )
    prior = Curve(grid, base + shape.bias * distance, covariance)
    rounds = {k: len({reading.block for reading in readings if reading.k == k}) for k in pooled}
    deviations = [noise.acceptance / np.sqrt(rounds[k]) for k in pooled]
    return condition(prior, list(pooled), [float(np.log(al)) for al in pooled.values()], deviations)


def fit_steps(readings: Sequence[Reading], grid: tuple[int, ...], noise: Noise, shape: Shape) -> Curve:
    """Fit T at one concurrency, in milliseconds."""
    lowest = min(reading.k for reading in readings)
    unit = float(np.mean([reading.step_ms for reading in readings if reading.k == lowest]))
    offset = np.asarray(grid, dtype=float) - lowest
    line = from_basis([np.ones_like(offset), offset, offset**2], [0.1, shape.slope_sd, shape.bend_sd])
    ks = [reading.k for reading in readings]
    values = [reading.step_ms / unit for reading in readings]
    errors = [noise.step * value for value in values]
    priors = [
        Curve(grid, 1 + shape.slope * offset, line + random_walk(grid, lowest, walk))
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


# Levelling of rounds: the effect of each round on all its readings is removed. Pure.
#
# The same step took 3.5 and 4.7 ms twenty-five minutes apart on one machine. K are therefore measured in
# rounds, and each logarithm is modelled as (K) + (round): the round's effect is estimated from the K that two
# rounds share.

_LOOSE = 0.05  #: squared ratio of noise to drift; shrinks the rounds' effects slightly
_PRIOR_READINGS = 6  #: weight of the assumed noise, in repeats


def level(readings: Sequence[Reading]) -> list[Reading]:
    """Remove the effects of the rounds from the readings, at each concurrency, relative to round 0."""
    found: list[Reading] = []
    for concurrency in sorted({reading.concurrency for reading in readings}):
        group = [reading for reading in readings if reading.concurrency == concurrency]
        steps = _effects(group, [np.log(reading.step_ms) for reading in group])
        spoken = [reading for reading in group if reading.k]
        lengths = _effects(spoken, [np.log(reading.acceptance_length) for reading in spoken])
        for reading in group:
            factor = float(np.exp(-lengths.get(reading.block, 0.0))) if reading.k else 1.0
            found.append(
                replace(
                    reading,
                    step_ms=float(reading.step_ms * np.exp(-steps.get(reading.block, 0.0))),
                    acceptance_length=max(1.0, reading.acceptance_length * factor),
                    survival=tuple(min(1.0, rate * factor) for rate in reading.survival),
                )
            )
    return found


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


def noise_of(readings: Sequence[Reading], assumed: Noise | None = None) -> Noise:
    """Estimate the noise from repeats of the same K, with ``assumed`` counting as a few repeats."""
    assumed = assumed or Noise()
    groups: dict[tuple[int, int], list[Reading]] = {}
    for reading in readings:
        groups.setdefault((reading.k, reading.concurrency), []).append(reading)
    repeated = [group for group in groups.values() if len(group) > 1]
    return Noise(
        acceptance=_pooled(
            [[np.log(r.acceptance_length) for r in g] for g in repeated if g[0].k], assumed.acceptance
        ),
        step=_pooled([[np.log(r.step_ms) for r in g] for g in repeated], assumed.step),
    )


def _pooled(groups: Sequence[Sequence[float]], assumed: float) -> float:
    squares = _PRIOR_READINGS * assumed**2
    freedom = _PRIOR_READINGS
    for group in groups:
        squares += float(np.var(group)) * len(group)
        freedom += len(group) - 1
    return float(np.sqrt(squares / freedom))
