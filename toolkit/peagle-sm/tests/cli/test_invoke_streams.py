"""`peagle-sm invoke` on streams that fail, and on what an answer holds beside its text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.local.serving import Server

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def name(server: Server) -> str:
    return server.deploy()


def _body(folder: Path, **script: Any) -> str:
    file = folder / "body.json"
    file.write_text(json.dumps({"prompt": "x", "script": script}))
    return str(file)


def test_a_stream_that_stalls_is_exit_code_9_with_the_text_so_far(
    peagle: Run, name: str, tmp_path: Path
) -> None:
    body = _body(tmp_path, SCRIPT_INVOKE="stall", SCRIPT_CHUNKS=2, SCRIPT_STALL=6)
    shown = peagle("invoke", name, "--body", body, "--timeout", "2")
    assert (shown.exit_code, shown.stdout) == (6, "token0 token1 \n")
    assert "error: The stream" in shown.stderr
    document = json.loads(peagle("invoke", name, "--body", body, "--timeout", "2", "--format", "json").stderr)
    assert (document["error"]["type"], document["error"]["exit_code"]) == ("StreamStalled", 6)
    assert document["error"]["details"]["partial_text"] == "token0 token1 "
    assert document["error"]["details"]["total_timeout_s"] == 2


def test_times_are_those_of_a_stream(peagle: Run, name: str) -> None:
    result = peagle("invoke", name, "-p", "x", "--no-stream", "--timeout", "5")
    assert result.exit_code == 2
    assert "--no-stream cannot be used with --timeout" in result.stderr
    assert peagle("invoke", name, "-p", "x", "--timeout", "0").exit_code == 2


def test_a_prompt_of_a_dash_is_read_from_stdin(peagle: Run, name: str) -> None:
    request = peagle("invoke", name, "-p", "-", "--no-stream", "--format", "json", stdin="def f():")
    assert "def f():" in request.output, "the scripted engine gives back what it was sent"
    empty = peagle("invoke", name, "-p", "-", stdin="")
    assert (empty.exit_code, "no prompt was given" in empty.stderr) == (2, True)


def test_tool_calls_and_thoughts_are_told(peagle: Run, name: str, tmp_path: Path) -> None:
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city": "Köln"}'},
    }
    message = {"content": None, "reasoning": "hm", "tool_calls": [call]}
    answer = json.dumps({"choices": [{"message": message, "finish_reason": "tool_calls"}]})
    body = _body(tmp_path, SCRIPT_INVOKE="status:200", SCRIPT_BODY=answer)
    shown = peagle("invoke", name, "--body", body, "--no-stream")
    assert shown.stdout == '\nget_weather({"city": "Köln"})\n', shown.stderr
    document = json.loads(peagle("invoke", name, "--body", body, "--no-stream", "--format", "json").stdout)
    assert document["tool_calls"] == [{"id": "c1", "name": "get_weather", "arguments": '{"city": "Köln"}'}]
    assert (document["text"], document["reasoning"]) == ("", "hm")


def test_all_answers_and_their_log_probabilities_are_printed(peagle: Run, name: str, tmp_path: Path) -> None:
    tops = {"tokens": ["a"], "token_logprobs": [-0.5], "top_logprobs": [{"a": -0.5, "b": -1.5}]}
    answer = json.dumps(
        {
            "choices": [
                {"index": 0, "text": "first", "finish_reason": "stop", "logprobs": tops},
                {"index": 1, "text": "second", "finish_reason": "length"},
            ],
            "usage": {"prompt_tokens": 1, "completion_tokens": 9, "total_tokens": 10},
        }
    )
    body = _body(tmp_path, SCRIPT_INVOKE="status:200", SCRIPT_BODY=answer)
    shown = peagle("invoke", name, "--body", body, "--no-stream")
    assert shown.stdout == "[answer 1 of 2]\nfirst\n[answer 2 of 2]\nsecond\n"
    assert "9 tokens" in shown.stderr
    document = json.loads(peagle("invoke", name, "--body", body, "--no-stream", "--format", "json").stdout)
    assert document["text"] == "first"
    assert [(each["text"], each["finish_reason"]) for each in document["choices"]] == [
        ("first", "stop"),
        ("second", "length"),
    ]
    assert document["logprobs"] == [
        {
            "token": "a",
            "logprob": -0.5,
            "bytes": None,
            "top_logprobs": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -1.5}],
        }
    ]


def test_a_misspelt_field_of_a_body_is_exit_code_2(peagle: Run, name: str, tmp_path: Path) -> None:
    file = tmp_path / "b.json"
    file.write_text('{"prompt": "x", "max_tokns": 3}')
    result = peagle("invoke", name, "--body", str(file))
    assert result.exit_code == 2
    assert "no field 'max_tokns' and would ignore it; did you mean 'max_tokens'?" in result.stderr


def test_a_list_of_prompts_is_one_answer_each_or_none(peagle: Run, name: str, tmp_path: Path) -> None:
    """A stream would mix them, so it is refused before it is sent; without a stream all of them come."""
    choices = [{"index": place, "text": text, "finish_reason": "stop"} for place, text in enumerate("ab")]
    script = {"SCRIPT_INVOKE": "say", "SCRIPT_BODY": json.dumps({"choices": choices})}
    body = tmp_path / "body.json"
    body.write_text(json.dumps({"prompt": ["def add(a, b):", "class Foo:"], "script": script}))
    streamed = peagle("invoke", name, "--body", str(body))
    assert (streamed.exit_code, streamed.stdout) == (2, "")
    assert "a stream has one answer: found 2 prompts and n=1; allowed: one prompt" in streamed.stderr
    assert "--no-stream" in streamed.stderr
    whole = peagle("invoke", name, "--body", str(body), "--no-stream", "--format", "json")
    document = json.loads(whole.stdout)
    assert [choice["text"] for choice in document["choices"]] == ["a", "b"]
