"""Tokens and rates of files, recordings and results files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from peagle_bench.decide.costs import TokenCosts
from peagle_bench.decide.traffic import Observed, read_traffic
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import SpecError
from peagle_sm.traffic.records import RecordedUsage
from tests.bench.report import making
from tests.traffic.samples import line

GPT = TokenCosts(0.07, 0.30)


def no_session() -> Session:
    raise AssertionError("a file needs no session")


def read(path: Path) -> Observed:
    return read_traffic(str(path), no_session)


def written(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return path


@pytest.mark.parametrize(
    "counts",
    [
        {"usage": {"prompt_tokens": 600, "completion_tokens": 200}},
        {"usage": {"input_tokens": 600, "output_tokens": 200}, "messages": []},
        {"response": {"body": {"usage": {"prompt_tokens": 600, "completion_tokens": 200}}}},
        {"input_tokens": 600, "output_tokens": 200},
    ],
)
def test_counts_in_the_forms_that_engines_write(counts: dict[str, Any], tmp_path: Path) -> None:
    observed = read(written(tmp_path / "a.jsonl", counts, counts))
    assert (observed.input_per_output, observed.output_per_request) == (3.0, 200.0)
    assert (observed.otps, observed.busiest) == (None, None)


def test_cached_input_is_a_part_of_the_input(tmp_path: Path) -> None:
    usage = {
        "prompt_tokens": 600,
        "completion_tokens": 200,
        "prompt_tokens_details": {"cached_tokens": 400},
    }
    observed = read(written(tmp_path / "a.jsonl", {"usage": usage}))
    assert (observed.input_per_output, observed.cached_per_output) == (3.0, 2.0)


def test_requests_without_counts_are_left_out_and_counted(tmp_path: Path) -> None:
    usage = {"usage": {"prompt_tokens": 600, "completion_tokens": 200}}
    wrong = {"usage": {"prompt_tokens": -1, "completion_tokens": True}}
    observed = read(written(tmp_path / "a.jsonl", usage, {"messages": []}, wrong))
    assert len(observed.requests) == 1
    assert "2 of 3 requests have no token counts" in observed.notes[0]
    huge = {"usage": {"prompt_tokens": 10**400, "completion_tokens": 1}}
    assert len(read(written(tmp_path / "b.jsonl", usage, huge)).requests) == 1


def test_requests_without_counts_are_a_part_of_the_rate(tmp_path: Path) -> None:
    counts = {"input_tokens": 600, "output_tokens": 3_600}
    lines = [{"time": 3600 * hour, **(counts if hour % 2 else {})} for hour in range(26)]
    path = written(tmp_path / "a.jsonl", *lines)
    observed = read(path)
    assert observed.otps == pytest.approx(26 / 25)
    assert observed.rate_source == "26 requests in 25.0 hours"
    given = read_traffic(str(path), no_session, (600.0, 1_800.0))
    assert given.otps == pytest.approx(0.75 * 26 / 25)
    assert given.input_per_output == pytest.approx(600 / 2_700)


def test_tokens_that_would_not_count_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", {"input_tokens": 600, "output_tokens": 200})
    with pytest.raises(SpecError, match="all 1 requests"):
        read_traffic(str(path), no_session, (600.0, 200.0))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [((), "has no requests"), (({"input_tokens": 5, "output_tokens": 0},), "no output tokens")],
)
def test_a_file_without_output_is_refused(
    lines: tuple[dict[str, int], ...], expected: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecError, match=expected):
        read(written(tmp_path / "a.jsonl", *lines))


def test_a_file_without_any_counts_is_refused_with_what_is_allowed(tmp_path: Path) -> None:
    with pytest.raises(
        SpecError, match=r"none of its 2 requests has token counts.*completion_tokens"
    ) as error:
        read(written(tmp_path / "a.jsonl", {"prompt": "a"}, {"prompt": "b"}))
    assert "--tokens IN/OUT" in str(error.value.next_step)


def recording(path: Path, hours: int, **more: Any) -> Path:
    """Write a request an hour, and eight more in the hour after noon."""
    usage = RecordedUsage(prompt_tokens=600, completion_tokens=360)
    times = [hour * 3600.0 for hour in range(hours)] + [12.5 * 3600 + number for number in range(8)]
    fields = {"usage": usage, **more}
    path.write_bytes(b"".join(line(number, time=1e9 + at, **fields) for number, at in enumerate(times)))
    return path


def test_a_recording_has_its_rate_and_its_busiest_hour(tmp_path: Path) -> None:
    observed = read(recording(tmp_path / "r.jsonl", 25))
    mean = 33 * 360 / 86_400
    assert observed.otps == pytest.approx(mean)
    assert observed.busiest == pytest.approx(9 * 360 / 3600 / mean)


def test_the_busiest_hour_is_not_divided_by_the_hours_since_the_first_request(tmp_path: Path) -> None:
    """It begins half an hour after the first request's hour: a count by that clock has half of it."""
    counts = {"input_tokens": 1, "output_tokens": 36}
    steady = [{"time": 3600 * hour, **counts} for hour in range(26)]
    peak = [{"time": 36_000 + 1800 + 36 * number, **counts} for number in range(100)]
    observed = read(written(tmp_path / "a.jsonl", *steady, *peak))
    assert observed.busiest == pytest.approx(101 * 36 / 3600 / (126 * 36 / 90_000))


def test_a_time_that_is_no_number_is_no_time(tmp_path: Path) -> None:
    lines = [{"time": at, "input_tokens": 1, "output_tokens": 1} for at in (float("nan"), 0, 1e99)]
    assert read(written(tmp_path / "a.jsonl", *lines)).otps is None


def test_a_sampled_recording_counts_what_it_left_out(tmp_path: Path) -> None:
    whole, sampled = (
        read(recording(tmp_path / f"{share}.jsonl", 25, sample=share)).otps for share in (1.0, 0.25)
    )
    assert whole is not None
    assert sampled == pytest.approx(4 * whole)


def test_less_than_a_day_has_no_busiest_hour_and_less_than_an_hour_no_rate(tmp_path: Path) -> None:
    half = read(recording(tmp_path / "half.jsonl", 14))
    assert half.otps is not None
    assert half.busiest is None
    short = written(
        tmp_path / "short.jsonl",
        *({"time": at, "input_tokens": 1, "output_tokens": 1} for at in (0, 3599)),
    )
    assert read(short).otps is None


def test_the_mix_has_an_interval_over_conversations(tmp_path: Path) -> None:
    lines = [
        {"input_tokens": 100 * number, "output_tokens": 100, "conversation": number}
        for number in range(1, 21)
    ]
    observed = read(written(tmp_path / "a.jsonl", *lines))
    each = observed.usd_per_token(GPT)
    assert each is not None
    assert each.value == pytest.approx(GPT.usd(observed.input_per_output, 1))
    assert each.low < each.value < each.high
    skewed = [{"input_tokens": 600, "output_tokens": 1}] * 100
    one = read(written(tmp_path / "b.jsonl", *skewed, {"input_tokens": 60_000, "output_tokens": 4_000}))
    wide = one.usd_per_token(GPT)
    assert wide is not None
    assert GPT.usd(15, 1) <= wide.low * (1 + 1e-9)
    assert wide.high <= GPT.usd(600, 1) * (1 + 1e-9)
    few = replace(observed, requests=observed.requests[:7])
    assert few.usd_per_token(GPT) is None


def test_a_results_file_has_the_tokens_of_its_measured_requests(tmp_path: Path) -> None:
    results = making.compared()
    observed = read(making.write(results, tmp_path / "r.jsonl"))
    assert len(observed.requests) == len(results.requests)
    assert observed.otps is None
