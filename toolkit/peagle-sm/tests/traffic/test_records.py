"""The format of recorded traffic: what is written is read back, and anything else is refused by line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from peagle_bench.benchmark.acceptance import from_requests
from peagle_bench.workloads import load_workload
from peagle_sm.core.errors import SpecError
from peagle_sm.traffic.reading import Traffic, read
from peagle_sm.traffic.records import TrafficRecord, from_line, to_line
from tests.traffic.samples import CHAT, RECORDS, line, record


@given(RECORDS)
def test_a_record_is_one_line_and_is_read_back(written: TrafficRecord) -> None:
    text = to_line(written)
    assert "\n" not in text
    assert from_line(text.encode()) == written


def test_half_a_character_is_written_as_none() -> None:
    text = to_line(record(request={"prompt": "a\ud83d!"}))
    assert from_line(text.encode()).request == {"prompt": "a\ufffd!"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"schema": "peagle-sm/traffic/2"}, "this version reads peagle-sm/traffic/1"),
        ({"schema": None}, "this version reads"),
        ({"surprise": 1}, "surprise"),
        ({"id": None}, "id: expected str"),
        ({"time": "now"}, "time: expected float"),
        ({"drafts": -1}, "drafts"),
        ({"histogram": [1, -1]}, "histogram"),
        ({"sample": 0}, "sample"),
        ({"outcome": "good"}, "outcome: expected one of"),
        ({"answers": [{"text": "x"}]}, "the field 'index' is missing"),
        ({"slices": {"script": 3}}, "slices"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, Any], says: str) -> None:
    value = {**json.loads(line()), **change}
    with pytest.raises(ValueError, match=says):
        from_line(json.dumps(value))


@given(st.binary(max_size=60) | RECORDS.map(lambda one: to_line(one).encode()[: len(to_line(one)) // 2]))
def test_no_other_bytes_are_a_record(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        from_line(raw)


def test_acceptance_of_records_is_that_of_requests() -> None:
    records = [
        record(1, drafts=10, drafted=40, accepted=15, histogram=(2, 3, 3, 2, 0)),
        record(2, drafts=5, drafted=20, accepted=0, histogram=(5, 0, 0, 0, 0)),
        record(3),
    ]
    result = from_requests(records)
    assert result is not None
    assert (result.drafts, result.accepted, result.per_step) == (15, 15, 2.0)
    assert records[0].acceptance_length == 2.5


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, 900), packed=st.booleans(), spoil=st.booleans())
def test_a_damaged_file_is_read_up_to_the_damage(cut: int, packed: bool, spoil: bool, tmp_path: Path) -> None:
    content = b"".join(line(number) for number in range(6))
    if spoil:
        content = content[:cut] + b"\x00\xff{" + content[cut:]
    content = gzip.compress(content, mtime=0) if packed else content
    path = tmp_path / ("t.jsonl.gz" if packed else "t.jsonl")
    path.write_bytes(content[: len(content) - (0 if spoil else cut % len(content))])
    result = whole_or_none(path)
    if result is None:
        return
    assert {one.id for one in result.records} <= {f"{number:032x}" for number in range(6)}
    assert len(result.records) == 6 or result.notes or not (spoil or packed)


def whole_or_none(path: Path) -> Traffic | None:
    """The traffic of a file; None if no line of it is readable."""
    try:
        return read(path)
    except SpecError:
        return None


def test_the_note_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(line(1) + line(2)[:50] + b"\n" + line(3) + line(4)[:-40])
    result = read(path)
    assert [one.id[-1] for one in result.records] == ["1", "3"]
    assert result.notes == (
        "2 places cannot be read (a writer may have been stopped, or still writes) and were left out; the "
        f"first: {path}, line 2: not a whole JSON line",
    )


def test_a_recorded_file_is_a_workload(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    labelled = {"label:team": "search", "api": "chat"}
    path.write_bytes(
        line(1, request={**CHAT, "model": "x", "stream": True}, slices=labelled)
        + line(1)
        + line(2, request={"prompt": None})
        + line(3, outcome="failed", error="no")
        + line(4, outcome="cut")[:-9]
    )
    workload = load_workload(str(path))
    assert [(item.prompt_id, item.body, item.labels) for item in workload.items] == [
        (f"traffic/{1:032x}", CHAT, {"team": "search"})
    ]
    assert len(workload.notes) == 2
    assert "2 recorded lines have no request to send" in workload.notes[1]


def test_a_recorded_label_with_a_thousand_values_keeps_the_20_most_frequent(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    users = [f"u{number}" for number in range(1000)] + ["u999", "other"]
    path.write_bytes(b"".join(line(n, slices={"label:user": user}) for n, user in enumerate(users)))
    workload = load_workload(str(path))
    values = [item.labels["user"] for item in workload.items]
    assert len(set(values)) == 21
    assert sorted(value for value in values if value == "u999") == ["u999", "u999"]
    assert values.count("other") == 1002 - 21
    (note,) = workload.notes
    assert note.startswith("the label 'user' has 1,000 values; the 20 most frequent are kept")


def test_what_a_recorder_bounded_is_a_workload(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"  # the recorder keeps 20 values, and writes the others as `other`
    users = [*(f"u{number}" for number in range(20)), "other"]
    path.write_bytes(b"".join(line(n, slices={"label:user": user}) for n, user in enumerate(users)))
    workload = load_workload(str(path))
    assert (sorted(item.labels["user"] for item in workload.items), workload.notes) == (sorted(users), ())


@pytest.mark.parametrize(
    "damaged", [{"captureData": "x"}, {"captureData": {"endpointInput": []}}, {"eventMetadata": 3}]
)
def test_a_damaged_line_of_data_capture_is_left_out(damaged: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    whole = {"captureData": {"endpointInput": {"data": json.dumps(CHAT), "encoding": "JSON"}}}
    path.write_text(f"{json.dumps(whole)}\n{json.dumps({'captureData': {}, **damaged})}\n")
    workload = load_workload(str(path))
    assert [item.body for item in workload.items] == [CHAT]
    assert "1 recorded line has no request to send" in workload.notes[0]


def test_a_recording_whose_only_line_is_cut_is_no_file_of_one_s_own(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(line(1)[:60])
    with pytest.raises(SpecError, match=r"has no prompts; 1 place cannot be read.*line 1: not a whole JSON"):
        load_workload(str(path))


def test_what_has_no_records_says_so(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(line(1)[:30])
    with pytest.raises(SpecError, match=r"has no recorded traffic; 1 place cannot be read"):
        read(path)
    with pytest.raises(SpecError, match="not found"):
        read(tmp_path / "gone.jsonl")
    with pytest.raises(SpecError, match="no AWS session"):
        read("s3://bucket/prefix")
