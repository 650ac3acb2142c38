"""The tuner on simulated endpoints whose best K is known: scripts/simulate-tuner.

Regret is the share of the best K's rate that a choice loses. The strategies are the tuner's own; only the
windows are simulated. What the endpoints have and the tuner does not assume: batches padded to the next
CUDA graph, a cliff where no graph was captured, a hard roofline, tiles, experts that are loaded one after the
other, kernels that differ from size to size, heads that were trained for fewer positions than K, and an
acceptance at small K that is not a truncation of that at the largest K.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from peagle_bench.results import provenance
from peagle_bench.results.records import Reading
from peagle_bench.tune.curve import Array, Noise
from peagle_bench.tune.outcome import ModeResult, conclude
from peagle_bench.tune.strategy import by_deployments, in_one_engine
from scripts.bench.marked_page import insert

#: Limits at 2% noise: mean regret and its 95th percentile.
MOST_MEAN, MOST_P95 = 0.01, 0.04
NOISE = Noise(0.01, 0.0173)  #: 2% of a rate
#: Sizes in tokens at which vLLM captures CUDA graphs by default: 1, 2, 4, then every 8 up to 512.
GRAPHS = np.asarray([1, 2, 4, *range(8, 513, 8)], dtype=float)

Rng = np.random.Generator


@dataclass(frozen=True)
class Surface:
    """One endpoint. ``acceptance`` is AL and ``step_ms`` T, both by K from 0; ``step_ms`` by concurrency."""

    acceptance: Array
    step_ms: dict[int, Array]
    survival: Array  #: survival rates that the largest K shows; their sums are not quite ``acceptance``

    @property
    def max_k(self) -> int:
        """Largest K."""
        return len(self.acceptance) - 1

    def rate(self, k: int, c: int) -> float:
        """Return the true tokens/s."""
        step_ms = self.step_ms[c][k]
        return float(c * self.acceptance[k] * 1000 / step_ms)

    def regret(self, k: int, loads: Sequence[int]) -> float:
        """Return the share of the best single K's rate that is lost, by the geometric mean over the loads."""
        rates = [np.mean([np.log(self.rate(j, c)) for c in loads]) for j in range(1, self.max_k + 1)]
        return float(1 - np.exp(rates[k - 1] - max(rates)))


def padded(tokens: Array) -> Array:
    """Return the captured size to which each batch is padded; above the largest, the batch itself."""
    sizes = GRAPHS[np.minimum(np.searchsorted(GRAPHS, tokens), len(GRAPHS) - 1)]
    return np.where(tokens <= GRAPHS[-1], sizes, tokens)


def roofline(rng: Rng, tokens: Array, c: int, max_k: int) -> Array:
    """Flat up to the ridge, then proportional to the padded batch."""
    ridge = np.exp(rng.uniform(np.log(40), np.log(450)))
    verify: Array = np.maximum(1.0, padded(tokens) / ridge) + rng.uniform(0, 0.002) * c
    return verify


def tiles(rng: Rng, tokens: Array, c: int, max_k: int) -> Array:
    """A staircase: every full tile of the matrix unit adds a fixed share."""
    tile = float(rng.choice([16, 32, 64, 128]))
    return 1 + rng.uniform(0.02, 0.18) * np.floor((tokens - 1) / tile)


def cliff(rng: Rng, tokens: Array, c: int, max_k: int) -> Array:
    """A slow rise, and one cliff where the captured graphs end."""
    edge = float(rng.integers(2, max_k)) * c
    return 1 + rng.uniform(0.0005, 0.004) * tokens + np.where(tokens > edge, rng.uniform(0.1, 0.7), 0.0)


def experts(rng: Rng, tokens: Array, c: int, max_k: int) -> Array:
    """A mixture of experts: steep while new experts are loaded, then flat; on the padded batch."""
    loaded = 1 - (1 - 1 / rng.uniform(8, 40)) ** padded(tokens)
    return rng.uniform(0.3, 0.7) + rng.uniform(0.5, 1.6) * loaded + 0.0008 * tokens


def kernels(rng: Rng, tokens: Array, c: int, max_k: int) -> Array:
    """A slow rise on which each size has a kernel of its own, up to 3% better or worse."""
    return (1 + rng.uniform(0.001, 0.01) * tokens) * np.exp(rng.uniform(-0.03, 0.03, len(tokens)))


def cpu(rng: Rng, tokens: Array, c: int, max_k: int) -> Array:
    """A steep, nearly straight rise, as on a CPU."""
    return 1 + rng.uniform(0.03, 0.08) * (tokens - 1) ** rng.uniform(0.85, 1.0)


SHAPES = (roofline, tiles, cliff, experts, kernels, cpu)


def draw(rng: Rng, loads: Sequence[int], max_k: int) -> Surface:
    """Draw one endpoint of any shape."""
    shape = SHAPES[int(rng.integers(len(SHAPES)))]
    seed, unit = int(rng.integers(2**31)), rng.uniform(2, 20)
    ks = np.arange(max_k + 1, dtype=float)
    parallel = rng.uniform(0.03, 0.35) + rng.uniform(0, 0.004) * ks  # P-EAGLE: one pass for all drafts
    draft = parallel if rng.random() < 0.6 else rng.uniform(0.02, 0.12) * ks
    steps = {}
    for c in loads:
        # The same seed for each load: one machine has one ridge, one tile, one cliff.
        verify = shape(np.random.default_rng(seed), c * (ks + 1), c, max_k)
        steps[c] = unit * (verify + verify[0] * np.where(ks > 0, draft, 0.0))
    conditional = rng.uniform(0.5, 0.93) * rng.uniform(0.95, 1.0) ** np.arange(max_k)
    conditional[int(rng.integers(4, 20)) :] *= rng.uniform(0.4, 1.0)  # trained for fewer positions than K
    return surface_of(rng, np.cumprod(conditional), steps)


def surface_of(rng: Rng, survival: Array, steps: dict[int, Array]) -> Surface:
    """Make an endpoint whose AL at each K is that of ``survival``, and which differs from its truncation.

    The largest K shows its early positions up to 8% too low, and each K differs by up to 1% from the curve.
    """
    truncated = np.concatenate([[1.0], 1 + np.cumsum(survival)])
    position = np.arange(len(truncated)) / len(survival)
    shown = np.exp(
        np.log(truncated) - rng.uniform(0, 0.08) * (1 - position ** rng.uniform(0.5, 2.0)) * (position > 0)
    )
    own = np.exp(rng.uniform(0, 0.01) * rng.uniform(-1, 1, len(truncated)) * (position > 0) * (position < 1))
    return Surface(np.maximum(truncated * own, 1.0), steps, np.clip(np.diff(shown), 0.0, 1.0))


def pull_32628(rng: Rng, loads: Sequence[int], max_k: int) -> Surface:
    """Return the endpoint of vLLM pull request 32628 (January 2026): EAGLE-3 on HumanEval, K up to 8.

    It has tokens/s at K = 3 to 8 and the survival rates of K=8. Below K=3 the line of the step times
    continues.
    """
    measured = {
        1: (336, 324, 305, 286, 269, 254),
        2: (536, 516, 488, 459, 431, 411),
        4: (803, 795, 756, 712, 673, 639),
        8: (1180, 1167, 1140, 1090, 1053, 1018),
    }
    survival = np.asarray((0.72, 0.50, 0.33, 0.21, 0.14, 0.09, 0.06, 0.03))
    steps = {}
    for c in loads:
        step_ms = c * (1 + np.cumsum(survival))[2:] * 1000 / np.asarray(measured[c])
        below = np.polyval(np.polyfit(np.arange(3, 9), step_ms, 1), np.arange(3))
        steps[c] = np.concatenate([[0.75 * below[1]], below[1:], step_ms])
    return surface_of(rng, survival, steps)


@dataclass
class Engine:
    """Reader of simulated windows."""

    surface: Surface
    noise: Noise
    seed: Sequence[int]
    windows: int = 0

    def read(self, k: int, concurrency: int, block: int) -> Reading:
        """Measure one window; one K has the same prompts at each concurrency of a round."""
        self.windows += 1
        prompts = np.random.default_rng([*self.seed, k, block]).normal(0, self.noise.acceptance)
        machine = np.random.default_rng([*self.seed, k, block, concurrency]).normal(0, self.noise.step)
        length = 1 + (self.surface.acceptance[k] - 1) * np.exp(prompts)
        step_ms = concurrency * length * 1000 / self.surface.rate(k, concurrency)
        step_ms *= self.surface.acceptance[k] / length * np.exp(machine)
        survival = tuple(float(rate) for rate in self.surface.survival[:k] * np.exp(prompts))
        return Reading(k, concurrency, float(length), survival, float(step_ms), 0.0, 4000, "simulated", block)


Strategy = Callable[[Surface, tuple[int, ...], Noise, Sequence[int]], tuple[int, int, int]]
"""Returns the K for the spec, the number of deployed K, and the number of windows."""


def deployments(
    surface: Surface, loads: tuple[int, ...], noise: Noise, seed: Sequence[int]
) -> tuple[int, int, int]:
    """One deployment for each K, with the tuner's default limit."""
    engine = Engine(surface, noise, seed)
    readings, deployed = by_deployments(
        lambda k: nullcontext(engine),
        engine,
        loads,
        surface.max_k,
        _silent,
        beside=False,
    )
    result = conclude("p-eagle", readings, deployments=deployed, levelled=False)
    return _measured_k(result), deployed, engine.windows


def one_engine(
    surface: Surface, loads: tuple[int, ...], noise: Noise, seed: Sequence[int]
) -> tuple[int, int, int]:
    """K changed inside one engine."""
    engine = Engine(surface, noise, seed)
    readings = in_one_engine(engine, engine, loads, surface.max_k, _silent)
    return _measured_k(conclude("p-eagle", readings, deployments=1)), 1, engine.windows


def always_7(
    surface: Surface, loads: tuple[int, ...], noise: Noise, seed: Sequence[int]
) -> tuple[int, int, int]:
    """No measurement."""
    return 7, 0, 0


def _measured_k(result: ModeResult) -> int:
    chosen = {result.common.k, *(choice.k for choice in result.choices.values())}
    assert chosen <= {reading.k for reading in result.readings}
    assert all(np.isfinite(rates.rate).all() and (rates.rate > 0).all() for rates in result.rates.values())
    return result.common.k


def _silent(message: str) -> None:
    """Show nothing."""


@dataclass(frozen=True)
class Outcome:
    """Regrets of one strategy, one for each endpoint, and its mean cost."""

    regrets: Array
    deployed: float = 0.0
    windows: float = 0.0  #: at each concurrency

    def misses(self) -> list[str]:
        """List the limits that are exceeded."""
        mean, p95 = float(self.regrets.mean()), float(np.quantile(self.regrets, 0.95))
        misses = [f"mean regret {mean:.2%} (at most {MOST_MEAN:.0%})"] if mean > MOST_MEAN else []
        return misses + ([f"95th percentile {p95:.2%} (at most {MOST_P95:.0%})"] if p95 > MOST_P95 else [])

    def cells(self) -> str:
        """Return mean, 95th percentile and largest regret, as cells of a table."""
        regrets = self.regrets
        return f"{regrets.mean():.2%} | {np.quantile(regrets, 0.95):.2%} | {regrets.max():.1%} |"


def simulate(
    strategy: Strategy,
    endpoints: int,
    seed: int,
    loads: tuple[int, ...],
    max_k: int,
    *,
    noise: Noise = NOISE,
    draw: Callable[[Rng, Sequence[int], int], Surface] = draw,
) -> Outcome:
    """Run a strategy on many endpoints; one seed gives every strategy the same endpoints."""
    regrets, deployed, windows = [], [], []
    for index in range(endpoints):
        surface = draw(np.random.default_rng([seed, index]), loads, max_k)
        k, count, measured = strategy(surface, loads, noise, (seed, index, 1))
        regrets.append(surface.regret(k, loads))
        deployed.append(count)
        windows.append(measured / len(loads))
    return Outcome(np.asarray(regrets), float(np.mean(deployed)), float(np.mean(windows)))


def report(endpoints: int, seed: int) -> tuple[str, list[str]]:
    """Simulate; return the page's table, and the limits that the tuner exceeds."""
    by_name: dict[str, Strategy] = {
        "one deployment for each K": deployments,
        "K changed in one engine": one_engine,
        "always K=7": always_7,
    }
    doubled = Noise(2 * NOISE.acceptance, 2 * NOISE.step)
    cases = [(k, loads, NOISE, name) for k, loads in _WORLDS for name in by_name]
    cases += [(32, (1, 8, 32), doubled, name) for name in list(by_name)[:2]]
    lines = [
        "| K up to | noise | concurrency | strategy | mean regret | 95th percentile | worst "
        "| K deployed | windows |",
        "|---:|---:|---|---|---:|---:|---:|---:|---:|",
    ]
    misses = []
    for max_k, loads, noise, name in cases:
        outcome = simulate(by_name[name], endpoints, seed, loads, max_k, noise=noise)
        at, share = ", ".join(map(str, loads)), "2%" if noise == NOISE else "4%"
        costs = f"{outcome.deployed:.1f} | {outcome.windows:.1f} |"
        lines.append(f"| {max_k} | {share} | {at} | {name} | {outcome.cells()} {costs}")
        if by_name[name] is not always_7 and noise == NOISE:
            misses += [f"{name}, K to {max_k}, c={at}: {miss}" for miss in outcome.misses()]
    return "\n".join(lines), misses


_WORLDS = ((32, (1, 8, 32)), (32, (1,)), (32, (8,)), (32, (32,)), (11, (1, 8, 32)), (11, (1,)))
PAGE = "tuner.md"
MARKS = ("<!-- simulation: written by scripts/simulate-tuner -->", "<!-- end of simulation -->")


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate, write the page, and return 1 if the tuner exceeds a limit."""
    parser = argparse.ArgumentParser(prog="scripts/simulate-tuner", description=__doc__)
    parser.add_argument("--endpoints", type=int, default=300, help="endpoints of each kind (default 300)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pages", type=Path, default=Path("docs/how-to"), help="folder of the page")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    table, misses = report(options.endpoints, options.seed)
    revision = (provenance.git_revision(Path(__file__).parent) or "unknown")[:7]
    origin = (
        f"{datetime.now(UTC):%Y-%m-%d}, commit {revision}, {time.monotonic() - began:.0f} s. Again: "
        f"`scripts/simulate-tuner --endpoints {options.endpoints} --seed {options.seed}`."
    )
    page = options.pages / PAGE
    text = insert(page.read_text(encoding="utf-8"), *MARKS, f"{origin}\n\n{table}")
    page.write_text(text, encoding="utf-8")
    print(table)
    for miss in misses:
        print(f"above the limit: {miss}", file=sys.stderr)
    return 1 if misses else 0


if __name__ == "__main__":
    raise SystemExit(main())
