"""Prompts of one's own: bodies, batches, captures, salts and rounds; and every way to write them wrong."""

from __future__ import annotations

import base64
import gzip
import json
import lzma
import re
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from peagle_bench.workloads import load_workload, rounds, salted
from peagle_sm.core.errors import SpecError

CHAT = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0.7, "max_tokens": 9}


def lines(path: Path, *rows: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def captured(body: Any, event: str, encoding: str = "JSON", mode: str = "endpointInput") -> dict[str, Any]:
    data = body if isinstance(body, str) else json.dumps(body)
    if encoding == "BASE64":
        data = base64.b64encode(data.encode()).decode()
    answer = {"observedContentType": "application/json", "mode": "INPUT", "data": data, "encoding": encoding}
    return {"captureData": {mode: answer}, "eventMetadata": {"eventId": event}, "eventVersion": "0"}


def test_bodies_stay_as_they_were_written(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "mine.jsonl",
        {**CHAT, "id": "a", "category": "greeting", "stream": False},
        {"prompt": "def f():"},
        {"custom_id": "c", "body": {**CHAT, "id": "kept: it is the body's own"}},
        {"turns": ["one", "two"], "id": "d"},
    )
    by_name = {item.prompt_id: item for item in load_workload(str(path)).items}
    assert by_name.keys() == {"a", "line/00002", "c", "d"}
    assert by_name["a"].body == CHAT
    assert by_name["a"].category == "greeting"
    assert by_name["line/00002"].body == {"prompt": "def f():", "max_tokens": 256}
    assert "id" in by_name["c"].body
    assert by_name["d"].then is not None


def test_limits_are_changed_only_when_asked(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "m.jsonl",
        {**CHAT, "id": "a"},
        {"messages": CHAT["messages"], "max_completion_tokens": 5, "id": "b"},
    )
    assert load_workload(str(path)).temperature is None
    workload = load_workload(str(path), max_tokens=3, temperature=0.0, extra={"return_token_ids": True})
    assert workload.temperature == 0.0
    assert sorted(item.body.get("max_tokens", 0) for item in workload.items) == [0, 3]
    assert {item.body.get("max_completion_tokens") for item in workload.items} == {None, 3}
    assert all(item.body["return_token_ids"] for item in workload.items)


@pytest.mark.parametrize(
    ("rows", "expected"),
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
        ([CHAT, {"turns": ["FULL BENCHMARK DATA SHOULD BE FETCHED"]}], "1 of 2 lines are placeholders"),
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
            "found the field 'label', which the engine ignores; did you",
        ),
        ([{"Custom_ID": "x", "body": CHAT}], "did you mean 'custom_id'?"),
    ],
)
def test_a_wrong_file_is_told_with_its_line(tmp_path: Path, rows: list[Any], expected: str) -> None:
    with pytest.raises(SpecError) as raised:
        load_workload(str(lines(tmp_path / "wrong.jsonl", *rows)))
    assert expected in raised.value.message
    assert "wrong.jsonl" in raised.value.message
    assert raised.value.next_step


def test_a_field_of_one_s_own_stays_in_the_body(tmp_path: Path) -> None:
    own = [{**CHAT, name: "x"} for name in ("idx", "subcategory", "customer_id", "label_ids", "categories")]
    path = lines(tmp_path / "m.jsonl", *own, {"body": {**CHAT, "label": "x"}})
    rows = [item.body for item in load_workload(str(path)).items]
    assert sorted(rows, key=str) == sorted([*own, {**CHAT, "label": "x"}], key=str)
    beside = load_workload(str(lines(tmp_path / "b.jsonl", {**CHAT, "labels": {"team": "a"}, "label": 1})))
    assert beside.items[0].labels == {"team": "a"}


def test_capture_is_known_by_its_lines_and_read_with_its_directories(tmp_path: Path) -> None:
    root = tmp_path / "capture"
    lines(root / "AllTraffic/2026/11/20/13/a.jsonl", captured(CHAT, "e1"), captured(CHAT, "e2", "BASE64"))
    packed = json.dumps(captured({"prompt": "x"}, "e3")) + "\n" + json.dumps(captured(CHAT, "e1"))
    (root / "AllTraffic/2026/11/20/13/b.jsonl.gz").write_bytes(gzip.compress(packed.encode()))
    lines(root / "AllTraffic/2026/11/20/14/c.jsonl", captured("1,2,3", "e4", "CSV"))
    workload = load_workload(str(root))
    assert {item.prompt_id for item in workload.items} == {"capture/e1", "capture/e2", "capture/e3"}
    assert "1 recorded line has no request to send" in workload.notes[0]
    assert workload.source == "capture (3 files)"
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


def test_a_salt_goes_into_every_turn_and_contains_the_bodys_own(tmp_path: Path) -> None:
    path = lines(tmp_path / "m.jsonl", {"turns": ["one", "two"]}, {**CHAT, "cache_salt": "theirs"})
    items = sorted(load_workload(str(path)).items, key=lambda item: item.prompt_id)
    first, own = (salted(item, "c=8") for item in items)
    assert first.then is not None
    second = first.then("yes")
    assert second is not None
    assert second.body["cache_salt"] == first.body["cache_salt"] != own.body["cache_salt"] != "theirs"


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


ASKED = {"role": "user", "content": "hi"}
ANSWER = {"role": "assistant", "content": "hello"}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function"}]}
RESULT = {"role": "tool", "tool_call_id": "1", "content": "7"}
SYSTEM = {"role": "system", "content": "be brief"}


@pytest.mark.parametrize(
    ("messages", "kept"),
    [
        ([ASKED, ANSWER], [ASKED]),
        ([SYSTEM, ASKED, ANSWER, ANSWER], [SYSTEM, ASKED]),
        ([ASKED, ANSWER, ASKED, ANSWER], [ASKED, ANSWER, ASKED]),
        ([ASKED, CALL], [ASKED]),
        ([ASKED, CALL, RESULT, ANSWER], [ASKED, CALL, RESULT]),
        ([ASKED, CALL, RESULT], [ASKED, CALL, RESULT]),
        ([ASKED, ANSWER, ASKED], [ASKED, ANSWER, ASKED]),
    ],
)
def test_the_answer_at_the_end_of_a_chat_is_left_out_and_counted(
    tmp_path: Path, messages: list[Any], kept: list[Any]
) -> None:
    path = lines(tmp_path / "sft.jsonl", {"messages": messages, "max_tokens": 9}, CHAT)
    workload = load_workload(str(path))
    assert kept in [item.body["messages"] for item in workload.items]
    assert any("1 of 2 chats end with the assistant's answer" in note for note in workload.notes) == (
        kept != messages
    )
    assert len(workload.notes) == (kept != messages)


@pytest.mark.parametrize("setting", [{"continue_final_message": True}, {"add_generation_prompt": False}])
def test_an_answer_that_is_to_be_continued_stays(tmp_path: Path, setting: dict[str, bool]) -> None:
    body = {"messages": [ASKED, ANSWER], "max_tokens": 9, **setting}
    workload = load_workload(str(lines(tmp_path / "m.jsonl", {"custom_id": "a", "body": body})))
    assert (workload.items[0].body, workload.notes) == (body, ())


def test_recorded_traffic_stays_as_it_was_sent(tmp_path: Path) -> None:
    body = {"messages": [ASKED, ANSWER], "max_tokens": 9}
    workload = load_workload(str(lines(tmp_path / "c.jsonl", captured(body, "e1"))))
    assert (workload.items[0].body, workload.notes) == (body, ())


LENGTHS = (
    "output_tokens output_len output_length max_new_tokens max_output_tokens expected_output_len osl"
    " max_completion_length max_length response_length gen_len max_gen_len n_predict num_predict"
    " max_tokens_to_sample maxTokens maxOutputTokens maxTokenCount completion_tokens OSL max-new-tokens"
    " request_output_len tok_output_length max_gen_toks max_tok out_tokens outlen output_seq_len num_generate"
)


@pytest.mark.parametrize("name", LENGTHS.split(" "))
def test_another_tool_s_length_is_refused_with_its_line(tmp_path: Path, name: str) -> None:
    row = {"prompt": "x"}
    rows = [
        {**row, name: 24},
        {**row, name: "24"},
        {"messages": [ASKED], name: 24},
        {"custom_id": "a", "body": {**row, name: 24}},
        {"custom_id": "a", "body": row, name: 24},
        {"turns": ["one", "two"], name: 24},
    ]
    for wrong in rows:
        with pytest.raises(SpecError, match="line 2") as raised:
            load_workload(str(lines(tmp_path / "m.jsonl", {**row, "max_tokens": 3}, wrong)))
        assert name in raised.value.message
        assert "write max_tokens" in (raised.value.next_step or "")


def test_a_completion_has_no_max_completion_tokens(tmp_path: Path) -> None:
    wrong = lines(tmp_path / "m.jsonl", {"prompt": "x", "max_completion_tokens": 24})
    with pytest.raises(SpecError, match="max_completion_tokens"):
        load_workload(str(wrong))
    recorded = lines(tmp_path / "c.jsonl", captured({"prompt": "x", "max_completion_tokens": 24}, "e1"))
    assert load_workload(str(recorded)).items[0].body["max_tokens"] == 256


def test_a_body_without_a_limit_gets_the_default_and_a_note_says_so(tmp_path: Path) -> None:
    own = {"prompt": "x", "prompt_tokens": 7, "input_len": 7, "max_seq_len": 9, "completion": "y"}
    path = lines(tmp_path / "m.jsonl", own, {"prompt": "y", "max_tokens": 3, "output_tokens": 3})
    workload = load_workload(str(path))
    assert sorted(item.body["max_tokens"] for item in workload.items) == [3, 256]
    (note,) = workload.notes
    assert note.startswith("1 of 2 request bodies have no max_tokens: they get 256")
    assert "--max-tokens" in note
    given = load_workload(str(path), max_tokens=5)
    assert ([item.body["max_tokens"] for item in given.items], given.notes) == ([5, 5], ())
    turns = lines(tmp_path / "t.jsonl", {"turns": ["one", "two"]}, {"prompt": "x"})
    free = load_workload(str(turns), default_max_tokens=None)
    assert (["max_tokens" in item.body for item in free.items], free.notes) == ([False, False], ())
    recorded = load_workload(str(lines(tmp_path / "c.jsonl", captured({"prompt": "x"}, "e1"))))
    assert recorded.items[0].body == {"prompt": "x", "max_tokens": 256}
    assert recorded.notes


def test_null_is_a_field_that_is_not_set(tmp_path: Path) -> None:
    nulls = dict.fromkeys(("n", "best_of", "temperature", "seed", "stop", "max_completion_tokens", "tools"))
    rows = [
        {**CHAT, **nulls, "prompt": None, "id": None, "category": None, "labels": None, "turns": None},
        {"custom_id": None, "body": {**CHAT, **nulls}},
        {**CHAT, "body": None, "conversation": None, "conversations": None},
    ]
    by_name = {item.prompt_id: item for item in load_workload(str(lines(tmp_path / "m.jsonl", *rows))).items}
    assert sorted(by_name) == ["line/00001", "line/00002", "line/00003"]
    cool = {name: value for name, value in CHAT.items() if name != "temperature"}
    assert [by_name[name].body for name in sorted(by_name)] == [cool, cool, CHAT]
    assert {item.category for item in by_name.values()} == {None}


@pytest.mark.parametrize(
    ("content", "expected", "next_step"),
    [
        ('{"prompt": [{"role": "user", "content": "hi"}]}', "prompt is a chat", "write it as messages"),
        ('{"messages": []}', "messages without content", "one per line"),
        ('{"prompt": "x", "n": "1"}', "n: found '1'; allowed: 1", "leave n out"),
        ('{"prompt": "x", "n": 0}', "n: found 0; allowed: 1", "leave n out"),
        ('{"prompt": [1.5, 2.0]}', "prompt: found [1.5, 2.0]", "write"),
        ('{"prompt": "x", "temprature": 1}', "did you mean 'temperature'?", 'write "temperature"'),
        ('{"body": {"prompt": "x", "top-p": 1}}', "did you mean 'top_p'?", 'write "top_p"'),
        ('{"prompt": "x", "nvext": {"guided_json": {}}}', "ignores 'nvext'", "remove it"),
        ('{"prompt": "x", "guided_options_request": {"a": 1}}', "structured_outputs", "remove it"),
        ('{"prompt": "x", "generationConfig": {"maxOutputTokens": 9}}', "max_tokens", "remove it"),
        ('{"prompt": "x", "inferenceConfig": {"maxTokens": 9}}', "max_tokens", "remove it"),
        (
            '{"messages": [{"role": "user", "content": "a"}, {"role": "Assistant", "content": "b"}]}',
            "found the role 'Assistant'",
            '"role": "assistant"',
        ),
        ('{"messages": [{"role": "human", "content": "a"}]}', "found the role 'human'", '"role": "user"'),
        ('{"prompt": ""}', "prompt without content", "one per line"),
        ('{"conversation": [{"role": "user", "content": "hi"}]}', "conversation is an id", "messages"),
        ('{\n  "prompt": "x"\n}\n', "line 1: not JSON", "jq -c . FILE"),
        ("prompt,max_tokens\nhi,5\n", "line 1: not JSON", "JSON lines"),
        ('[\n  {"prompt": "x"},\n  {"prompt" "y"}\n]\n', "line 3: not JSON", "correct the array"),
        ('[{"prompt": "x", "max_tokens": 5}, {"text": "y"}]', "entry 2", "one per line"),
    ],
)
def test_the_reason_is_the_right_one(tmp_path: Path, content: str, expected: str, next_step: str) -> None:
    path = tmp_path / "wrong.jsonl"
    path.write_text(content)
    with pytest.raises(SpecError) as raised:
        load_workload(str(path))
    assert expected in raised.value.message
    assert next_step in (raised.value.next_step or "")


def test_fields_of_one_s_own_and_harmless_values_are_not_refused(tmp_path: Path) -> None:
    rows = [
        {"prompt": "x", "n": 1.0, "nvext": {}, "num_tokens": 9, "topic": "a", "users": 3, "steps": 2},
        {"messages": [ASKED, {"role": "tool", "tool_call_id": "a", "content": "1"}], "stop_reason": "eos"},
        {"messages": [{"role": "developer", "content": "x"}, ASKED], "response": "y", "tool": "z"},
    ]
    assert len(load_workload(str(lines(tmp_path / "own.jsonl", *rows))).items) == len(rows)


def test_one_prompt_in_a_list_is_one_prompt_and_an_array_of_bodies_is_read(tmp_path: Path) -> None:
    path = tmp_path / "array.json"
    path.write_text(json.dumps([{"prompt": ["x"], "max_tokens": 5}, {"prompt": [[7, 8]]}, CHAT], indent=1))
    by_name = {item.prompt_id: item.body for item in load_workload(str(path)).items}
    assert by_name["line/00001"] == {"prompt": "x", "max_tokens": 5}
    assert by_name["line/00002"]["prompt"] == [7, 8]
    assert by_name["line/00003"] == CHAT


def said_by(*messages: tuple[str, str], **more: Any) -> dict[str, Any]:
    return {"conversations": [{"from": role, "value": text} for role, text in messages], **more}


def test_sharegpt_is_read_as_the_user_s_turns(tmp_path: Path) -> None:
    rows = [
        said_by(("system", "be brief"), ("human", "one"), ("gpt", "no"), ("human", "two"), id="a"),
        said_by(("user", "three"), ("assistant", "no"), id="b", max_tokens=7, temperature=0.5),
        {"conversations": [{"role": "user", "content": "four"}], "id": "c", "system": "in verse"},
        said_by(("gpt", "only the model"), id="d"),
        {"conversations": [], "id": "e"},
    ]
    path = tmp_path / "sharegpt.json"
    path.write_text(json.dumps(rows))
    workload = load_workload(str(path))
    by_name = {item.prompt_id: item for item in workload.items}
    assert sorted(by_name) == ["a", "b", "c"]
    assert any("2 of 5 conversations have no message of the user" in note for note in workload.notes)
    first = by_name["a"]
    assert first.body["messages"] == [SYSTEM, {"role": "user", "content": "one"}]
    assert (first.turn, first.body["max_tokens"], first.body["temperature"]) == (0, 256, 0.0)
    assert first.then is not None
    second = first.then("its own")
    assert second is not None
    assert second.then is None
    assert (second.turn, [each["content"] for each in second.body["messages"]]) == (
        1,
        ["be brief", "one", "its own", "two"],
    )
    assert (by_name["b"].body["max_tokens"], by_name["b"].body["temperature"]) == (7, 0.5)
    assert [each["role"] for each in by_name["c"].body["messages"]] == ["system", "user"]
    lined = load_workload(str(lines(tmp_path / "sharegpt.jsonl", *rows)))
    assert {item.prompt_id: item.body for item in lined.items} == {
        name: item.body for name, item in by_name.items()
    }


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (said_by(("human", "a"), ("function_call", "{}"), ("observation", "7")), "function_call"),
        (said_by(("human", "a"), ("tool", "7")), "'tool'"),
        (said_by(("human", "a"), ("system", "b")), "a system message after the first"),
        (said_by(("human", "a"), tools="[{}]"), "tools"),
        ({"conversations": ["a"]}, "a list of objects"),
        ({"conversations": [{"from": "human", "value": None}]}, "found None of human"),
    ],
)
def test_sharegpt_with_more_than_messages_is_refused_with_the_line(
    tmp_path: Path, row: dict[str, Any], expected: str
) -> None:
    with pytest.raises(SpecError, match="line 2") as raised:
        load_workload(str(lines(tmp_path / "m.jsonl", said_by(("human", "fine")), row)))
    assert expected in raised.value.message
    assert raised.value.next_step


BODIES = "".join(json.dumps({"prompt": f"def f{n}():", "max_tokens": 8}) + "\n" for n in range(9))


@pytest.mark.parametrize(
    "encoding", ["utf-16", "utf-16le", "utf-16be", "utf-32", "utf-32le", "utf-32be", "utf-8-sig"]
)
def test_text_of_another_encoding_is_named_and_the_advice_makes_it_readable(
    tmp_path: Path, encoding: str
) -> None:
    path = tmp_path / "m.jsonl"
    path.write_bytes(BODIES.encode(encoding))
    if encoding != "utf-8-sig":
        with pytest.raises(SpecError) as raised:
            load_workload(str(path))
        advised = re.search(r"iconv -f (\S+) -t utf-8", raised.value.next_step or "")
        assert advised is not None
        assert advised[1] == encoding
        path.write_bytes(path.read_bytes().decode(advised[1]).encode())
    assert len(load_workload(str(path)).items) == 9


#: A text in a tar archive: its header is 512 bytes, most of them zero.
TAR = b"m.jsonl" + bytes(505) + BODIES.encode()


@pytest.mark.parametrize(
    "content",
    [
        b"PAR1\x15\x04\x15\x10\x15\x14" + bytes(50) + b"PAR1",
        b"PK\x03\x04" + bytes(30) + BODIES.encode(),
        lzma.compress(BODIES.encode()),
        TAR,
        gzip.compress(TAR, mtime=0),  # a time in it would be a name that each process has anew
        b"SQLite format 3\0" + bytes(50),
    ],
)
def test_a_binary_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_bytes(content)
    with pytest.raises(SpecError, match="is a binary file; allowed: UTF-8") as raised:
        load_workload(str(path))
    assert "JSON lines" in str(raised.value.next_step)
