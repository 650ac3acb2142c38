"""From all readings of a mode to its records: a fit for each concurrency, and one K for the spec. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from peagle_sm.measure.records import FitRecord, KPoint, Load, Mode
from peagle_sm.measure.tune.against import Against, against_none
from peagle_sm.measure.tune.decide import Choice, choose
from peagle_sm.measure.tune.fit import Fit, Noise, fit
from peagle_sm.measure.tune.levels import level, noise_of
from peagle_sm.measure.tune.predict import Prediction, predict, together, without_baseline
from peagle_sm.measure.tune.reading import Reading


@dataclass(frozen=True)
class ModeResult:
    """One mode, tuned.

    ``choices`` by concurrency; ``common`` is the one K for all of them together (by the geometric mean of the
    rates), which is what goes into the spec. All were measured. ``common`` rests on the windows of every
    load, a choice for one load only on its own windows.
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
    """Fit, predict and choose. ``levelled`` takes out the rounds' own levels (one machine, one process)."""
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
    """The mode, K and expected rate (tokens a second) at one concurrency; mode none competes with K=0."""
    rates: list[tuple[float, Mode, int]] = []
    for result in results:
        prediction = result.predictions[concurrency]
        k = result.choices[concurrency].k
        rates.append((float(prediction.mean[prediction.ks.index(k)]), result.mode, k))
        if 0 in prediction.ks:
            rates.append((float(prediction.mean[prediction.ks.index(0)]), "none", 0))
    rate, mode, k = max(rates)
    return mode, k, rate


def common_against_none(result: ModeResult) -> dict[int, Against]:
    """By concurrency, the one K for all of them against no speculation; loads without a baseline left out."""
    found = {c: against_none(p, result.common.k) for c, p in result.predictions.items()}
    return {c: one for c, one in found.items() if one is not None}


def fit_records(result: ModeResult, usd: float | None) -> list[FitRecord]:
    """What a results file says of the mode, one record for each concurrency."""
    return [
        FitRecord(
            mode=result.mode,
            load=Load("closed", concurrency=concurrency),
            points=tuple(_points(result, concurrency)),
            best_k=choice.k,
            reason="; ".join(_reasons(result, concurrency, choice)),
            deployments=result.deployments,
            usd=usd,
        )
        for concurrency, choice in result.choices.items()
    ]


def _reasons(result: ModeResult, concurrency: int, choice: Choice) -> list[str]:
    prediction, common = result.predictions[concurrency], result.common.k
    pays = [against_none(prediction, k) for k in dict.fromkeys((choice.k, common))]
    found = [choice.reason, *(one.words for one in pays if one is not None)]
    if common != choice.k:
        found.append(
            f"a guess for this load alone, from its own windows; K={common} is the one K for all loads, "
            "checked on the windows of every load"
        )
    found += [f"expected loss {choice.expected_loss:.1%}"]
    reads = [(r.k, r.block) for r in result.readings if r.concurrency == concurrency]
    if len({k for k, _ in reads}) == len(reads):
        noise = result.noise
        found.append(
            "nothing was measured twice, so the intervals rest on an assumed noise "
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
