"""Outcome of a tuning: the rates at each concurrency, and one K for the spec. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from peagle_bench.results.records import FitRecord, KPoint, Load, Mode, Reading
from peagle_bench.tune.choice import Choice, choose
from peagle_bench.tune.curve import Noise, Rates, fit, level, noise_of, together

Verdict = Literal["faster", "slower", "not significant"]


@dataclass(frozen=True)
class BaselineRatio:
    """Ratio of the rate at ``k`` to that without speculation (``plain`` tokens/s), with 95% interval."""

    k: int
    plain: float
    ratio: float
    low: float
    high: float

    @property
    def verdict(self) -> Verdict:
        """Result of the comparison: faster or slower only if the interval excludes 1."""
        return "faster" if self.low > 1 else "slower" if self.high < 1 else "not significant"

    @property
    def words(self) -> str:
        """Return ``K=2 is slower than no speculation: 0.912 [0.871, 0.956] of its 314 tokens/s``."""
        verdict = self.verdict
        compared = "not significantly different from" if verdict == "not significant" else f"{verdict} than"
        return (
            f"K={self.k} is {compared} no speculation: "
            f"{self.ratio:.3f} [{self.low:.3f}, {self.high:.3f}] of its {self.plain:.0f} tokens/s"
        )


def against_none(rates: Rates, k: int) -> BaselineRatio | None:
    """Compare ``k`` (above 0) with the baseline; None if no baseline was measured at this load."""
    if 0 not in rates.ks:
        return None
    ratio = rates.ratio(k, 0).interval()
    return BaselineRatio(k, rates.of(0), ratio.value, ratio.low, ratio.high)


@dataclass(frozen=True)
class ModeResult:
    """Result of tuning one mode.

    ``choices`` are by concurrency; ``common`` is the one K for all of them (by the geometric mean of the
    rates), which is written into the spec. All of these K were measured. ``common`` uses the windows of every
    load, a choice for one load only its own windows. The ``rates`` have the baseline as K=0.
    """

    mode: Mode
    readings: tuple[Reading, ...]
    noise: Noise
    rates: Mapping[int, Rates]
    choices: Mapping[int, Choice]
    common: Choice
    deployments: int


def conclude(
    mode: Mode, readings: Sequence[Reading], *, deployments: int, levelled: bool = True
) -> ModeResult:
    """Fit and choose; ``levelled`` removes the effects of the rounds (one machine, one process)."""
    clean = level(readings) if levelled else list(readings)
    noise = noise_of(clean)
    rates = fit(clean, noise)
    speculating = {concurrency: each.speculating() for concurrency, each in rates.items()}
    return ModeResult(
        mode=mode,
        readings=tuple(clean),
        noise=noise,
        rates=rates,
        choices={concurrency: choose(each) for concurrency, each in speculating.items()},
        common=choose(together(speculating)),
        deployments=deployments,
    )


def best_mode(results: Sequence[ModeResult], concurrency: int) -> tuple[Mode, int, float]:
    """Choose mode and K with the highest expected rate (tokens/s) at one concurrency, or mode none."""
    candidates: list[tuple[float, Mode, int]] = []
    for result in results:
        rates, k = result.rates[concurrency], result.choices[concurrency].k
        candidates.append((rates.of(k), result.mode, k))
        if 0 in rates.ks:
            candidates.append((rates.of(0), "none", 0))
    rate, mode, k = max(candidates)
    return mode, k, rate


def common_against_none(result: ModeResult) -> dict[int, BaselineRatio]:
    """Compare the common K with no speculation, for each concurrency that has a baseline."""
    compared = {c: against_none(rates, result.common.k) for c, rates in result.rates.items()}
    return {c: ratio for c, ratio in compared.items() if ratio is not None}


def fit_records(result: ModeResult, usd: float | None) -> list[FitRecord]:
    """Make the mode's records for the results file, one for each concurrency."""
    return [
        FitRecord(
            mode=result.mode,
            load=Load("closed", concurrency=concurrency),
            points=tuple(_points(result.rates[concurrency])),
            best_k=choice.k,
            reason="; ".join(_reasons(result, concurrency, choice)),
            deployments=result.deployments,
            usd=usd,
            chosen_k=result.common.k,
            certain=result.common.is_certain,
        )
        for concurrency, choice in result.choices.items()
    ]


def _reasons(result: ModeResult, concurrency: int, choice: Choice) -> list[str]:
    rates, common = result.rates[concurrency], result.common.k
    pays = [against_none(rates, k) for k in dict.fromkeys((choice.k, common))]
    reasons = [choice.reason, *(ratio.words for ratio in pays if ratio is not None)]
    if common != choice.k:
        reasons.append(
            f"an estimate for this load alone, from its own windows; K={common} is the K for all loads, "
            "from the windows of every load"
        )
    reasons += [f"expected loss {choice.expected_loss:.1%}"]
    here = [reading for reading in result.readings if reading.concurrency == concurrency]
    if len({reading.k for reading in here}) == len(here):
        noise = result.noise
        reasons.append(
            "no K was measured twice, so the intervals use an assumed noise "
            f"(acceptance {noise.acceptance:.1%}, step {noise.step:.1%})"
        )
    return [*reasons, _sources(here)]


def _points(rates: Rates) -> list[KPoint]:
    points = []
    for index, k in enumerate(rates.ks):
        rate = rates.interval(k)
        length, step_ms = float(rates.acceptance[index]), float(rates.step_ms[index])
        points.append(KPoint(k, length, step_ms, rate.value, k in rates.measured, rate.low, rate.high))
    return points


def _sources(here: Sequence[Reading]) -> str:
    words = {
        "metrics": "the engine's inter-token latency",
        "drafts": "stream time by verification steps",
        "chunks": "gaps between chunks",
        "simulated": "a simulation",
    }
    return "step time from " + " and ".join(words[source] for source in sorted({r.step_source for r in here}))
