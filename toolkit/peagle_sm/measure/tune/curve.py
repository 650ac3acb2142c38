"""Gaussian curves over K: a few noisy readings and a prior in, every K with its uncertainty out. Pure.

Both curves of the tuner, acceptance and step time, are fitted by the same rule: the posterior of a Gaussian
process whose prior is a few basis functions with Gaussian weights (a line, a bend) plus a random walk. The
random walk is what makes it honest about steps: a jump of the step time between two probes (a tile of the
matrix unit that is full) leaves no trace at the probes, so the uncertainty must grow with the distance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Prior:
    """The prior of a curve over ``grid``: mean and covariance, both over the grid."""

    grid: tuple[int, ...]
    mean: Array
    covariance: Array


@dataclass(frozen=True)
class Curve:
    """A curve over ``grid`` as far as it is known."""

    grid: tuple[int, ...]
    mean: Array
    covariance: Array

    def at(self, k: int) -> tuple[float, float]:
        """The mean and the standard deviation at one K of the grid."""
        index = self.grid.index(k)
        return float(self.mean[index]), float(np.sqrt(max(self.covariance[index, index], 0.0)))

    def draw(self, normals: Array) -> Array:
        """Curves drawn from it, one a row; ``normals`` has one row of standard normals for each."""
        values, vectors = np.linalg.eigh(self.covariance)
        drawn: Array = self.mean + normals @ (vectors * np.sqrt(np.clip(values, 0.0, None))).T
        return drawn


def random_walk(grid: tuple[int, ...], start: int, step_sd: float) -> Array:
    """The covariance of a random walk that is 0 at ``start`` and spreads both ways by ``step_sd`` a K."""
    offset = np.asarray(grid, dtype=float) - start
    same_side = np.sign(offset)[:, None] == np.sign(offset)[None, :]
    walk: Array = step_sd**2 * np.where(same_side, np.minimum.outer(abs(offset), abs(offset)), 0.0)
    return walk


def from_basis(columns: list[Array], sds: list[float]) -> Array:
    """The covariance of a sum of ``columns`` with independent Gaussian weights of those deviations."""
    total = np.zeros((len(columns[0]), len(columns[0])))
    for column, sd in zip(columns, sds, strict=True):
        total += sd**2 * np.outer(column, column)
    return total


def condition(prior: Prior, ks: list[int], values: list[float], noise: list[float] | Array) -> Curve:
    """The posterior after readings ``values`` at ``ks``; ``noise`` is a deviation each, or a covariance.

    Without readings it is the prior itself.
    """
    if not ks:
        return Curve(prior.grid, prior.mean, prior.covariance)
    rows = [prior.grid.index(k) for k in ks]
    cross = prior.covariance[:, rows]
    within = _expected_scatter(prior, rows, noise)
    gain = np.linalg.solve(within, cross.T).T
    mean = prior.mean + gain @ (np.asarray(values, dtype=float) - prior.mean[rows])
    covariance = prior.covariance - gain @ cross.T
    return Curve(prior.grid, mean, (covariance + covariance.T) / 2)


def log_evidence(prior: Prior, ks: list[int], values: list[float], noise: list[float] | Array) -> float:
    """How likely the readings are under the prior: natural logarithm, up to a constant."""
    rows = [prior.grid.index(k) for k in ks]
    within = _expected_scatter(prior, rows, noise)
    off = np.asarray(values, dtype=float) - prior.mean[rows]
    return float(-0.5 * off @ np.linalg.solve(within, off) - 0.5 * np.linalg.slogdet(within)[1])


def _expected_scatter(prior: Prior, rows: list[int], noise: list[float] | Array) -> Array:
    errors = np.asarray(noise, dtype=float)
    found: Array = prior.covariance[np.ix_(rows, rows)] + (errors if errors.ndim == 2 else np.diag(errors**2))
    return found
