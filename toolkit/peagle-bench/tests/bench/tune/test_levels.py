from __future__ import annotations

import numpy as np
import pytest

from peagle_bench.tune.fit import Noise, level, noise_of
from tests.bench.tune.reading_of import reading


def test_a_slower_round_is_taken_out() -> None:
    readings = [reading(k, step_ms=5.0 + k, block=0) for k in range(1, 8)]
    readings += [reading(k, step_ms=1.3 * (5.0 + k), block=1) for k in (3, 5, 7)]
    clean = {(one.k, one.block): one.step_ms for one in level(readings)}
    for k in (3, 5, 7):
        assert clean[k, 1] == pytest.approx(clean[k, 0], rel=0.02)


def test_easier_prompts_of_a_round_are_taken_out() -> None:
    readings = [reading(k, step_ms=5.0, block=0) for k in (3, 5, 7)]
    readings += [
        reading(k, step_ms=5.0, block=1, length=1.2 * readings[i].acceptance_length)
        for i, k in enumerate((3, 5, 7))
    ]
    clean = level(readings)
    for k in (3, 5, 7):
        first, second = (one.acceptance_length for one in clean if one.k == k)
        assert second == pytest.approx(first, rel=0.01)


def test_rounds_that_share_no_k_keep_their_levels() -> None:
    readings = [reading(3, step_ms=6.0, block=0), reading(11, step_ms=10.0, block=1)]
    assert level(readings) == readings


def test_concurrencies_have_levels_of_their_own() -> None:
    readings = [
        reading(k, step_ms=5.0 * c * (1.5 if b and c == 8 else 1), concurrency=c, block=b)
        for c in (1, 8)
        for b in (0, 1)
        for k in (1, 3, 5)
    ]
    for one in level(readings):
        assert one.step_ms == pytest.approx(5.0 * one.concurrency, rel=0.02)


def test_the_noise_is_that_of_the_repeats() -> None:
    rng = np.random.default_rng(1)
    readings = [
        reading(k, step_ms=float(5 * np.exp(rng.normal(0, 0.08))), block=b)
        for b in range(20)
        for k in (1, 3, 5)
    ]
    assert noise_of(readings).step == pytest.approx(0.08, rel=0.2)
    assert noise_of(readings).acceptance < Noise().acceptance
    assert noise_of(readings[:3]) == Noise()  # no repeats: what was assumed
