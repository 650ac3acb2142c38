"""Acceptance by slice from the gate's lines and from recorded traffic, and what people read of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from peagle_bench.commands.acceptance import render_acceptance
from peagle_gate.drift import Sums
from peagle_gate.slice_counts import SliceCounter, log_lines
from peagle_gate.slice_values import read_chosen
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import NotFound, SpecError
from peagle_sm.service.inventory.acceptance import acceptance_from_log, acceptance_from_records
from peagle_sm.traffic.records import TrafficRecord, to_line
from tests.cli.running import run
from tests.local.serving import Server

NOW = datetime(2026, 11, 24, 12, 0, tzinfo=UTC)
HOURS = 30


def records(fall_at_hour: int = 99, seed: int = 1) -> list[TrafficRecord]:
    """A request a minute of each of two scripts; the acceptance of one falls by a third."""
    rng = np.random.default_rng(seed)
    begin = NOW.timestamp() - HOURS * 3600
    created = []
    for minute in range(HOURS * 60):
        for script, length in (("han", 2.0), ("latin", 3.0)):
            fallen = script == "han" and minute >= fall_at_hour * 60
            mean = length * (0.6 if fallen else 1.0)
            accepted = int(rng.normal(mean * 30, 12))
            created.append(
                TrafficRecord(
                    id=f"{minute:016x}{script:0>16.16}",
                    time=begin + minute * 60.0,
                    endpoint="demo",
                    request={"prompt": "x"},
                    slices={"script": script, "format": "text"},
                    drafts=30,
                    drafted=210,
                    accepted=max(0, accepted),
                )
            )
    return created


def test_a_label_of_a_thousand_values_keeps_the_most_frequent_and_says_so() -> None:
    rows = [
        replace(one, slices={"label:user": "batch" if number % 2 else f"u{number}"})
        for number, one in enumerate(records()[:2000])
    ]
    report = acceptance_from_records(rows, NOW)
    requests = {one.slice: one.requests for one in report.slices}
    assert requests["label:user: batch"] == 1000
    assert requests["label:user: other"] == 993
    assert len(requests) == 1 + 8 + 1
    assert report.notes == (
        "label:user has 1,001 values; the 8 with the most requests are shown, the others together as "
        "'other'. Use a coarser label, for example a team in place of a user",
    )


def test_recorded_traffic_with_a_fall_in_full() -> None:
    report = acceptance_from_records(records(20), NOW, 24 * 3600.0)
    assert report.dimensions == ("script",)
    text = render_acceptance("demo", report)
    assert text == (
        "demo since 2026-11-23 12:00 UTC, from recorded traffic\n"
        "\n"
        "SLICE          ACCEPTANCE  INTERVAL      REQUESTS  DRAFTS\n"
        "all requests         3.32  [3.28, 3.36]     2,880  86,400\n"
        "script: han          2.66  [2.62, 2.70]     1,440  43,200\n"
        "script: latin        3.98  [3.95, 4.00]     1,440  43,200\n"
        "\n"
        "FELL  script: han: 2.96 to 2.20, -26% [-27%, -24%]\n"
        "      since about 2026-11-24 02:16 UTC (17,520 drafts)"
    )


def test_healthy_traffic_says_with_what_it_was_compared() -> None:
    report = acceptance_from_records(records(), NOW, 24 * 3600.0)
    assert report.changes == ()
    assert render_acceptance("demo", report).endswith(
        "no fall found in any slice, compared with the requests since 2026-11-23 06:00 UTC"
    )


def test_the_order_of_the_records_does_not_matter() -> None:
    given = records(20)
    assert (
        acceptance_from_records(given[::-1], NOW).to_dict() == acceptance_from_records(given, NOW).to_dict()
    )


@pytest.mark.parametrize(
    ("dimensions", "message"),
    [
        (["colour"], "--slices: found 'colour'; allowed: format, script"),
        (list("abcde"), "--slices: found 'a'"),
    ],
)
def test_slices_that_are_not_recorded_are_refused(dimensions: list[str], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        acceptance_from_records(records(), NOW, dimensions=dimensions)


def test_a_time_before_all_dates_is_as_far_as_the_records() -> None:
    every = acceptance_from_records(records(), NOW)
    assert acceptance_from_records(records(), NOW, 1e15).slices == every.slices


def test_a_recording_of_some_seconds_within_a_minute_is_shown() -> None:
    given = [replace(one, time=NOW.timestamp() + 17.3 + place) for place, one in enumerate(records()[:20])]
    failed = replace(given[0], id="f", drafts=None, outcome="failed")
    report = acceptance_from_records([*given, failed], NOW + timedelta(minutes=1))
    assert [one.requests for one in report.slices] == [20, 10, 10]
    assert report.uncounted == 0


def test_records_without_drafts_say_what_is_missing() -> None:
    plain = TrafficRecord(id="a", time=1.0, endpoint="demo", request={"prompt": "x"})
    with pytest.raises(SpecError, match=r"no answer reports its drafts \(1 requests\)"):
        acceptance_from_records([plain], NOW)
    with pytest.raises(SpecError, match="no request in this time"):
        acceptance_from_records(records(), NOW + timedelta(days=30), 3600.0)


@pytest.fixture
def group(server: Server) -> Iterator[Any]:
    """A log group as an endpoint named `counted` has it."""
    logs = server.client("logs")
    name = "/aws/sagemaker/Endpoints/counted"
    logs.create_log_group(logGroupName=name)
    logs.create_log_stream(logGroupName=name, logStreamName="AllTraffic/i-1")

    def put(lines: list[tuple[float, str]]) -> None:
        events = [{"timestamp": round(at * 1000), "message": text} for at, text in sorted(lines)]
        for start in range(0, len(events), 1000):
            part = events[start : start + 1000]
            logs.put_log_events(logGroupName=name, logStreamName="AllTraffic/i-1", logEvents=part)

    yield put
    logs.delete_log_group(logGroupName=name)


def gate_lines(
    given: list[TrafficRecord], shift: float, slices: str = "script=han"
) -> list[tuple[float, str]]:
    """What the gate prints each minute for these requests."""
    counter = SliceCounter(read_chosen(slices.split(";")))
    lines = []
    for minute in sorted({record.time for record in given}):
        for record in given:
            if record.time == minute:
                report = {"num_spec_steps": record.drafts, "num_accepted_draft_tokens": record.accepted}
                counter.count(record.slices, {**report, "num_draft_tokens": record.drafted}, {})
        counts, uncounted = counter.take()
        at = minute + shift
        created = log_lines(
            counter, counts, uncounted, (), namespace="n", since=at, unix_ms=round(at * 1000) + 60_000
        )
        lines += [(at + 60, line) for line in created]
    return lines


def test_the_log_shows_the_same_as_the_records(server: Server, local: Session, group: Any) -> None:
    given = [record for record in records(26) if record.time > NOW.timestamp() - 6 * 3600]
    shift = local.now().timestamp() - NOW.timestamp() - 120
    group([*gate_lines(given, shift), (local.now().timestamp() - 5000, "INFO: an ordinary line")])
    report = acceptance_from_log(local, "counted", 24 * 3600.0)
    expected = acceptance_from_records(given, NOW, dimensions=["script"])
    shown = {one.slice: one.acceptance_length for one in report.slices}
    assert shown["script: han"] == pytest.approx(
        next(one.acceptance_length for one in expected.slices if one.slice == "script: han")
    )
    assert [change.slice for change in report.changes] == ["script: han"]
    result = run("acceptance", "counted", "--local-port", str(server.status.port), "--format", "json")
    assert result.exit_code == 9
    assert json.loads(result.stdout)["changes"][0]["slice"] == "script: han"
    assert json.loads(result.stderr.splitlines()[-1])["error"]["exit_code"] == 9


def test_lines_that_are_damaged_or_count_by_other_slices_are_left_out(local: Session, group: Any) -> None:
    given = records()[-40:]
    shift = local.now().timestamp() - NOW.timestamp() - 120
    earlier = gate_lines(given[:10], shift - 3600, "format")
    cut = [
        (at, line[:-40] + '"counts"') for at, line in gate_lines(given[:2], shift - 1800) if "counts" in line
    ]
    group([*earlier, *cut, *gate_lines(given, shift)])
    report = acceptance_from_log(local, "counted", 3600.0)
    assert report.dimensions == ("script",)
    assert report.slices[0].requests == 40
    assert report.notes == (
        "1 damaged line was left out",
        "before, the endpoint counted by format; that is left out",
    )


def test_an_endpoint_that_counts_nothing_says_what_to_do(local: Session) -> None:
    with pytest.raises(NotFound, match="its log has no counts by slice") as error:
        acceptance_from_log(local, "absent", 3600.0)
    assert "metrics.slices" in str(error.value.next_step)


def test_the_command_reads_a_file_without_aws(tmp_path: Path) -> None:
    path = tmp_path / "traffic.jsonl"
    path.write_text("".join(to_line(record) + "\n" for record in records(20)))
    request = ("acceptance", "demo", "--records", path)
    assert run(*request).exit_code == 9
    assert run(*request, "--format", "quiet").stdout == "script: han\n"
    other = run("acceptance", "other", *request[2:])
    assert other.exit_code == 4
    assert "has no request of endpoint 'other'; it has those of demo" in other.stderr
    in_s3 = run("acceptance", "demo", "--records", "s3://traffic/team")
    assert in_s3.exit_code == 5, "only S3 and the log need a region"


def test_sums_of_a_request_have_no_spread() -> None:
    assert Sums.of_request(30, 60).residual2 == 0
