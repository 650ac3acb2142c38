"""Made-up endpoints whose best K is known: to try the tuner on many, and to say what it loses. Pure.

Acceptance decays from position to position; a large K reads its own early positions too low, as real heads
do. Step time is verification (flat while memory-bound, then proportional to the tokens in the batch), with
jumps where a tile fills, plus the draft's passes. The ranges span the tables in docs/how-to/tuner.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from peagle_bench.tune.fit import Array, Noise
from peagle_bench.tune.readings import Reading

Head = Literal["eagle3", "p-eagle"]


@dataclass(frozen=True)
class Surface:
    """One endpoint: AL by K (index K), its bias, and T in milliseconds by concurrency and K."""

    head: Head
    max_k: int
    acceptance: Array
    survival: Array
    bias: float
    bias_bend: float  #: how fast the bias goes as a position nears the largest; 1 is a straight line
    step_ms: dict[int, Array]
    head_ms: dict[int, float] = field(default_factory=dict)  #: one pass of the head, which K=0 does not save

    def with_head(self) -> Surface:
        """Return the engine that has the head loaded: its K=0 still runs one pass of it in each step."""
        steps = {
            c: steps + self.head_ms[c] * (np.arange(len(steps)) == 0) for c, steps in self.step_ms.items()
        }
        return replace(self, step_ms=steps)

    def rate(self, k: int, concurrency: int) -> float:
        """The true tokens a second."""
        return float(concurrency * self.acceptance[k] * 1000 / self.step_ms[concurrency][k])

    def regret(self, k: int, concurrencies: Sequence[int]) -> float:
        """The share of the best rate that ``k`` gives away, by the geometric mean over concurrencies.

        The best is that of one K with speculation for all of them: what a spec can hold.
        """
        rates = [
            math.prod(self.rate(other, c) for c in concurrencies) ** (1 / len(concurrencies))
            for other in range(1, self.max_k + 1)
        ]
        return 1 - rates[k - 1] / max(rates)


def draw_surface(rng: np.random.Generator, concurrencies: tuple[int, ...], max_k: int = 11) -> Surface:
    """One endpoint at random: either head, a GPU's step times or a CPU's."""
    head: Head = "p-eagle" if rng.random() < 0.5 else "eagle3"
    first, decay = rng.uniform(0.55, 0.92), rng.uniform(0.93, 1.0)
    survival = np.cumprod(first * decay ** np.arange(max_k))
    acceptance = np.concatenate([[1.0], 1 + np.cumsum(survival)])
    on_gpu = rng.random() < 0.7
    times = {c: _step_times(rng, head, c, max_k, on_gpu) for c in concurrencies}
    steps = {c: found for c, (found, _) in times.items()}
    passes = {c: once for c, (_, once) in times.items()}
    return Surface(
        head, max_k, acceptance, survival, rng.uniform(0.02, 0.07), rng.uniform(0.6, 1.8), steps, passes
    )


def _step_times(
    rng: np.random.Generator, head: Head, c: int, max_k: int, on_gpu: bool
) -> tuple[Array, float]:
    """Return the step time at each K, and the time of one pass of the head, in milliseconds."""
    ks: Array = np.arange(max_k + 1, dtype=float)
    tokens = c * (ks + 1)
    if on_gpu:
        ridge = rng.uniform(60, 400)  # tokens at which compute takes as long as reading the weights
        verify = (1 + (tokens / ridge) ** 3) ** (1 / 3)
        draft = rng.uniform(0.05, 0.2) + 0 * ks if head == "p-eagle" else rng.uniform(0.03, 0.1) * ks
        tile = int(rng.choice([8, 16, 32, 64]))
        jump = rng.uniform(0.0, 0.12)
    else:
        verify = 1 + rng.uniform(0.03, 0.08) * (tokens - 1) ** rng.uniform(0.85, 1.0)
        draft = rng.uniform(0.2, 0.5) + 0 * ks if head == "p-eagle" else rng.uniform(0.1, 0.3) * ks
        tile = int(rng.choice([4, 8, 16]))
        jump = rng.uniform(0.0, 0.08)
    jumps = jump * np.minimum(tokens // tile - c // tile, 6)
    found: Array = 5.0 * (verify + np.where(ks > 0, draft, 0.0) + jumps)
    return found, float(5.0 * draft[1])


def measure(
    surface: Surface,
    k: int,
    concurrencies: tuple[int, ...],
    noise: Noise,
    rng: np.random.Generator,
    block: int,
) -> list[Reading]:
    """Read one deployed K at every concurrency, with the noise of the prompts shared between them."""
    prompts = np.exp(rng.normal(0, noise.acceptance)) if k else 1.0
    found = []
    for c in concurrencies:
        step = surface.step_ms[c][k] * np.exp(rng.normal(0, noise.step))
        al = 1 + (surface.acceptance[k] - 1) * prompts
        # Position i of a deployed K reads low by the bias at i, and the last positions make up for it.
        true = np.log(surface.acceptance[1 : k + 1])
        low = np.exp(true - surface.bias * (1 - (np.arange(1, k + 1) / max(k, 1)) ** surface.bias_bend))
        rates = np.diff(np.concatenate([[1.0], low])) * prompts
        found.append(
            Reading(
                k,
                c,
                float(al),
                tuple(float(r) for r in rates),
                float(step),
                float(c * al * 1000 / step),
                4000,
                "simulated",
                block,
            )
        )
    return found
