"""The controller of container/plugins/peagle_runtime_k in the loop, on made-up endpoints and traces. Pure.

The endpoints and traces are those of `scripts.bench.tuner.traces`; a moment of a trace lasts `MOMENT_S`. The
controller gets sums of steps as in the engine: tokens are drawn draft by draft, a head with a large K reads
its early positions too low, acceptance and step time drift by 2% within seconds, and some of the steps
compute prompts, which it does not learn from. A decision holds from the next tick on, longer than the
engine's delay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from peagle_runtime_k.controller import DWELL_S, Controller, Steps

from peagle_bench.tune.fit import Array, Noise
from scripts.bench.tuner.simulate import Draw
from scripts.bench.tuner.surface import Surface
from scripts.bench.tuner.traces import KINDS, MEASURED, Trace, regret, tune
from scripts.bench.tuner.worlds import draw_world

MOMENT_S = 1.0
TICK_S = 0.5
DRIFT_S = 5.0  #: how long the text and the machine stay as they are
PROMPTS = 0.2  #: share of the time that goes into steps with prompts

Slower = Callable[[int], float]
"""How many times longer a step takes at a K than the endpoint's table says: a stall."""


@dataclass(frozen=True)
class Controlled:
    """One trace under the controller: regret, changes of K, and the shortest time between two of them."""

    regret: float
    switches: int
    closest_s: float
    ks: tuple[int, ...]  #: K in use, tick by tick
    banned: frozenset[int]


def as_read(surface: Surface, k: int) -> Array:
    """Return the survival by position that a head with K drafts shows."""
    positions = np.arange(1, k + 1)
    low = np.log(surface.acceptance[1 : k + 1]) - surface.bias * (1 - (positions / k) ** surface.bias_bend)
    shown: Array = np.clip(np.diff(np.concatenate([[1.0], np.exp(low)])), 1e-9, 1.0)
    return shown


@dataclass
class _Engine:
    """A made-up engine: the steps of a tick."""

    surface: Surface
    noise: Noise
    rng: np.random.Generator
    slower: Slower

    def __post_init__(self) -> None:
        self._survival = [np.ones(0), *(as_read(self.surface, k) for k in range(1, self.surface.max_k + 1))]
        self._text = self._machine = 0.0

    def rate(self, k: int, load: int) -> float:
        return self.surface.rate(k, load) / self.slower(k)

    def tick(self, k: int, load: int) -> Steps:
        keep = math.exp(-TICK_S / DRIFT_S)
        fresh = math.sqrt(1 - keep * keep)
        self._text = keep * self._text + fresh * self.rng.normal(0, self.noise.acceptance)
        self._machine = keep * self._machine + fresh * self.rng.normal(0, self.noise.step)
        seconds = self.surface.step_ms[load][k] / 1000 * self.slower(k) * math.exp(self._machine)
        steps = max(1, round(TICK_S * (1 - PROMPTS) / seconds))
        alive, before, survived = steps * load, 1.0, list[int]()
        for rate in self._survival[k] * math.exp(self._text):
            alive = int(self.rng.binomial(alive, min(1.0, rate / before)))
            before = min(rate, 1.0)
            survived.append(alive)
        return Steps(load, k, steps, steps * seconds, survived)


def control(
    surface: Surface,
    trace: Trace,
    bounds: Sequence[int],
    noise: Noise,
    rng: np.random.Generator,
    slower: Slower = lambda k: 1.0,
) -> Controlled:
    """Run a controller that knows nothing but its bounds over a trace."""
    engine = _Engine(surface.with_head(), noise, rng, slower)
    controller = Controller(bounds)
    every = range(surface.max_k + 1)
    best = {int(load): max(engine.rate(k, int(load)) for k in every) for load in set(trace)}
    lost, ks, changed, now = [], list[int](), list[float](), 0.0
    k = controller.decide(now, int(trace[0]))
    for load in (int(load) for load in trace for _ in range(round(MOMENT_S / TICK_S))):
        used = min(k, bounds[load])  # the table's limit needs no decision
        if ks and used != ks[-1]:
            changed.append(now)
        ks.append(used)
        lost.append(1 - engine.rate(used, load) / best[load])
        now += TICK_S
        controller.record(engine.tick(used, load))
        k = controller.decide(now, load)
    closest = min((after - before for before, after in pairwise(changed)), default=math.inf)
    return Controlled(
        float(np.mean(lost)), controller.switches, closest, tuple(ks), frozenset(controller.banned)
    )


@dataclass(frozen=True)
class ControllerOutcome:
    """Regrets on the traces: of the controller within a table and without one, of the bounds alone."""

    within: Array
    table: Array
    without: Array
    largest: Array
    switches: float  #: mean number of changes of K in a trace
    closest_s: float  #: shortest time between two changes without a table


def simulate_controller(
    count: int, seed: int, noise: Noise, *, rounds: int, max_k: int = 11, draw: Draw | None = None
) -> ControllerOutcome:
    """Run the controller on ``count`` endpoints, with the tuner's table as its bound and with one K."""
    every = tuple(range(1, MEASURED[-1] + 1))
    found: list[tuple[float, float, float, float, float, float]] = []
    for index in range(count):
        rng = np.random.default_rng([seed, index, 2])
        surface = (draw or (lambda r, c: draw_world(r, c, max_k)))(
            np.random.default_rng([seed, index]), every
        )
        trace = list(KINDS.values())[index % len(KINDS)](rng, MEASURED[-1])
        table = tune(surface, MEASURED, noise, np.random.default_rng([seed, index, 1]), rounds).table
        within = control(
            surface, trace, [0, *map(table.k_at, every)], noise, np.random.default_rng([seed, index, 3])
        )
        without = control(
            surface, trace, [0, *[max_k] * len(every)], noise, np.random.default_rng([seed, index, 4])
        )
        found.append(
            (
                within.regret,
                regret(surface, trace, table.k_at),
                without.regret,
                regret(surface, trace, lambda _: max_k),
                within.switches,
                without.closest_s,
            )
        )
    columns = np.asarray(found, dtype=float).T
    return ControllerOutcome(
        within=columns[0],
        table=columns[1],
        without=columns[2],
        largest=columns[3],
        switches=float(columns[4].mean()),
        closest_s=float(columns[5].min()),
    )


def too_soon(outcome: ControllerOutcome) -> bool:
    """Whether K changed twice within the least time between two changes."""
    return outcome.closest_s < DWELL_S
