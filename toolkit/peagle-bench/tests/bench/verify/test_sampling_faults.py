"""Faults of a sampler that only ranks or repeated places show, each beside a sound one."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from peagle_bench.verify.answers import Scored, TokenAnswer, Top
from peagle_bench.verify.engines import EnginePair, Options, UrlEngine
from peagle_bench.verify.greedy import GreedyCase, judge_greedy
from peagle_bench.verify.probabilities import CUTS, ParameterCase, judge_parameters
from peagle_bench.verify.probes import probe_greedy, probe_places
from peagle_bench.verify.sampling import (
    Repeated,
    SamplingPosition,
    find_positions,
    fit_places,
    judge_sampled,
)
from peagle_bench.verify.statistics import (
    ALPHA,
    NoiseFloor,
    chi_square_z,
    mcnemar_greater,
    mcnemar_rate_found,
    z_limit,
)
from tests.bench.verify.toy_vllm import serving
from tests.bench.verify.worlds import SAMPLED, recorded, samples

EXACT = NoiseFloor(40, 0, 400, 0.0, 0.0, 0.01, True, 0.0)
NOISY = NoiseFloor(40, 10, 400, 0.1, 0.2, 0.2, False, 0.05)
PLACES, REPEATS = 16, 128
Array = np.ndarray[Any, np.dtype[Any]]


def rows() -> Array:
    """Distributions over six tokens and the rest, as recorded, where two tokens are likely."""
    exp = np.exp(np.concatenate(recorded()["sampled_top_logprobs"]).astype(float))
    exp = exp[(exp[:, 0] > 0.2) & (exp[:, 0] < 0.85)]
    return np.column_stack([exp, np.maximum(1e-9, 1 - exp.sum(axis=1))])


def speculated(target: Array, rng: np.random.Generator, *, wrong: bool) -> Array:
    """The distribution of rejection sampling with a draft that errs; wrong: the residual is the target."""
    draft = target * np.exp(rng.normal(0, 0.8, len(target)))
    draft /= draft.sum()
    kept = np.minimum(target, draft)
    residual = target if wrong else np.maximum(target - draft, 0)
    left = 1 - kept.sum()
    total: Array = kept + left * residual / max(residual.sum(), 1e-12)
    return total


def fitted(rng: np.random.Generator, *, wrong: bool) -> float:
    places, answers = [], []
    known = rows()
    for n in range(PLACES):
        target = known[int(rng.integers(len(known)))]
        target = target / target.sum()
        drawn = rng.choice(7, size=REPEATS, p=speculated(target, rng, wrong=wrong))
        top = tuple((token, math.log(share)) for token, share in enumerate(target[:5]))
        places.append(SamplingPosition(f"p{n}", (1,), 9, top))
        answers.append([TokenAnswer("", (9, int(token), 3), "length") for token in drawn])
    return fit_places(places, answers).z


def test_a_residual_that_is_the_target_s_distribution_shows_at_repeated_places() -> None:
    """Over 16,000 tokens of different texts it had Z = 1.9: the shift has another sign at each place."""
    rng = np.random.default_rng(3)
    limit = z_limit(2 * ALPHA)
    assert sum(fitted(rng, wrong=True) > limit for _ in range(20)) >= 18
    assert max(fitted(rng, wrong=False) for _ in range(400)) < limit


def test_the_places_decide_the_sampled_check() -> None:
    rng = np.random.default_rng(0)
    sound = samples(rng, 1.0, 1.0, times=1)
    fine, off = fit_places([], []), replace(fit_places([], []), z=6.0, freedom=9)
    given = (sound, sound, sound, frozenset[int](), SAMPLED)
    assert judge_sampled(*given, Repeated(fine, fine, 0)).passed is True
    wrong = judge_sampled(*given, Repeated(off, fine, 9))
    assert (wrong.passed, list(wrong.examples)) == (False, ["repeated positions: Z = 6.0"])
    assert judge_sampled(*given, Repeated(off, off, 9)).passed is None


def test_a_place_follows_a_sure_token() -> None:
    flat: Top = ((1, math.log(0.5)), (2, math.log(0.4)))
    sure: Top = ((7, math.log(0.99)), (8, math.log(0.005)))
    answer = TokenAnswer("", (4, 7, 1, 7), "length")
    logs = (math.log(0.6), math.log(0.99), math.log(0.5), math.log(0.99))
    scored = Scored(answer, logs, (-1.0,) * 4, (flat, sure, flat, sure))
    assert find_positions("p", scored, most=5) == [SamplingPosition("p", (4,), 7, flat)]


def ranked_samples(rng: np.random.Generator, *, swap: bool) -> list[Scored]:
    """40 samples of 100 tokens over five ranked tokens and a rest."""
    shares = np.array([0.5, 0.2, 0.1, 0.08, 0.05, 0.07])
    top: Top = tuple((token, math.log(share)) for token, share in enumerate(shares[:5]))
    matches = []
    for _ in range(40):
        ids = rng.choice(6, size=100, p=shares)
        if swap:
            ids = np.where(ids == 1, 2, np.where(ids == 2, 1, ids))
        logs = tuple(math.log(shares[token]) for token in ids)
        others = tuple(math.log(0.2) if token == 0 else math.log(0.5) for token in ids)
        answer = TokenAnswer("", tuple(int(token) for token in ids), "length", None, 100)
        matches.append(Scored(answer, logs, others, (top,) * 100))
    return matches


def test_swapped_second_and_third_choices_fail_by_their_ranks() -> None:
    rng = np.random.default_rng(1)
    sound, swapped = ranked_samples(rng, swap=False), ranked_samples(rng, swap=True)
    none: frozenset[int] = frozenset()
    assert judge_sampled(sound, sound, sound, none, 100).passed is True
    verdict = judge_sampled(swapped, swapped, sound, none, 100)
    assert verdict.passed is False
    assert [line.split(":")[0] for line in verdict.examples] == ["rank 2", "rank 3"]
    assert abs(verdict.figures["z"]) < verdict.figures["limit"]  # the best token's share shows nothing
    assert "for the second best token a shift of" in verdict.power
    assert judge_sampled(sound, sound, swapped, none, 100).passed is None


def greedy_case(text: str, own: str = "ab cd") -> GreedyCase:
    first = Scored(TokenAnswer(own, (1, 2), "length", None, 2), (-0.1, -0.1), (-3.0, -3.0))
    return GreedyCase("p", first, first, replace(first, answer=replace(first.answer, text=text)))


@pytest.mark.parametrize("floor", [EXACT, NOISY])
def test_another_text_for_the_same_tokens_is_a_fault(floor: NoiseFloor) -> None:
    verdict = judge_greedy([greedy_case("ab  cd")], floor, 2)
    assert verdict.passed is False
    assert verdict.examples == ["p: same tokens but another text at character 4: ' cd' instead of 'cd'"]
    assert judge_greedy([greedy_case("ab cd")], floor, 2).passed is True
    assert "another text for the same tokens" in verdict.power.lower()


def test_divergence_is_compared_on_the_same_prompts_with_one_look_each() -> None:
    assert mcnemar_greater(0, 5) == 1.0
    assert mcnemar_greater(14, 0) == pytest.approx(2**-14)
    assert mcnemar_greater(13, 0) > ALPHA
    rate = mcnemar_rate_found(164, 0)
    assert rate is not None
    assert 0.08 <= rate <= 0.15
    assert mcnemar_rate_found(10, 0) is None


def test_a_chi_square_statistic_as_a_normal() -> None:
    assert chi_square_z(0.0, 0) == 0.0
    assert chi_square_z(10.0, 10) == pytest.approx(0.15, abs=0.05)
    assert chi_square_z(37.57, 20) == pytest.approx(2.33, abs=0.03)  # the 99% point


def test_a_parameter_that_the_baseline_does_not_keep_either_is_undecided() -> None:
    rng = np.random.default_rng(2)
    plain = ranked_samples(rng, swap=False)
    name, _, cut = CUTS[1]
    case = ParameterCase(name, plain, plain, cut)
    assert judge_parameters([case], 0.01).passed is None
    assert judge_parameters([replace(case, baseline=[])], 0.01).passed is False
    assert judge_parameters([], 0.01).passed is None


@pytest.mark.campaign
@pytest.mark.parametrize(("fault", "found"), [("speculates", False), ("residual", True)])
def test_an_engine_that_takes_the_target_for_the_residual(fault: str, found: bool) -> None:
    """As a whole engine: the best token's share had Z = 1.24 over 16,190 tokens, places 6.2 to 8.6."""
    with serving() as (plain, _), serving(fault, seed=1) as (fast, _):
        engines = EnginePair(
            UrlEngine(plain), UrlEngine(fast), Options(max_tokens=64, contexts=12, repeats=192)
        )
        texts = ["alpha 0 ahpla", "beta 1 ateb", "gamma 2 ammag", "delta 3 atled", "eta 4 ate", "mu 5 um"]
        prompts = engines.prompts([(text, {"prompt": text}) for text in texts * 2])
        repeated = probe_places(engines, probe_greedy(engines, prompts))
    assert repeated.candidate.freedom >= 12
    assert (repeated.candidate.z > z_limit(2 * ALPHA)) is found
    assert repeated.baseline.z < z_limit(2 * ALPHA)
