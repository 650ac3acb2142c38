"""What to measure next, from what was measured so far: a deployment of another K, or a round of K. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from peagle_sm.measure.tune.decide import contenders, first_probes, leaders, next_k
from peagle_sm.measure.tune.fit import Noise, fit
from peagle_sm.measure.tune.predict import predict
from peagle_sm.measure.tune.reading import Reading

LEAST_GAIN = 0.002  #: a further deployment is worth it while it is expected to add this share of the rate
RUNTIME_ROUNDS = 4  #: passes over the K still in question, where K changes inside one process


def most_deployments(max_k: int) -> int:
    """How many K to deploy at most, besides the baseline, where the user sets no limit."""
    return 4 if max_k <= 12 else 6


def next_deployment(
    readings: Sequence[Reading], max_k: int, most: int | None = None, noise: Noise | None = None
) -> int | None:
    """The next K to deploy; None when ``most`` were deployed or another one is expected to add nothing."""
    deployed = {reading.k for reading in readings} - {0}
    if len(deployed) >= (most or most_deployments(max_k)):
        return None
    for k in first_probes(max_k):
        if k not in deployed:
            return k
    return next_k(predict(fit(readings, max_k, noise), readings, noise), LEAST_GAIN)


def next_round(
    readings: Sequence[Reading], max_k: int, concurrency: int, noise: Noise | None = None
) -> list[int]:
    """The K of the next round at one concurrency: all at first, then those in question; none at the end.

    The second round takes place in any case: without repeats nobody knows how noisy this endpoint is.
    """
    blocks = {reading.block for reading in readings if reading.k and reading.concurrency == concurrency}
    if not blocks:
        return list(range(1, max_k + 1))
    prediction = predict(fit(readings, max_k, noise), readings, noise)[concurrency]
    rivals = contenders({concurrency: prediction}, share=0.8)
    return sorted({*rivals, *leaders(prediction)}) if len(blocks) == 1 else rivals
