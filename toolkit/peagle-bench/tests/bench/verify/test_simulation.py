"""Seeded corruptions of recorded outputs, and clean runs with the arithmetic's noise in them.

Each run tries 250 corruptions and 48 clean runs, the campaign 1,000 and 200.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from peagle_bench.verify.answer_format import judge_stops, judge_streaming
from peagle_bench.verify.greedy import judge_greedy
from peagle_bench.verify.probabilities import judge_logprobs
from peagle_bench.verify.sampling import judge_sampled
from tests.bench.verify.corruptions import KINDS, drawn_soundly, stop_cases, stream_cases
from tests.bench.verify.power import corrupted
from tests.bench.verify.worlds import NOISES, SAMPLED, World, clean_world, samples

BOTH_SIZES = pytest.mark.parametrize("share", [0.24, pytest.param(1.0, marks=pytest.mark.campaign)])


@BOTH_SIZES
def test_every_corruption_above_the_stated_gap_is_caught(share: float) -> None:
    assert sum(times for _, times in KINDS.values()) == 1000
    stated = caught_below = 0
    for kind, world, outcome in corrupted(1, share):
        if outcome.stated:
            stated += 1
            assert outcome.verdict.passed is False, (kind, world.floor, outcome.what, outcome.verdict.summary)
        else:
            caught_below += outcome.verdict.passed is False
    assert stated > 750 * share  # the rest lies within the noise, or was changed by too little to state
    assert caught_below > 0


def _clean(seed: int) -> tuple[np.random.Generator, World]:
    rng = np.random.default_rng(10_000 + seed)
    noise = NOISES[seed % len(NOISES)]
    prompts, tokens = ((24, 48), (48, 48), (96, 32))[seed % 3]
    # A third of the runs: the candidate's kernels (several rows a step) err by more than the baseline's.
    return rng, clean_world(rng, noise, prompts, tokens, times=1.3 if seed % 3 == 1 else 1.0)


@BOTH_SIZES
def test_no_false_alarm_in_clean_runs_with_ties_of_the_batch_shape(share: float) -> None:
    own = drawn_soundly()
    noisy = diverging = 0
    for seed in range(round(200 * share)):
        rng, world = _clean(seed)
        exact, cases = world.floor.exact, world.cases
        reports = [case.candidate for case in cases], [case.first for case in cases]
        verdicts = {
            "greedy": judge_greedy(cases, world.floor, world.max_tokens),
            "logprobs": judge_logprobs(*reports),
            "stops": judge_stops(stop_cases(rng, world), exact),
            "streaming": judge_streaming(stream_cases(cases), exact),
        }
        if seed % 4 == 0:
            drawn = samples(rng, 1.0, 1.0, times=1)
            verdicts["sampled"] = judge_sampled(drawn[:20], drawn[20:], own, frozenset(), SAMPLED)
        for name, verdict in verdicts.items():
            assert verdict.passed is True, (seed, name, verdict.summary, verdict.examples[:3])
        noisy += not exact
        diverging += verdicts["greedy"].figures["equal_prompts"] < len(cases)
    assert noisy > 100 * share
    assert diverging > 80 * share  # ties there were, in most of the noisy runs


@pytest.mark.parametrize("noise", [NOISES[0], NOISES[8]])
def test_the_floor_says_whether_equality_can_be_demanded(noise: object) -> None:
    world = clean_world(np.random.default_rng(5), noise, 32, 64)  # type: ignore[arg-type]
    assert world.floor.exact is (noise == NOISES[0])
    assert ("answers must be equal" in world.floor.words) is world.floor.exact


def test_ties_are_told_apart_from_faults_on_an_exact_floor() -> None:
    world = clean_world(np.random.default_rng(3), NOISES[1], 32, 64)
    assert world.floor.exact
    case = world.cases[0]
    tie, fault = world.floor.tie / 2, 1e-3
    for gap, expected in ((tie, True), (fault, False)):
        at = 10
        other = (*case.candidate.answer.ids[:at], 1999, *case.candidate.answer.ids[at + 1 :])
        best = (*case.first.others[:at], case.first.logprobs[at] + gap, *case.first.others[at + 1 :])
        scored = type(case.candidate)(replace(case.candidate.answer, ids=other), case.first.logprobs, best)
        verdict = judge_greedy([replace(case, candidate=scored), *world.cases[1:]], world.floor, 64)
        assert verdict.passed is expected, verdict.summary
        assert verdict.figures["ties"] == expected
