"""Prompts of one's own: bodies, batches, captures, salts and rounds; and every way to write them wrong."""

from __future__ import annotations

import base64
import gzip
import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from peagle_sm.core.errors import SpecError
from peagle_sm.measure.workloads import load_workload, rounds, salted

CHAT = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0.7, "max_tokens": 9}


def lines(path: Path, *rows: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def captured(body: Any, event: str, encoding: str = "JSON", mode: str = "endpointInput") -> dict[str, Any]:
    data = body if isinstance(body, str) else json.dumps(body)
    if encoding == "BASE64":
        data = base64.b64encode(data.encode()).decode()
    told = {"observedContentType": "application/json", "mode": "INPUT", "data": data, "encoding": encoding}
    return {"captureData": {mode: told}, "eventMetadata": {"eventId": event}, "eventVersion": "0"}


def test_bodies_stay_as_they_were_written(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "mine.jsonl",
        {**CHAT, "id": "a", "category": "greeting", "stream": False},
        {"prompt": "def f():"},
        {"custom_id": "c", "body": {**CHAT, "id": "kept: it is the body's own"}},
        {"turns": ["one", "two"], "id": "d"},
    )
    found = {item.prompt_id: item for item in load_workload(str(path)).items}
    assert found.keys() == {"a", "line/00002", "c", "d"}
    assert found["a"].body == CHAT
    assert found["a"].category == "greeting"
    assert found["line/00002"].body == {"prompt": "def f():"}
    assert "id" in found["c"].body
    assert found["d"].then is not None


def test_limits_are_changed_only_when_asked(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "m.jsonl", {**CHAT, "id": "a"}, {"prompt": "x", "max_completion_tokens": 5, "id": "b"}
    )
    assert load_workload(str(path)).temperature is None
    found = load_workload(str(path), max_tokens=3, temperature=0.0, extra={"return_token_ids": True})
    assert found.temperature == 0.0
    assert sorted(item.body.get("max_tokens", 0) for item in found.items) == [0, 3]
    assert {item.body.get("max_completion_tokens") for item in found.items} == {None, 3}
    assert all(item.body["return_token_ids"] for item in found.items)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "has no prompts"),
        (["", "  "], "has no prompts"),
        (["{"], "line 1: not JSON"),
        (["[1]"], "line 1: found list"),
        ([CHAT, {"text": "hi"}], "line 2: found neither messages nor prompt (fields: text)"),
        ([{"messages": [], "prompt": ""}], "neither messages nor prompt"),
        ([{**CHAT, "prompt": "x"}], "messages and prompt"),
        ([{**CHAT, "n": 4}], "n requests several answers"),
        ([{"prompt": ["a", "b"]}], "prompt requests several answers"),
        ([{"turns": []}], "allowed: a list of one or more texts"),
        ([{"body": "x"}], "body is not a JSON object"),
        ([{"messages": "hi"}], "messages: found 'hi'; allowed: a list of objects, each with a role"),
        ([{"messages": ["hi"]}], "allowed: a list of objects, each with a role"),
        ([{"messages": [{"content": "hi"}]}], "allowed: a list of objects, each with a role"),
        ([{"prompt": 5}], "prompt: found 5; allowed: a text, or a list of token ids"),
        ([{**CHAT, "max_tokens": -5}], "max_tokens: found -5; allowed: a whole number from 1"),
        ([{**CHAT, "max_tokens": True}], "max_tokens: found True; allowed: a whole number from 1"),
        ([{**CHAT, "max_completion_tokens": "9"}], "max_completion_tokens: found '9'"),
        ([{**CHAT, "temperature": "hot"}], "temperature: found 'hot'; allowed: a number from 0"),
        ([{**CHAT, "temperature": -1}], "temperature: found -1; allowed: a number from 0"),
        ([{**CHAT, "id": "a"}, {**CHAT, "id": "a"}], "the id 'a' appears twice"),
        (
            [{**CHAT, "label": {"team": "a"}}],
            "found the field 'label', which would go to the engine; did you",
        ),
        ([{"Custom_ID": "x", "body": CHAT}], "did you mean 'custom_id'?"),
    ],
)
def test_a_wrong_file_is_told_with_its_line(tmp_path: Path, rows: list[Any], said: str) -> None:
    with pytest.raises(SpecError) as raised:
        load_workload(str(lines(tmp_path / "wrong.jsonl", *rows)))
    assert said in raised.value.message
    assert "wrong.jsonl" in raised.value.message
    assert raised.value.next_step


def test_a_field_of_one_s_own_stays_in_the_body(tmp_path: Path) -> None:
    own = [{**CHAT, name: "x"} for name in ("idx", "subcategory", "customer_id", "label_ids", "categories")]
    path = lines(tmp_path / "m.jsonl", *own, {"body": {**CHAT, "label": "x"}})
    found = [item.body for item in load_workload(str(path)).items]
    assert sorted(found, key=str) == sorted([*own, {**CHAT, "label": "x"}], key=str)
    beside = load_workload(str(lines(tmp_path / "b.jsonl", {**CHAT, "labels": {"team": "a"}, "label": 1})))
    assert beside.items[0].labels == {"team": "a"}


def test_capture_is_known_by_its_lines_and_read_with_its_directories(tmp_path: Path) -> None:
    root = tmp_path / "capture"
    lines(root / "AllTraffic/2026/11/20/13/a.jsonl", captured(CHAT, "e1"), captured(CHAT, "e2", "BASE64"))
    packed = json.dumps(captured({"prompt": "x"}, "e3")) + "\n" + json.dumps(captured(CHAT, "e1"))
    (root / "AllTraffic/2026/11/20/13/b.jsonl.gz").write_bytes(gzip.compress(packed.encode()))
    lines(root / "AllTraffic/2026/11/20/14/c.jsonl", captured("1,2,3", "e4", "CSV"))
    found = load_workload(str(root))
    assert {item.prompt_id for item in found.items} == {"capture/e1", "capture/e2", "capture/e3"}
    assert "1 recorded line has no request to send" in found.notes[0]
    assert found.source == "capture (3 files)"
    one = load_workload(str(root / "AllTraffic/2026/11/20/13/a.jsonl"))
    assert [item.body for item in one.items] == [CHAT, CHAT]


def test_captures_without_requests_are_refused(tmp_path: Path) -> None:
    path = lines(tmp_path / "out.jsonl", captured(CHAT, "e1", mode="endpointOutput"))
    with pytest.raises(SpecError, match="no captured input"):
        load_workload(str(path))
    (tmp_path / "empty").mkdir()
    with pytest.raises(SpecError, match="no capture file") as raised:
        load_workload(str(tmp_path / "empty"))
    assert "that was recorded" in (raised.value.next_step or "")
    with pytest.raises(SpecError):
        load_workload(str(tmp_path / "gone.jsonl"))


def test_a_broken_archive_is_told(tmp_path: Path) -> None:
    path = tmp_path / "broken.jsonl.gz"
    path.write_bytes(gzip.compress(b"{}" * 50)[:-8])
    with pytest.raises(SpecError, match="cannot be read"):
        load_workload(str(path))


def test_salt_goes_into_every_turn_and_never_over_one_s_own(tmp_path: Path) -> None:
    path = lines(tmp_path / "m.jsonl", {"turns": ["one", "two"]}, {**CHAT, "cache_salt": "theirs"})
    items = sorted(load_workload(str(path)).items, key=lambda item: item.prompt_id)
    first, own = (salted(item, "c=8") for item in items)
    assert first.body["cache_salt"] == "c=8"
    assert first.then is not None
    second = first.then("yes")
    assert second is not None
    assert second.body["cache_salt"] == "c=8"
    assert own.body["cache_salt"] == "theirs"


@pytest.mark.parametrize("salt", ["run/c=8", "2 req/s@x", "a\\b", "x" * 129, "y/" * 90])
def test_a_salt_is_one_that_vllm_takes(tmp_path: Path, salt: str) -> None:
    path = lines(tmp_path / "m.jsonl", {"turns": ["one", "two"]})
    sent = salted(load_workload(str(path)).items[0], salt).body["cache_salt"]
    assert 0 < len(sent) <= 128
    assert not set(sent) & set("@/\\\0")


def test_prompts_come_again_only_when_asked_and_never_out_of_the_cache(tmp_path: Path) -> None:
    path = lines(tmp_path / "m.jsonl", {**CHAT, "id": "a"}, {**CHAT, "id": "b"})
    items = [salted(item, "s") for item in load_workload(str(path)).items]
    assert list(rounds(items, repeat=False)) == items
    many = list(islice(rounds(items, repeat=True), 6))
    assert len({(item.prompt_id, item.body["cache_salt"]) for item in many}) == 6
    assert {item.prompt_id for item in many} == {f"{name}{n}" for name in "ab" for n in ("", "#2", "#3")}


def test_a_file_that_is_not_utf8_is_named_with_the_line_and_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "latin.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "a"}\n\n{"prompt": "caf\xe9"}\n')
    with pytest.raises(SpecError, match=r"latin\.jsonl, line 3: found byte 0xe9, which is not UTF-8"):
        load_workload(str(path))
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "a"}\n')
    assert [item.body["prompt"] for item in load_workload(str(path)).items] == ["a"]
