"""What the judges say where toy engines and recorded outputs do not lead: undecided, noisy, rates, edges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from peagle_bench.verify.answer_format import (
    StopCase,
    StreamCase,
    choose_stop,
    faults_of,
    judge_stops,
    judge_streaming,
    odd_piece,
)
from peagle_bench.verify.answers import Scored, TokenAnswer
from peagle_bench.verify.greedy import (
    GreedyCase,
    LongCase,
    ends_of,
    judge_greedy,
    judge_long_context,
    shape_faults,
)
from peagle_bench.verify.probabilities import judge_logprobs
from peagle_bench.verify.sampling import judge_sampled
from peagle_bench.verify.statistics import NoiseFloor
from peagle_sm.aws.streams.answers import Acceptance
from tests.bench.verify.worlds import SAMPLED, samples

EXACT = NoiseFloor(40, 0, 400, 0.0, 0.0, 0.01, True, 0.0)
NOISY = NoiseFloor(40, 10, 400, 0.1, 0.2, 0.2, False, 0.05)


def scored(ids: tuple[int, ...], gaps: dict[int, float] | None = None) -> Scored:
    """Tokens 0.5 nats likelier than any other, except where a gap is given."""
    others = tuple(-1.0 + (gaps or {}).get(at, -0.5) for at in range(len(ids)))
    return Scored(TokenAnswer("", ids, "length", None, len(ids)), (-1.0,) * len(ids), others)


def greedy_cases(wrong: int, own: int, gap: float) -> list[GreedyCase]:
    """40 prompts; the candidate differs in ``wrong`` of them, by ``gap``, the baseline in ``own``."""
    plain, other = scored((1, 2, 3, 4)), scored((1, 9, 3, 4), {1: gap})
    return [
        GreedyCase(f"p{n}", plain, other if n < own else plain, other if n < wrong else plain)
        for n in range(40)
    ]


@pytest.mark.parametrize(
    ("wrong", "own", "gap", "passed", "why"),
    [
        (10, 10, 0.15, True, ""),
        (1, 10, 0.25, False, "token 2 is 0.25 nats below"),
        (35, 10, 0.15, False, "more prompts diverge than for the baseline itself"),
        (38, 0, 0.15, False, "38 tokens differ from the target's best token (baseline: 0)"),
    ],
)
def test_a_noisy_floor_judges_gaps_and_rates(
    wrong: int, own: int, gap: float, passed: bool, why: str
) -> None:
    verdict = judge_greedy(greedy_cases(wrong, own, gap), NOISY, 4)
    assert verdict.passed is passed, verdict
    assert why in "; ".join(verdict.examples)
    assert "with 90% probability" in verdict.power


def test_a_small_run_says_that_rates_show_nothing() -> None:
    verdict = judge_greedy(greedy_cases(0, 0, 0.1)[:3], NOISY, 4)
    assert "never by the share of diverging prompts" in verdict.power
    assert "not by their number, since there are too few prompts" in verdict.power
    assert judge_greedy([], NOISY, 4).passed is None


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (TokenAnswer("", (1, 2), "length", None, 3), "usage counts 3 tokens, the answer has 2"),
        (TokenAnswer("", (1, 2), "length", None, 2), "finish_reason length after 2 of 4 tokens"),
        (TokenAnswer("", (1, 2), "stop", None, 2), "without an end token"),
        (TokenAnswer("", (1, 0, 2, 0), "stop", None, 4), "continued after an end token"),
        (TokenAnswer("", (1, 2, 3, 4), None, None, 4), "finish_reason is None"),
    ],
)
def test_shapes_that_nothing_explains(answer: TokenAnswer, fault: str) -> None:
    assert fault in "; ".join(shape_faults(answer, frozenset({0}), 4))


def test_a_model_may_have_several_end_tokens() -> None:
    ended = TokenAnswer("", (1, 7), "stop", 7, 2)
    assert shape_faults(ended, frozenset({0}), 4) == []
    case = GreedyCase("p", *[Scored(ended, (-1.0, -1.0), (-2.0, -2.0))] * 3)
    assert ends_of([case]) == {7}


def test_sampling_is_undecided_when_the_baseline_fails_or_little_was_drawn() -> None:
    rng = np.random.default_rng(0)
    sound, hot = samples(rng, 1.0, 1.0, times=1), samples(rng, 1.5, 1.0, times=1)
    none: frozenset[int] = frozenset()
    assert judge_sampled(sound, sound, hot, none, SAMPLED).passed is None
    assert judge_sampled(sound[:2], [], sound[:2], none, SAMPLED).passed is None
    assert judge_sampled(hot, sound, sound, none, SAMPLED).passed is False
    nucleus = samples(rng, 1.0, 0.8, times=1)
    assert judge_sampled(nucleus, nucleus, sound, none, SAMPLED).passed is False


def test_log_probabilities_that_are_missing_are_a_fault() -> None:
    answer = replace(scored((1, 2)).answer, logprobs=(-1.0, -1.0), others=(-1.5, -1.5))
    full = Scored(answer, (-1.0, -1.0), (-1.5, -1.5))
    short = Scored(replace(answer, logprobs=(-1.0,), others=(-1.5,)), (-1.0, -1.0), (-1.5, -1.5))
    nan = Scored(replace(answer, logprobs=(float("nan"), -1.0)), (-1.0, -1.0), (-1.5, -1.5))
    assert judge_logprobs([full], [full]).passed is True
    assert judge_logprobs([short], [full]).passed is False
    assert judge_logprobs([nan], [full]).passed is False
    assert judge_logprobs([full], [scored((1, 2))]).passed is None


def stop_case(included: bool = False, **answer: Any) -> StopCase:
    base = TokenAnswer("one tw", (1,), "stop", "o th", 5)
    if included:
        base = replace(base, text="one two th")
    return StopCase("p", "o th", included, "one two three", base, replace(base, **answer), base)


@pytest.mark.parametrize(
    ("case", "fault"),
    [
        (stop_case(text="one two"), "part of the stop string leaked: 'o'"),
        (stop_case(text="one two three"), "continues after the stop string"),
        (stop_case(text="one"), "cut 3 characters too early"),
        (stop_case(stop_reason="x"), "stop_reason is 'x'"),
        (stop_case(stop_reason=None), "stop_reason None"),
        (stop_case(True, text="one tw"), "cut 4 characters too early"),
        (stop_case(True, text="one two three"), "continues after the stop string"),
    ],
)
def test_stop_strings_that_leak_or_cut(case: StopCase, fault: str) -> None:
    assert faults_of(case, case.baseline) == []
    assert fault in "; ".join(faults_of(case, case.candidate))
    for exact in (True, False):
        assert judge_stops([case], exact).passed is False


def test_a_divergence_before_the_stop_string_is_the_noise_s_where_there_is_any() -> None:
    other = stop_case(text="one twenty", finish_reason="length", stop_reason=None)
    assert judge_stops([other], exact=True).passed is False
    assert judge_stops([other], exact=False).passed is True
    assert judge_stops([stop_case(output_tokens=7)], exact=True).passed is False
    unstopped = replace(other, baseline=replace(other.baseline, stop_reason=None))
    assert judge_stops([unstopped], exact=True).passed is None
    assert choose_stop("aaaaaaaaaaaa", 0.5) is None


def test_streaming() -> None:
    whole = TokenAnswer("abcdef", (1, 2, 3), "length", None, 3)
    sound = StreamCase("p", whole, whole, whole, whole)
    missing = replace(sound, streamed=replace(whole, text="abef", ids=()))
    other = replace(sound, streamed=replace(whole, text="xyzzy", ids=(7, 8, 9)))
    assert judge_streaming([sound] * 4, exact=True).passed is True
    assert judge_streaming([sound, other], exact=True).passed is False
    assert judge_streaming([sound, other], exact=False).passed is True
    assert judge_streaming([sound, missing], exact=False).passed is True  # once may be a tie
    assert judge_streaming([missing, missing], exact=False).passed is False
    assert judge_streaming([other] * 12 + [sound] * 3, exact=False).passed is False
    for streamed in (
        replace(whole, finish_reason=None),
        replace(whole, ids=(1, 2)),
        replace(whole, text="a"),
    ):
        assert judge_streaming([replace(sound, streamed=streamed)], exact=False).passed is False
    cut = judge_streaming([replace(sound, streamed=None, broken="reset by peer")], exact=False)
    assert cut.examples == ["p: the stream broke: reset by peer"]
    assert judge_streaming([], exact=True).passed is None
    assert odd_piece("abcdef", "abef") == "missing in the stream: 'cd'"
    assert odd_piece("abcdef", "abcdcdef") == "additional in the stream: 'cd'"
    assert odd_piece("abcdef", "axcxef") is None


def test_long_context() -> None:
    drafted = Acceptance(3.0, (1.0, 1.0), 1, 7, 2, 7, (0, 0, 1))
    own = TokenAnswer("", (1, 2), "length", None, 2, acceptance=drafted)
    same = LongCase(500, 2, own, own)
    other = replace(same, candidate=replace(own, ids=(1, 3)))
    verdict = judge_long_context([same], NOISY)
    assert (verdict.passed, verdict.figures["acceptance_length_at_500"]) == (True, 3.0)
    near = judge_long_context([same, replace(other, gaps=(0.0, 0.15))], NOISY)
    assert near.passed is True
    assert near.summary.startswith("1 of 2 prompts")
    assert "1 differs at a near tie: the token is at most 0.15 nats below" in near.summary
    assert near.figures["largest_near_tie_nats"] == 0.15
    assert "near tie" not in verdict.summary
    assert judge_long_context([replace(other, gaps=(0.0, 0.15))], EXACT).passed is False
    assert judge_long_context([replace(other, gaps=(0.0, 0.25))], NOISY).passed is False
    assert judge_long_context([other], NOISY).passed is None  # the baseline would not score it
    short = replace(same, candidate=replace(own, ids=(1,), output_tokens=1), gaps=(0.0,))
    assert judge_long_context([short], NOISY).passed is False
    assert judge_long_context([], NOISY).passed is None


def test_a_long_context_has_a_noise_of_its_own() -> None:
    """Sums over thousands of tokens are split by the batch's shape where the greedy runs were exact."""
    own = TokenAnswer("", (1, 2), "length", None, 2)
    tied = LongCase(2048, 2, own, replace(own, ids=(1, 3)), (0.0, 0.0625))
    noisy = LongCase(4000, 2, own, own, noise=0.0625)
    assert judge_long_context([tied], EXACT).passed is False
    verdict = judge_long_context([tied, noisy], EXACT)
    assert (verdict.passed, verdict.figures["noise_nats"]) == (True, 0.0625)
    assert "a gap above 0.12 nats on any" in verdict.power
    assert judge_long_context([replace(tied, gaps=(0.0, 0.13)), noisy], EXACT).passed is False
