"""Outcome of a tuning: a fit for each concurrency, and one K for the spec. Pure.

A sweep over every K can check the tuner's choice. It measures every K in every round, so the rates of two K
are compared round by round, and drift of the machine cancels. An interval wider than +-5% is undecided and
counts as failure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from peagle_bench.compare.confidence_intervals import t_quantile
from peagle_bench.results.records import CheckRecord, FitRecord, Interval, KPoint, Load, Mode
from peagle_bench.tune.decide import CHOICE_LOSS, Choice, choose
from peagle_bench.tune.fit import Fit, Noise, fit, level, noise_of
from peagle_bench.tune.predict import (
    BaselineRatio,
    Prediction,
    against_none,
    predict,
    together,
    without_baseline,
)
from peagle_bench.tune.readings import Reading


@dataclass(frozen=True)
class ModeResult:
    """Result of tuning one mode.

    ``choices`` are by concurrency; ``common`` is the one K for all of them (by the geometric mean of the
    rates), which is written into the spec. All of these K were measured. ``common`` uses the windows of every
    load, a choice for one load only its own windows.
    """

    mode: Mode
    max_k: int
    readings: tuple[Reading, ...]
    noise: Noise
    fit: Fit
    predictions: Mapping[int, Prediction]
    choices: Mapping[int, Choice]
    common: Choice
    deployments: int


def conclude(
    mode: Mode,
    readings: Sequence[Reading],
    max_k: int,
    *,
    deployments: int,
    noise: Noise | None = None,
    levelled: bool = True,
) -> ModeResult:
    """Fit, predict and choose; ``levelled`` removes the effects of the rounds (one machine, one process)."""
    clean = level(readings) if levelled else list(readings)
    seen = noise_of(clean, noise)
    fitted = fit(clean, max_k, seen)
    speculating = {c: without_baseline(p) for c, p in predict(fitted, clean, seen).items()}
    choices = {c: choose(prediction) for c, prediction in speculating.items()}
    return ModeResult(
        mode=mode,
        max_k=max_k,
        readings=tuple(clean),
        noise=seen,
        fit=fitted,
        predictions=predict(fitted, clean, seen),
        choices=choices,
        common=choose(together(speculating)),
        deployments=deployments,
    )


def best_mode(results: Sequence[ModeResult], concurrency: int) -> tuple[Mode, int, float]:
    """Choose mode and K with the highest expected rate (tokens/s) at one concurrency, or mode none."""
    rates: list[tuple[float, Mode, int]] = []
    for result in results:
        prediction = result.predictions[concurrency]
        k = result.choices[concurrency].k
        rates.append((float(prediction.mean[prediction.ks.index(k)]), result.mode, k))
        if 0 in prediction.ks:
            rates.append((float(prediction.mean[prediction.ks.index(0)]), "none", 0))
    rate, mode, k = max(rates)
    return mode, k, rate


def common_against_none(result: ModeResult) -> dict[int, BaselineRatio]:
    """Compare the common K with no speculation, for each concurrency that has a baseline."""
    found = {c: against_none(p, result.common.k) for c, p in result.predictions.items()}
    return {c: one for c, one in found.items() if one is not None}


def fit_records(result: ModeResult, usd: float | None) -> list[FitRecord]:
    """Make the mode's records for the results file, one for each concurrency."""
    return [
        FitRecord(
            mode=result.mode,
            load=Load("closed", concurrency=concurrency),
            points=tuple(_points(result, concurrency)),
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
    prediction, common = result.predictions[concurrency], result.common.k
    pays = [against_none(prediction, k) for k in dict.fromkeys((choice.k, common))]
    found = [choice.reason, *(one.words for one in pays if one is not None)]
    if common != choice.k:
        found.append(
            f"an estimate for this load alone, from its own windows; K={common} is the K for all loads, "
            "from the windows of every load"
        )
    found += [f"expected loss {choice.expected_loss:.1%}"]
    reads = [(r.k, r.block) for r in result.readings if r.concurrency == concurrency]
    if len({k for k, _ in reads}) == len(reads):
        noise = result.noise
        found.append(
            "no K was measured twice, so the intervals use an assumed noise "
            f"(acceptance {noise.acceptance:.1%}, step {noise.step:.1%})"
        )
    return [*found, _sources(result, concurrency)]


def _points(result: ModeResult, concurrency: int) -> list[KPoint]:
    prediction = result.predictions[concurrency]
    assert prediction.acceptance is not None
    assert prediction.step_ms is not None
    found = []
    for index, k in enumerate(prediction.ks):
        low, high = prediction.interval(k)
        length, step = float(prediction.acceptance[index]), float(prediction.step_ms[index])
        rate = float(prediction.mean[index])
        found.append(KPoint(k, length, step, rate, k in prediction.measured, low, high))
    return found


def _sources(result: ModeResult, concurrency: int) -> str:
    words = {
        "metrics": "the engine's inter-token latency",
        "drafts": "stream time by verification steps",
        "chunks": "gaps between chunks",
        "simulated": "a simulation",
    }
    found = sorted({r.step_source for r in result.readings if r.concurrency == concurrency})
    return "step time from " + " and ".join(words[source] for source in found)


WIDEST = 0.05


@dataclass(frozen=True)
class Agreement:
    """Ratio of the rates at the tuner's K and at the sweep's best K, at one concurrency."""

    mode: str
    concurrency: int
    tuned: int
    swept: int
    ratio: Interval
    rounds: int

    @property
    def decided(self) -> bool:
        """Whether the interval is narrow enough for a decision."""
        return (self.ratio.high - self.ratio.low) / 2 <= WIDEST

    @property
    def agrees(self) -> bool:
        """Whether the tuner's K is as good as the sweep's: the interval is narrow and reaches 1.

        The tuner may lose `CHOICE_LOSS` for a smaller K, so this much is allowed.
        """
        return self.decided and self.ratio.high >= 1 - CHOICE_LOSS


def compare(sweep: Sequence[Reading], mode: str, tuned: int, concurrency: int) -> Agreement:
    """Compare the tuner's K with the sweep's best K, round by round; each round must have both.

    Raises:
        ValueError: fewer than two rounds, or a round without the tuned K.
    """
    rows = [reading for reading in sweep if reading.concurrency == concurrency and reading.k]
    rounds = sorted({reading.block for reading in rows})
    if len(rounds) < 2:
        raise ValueError("compare: needs at least two rounds")
    logs = {(reading.k, reading.block): float(np.log(reading.rate)) for reading in rows}
    ks = sorted({reading.k for reading in rows})
    swept = max(ks, key=lambda k: np.mean([logs[k, block] for block in rounds]))
    differences = [logs[tuned, block] - logs[swept, block] for block in rounds]
    middle = float(np.mean(differences))
    spread = float(np.std(differences, ddof=1) / np.sqrt(len(rounds)))
    half = t_quantile(len(rounds) - 1) * spread
    ratio = Interval(float(np.exp(middle)), float(np.exp(middle - half)), float(np.exp(middle + half)))
    return Agreement(mode, concurrency, tuned, swept, ratio, len(rounds))


def check_record(agreement: Agreement, arm: str) -> CheckRecord:
    """Make the record for the results file."""
    ratio = agreement.ratio
    verdict = (
        "agrees" if agreement.agrees else "disagrees" if agreement.decided else "is undecided (too wide)"
    )
    return CheckRecord(
        name=f"tune-sweep c={agreement.concurrency}",
        arm=arm,
        baseline=f"K={agreement.swept} of the sweep",
        passed=agreement.agrees,
        summary=(
            f"c={agreement.concurrency}: K={agreement.tuned} {verdict} with the sweep's K={agreement.swept}: "
            f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}] of its rate, {agreement.rounds} rounds"
        ),
        power=f"an interval wider than +-{WIDEST:.0%} counts as failure",
        figures={"ratio": ratio.value, "low": ratio.low, "high": ratio.high, "rounds": agreement.rounds},
    )
