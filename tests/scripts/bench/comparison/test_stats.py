from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.bench.comparison import stats
from scripts.bench.comparison.sample import Sample
from scripts.bench.comparison.stats import Ratio
from tests.scripts.bench.comparison.making import sample

seconds_strategy = st.floats(0.01, 10)


def arm_of(name: str, rows: list[tuple[int, float]]) -> list[Sample]:
    return [sample(name, f"p{i}", seconds, tuple(range(tokens))) for i, (tokens, seconds) in enumerate(rows)]


def test_a_rate_is_all_tokens_by_all_seconds_not_a_mean_of_rates() -> None:
    assert stats.otps(arm_of("a", [(100, 1.0), (1, 1.0)])) == pytest.approx(50.5)


def test_a_rate_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no samples"):
        stats.otps([])


@given(st.lists(st.tuples(st.integers(1, 200), seconds_strategy), min_size=2, max_size=12))
def test_an_arm_against_itself_is_exactly_one(rows: list[tuple[int, float]]) -> None:
    ratio = stats.paired_ratio(arm_of("a", rows), arm_of("b", rows))
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((1, 1, 1))
    assert not ratio.shown


@given(st.lists(st.tuples(st.integers(1, 200), seconds_strategy), min_size=2, max_size=8), st.floats(1.1, 9))
def test_an_arm_uniformly_faster_is_shown_with_no_width(rows: list[tuple[int, float]], gain: float) -> None:
    faster = arm_of("a", [(tokens, seconds / gain) for tokens, seconds in rows])
    ratio = stats.paired_ratio(faster, arm_of("b", rows))
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((gain, gain, gain))
    assert ratio.shown


@given(st.lists(st.tuples(seconds_strategy, seconds_strategy), min_size=2, max_size=8))
def test_the_order_of_samples_does_not_matter(
    seconds: list[tuple[float, float]],
) -> None:
    left = arm_of("a", [(10, one) for one, _ in seconds])
    right = arm_of("b", [(10, two) for _, two in seconds])
    ratio = stats.paired_ratio(left, right)
    assert ratio.low <= ratio.high
    assert ratio.value > 0
    assert stats.paired_ratio(left[::-1], right[::-1]) == ratio


def test_unpaired_prompts_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="unpaired: \\['p1'\\]"):
        stats.paired_ratio(arm_of("a", [(1, 1.0), (1, 1.0)]), arm_of("b", [(1, 1.0)]))


def test_one_prompt_gives_no_interval() -> None:
    with pytest.raises(ValueError, match="at least 2 prompts"):
        stats.paired_ratio(arm_of("a", [(1, 1.0)]), arm_of("b", [(1, 1.0)]))


@pytest.mark.parametrize(("low", "high", "shown"), [(1.1, 1.2, True), (0.8, 0.9, True), (0.9, 1.1, False)])
def test_shown_means_that_the_interval_excludes_one(low: float, high: float, shown: bool) -> None:
    assert Ratio(1.0, low, high, 5).shown is shown


def test_acceptance_is_weighted_by_step_or_by_request_as_the_name_says() -> None:
    samples = [sample("a", "p", 1, histogram=(0, 0, 3)), sample("a", "q", 1, histogram=(1, 0, 0))]
    assert stats.acceptance_length(samples) == pytest.approx(1 + 6 / 4)
    assert stats.acceptance_length_per_request(samples) == pytest.approx((3 + 1) / 2)


def test_no_drafts_is_unknown_not_one() -> None:
    assert stats.acceptance_length([sample("a", "p", 1)]) is None
    assert stats.acceptance_length_per_request([sample("a", "p", 1)]) is None


def test_survival_counts_drafts_that_were_accepted_at_least_that_far() -> None:
    samples = [sample("a", "p", 1, histogram=(1, 2, 1)), sample("a", "q", 1, histogram=(0, 0, 4))]
    assert stats.survival_rates(samples) == (7 / 8, 5 / 8)


@given(st.lists(st.lists(st.integers(0, 9), min_size=4, max_size=4), min_size=1, max_size=6))
def test_survival_falls_and_adds_up_to_the_acceptance_length(histograms: list[list[int]]) -> None:
    samples = [sample("a", "p", 1, histogram=tuple(row)) for row in histograms]
    rates, length = stats.survival_rates(samples), stats.acceptance_length(samples)
    assert list(rates) == sorted(rates, reverse=True)
    if length is not None:
        assert 1 + sum(rates) == pytest.approx(length)


def test_steps_and_passes_per_thousand_tokens() -> None:
    # 1 from the prefill, then 3 steps that accepted 0, 2 and 2 drafts: 1 + 1 + 3 + 3 = 8 tokens.
    fast = [sample("a", "p", 1, tuple(range(8)), (1, 0, 2))]
    assert stats.steps_per_1000_tokens(fast) == 1000 * 4 / 8
    assert stats.draft_passes_per_1000_tokens(fast, 1) == 1000 * 3 / 8
    assert stats.draft_passes_per_1000_tokens(fast, 2) == 1000 * 6 / 8
    plain = [sample("a", "p", 1, tuple(range(8)))]
    assert stats.steps_per_1000_tokens(plain) == 1000
    assert stats.draft_passes_per_1000_tokens(plain, 0) == 0


@given(st.lists(st.integers(0, 3), max_size=30), st.integers(1, 5))
def test_distinct_share_is_between_none_and_all(items: list[int], n: int) -> None:
    share = stats.distinct_share(items, n)
    assert 0 < share <= 1
    grams = max(0, len(items) - n + 1)
    # Saying it all again adds no new n-gram but those across the seam.
    assert stats.distinct_share(items + items, n) <= share or grams == 0 or share == 1


def test_distinct_share_of_a_loop_and_of_a_sequence() -> None:
    assert stats.distinct_share([1] * 13) == 0.1
    assert stats.distinct_share(range(13)) == 1.0
    assert stats.distinct_share([1, 2]) == 1.0


def test_the_least_repetitive_third_goes_by_the_output_and_then_by_id() -> None:
    samples = [
        sample("none", "loop", 1, (7,) * 20),
        sample("none", "b", 1, tuple(range(20))),
        sample("none", "a", 1, tuple(range(20))),
    ]
    assert stats.least_repetitive(samples) == {"a", "b"}, "a third of three is one, too few for an interval"
    more = [*samples, *(sample("none", f"loop{i}", 1, (7,) * 20) for i in range(5))]
    assert stats.least_repetitive(more) == {"a", "b", "loop"}


def test_one_different_token_is_a_difference() -> None:
    arms = {
        "none": [sample("none", "p", 1, (1, 2)), sample("none", "q", 1, (1, 2))],
        "fast": [sample("fast", "p", 1, (1, 2)), sample("fast", "q", 1, (1, 3))],
    }
    assert stats.differing_prompts(arms) == ["q"]
