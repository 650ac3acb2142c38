"""The rule that tells drafting that works from drafting that does not; what is read and what is printed."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_gate.acceptance import Counts, Profile, enough, fault, read_counts, read_profile
from peagle_gate.acceptance import emf_line as emf_line

METRICS = """\
# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 150.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 50.0
vllm:spec_decode_num_drafts_created{engine="0"} 1.7e+09
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 300.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 120.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 80.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="0"} 40.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="1"} 20.0
vllm:generation_tokens_total{engine="0",model_name="m"} 460.0
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 3.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 4.0
"""


def counts(drafts: int, *rates: float, generated: int = 5000, finished: int = 10) -> Counts:
    return Counts(generated, drafts, tuple(round(drafts * rate) for rate in rates), finished)


def test_metrics_of_several_engines_are_added_up() -> None:
    result = read_counts(METRICS)
    assert result == Counts(460, 200, (160, 100), 7)
    assert result.survival == (0.8, 0.5)
    assert result.acceptance_length == pytest.approx(2.3)


def test_metrics_without_speculation_are_nothing() -> None:
    assert read_counts("") == Counts()
    assert Counts().survival == ()


def test_what_came_since_and_after_a_restart() -> None:
    now = read_counts(METRICS)
    assert now.since(Counts()) == now
    assert now.since(now) == Counts(0, 0, (0, 0), 0)
    assert Counts(5, 1, (1, 0)).since(now) == Counts(5, 1, (1, 0))


def test_with_a_k_of_zero_undrafted_tokens_are_no_fault_and_no_judgement() -> None:
    quiet = Counts(5000, 0, (), 10)
    assert fault(quiet, parallel=True) is not None
    assert fault(quiet, parallel=True, always=False) is None
    assert (enough(quiet, parallel=True), enough(quiet, parallel=True, always=False)) == (True, False)


@pytest.mark.parametrize(
    "rates",
    [
        (0.755, 0.609, 0.559, 0.518, 0.486, 0.455, 0.414),  # the small stand-in on the canary
        (0.52, 0.24, 0.12, 0.06),  # a text that a head does not know
        (0.02, 0.0, 0.0),  # random weights: useless, but not this fault
        (0.35, 0.0, 0.0),
        (0.8, 0.12, 0.02),
        (0.55, 0.11, 0.03),  # a weak healthy head
    ],
)
def test_healthy_and_merely_bad_heads_pass_the_rule(rates: tuple[float, ...]) -> None:
    assert fault(counts(1000, *rates), parallel=True) is None


def test_a_second_token_that_hardly_ever_survives_is_told() -> None:
    wrong = fault(counts(1000, 0.82, 0.08, 0.02), parallel=True)
    assert wrong == (
        "parallel drafting ineffective: of 1000 drafts 82% kept the first token and 8% the second"
    )
    assert fault(counts(1000, 0.82, 0.08, 0.02), parallel=False) is None
    assert fault(counts(199, 0.82, 0.08, 0.02), parallel=True) is None
    assert fault(counts(1000, 0.82), parallel=True) is None


def test_a_thousand_tokens_without_a_draft_are_told() -> None:
    assert fault(Counts(1010, 0, (), 10), parallel=True) == "speculation is off: 1010 tokens and no draft"
    assert fault(Counts(1009, 0, (), 10), parallel=True) is None


def test_requests_for_one_token_say_nothing() -> None:
    many = Counts(generated=5000, finished=5000)
    assert not enough(many, parallel=True)
    assert fault(many, parallel=False) is None


def test_a_head_is_held_to_its_own_profile() -> None:
    profile = Profile((0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2))
    assert fault(counts(500, 0.8, 0.65, 0.6), parallel=True, profile=profile) is None
    wrong = fault(counts(500, 0.6, 0.3, 0.2), parallel=True, profile=profile)
    assert wrong is not None
    assert "acceptance length 2.10 on its canary prompts, 3.10 when it was made" in wrong


def judged(s1: float, ratio: float, rng: np.random.Generator) -> tuple[bool, int]:
    """A window as the gate collects it, 100 drafts at a time: whether it is a fault, and its drafts."""
    drafts = first = second = 0
    while True:
        kept = int(rng.binomial(100, s1))
        drafts, first, second = drafts + 100, first + kept, second + int(rng.binomial(kept, ratio))
        window = Counts(10**6, drafts, (first, second), 10)
        if enough(window, parallel=True):
            return fault(window, parallel=True) is not None, drafts


@pytest.mark.parametrize(
    ("s1", "ratio", "least", "most"),
    [
        (0.88, 0.025, 1.0, 1.0),  # the small P-EAGLE head, run one token after the other
        (0.50, 0.05, 0.99, 1.0),  # by the old rule found in 53%
        (0.45, 0.05, 0.95, 1.0),  # by the old rule found in 9%
        (0.55, 0.20, 0.0, 0.02),  # a weak healthy head: 9% false alarms in windows of 200 by the old rule
        (0.55, 0.40, 0.0, 0.0),
        (0.35, 0.02, 0.0, 0.02),  # may just not know the text
    ],
)
def test_more_drafts_decide_what_few_cannot(s1: float, ratio: float, least: float, most: float) -> None:
    rng = np.random.default_rng(1)
    mean = np.mean([judged(s1, ratio, rng)[0] for _ in range(400)])
    assert least <= mean <= most


def test_a_clear_window_is_judged_at_200_drafts_and_an_unclear_one_at_4000() -> None:
    assert enough(counts(200, 0.9, 0.7), parallel=True)
    assert enough(counts(200, 0.9, 0.02), parallel=True)
    assert not enough(counts(200, 0.45, 0.02), parallel=True)
    assert enough(counts(200, 0.45, 0.02), parallel=False)
    assert enough(counts(4000, 0.4, 0.06), parallel=True)


rates = st.lists(st.floats(0, 1), min_size=2, max_size=7).map(lambda values: sorted(values, reverse=True))


@given(st.integers(200, 10_000), rates)
def test_no_head_misses_a_profile_that_it_meets(drafts: int, given_rates: list[float]) -> None:
    seen = counts(drafts, *given_rates)
    assert fault(seen, parallel=False, profile=Profile(seen.survival)) is None


@pytest.mark.parametrize(
    "document",
    [None, [], {}, {"survival": [0.5]}, {"survival": ["a"], "prompts": ["x"]}]
    + [{"survival": [0.5], "prompts": prompts} for prompts in ([], "x", [1])],
)
def test_what_is_no_profile_is_none(document: object) -> None:
    assert read_profile(document) is None


def test_a_line_of_the_log_is_embedded_metric_format() -> None:
    text, judges = emf_line(
        counts(500, 0.8, 0.5), counts(500, 0.8, 0.5), parallel=True, namespace="peagle-sm/a", unix_ms=1
    )
    assert judges
    assert "\n" not in text
    document = json.loads(text)
    (directive,) = document["_aws"]["CloudWatchMetrics"]
    assert document["_aws"]["Timestamp"] == 1
    assert directive["Namespace"] == "peagle-sm/a"
    assert {entry["Name"] for entry in directive["Metrics"]} <= document.keys(), "each metric has its value"
    figures = {name: document[name] for name in ("AcceptanceLength", "Survival1", "Survival2", "Drafts")}
    assert figures == {"AcceptanceLength": 2.3, "Survival1": 0.8, "Survival2": 0.5, "Drafts": 500}
    assert document["DraftingFault"] == 0


def test_little_traffic_is_told_but_not_judged() -> None:
    text, judges = emf_line(
        counts(3, 1, 0, generated=9), counts(150, 1, 0), parallel=True, namespace="x", unix_ms=1
    )
    assert not judges
    assert "DraftingFault" not in json.loads(text)


def test_what_is_wrong_stands_in_the_line() -> None:
    text, _ = emf_line(counts(3, 1, 0), counts(300, 0.9, 0.01), parallel=True, namespace="x", unix_ms=1)
    document = json.loads(text)
    assert document["DraftingFault"] == 1
    assert document["reason"].startswith("parallel drafting ineffective")
