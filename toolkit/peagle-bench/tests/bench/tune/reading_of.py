"""Readings and rates with true figures, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from peagle_bench.results.records import Reading
from peagle_bench.tune.curve import Rates


def survival_of(k: int, first: float = 0.8) -> tuple[float, ...]:
    return tuple(first**position for position in range(1, k + 1))


def reading(
    k: int,
    *,
    step_ms: float,
    concurrency: int = 1,
    block: int = 0,
    first: float = 0.8,
    length: float | None = None,
) -> Reading:
    survival = survival_of(k, first)
    return Reading(
        k=k,
        concurrency=concurrency,
        acceptance_length=1 + sum(survival) if length is None else length,
        survival=survival,
        step_ms=step_ms,
        otps=0.0,
        steps=1000,
        block=block,
    )


def rates_at(
    concurrency: int,
    rates: Mapping[int, float],
    *,
    error: float = 0.001,
    measured: Sequence[int] | None = None,
) -> Rates:
    """Rates by K at one concurrency, in ascending order of K; ``error`` is that of the step time."""
    zeros = np.zeros(len(rates))
    return Rates(
        concurrency,
        tuple(rates),
        tuple(rates) if measured is None else tuple(measured),
        np.asarray(list(rates.values()), dtype=float),
        np.asarray(list(rates.values()), dtype=float),
        zeros + 1,
        zeros + 1,
        zeros,
        zeros + error,
    )
