"""The tuner on many made-up endpoints: what it gives away against knowing the best K. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from peagle_sm.measure.tune.curve import Array
from peagle_sm.measure.tune.decide import choose
from peagle_sm.measure.tune.fit import Noise, fit
from peagle_sm.measure.tune.plan import RUNTIME_ROUNDS, next_deployment, next_round
from peagle_sm.measure.tune.predict import predict
from peagle_sm.measure.tune.reading import Reading
from peagle_sm.measure.tune.surface import Surface, draw_surface, measure

Strategy = Callable[[Surface, tuple[int, ...], Noise, np.random.Generator], tuple[dict[int, int], int, int]]


@dataclass(frozen=True)
class Outcome:
    """One strategy over many endpoints; a regret (share of the best rate) for each and each concurrency."""

    regrets: Array
    deployments: float  #: of speculative K, mean
    most_deployments: int
    readings: float  #: windows measured, mean

    @property
    def mean(self) -> float:
        """Mean regret."""
        return float(self.regrets.mean())

    def quantile(self, share: float) -> float:
        """The regret that ``share`` of the cases stay within."""
        return float(np.quantile(self.regrets, share))


def by_deployment(most: int) -> Strategy:
    """One deployment for each K, at most ``most`` besides the baseline."""

    def run(
        surface: Surface, concurrencies: tuple[int, ...], noise: Noise, rng: np.random.Generator
    ) -> tuple[dict[int, int], int, int]:
        readings = measure(surface, 0, concurrencies, noise, rng, 0)
        deployed: list[int] = []
        while (k := next_deployment(readings, surface.max_k, most, noise)) is not None:
            deployed.append(k)
            readings += measure(surface, k, concurrencies, noise, rng, 0)
        return _chosen(readings, surface.max_k, noise), len(deployed), 1 + len(deployed)

    return run


def by_runtime(rounds: int = RUNTIME_ROUNDS) -> Strategy:
    """One deployment in which K changes: rounds over the K that are still in question."""

    def run(
        surface: Surface, concurrencies: tuple[int, ...], noise: Noise, rng: np.random.Generator
    ) -> tuple[dict[int, int], int, int]:
        readings: list[Reading] = []
        for c in concurrencies:
            for block in range(rounds):
                ks = next_round(readings, surface.max_k, c, noise)
                for k in (0, *ks) if ks else ():
                    readings += measure(surface, k, (c,), noise, rng, block)
        return _chosen(readings, surface.max_k, noise), 1, len(readings) // len(concurrencies)

    return run


def exhaustive(
    surface: Surface, concurrencies: tuple[int, ...], noise: Noise, rng: np.random.Generator
) -> tuple[dict[int, int], int, int]:
    """Every K deployed once, and the highest reading believed: what people do."""
    best: dict[int, tuple[float, int]] = {}
    for k in range(surface.max_k + 1):
        for reading in measure(surface, k, concurrencies, noise, rng, 0):
            best[reading.concurrency] = max(best.get(reading.concurrency, (0.0, 0)), (reading.rate, k))
    return {c: k for c, (_, k) in best.items()}, surface.max_k, surface.max_k + 1


def always(k: int) -> Strategy:
    """No measuring: one K for everything."""
    return lambda surface, concurrencies, noise, rng: (dict.fromkeys(concurrencies, k), 0, 0)


def simulate(
    strategy: Strategy,
    endpoints: int,
    seed: int,
    concurrencies: tuple[int, ...] = (1, 8, 32),
    noise: Noise | None = None,
) -> Outcome:
    """Run ``strategy`` on so many endpoints; the same seed gives the same endpoints to each strategy."""
    noise = noise or Noise()
    regrets, deployed, windows = [], [], []
    for index in range(endpoints):
        surface = draw_surface(np.random.default_rng([seed, index]), concurrencies)
        chosen, deployments, readings = strategy(
            surface, concurrencies, noise, np.random.default_rng([seed, index, 1])
        )
        regrets += [surface.regret(k, c) for c, k in chosen.items()]
        deployed.append(deployments)
        windows.append(readings)
    return Outcome(np.asarray(regrets), float(np.mean(deployed)), max(deployed), float(np.mean(windows)))


def _chosen(readings: list[Reading], max_k: int, noise: Noise) -> dict[int, int]:
    predictions = predict(fit(readings, max_k, noise), readings, noise)
    return {c: choose(prediction).k for c, prediction in predictions.items()}
