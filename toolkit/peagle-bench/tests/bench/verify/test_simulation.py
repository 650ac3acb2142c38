"""Wrong choices put into recorded outputs, and clean runs with the arithmetic's noise in them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from peagle_bench.verify.answer_format import (
    StopCase,
    StreamCase,
    choose_stop,
    judge_stops,
    judge_streaming,
)
from peagle_bench.verify.answers import Scored, TokenAnswer
from peagle_bench.verify.greedy import GreedyCase, judge_greedy
from peagle_bench.verify.probabilities import judge_logprobs
from peagle_bench.verify.sampling import judge_sampled
from tests.bench.verify.worlds import END, NOISES, SAMPLED, Noise, World, clean_world, recorded, samples

BOTH_SIZES = pytest.mark.parametrize("share", [0.24, pytest.param(1.0, marks=pytest.mark.campaign)])


def _rewritten(scored: Scored, at: int, token: int, logprob: float, other: float) -> Scored:
    """The answer with another token at ``at``; what follows stays as the target would go on."""

    def put(values: tuple[float, ...], value: float) -> tuple[float, ...]:
        return (*values[:at], value, *values[at + 1 :])

    ids = (*scored.answer.ids[:at], token, *scored.answer.ids[at + 1 :])
    return Scored(replace(scored.answer, ids=ids), put(scored.logprobs, logprob), put(scored.others, other))


def struck(rng: np.random.Generator, world: World, near: float, rate: float) -> tuple[list[GreedyCase], int]:
    """The cases with a runner-up in place of ``rate`` of the tokens that have one within ``near`` nats."""
    cases, count = [], 0
    for case, picked in zip(world.cases, world.picked, strict=True):
        scored, tops = case.candidate, recorded()["greedy_top_ids"][picked]
        for at, margin in enumerate(case.candidate.margins):
            if not 0 < margin < near or rng.random() >= rate or scored.answer.ids[at] == END:
                continue
            second = int(tops[at][1] if tops[at][0] == scored.answer.ids[at] else tops[at][0])
            if second != END:
                scored = _rewritten(scored, at, second, scored.others[at], scored.logprobs[at])
                count += 1
        cases.append(replace(case, candidate=scored))
    return cases, count


def stop_cases(rng: np.random.Generator, world: World) -> list[StopCase]:
    """Sound requests with stop strings, from the texts of the recorded answers."""
    rows = []
    for case in world.cases[:24]:
        full = text_of(case.first.answer)
        stop = choose_stop(full, rng.uniform(0.2, 0.7))
        if stop is not None:
            blank = StopCase(case.prompt_id, stop, bool(rng.integers(2)), full, *[case.first.answer] * 3)
            same = _stopped(blank)
            rows.append(replace(blank, baseline=same, candidate=same, streamed=same))
    return rows


def text_of(answer: TokenAnswer) -> str:
    """A text for token ids: the stand-in's own does not matter here."""
    return "".join(f"{token:x} " for token in answer.ids)


def _stopped(case: StopCase) -> TokenAnswer:
    count = len(case.expected.split()) + 1
    return TokenAnswer(case.expected, (1,) * count, "stop", case.stop, count)


def stream_cases(cases: list[GreedyCase]) -> list[StreamCase]:
    """Sound streams of the recorded answers."""
    rows = []
    for case in cases[:24]:
        its, mine = (replace(s.answer, text=text_of(s.answer)) for s in (case.first, case.candidate))
        rows.append(StreamCase(case.prompt_id, its, its, mine, mine))
    return rows


def drawn_soundly() -> list[Scored]:
    """The baseline's own samples, as they should be."""
    return samples(np.random.default_rng(11), 1.0, 1.0, times=1)


@pytest.mark.parametrize("noise", [NOISES[0], NOISES[4], NOISES[7], NOISES[8]])
def test_wrong_choices_above_the_stated_gap_are_caught(noise: Noise) -> None:
    """The second-best token in place of some that have one near; below the gap they may be ties."""
    rng = np.random.default_rng(1)
    world, stated = clean_world(rng, noise), 0
    for _ in range(20):
        near, rate = 10 ** rng.uniform(-2, 0.7), 10 ** rng.uniform(-2, 0)
        cases, count = struck(rng, world, near, rate)
        largest = max(max(case.candidate.gaps) for case in cases)
        if count and (world.floor.exact or largest > world.floor.delta):
            stated += 1
            assert judge_greedy(cases, world.floor, world.max_tokens).passed is False, (near, rate)
    assert stated >= 5


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
