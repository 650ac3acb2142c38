"""Points out of requests that are written down here, against figures worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_bench.load.points import Objective, make_point, percentiles
from peagle_bench.load.work import ClientUsage, LoadRun, Window
from peagle_bench.results.records import Load, Phase, RequestRecord
from tests.bench.compare import simulating

C2, OPEN = Load("closed", concurrency=2), Load("open", rate_per_s=1.0)
CALM = ClientUsage((0.1,) * 99, cpu_s=0.5)


def request(
    sent: float = 1.0, *, load: Load = C2, phase: Phase = "measured", tokens: int = 8
) -> RequestRecord:
    """First chunk a second after sending, then three more, a second apart, each of ``tokens`` / 4."""
    record = simulating.request(
        "a", "p", sent=sent, seconds=4.0, chunks=4, load=load, phase=phase, tokens=tokens
    )
    return replace(record, due_s=sent - 0.25, done_s=sent + 4.5, input_tokens=7)


def failed(name: str) -> RequestRecord:
    nothing: dict[str, Any] = {"first_s": None, "last_s": None, "output_tokens": None, "input_tokens": None}
    return replace(request(), error=name, chunks=0, gaps_ms=(), **nothing)


def run(*records: RequestRecord, start: float = 0.0, end: float = 10.0, usage: ClientUsage = CALM) -> LoadRun:
    return LoadRun("a", records[0].load, 0, records, Window(start, end, end - start), usage)


def test_a_request_inside_the_window() -> None:
    point = make_point(run(request()), usd_per_hour=36.0, temperature=0.0)
    assert (point.requests, point.errors, point.input_tokens, point.output_tokens) == (1, {}, 7, 8)
    assert (point.otps, point.requests_per_s, point.seconds) == (0.8, 0.1, 10.0)
    assert point.otps_per_request == pytest.approx(8 / 4.5)
    assert point.ttft_ms is not None
    assert point.tpot_ms is not None
    assert point.itl_ms is not None
    assert point.e2e_ms is not None
    assert (point.ttft_ms.p50, point.tpot_ms.mean, point.itl_ms.count) == (1000.0, 3000 / 7, 3)
    assert point.e2e_ms.p99 == 4500.0
    assert point.usd == pytest.approx(0.1)
    assert point.client.trusted


def test_tokens_count_where_their_chunks_arrive() -> None:
    straddling = request(sent=-1.5, phase="warm-up"), request(sent=7.5)
    point = make_point(run(*straddling))
    assert point.output_tokens == 3 * 2 + 2 * 2  # chunks at 0.5, 1.5, 2.5 and at 8.5, 9.5 of two tokens each
    assert point.requests == 1


def test_what_arrives_as_the_window_begins_is_before_it_and_as_it_ends_is_in_it() -> None:
    assert make_point(run(request(sent=-1.0))).output_tokens == 6
    assert make_point(run(request(sent=6.0))).output_tokens == 8


def test_an_open_loop_waits_from_the_arrival_on() -> None:
    point = make_point(run(request(load=OPEN)))
    assert point.ttft_ms is not None
    assert point.e2e_ms is not None
    assert (point.ttft_ms.p50, point.e2e_ms.p50) == (1250.0, 4750.0)


def test_errors_are_counted_by_name_and_have_no_latency() -> None:
    point = make_point(
        run(request(), failed("ThrottlingException"), failed("ThrottlingException"), failed("Timeout"))
    )
    assert point.requests == 4
    assert point.errors == {"ThrottlingException": 2, "Timeout": 1}
    assert point.ttft_ms is not None
    assert point.ttft_ms.count == 1


def test_nothing_but_errors_has_no_figures() -> None:
    point = make_point(run(failed("Timeout")))
    assert (point.otps, point.output_tokens, point.input_tokens) == (0.0, 0, None)
    assert (point.ttft_ms, point.itl_ms, point.otps_per_request) == (None, None, None)


@pytest.mark.parametrize(
    ("objective", "good"),
    [
        (Objective(), 2),
        (Objective(ttft_ms=1000.0, tpot_ms=430.0), 2),
        (Objective(ttft_ms=999.0), 0),
        (Objective(tpot_ms=300.0), 1),
        (Objective(e2e_ms=4000.0), 0),
    ],
)
def test_goodput_counts_who_meets_every_limit_out_of_all(objective: Objective, good: int) -> None:
    point = make_point(run(request(), request(tokens=16), failed("Timeout")), objective=objective)
    assert point.goodput is not None
    assert point.goodput.share == pytest.approx(good / 3)
    assert point.goodput.requests_per_s == pytest.approx(good / 10)


def test_a_lone_stop_token_is_one_all_the_same() -> None:
    silent = replace(request(tokens=1), first_s=None, last_s=None, chunks=0, gaps_ms=())
    assert make_point(run(silent)).output_tokens == 1


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50))
def test_percentiles_are_those_of_numpy(values: list[float]) -> None:
    result = percentiles(values)
    assert result is not None
    assert [result.p50, result.p95, result.p99] == pytest.approx(
        np.percentile(values, [50, 95, 99]), abs=1e-6
    )


@pytest.mark.parametrize(
    ("usage", "words", "bottleneck"),
    [
        (ClientUsage((0.1,), cpu_s=9.5), "busy 95%", True),
        (ClientUsage((400.0,) * 5 + (0.1,) * 95, cpu_s=9.5), "busy 95%", True),
        (ClientUsage((400.0,) * 5 + (0.1,) * 95, cpu_s=1.0), "400.0 ms late", False),
        (ClientUsage((0.1,), cpu_s=1.0, connections_full=True), "free connection of the client", True),
    ],
)
def test_a_point_of_a_client_that_did_not_keep_up_is_not_trusted(
    usage: ClientUsage, words: str, bottleneck: bool
) -> None:
    health = make_point(run(request(), usage=usage)).client
    assert not health.trusted
    assert health.bottleneck is bottleneck
    assert words in (health.reason or "")


def test_a_client_without_an_event_loop_is_not_said_to_be_on_time() -> None:
    health = make_point(run(request(), usage=ClientUsage((), cpu_s=1.0))).client
    assert health.trusted
    assert health.lag_p99_ms is None


def test_requests_that_were_sent_late_are_not_trusted() -> None:
    health = make_point(run(replace(request(), client_lag_ms=200.0))).client
    assert health.bottleneck
    assert "sent late by 4.4%" in (health.reason or "")
    assert health.cpu_us_per_chunk == pytest.approx(0.5e6 / 4)
