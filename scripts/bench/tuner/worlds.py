"""Endpoints with a known best K that share nothing with the tuner's own model. Pure.

`peagle_bench.tune.fit` believes in a smooth step time with a bend and a random walk. These endpoints
have what real ones have instead: batches padded to the next CUDA graph, a cliff where no graph was captured,
a hard roofline, experts that are loaded one after the other, kernels that differ from one size to the next,
a head that was trained for fewer positions than K, and published tables. K goes up to 32.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from peagle_bench.tune.fit import Array
from scripts.bench.tuner.surface import Head, Surface

MAX_K = 32
#: Sizes in tokens at which vLLM captures CUDA graphs by default: 1, 2, 4, then every 8 up to 512.
GRAPHS = np.asarray([1, 2, 4, *range(8, 513, 8)], dtype=float)

StepShape = Callable[[np.random.Generator, Array, int], Array]
"""Milliseconds of one verification step for so many tokens in the batch, at one concurrency."""


def _padded(tokens: Array) -> Array:
    """The captured size that a batch is padded to; above the largest, the batch itself."""
    index = np.searchsorted(GRAPHS, tokens)
    padded: Array = np.where(tokens <= GRAPHS[-1], GRAPHS[np.minimum(index, len(GRAPHS) - 1)], tokens)
    return padded


def roofline(rng: np.random.Generator, tokens: Array, c: int) -> Array:
    """A hard kink: memory-bound until the ridge, then proportional to the padded batch."""
    padded = _padded(tokens)
    ridge = float(np.exp(rng.uniform(np.log(40), np.log(450))))
    found: Array = np.maximum(1.0, padded / ridge) + rng.uniform(0, 0.002) * c
    return found


def tiles(rng: np.random.Generator, tokens: Array, c: int) -> Array:
    """A staircase: every full tile of the matrix unit adds a fixed share."""
    tile = float(rng.choice([16, 32, 64, 128]))
    found: Array = 1 + rng.uniform(0.02, 0.18) * np.floor((tokens - 1) / tile)
    return found


def cliff(rng: np.random.Generator, tokens: Array, c: int) -> Array:
    """Flat with a slow rise, and one cliff where the captured graphs end."""
    edge = float(rng.integers(2, MAX_K)) * c
    rise = rng.uniform(0.0005, 0.004) * tokens
    found: Array = 1 + rise + np.where(tokens > edge, rng.uniform(0.1, 0.7), 0.0)
    return found


def experts(rng: np.random.Generator, tokens: Array, c: int) -> Array:
    """A mixture of experts: steep while new experts are loaded, then flat."""
    share = 1 / rng.uniform(8, 40)
    loaded = 1 - (1 - share) ** _padded(tokens)
    found: Array = rng.uniform(0.3, 0.7) + rng.uniform(0.5, 1.6) * loaded + 0.0008 * tokens
    return found


def kernels(rng: np.random.Generator, tokens: Array, c: int) -> Array:
    """A slow rise on which each size has a kernel of its own, up to 3% better or worse."""
    slope = rng.uniform(0.001, 0.01)
    found: Array = (1 + slope * tokens) * np.exp(rng.uniform(-0.03, 0.03, len(tokens)))
    return found


SHAPES: dict[str, StepShape] = {
    "roofline": roofline,
    "tiles": tiles,
    "cliff": cliff,
    "experts": experts,
    "kernels": kernels,
}

# vLLM pull request 32628 (January 2026), EAGLE-3 on HumanEval: tokens a second at K = 3 to 8 by concurrency,
# and the survival rates of its K=8.
_PULL_32628 = {
    1: (336, 324, 305, 286, 269, 254),
    2: (536, 516, 488, 459, 431, 411),
    4: (803, 795, 756, 712, 673, 639),
    8: (1180, 1167, 1140, 1090, 1053, 1018),
}
_PULL_32628_SURVIVAL = (0.72, 0.50, 0.33, 0.21, 0.14, 0.09, 0.06, 0.03)
# The small stand-in weights on two cores: milliseconds a step, without speculation and at K = 1, 3, 5, 7, 9.
_SMALL = {
    ("p-eagle", 1): (4.7, 6.9, 7.2, 7.4, 8.6, 9.2),
    ("eagle3", 1): (4.7, 6.8, 8.8, 10.7, 13.0, 14.7),
    ("p-eagle", 4): (5.1, 8.4, 10.5, 12.8, 15.4, 16.7),
    ("eagle3", 4): (5.1, 8.2, 12.0, 15.2, 18.1, 20.8),
    ("p-eagle", 8): (6.7, 10.8, 15.7, 20.1, 24.1, 27.6),
    ("eagle3", 8): (6.7, 10.5, 16.1, 21.0, 25.6, 29.8),
}
_SMALL_SURVIVAL = {
    "p-eagle": (0.85, 0.76, 0.67, 0.36, 0.31, 0.20, 0.17, 0.12, 0.09),
    "eagle3": (0.92, 0.80, 0.66, 0.62, 0.58, 0.42, 0.34, 0.27, 0.22),
}


def published() -> dict[str, Surface]:
    """The tables: each covers few K, and the K between are interpolated. Below K=3 the pull request has none,
    so its K=1 and 2 continue the line of the step times."""
    found = {}
    al = 1 + np.cumsum(_PULL_32628_SURVIVAL)
    steps = {}
    for c, rates in _PULL_32628.items():
        measured = c * al[2:8] * 1000 / np.asarray(rates, dtype=float)
        line = np.polyfit(np.arange(3, 9), measured, 1)
        below = np.polyval(line, np.arange(0, 3))
        steps[c] = np.concatenate([[0.75 * below[1]], below[1:], measured])
    found["vLLM pull request 32628"] = _surface("eagle3", _PULL_32628_SURVIVAL, 0.03, 1.0, steps, {})
    for head, survival in _SMALL_SURVIVAL.items():
        small = {
            c: np.interp(np.arange(10), (0, 1, 3, 5, 7, 9), row)
            for (one, c), row in _SMALL.items()
            if one == head
        }
        name: Head = "p-eagle" if head == "p-eagle" else "eagle3"
        found[f"small weights, {head}"] = _surface(name, survival, 0.04, 1.0, small, {})
    return found


def draw_world(rng: np.random.Generator, concurrencies: tuple[int, ...], max_k: int = MAX_K) -> Surface:
    """One endpoint at random, of any shape."""
    head: Head = "p-eagle" if rng.random() < 0.6 else "eagle3"
    shape = SHAPES[str(rng.choice(list(SHAPES)))]
    seed = int(rng.integers(2**31))
    unit = rng.uniform(2, 20)
    ks: Array = np.arange(max_k + 1, dtype=float)
    draft = (
        rng.uniform(0.03, 0.35) + rng.uniform(0, 0.004) * ks
        if head == "p-eagle"
        else rng.uniform(0.02, 0.12) * ks
    )
    steps, passes = {}, {}
    for c in concurrencies:
        # The same seed for each load: one machine has one ridge, one tile, one cliff.
        verify = shape(np.random.default_rng(seed), c * (ks + 1), c)
        steps[c] = unit * (verify + verify[0] * np.where(ks > 0, draft, 0.0))
        passes[c] = float(unit * verify[0] * draft[1])
    return _surface(head, _survival(rng, max_k), rng.uniform(0.0, 0.08), rng.uniform(0.5, 2.0), steps, passes)


def _survival(rng: np.random.Generator, max_k: int) -> Array:
    """Acceptance of a head that was trained for so many positions: beyond them it falls faster."""
    conditional = np.full(max_k, rng.uniform(0.5, 0.93))
    conditional *= rng.uniform(0.95, 1.0) ** np.arange(max_k)
    conditional[int(rng.integers(4, 20)) :] *= rng.uniform(0.4, 1.0)
    survival: Array = np.cumprod(conditional)
    return survival


def _surface(
    head: Head,
    survival: Array | tuple[float, ...],
    bias: float,
    bend: float,
    steps: dict[int, Array],
    passes: dict[int, float],
) -> Surface:
    rates = np.asarray(survival, dtype=float)
    acceptance = np.concatenate([[1.0], 1 + np.cumsum(rates)])
    return Surface(head, len(rates), acceptance, rates, bias, bend, steps, passes)
