"""Rounds made comparable: what a whole round was slower or easier by is taken out. Pure.

The same step took 3.5 and 4.7 ms twenty-five minutes apart on one machine. K are therefore measured in
rounds, and each logarithm is read as (K) + (round): the round's part is estimated from the K that both have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from peagle_sm.measure.tune.fit import Noise
from peagle_sm.measure.tune.reading import Reading

_LOOSE = 0.05  #: ratio of noise to drift, squared, below which a round's own level is hardly shrunk
_PRIOR_READINGS = 6  #: how many repeats the assumed noise is worth


def level(readings: Sequence[Reading]) -> list[Reading]:
    """The readings with the levels of their rounds removed, at each concurrency; round 0 sets the level."""
    found: list[Reading] = []
    for concurrency in sorted({reading.concurrency for reading in readings}):
        group = [reading for reading in readings if reading.concurrency == concurrency]
        steps = _effects(group, [np.log(reading.step_ms) for reading in group])
        spoken = [reading for reading in group if reading.k]
        lengths = _effects(spoken, [np.log(reading.acceptance_length) for reading in spoken])
        for reading in group:
            factor = float(np.exp(-lengths.get(reading.block, 0.0))) if reading.k else 1.0
            found.append(
                replace(
                    reading,
                    step_ms=float(reading.step_ms * np.exp(-steps.get(reading.block, 0.0))),
                    acceptance_length=max(1.0, reading.acceptance_length * factor),
                    survival=tuple(min(1.0, rate * factor) for rate in reading.survival),
                )
            )
    return found


def _effects(group: Sequence[Reading], values: Sequence[float]) -> dict[int, float]:
    """What each round adds to the logarithm; empty where no K was read in two rounds."""
    ks = sorted({reading.k for reading in group})
    blocks = sorted({reading.block for reading in group})
    if len(group) == len(ks) or len(blocks) < 2:
        return {}
    width = len(ks) + len(blocks) - 1
    rows = np.zeros((len(group) + len(blocks) - 1, width))
    target = np.zeros(len(rows))
    for index, (reading, value) in enumerate(zip(group, values, strict=True)):
        rows[index, ks.index(reading.k)] = 1.0
        if reading.block != blocks[0]:
            rows[index, len(ks) + blocks.index(reading.block) - 1] = 1.0
        target[index] = value
    for extra in range(len(blocks) - 1):  # a round that shares no K with another has no level of its own
        rows[len(group) + extra, len(ks) + extra] = np.sqrt(_LOOSE)
    solved = np.linalg.lstsq(rows, target, rcond=None)[0]
    return {blocks[0]: 0.0} | {block: float(solved[len(ks) + i]) for i, block in enumerate(blocks[1:])}


def noise_of(readings: Sequence[Reading], assumed: Noise | None = None) -> Noise:
    """The noise that repeats of one K show, with ``assumed`` counting as a few of them."""
    assumed = assumed or Noise()
    groups: dict[tuple[int, int], list[Reading]] = {}
    for reading in readings:
        groups.setdefault((reading.k, reading.concurrency), []).append(reading)
    repeated = [group for group in groups.values() if len(group) > 1]
    return Noise(
        acceptance=_pooled(
            [[np.log(r.acceptance_length) for r in g] for g in repeated if g[0].k], assumed.acceptance
        ),
        step=_pooled([[np.log(r.step_ms) for r in g] for g in repeated], assumed.step),
    )


def _pooled(groups: Sequence[Sequence[float]], assumed: float) -> float:
    squares = _PRIOR_READINGS * assumed**2
    freedom = _PRIOR_READINGS
    for group in groups:
        squares += float(np.var(group)) * len(group)
        freedom += len(group) - 1
    return float(np.sqrt(squares / freedom))
