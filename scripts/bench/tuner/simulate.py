"""The tuner on many simulated endpoints: how much of the best K's rate it gives away. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from peagle_bench.tune.decide import RUNTIME_ROUNDS, next_deployment, next_round
from peagle_bench.tune.fit import Array, Noise
from peagle_bench.tune.outcome import conclude
from peagle_bench.tune.readings import Reading
from scripts.bench.tuner.surface import Surface, draw_surface, measure

Loads = tuple[int, ...]
Draw = Callable[[np.random.Generator, Loads], Surface]


@dataclass(frozen=True)
class Tried:
    """What one strategy did on one endpoint: the K for the spec, and the K for each load."""

    k: int
    by_load: dict[int, int]
    deployments: int
    windows: int  #: at each concurrency
    measured: frozenset[int]
    sound: bool = True  #: every predicted rate is a positive number


Strategy = Callable[[Surface, Loads, Noise, np.random.Generator], Tried]


@dataclass(frozen=True)
class Outcome:
    """One strategy over many endpoints. Regret: the share of the best rate that a choice gives away."""

    regrets: Array  #: of the K for the spec, one for each endpoint
    load_regrets: Array  #: of the K for each load, one for each endpoint and load
    deployments: float  #: of speculative K, mean
    most_deployments: int
    windows: float  #: at each concurrency, mean
    unmeasured: int  #: choices of a K that was not measured
    unsound: int  #: endpoints with a predicted rate that is not a positive number

    @property
    def mean(self) -> float:
        """Mean regret."""
        return float(self.regrets.mean())

    def quantile(self, share: float) -> float:
        """The regret that ``share`` of the endpoints do not exceed."""
        return float(np.quantile(self.regrets, share))


@dataclass
class _Tally:
    regrets: list[float] = field(default_factory=list)
    by_load: list[float] = field(default_factory=list)
    tried: list[Tried] = field(default_factory=list)

    def add(self, surface: Surface, loads: Loads, tried: Tried) -> None:
        self.tried.append(tried)
        self.regrets.append(surface.regret(tried.k, loads))
        self.by_load += [surface.regret(k, (c,)) for c, k in tried.by_load.items()]


def by_deployment(most: int | None = None) -> Strategy:
    """One deployment for each K, at most ``most`` besides the baseline (None: the tuner's default)."""

    def run(surface: Surface, loads: Loads, noise: Noise, rng: np.random.Generator) -> Tried:
        readings = measure(surface, 0, loads, noise, rng, 0)
        deployed: list[int] = []
        while (k := next_deployment(readings, surface.max_k, most, noise)) is not None:
            deployed.append(k)
            readings += measure(surface, k, loads, noise, rng, 0)
        return _concluded(readings, surface.max_k, noise, len(deployed), 1 + len(deployed), levelled=False)

    return run


def by_runtime(rounds: int = RUNTIME_ROUNDS) -> Strategy:
    """One deployment in which K changes: rounds over the K that are still in question."""

    def run(surface: Surface, loads: Loads, noise: Noise, rng: np.random.Generator) -> Tried:
        readings: list[Reading] = []
        for c in loads:
            for block in range(rounds):
                ks = next_round(readings, surface.max_k, c, noise)
                for k in (0, *ks) if ks else ():
                    readings += measure(surface, k, (c,), noise, rng, block)
        return _concluded(readings, surface.max_k, noise, 1, len(readings) // len(loads), levelled=True)

    return run


def exhaustive(surface: Surface, loads: Loads, noise: Noise, rng: np.random.Generator) -> Tried:
    """Every K deployed once, and the highest reading believed: what people do."""
    rates = np.asarray(
        [
            [reading.rate for reading in measure(surface, k, loads, noise, rng, 0)]
            for k in range(1, surface.max_k + 1)
        ]
    )
    k = 1 + int(np.argmax(np.log(rates).mean(axis=1)))
    by_load = {c: 1 + int(np.argmax(rates[:, index])) for index, c in enumerate(loads)}
    return Tried(k, by_load, len(rates), len(rates) + 1, frozenset(range(1, surface.max_k + 1)))


def always(k: int) -> Strategy:
    """No measuring: one K for everything."""
    return lambda surface, loads, noise, rng: Tried(k, dict.fromkeys(loads, k), 0, 0, frozenset({k}))


def simulate(
    strategy: Strategy,
    endpoints: int,
    seed: int,
    concurrencies: Loads = (1, 8, 32),
    noise: Noise | None = None,
    draw: Draw = draw_surface,
) -> Outcome:
    """Run ``strategy`` on many endpoints of ``draw``; one seed gives every strategy the same endpoints."""
    noise, tally = noise or Noise(), _Tally()
    for index in range(endpoints):
        surface = draw(np.random.default_rng([seed, index]), concurrencies)
        chance = np.random.default_rng([seed, index, 1])
        tally.add(surface, concurrencies, strategy(surface, concurrencies, noise, chance))
    tried = tally.tried
    return Outcome(
        regrets=np.asarray(tally.regrets),
        load_regrets=np.asarray(tally.by_load),
        deployments=float(np.mean([one.deployments for one in tried])),
        most_deployments=max(one.deployments for one in tried),
        windows=float(np.mean([one.windows for one in tried])),
        unmeasured=sum(k not in one.measured for one in tried for k in (one.k, *one.by_load.values())),
        unsound=sum(not one.sound for one in tried),
    )


def _concluded(
    readings: list[Reading], max_k: int, noise: Noise, deployments: int, windows: int, *, levelled: bool
) -> Tried:
    result = conclude("p-eagle", readings, max_k, deployments=deployments, noise=noise, levelled=levelled)
    predicted = result.predictions.values()
    return Tried(
        result.common.k,
        {c: choice.k for c, choice in result.choices.items()},
        deployments,
        windows,
        frozenset(reading.k for reading in readings if reading.k),
        all(bool(np.isfinite(p.draws).all() and (p.draws > 0).all()) for p in predicted),
    )
