"""Acceptance from requests, from counters and from log lines agrees with itself."""

from __future__ import annotations

import pytest

from peagle_bench.benchmark.acceptance import (
    Counters,
    from_counters,
    from_requests,
    read_counters,
    read_log_line,
)
from peagle_bench.results.records import Load, RequestRecord


def answered(histogram: tuple[int, ...]) -> RequestRecord:
    drafts, accepted = sum(histogram), sum(j * n for j, n in enumerate(histogram))
    return RequestRecord(
        "a", Load("closed", 1), "p", "measured", 0, 0, 0.1, 1, 1, 5, 9, 4,
        drafts=drafts, accepted=accepted, histogram=histogram,
    )  # fmt: skip


def test_steps_and_requests_are_weighed_apart() -> None:
    result = from_requests([answered((0, 0, 0, 10)), answered((30, 0, 0, 0))])
    assert result is not None
    assert result.per_step == pytest.approx(1 + 30 / 40)
    assert result.per_request == pytest.approx((4 + 1) / 2)
    assert result.survival == pytest.approx((0.25, 0.25, 0.25))
    assert (result.source, result.drafts, result.accepted) == ("per-request", 40, 30)


def test_requests_that_do_not_tell_count_for_nothing() -> None:
    assert from_requests([]) is None
    assert from_requests([answered(())]) is None


METRICS = """# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 100.0
vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.7e+09
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 300.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 150.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 80.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 50.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="2"} 20.0
vllm:spec_decode_num_accepted_tokens_per_pos_created{engine="0",model_name="m",position="0"} 1.7e+09
vllm:generation_tokens_total{engine="0",model_name="m"} 260.0
"""


def test_counters_are_read_from_prometheus_text() -> None:
    assert read_counters(METRICS) == Counters(100, 150, (80, 50, 20))
    two = METRICS + METRICS.replace('engine="0"', 'engine="1"')
    assert read_counters(two) == Counters(200, 300, (160, 100, 40))
    assert read_counters("vllm:generation_tokens_total 3.0\n") is None


def test_the_difference_of_two_looks_is_what_counts() -> None:
    before, after = Counters(100, 150, (80, 50, 20)), Counters(300, 650, (280, 210, 160))
    result = from_counters(after - before, "metrics")
    assert result is not None
    assert result.per_step == 3.5
    assert result.per_request is None
    assert result.survival == (1.0, 0.8, 0.7)
    assert from_counters(before - before, "metrics") is None
    assert from_counters(before - after, "metrics") is None  # an engine that started anew


LINE = (
    "INFO 11-20 13:00:00 [metrics.py:96] SpecDecoding metrics: Mean acceptance length: 3.94, Accepted"
    " throughput: 71.20 tokens/s, Drafted throughput: 121.00 tokens/s, Accepted: 712 tokens, Drafted: 1210"
    " tokens, Per-position acceptance rate: 0.850, 0.712, 0.603, 0.421, 0.354, Avg Draft acceptance rate:"
    " 58.8%"
)


def test_with_a_table_of_k_the_acceptance_length_gives_the_drafts() -> None:
    """100 drafts of 5 tokens and 142 of 3: not 926 / 5 drafts."""
    counted = read_log_line(LINE.replace("Drafted: 1210", "Drafted: 926"), 5)
    assert counted is not None
    assert counted.drafts == pytest.approx(242, rel=0.005)
    assert read_log_line(LINE, 5) == Counters(242, 712, (206, 172, 146, 102, 86)), "exact where K is fixed"


def test_log_lines_give_the_same_counts() -> None:
    counted = read_log_line(LINE, 5)
    assert counted == Counters(242, 712, (206, 172, 146, 102, 86))
    result = from_counters(counted + counted, "cloudwatch")
    assert result is not None
    assert result.per_step == pytest.approx(3.94, abs=0.01)
    assert result.survival == pytest.approx((0.85, 0.712, 0.603, 0.421, 0.354), abs=0.003)
    assert read_log_line("INFO Avg prompt throughput: 12 tokens/s", 5) is None
