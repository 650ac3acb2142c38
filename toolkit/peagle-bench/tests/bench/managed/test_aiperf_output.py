"""From AIPerf's archive to records."""

from __future__ import annotations

import pytest

from peagle_bench.benchmark.managed_files import point_record, read_bundle, request_records
from peagle_bench.load.points import Objective
from peagle_bench.results.records import Load, PointRecord, RequestRecord
from peagle_sm.core.errors import SpecError
from tests.bench.managed.making import archive, row

LOAD = Load("closed", concurrency=2)


def summed(rows: list[dict[str, object]], objective: Objective | None = None) -> PointRecord:
    bundle = read_bundle(archive(rows))
    records = request_records(bundle, "e", LOAD)
    return point_record(bundle, records, "e", LOAD, temperature=0.0, objective=objective, usd_per_hour=3600.0)


def records(rows: list[dict[str, object]]) -> list[RequestRecord]:
    return request_records(read_bundle(archive(rows)), "e", LOAD)


def test_a_request_is_told_as_our_own_client_tells_it() -> None:
    second, first = records([row(1, sent_s=1.0), row(0, phase="warmup")])[::-1]
    assert (first.phase, second.phase) == ("warm-up", "measured")
    assert (first.due_s, first.sent_s) == (0.0, pytest.approx(0.001))
    assert second.first_s == pytest.approx(1.051)
    assert second.last_s == pytest.approx(1.091)
    assert second.done_s == pytest.approx(1.096)
    assert (second.input_tokens, second.output_tokens, second.chunks) == (31, 8, 4)
    assert (second.drafts, second.accepted) == (3, 6)
    assert second.client_lag_ms == pytest.approx(1.0)
    assert second.output_sha256 == first.output_sha256


def test_a_point_is_of_the_measured_requests_and_of_aiperfs_window() -> None:
    point = summed([row(9, phase="warmup"), row(0), row(1, gaps_ms=(40.0,), tokens=4)])
    assert (point.requests, point.errors, point.output_tokens, point.seconds) == (2, {}, 12, 2.0)
    assert (point.otps, point.requests_per_s, point.usd) == (6.0, 1.0, 2.0)
    assert point.ttft_ms is not None
    assert point.ttft_ms.p99 == pytest.approx(50.0)
    assert point.itl_ms is not None
    assert (point.itl_ms.count, point.itl_ms.p50) == (4, pytest.approx(15.0))
    assert point.tpot_ms is not None
    assert point.tpot_ms.p50 == pytest.approx((40 / 7 + 40 / 3) / 2)
    assert point.acceptance is not None
    assert (point.acceptance.source, point.acceptance.per_step) == ("per-request", 3.0)
    assert (point.client.trusted, point.client.cpu_share) == (True, None)


def test_errors_are_counted_by_name_and_add_no_tokens() -> None:
    point = summed([row(0), row(1, error="StreamError"), row(2, error="StreamError")])
    assert (point.requests, point.errors, point.output_tokens) == (3, {"StreamError": 2}, 8)


def test_without_usage_aiperfs_own_count_is_taken() -> None:
    (record,) = records([row(0, tokens=None)])
    assert (record.input_tokens, record.output_tokens) == (30, 9)


def test_without_speculation_there_is_no_acceptance() -> None:
    assert summed([row(0, steps=None)]).acceptance is None


def test_goodput_is_of_all_measured_requests() -> None:
    point = summed(
        [row(0), row(1, gaps_ms=(400.0,)), row(2, error="StreamError")], Objective(ttft_ms=60, tpot_ms=20)
    )
    assert point.goodput is not None
    assert (point.goodput.requests_per_s, point.goodput.share) == (0.5, pytest.approx(1 / 3))


def test_a_client_that_sent_late_is_not_trusted() -> None:
    client = summed([row(0, late_s=0.5)]).client
    assert not client.trusted
    assert client.reason == "AIPerf sent requests 500 ms late at p99 (allowed: 10 ms)"


@pytest.mark.parametrize("content", [b"", b"no archive", archive([])])
def test_what_is_no_result_is_refused(content: bytes) -> None:
    with pytest.raises(SpecError, match="archive"):
        read_bundle(content)


def test_half_an_archive_is_refused() -> None:
    whole = archive([row(0)])
    with pytest.raises(SpecError, match="cannot be read"):
        read_bundle(whole[: len(whole) // 2])
