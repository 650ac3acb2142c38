from __future__ import annotations

import pytest

from peagle_bench.results.records import Load, RequestRecord
from peagle_bench.tune.readings import geometric_ratio, read_scrape, reading_of
from peagle_sm.core.errors import ServiceFault

METRICS = """
# HELP vllm:inter_token_latency_seconds …
vllm:inter_token_latency_seconds_bucket{engine="0",le="0.01"} 90.0
vllm:inter_token_latency_seconds_count{engine="0",model_name="m"} 100.0
vllm:inter_token_latency_seconds_sum{engine="0",model_name="m"} 0.5
vllm:spec_decode_num_drafts_total{engine="0"} 50.0
vllm:spec_decode_num_accepted_tokens_total{engine="0"} 100.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 40.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 35.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="2"} 25.0
"""


def request(**more: object) -> RequestRecord:
    fields: dict[str, object] = {
        "arm": "a",
        "load": Load("closed", concurrency=2),
        "prompt_id": "p",
        "phase": "measured",
        "due_s": 0.0,
        "sent_s": 0.0,
        "first_s": 1.0,
        "last_s": 2.0,
        "done_s": 2.1,
        "input_tokens": 5,
        "output_tokens": 101,
        "chunks": 41,
        "gaps_ms": (25.0,) * 40,
    }
    return RequestRecord(**{**fields, **more})  # type: ignore[arg-type]


def told(**more: object) -> RequestRecord:
    return request(drafts=40, accepted=60, histogram=(10, 10, 10, 10), **more)


def test_requests_that_report_their_drafts_tell_everything() -> None:
    reading = reading_of([told(), told()], k=3, concurrency=2, block=4, seconds=2.0)
    assert reading.acceptance_length == pytest.approx(2.5)
    assert reading.survival == pytest.approx((0.75, 0.5, 0.25))
    assert reading.step_ms == pytest.approx(25.0)  # a second of stream, 40 steps
    assert (reading.step_source, reading.steps, reading.block) == ("drafts", 80, 4)
    assert reading.otps == pytest.approx(101.0)
    assert reading.rate == pytest.approx(2 * 2.5 * 40)


def test_an_engine_started_with_a_larger_k_reports_zeros_beyond() -> None:
    wide = request(drafts=4, accepted=4, histogram=(1, 2, 1, 0, 0, 0))
    assert reading_of([wide], k=2, concurrency=1, block=0, seconds=1.0).survival == (0.75, 0.25)


def test_the_engines_own_histogram_goes_before_the_clients_clock() -> None:
    before = read_scrape(METRICS)
    after = read_scrape(METRICS.replace("100.0\n", "300.0\n", 1).replace(" 0.5", " 1.5"))
    assert before is not None
    assert after is not None
    reading = reading_of([told()], k=3, concurrency=2, block=0, seconds=1.0, scrapes=(before, after))
    assert (reading.step_ms, reading.step_source) == (pytest.approx(5.0), "metrics")


def test_the_engines_counters_stand_in_for_requests_that_tell_nothing() -> None:
    nothing = read_scrape("vllm:inter_token_latency_seconds_count 0\nvllm:spec_decode_num_drafts_total 0\n")
    assert nothing is not None
    after = read_scrape(METRICS)
    assert after is not None
    reading = reading_of([request()], k=3, concurrency=2, block=0, seconds=1.0, scrapes=(nothing, after))
    assert reading.acceptance_length == pytest.approx(3.0)
    assert reading.survival == pytest.approx((0.8, 0.7, 0.5))


def test_chunks_are_steps_where_nothing_else_is_known() -> None:
    reading = reading_of([request()], k=7, concurrency=2, block=0, seconds=1.0)
    assert reading.acceptance_length == pytest.approx(2.5)
    assert 1 + sum(reading.survival) == pytest.approx(2.5)
    assert (reading.step_ms, reading.step_source) == (pytest.approx(25.0), "chunks")


def test_the_baseline_steps_once_a_token() -> None:
    reading = reading_of([request()], k=0, concurrency=2, block=0, seconds=1.0)
    assert (reading.acceptance_length, reading.survival) == (1.0, ())
    assert reading.step_ms == pytest.approx(10.0)


def test_warm_up_drain_and_failures_do_not_count() -> None:
    others = [told(phase="warm-up"), told(phase="drain"), told(error="Timeout"), told(output_tokens=1)]
    mixed = [other for other in others for _ in range(3)]
    alone = reading_of([told()], k=3, concurrency=2, block=0, seconds=1.0)
    assert reading_of([told(), *mixed], k=3, concurrency=2, block=0, seconds=1.0) == alone


def test_a_window_without_an_answer_says_why() -> None:
    with pytest.raises(ServiceFault, match="K=3, c=2: ModelError: out of memory"):
        reading_of(
            [request(error="ModelError", error_message="out of memory")],
            k=3,
            concurrency=2,
            block=0,
            seconds=1.0,
        )


def test_answers_in_one_piece_say_nothing_of_drafts() -> None:
    with pytest.raises(ServiceFault, match="in one chunk"):
        reading_of([request(chunks=1, gaps_ms=())], k=3, concurrency=1, block=0, seconds=1.0)


@pytest.mark.parametrize(("length", "k"), [(1.0, 3), (2.5, 7), (4.0, 3), (8.0, 7)])
def test_the_ratio_gives_back_the_length(length: float, k: int) -> None:
    ratio = geometric_ratio(length, k)
    assert sum(ratio**power for power in range(k + 1)) == pytest.approx(length, abs=1e-6)


def test_text_without_latencies_is_no_scrape() -> None:
    assert read_scrape("up 1\n") is None
