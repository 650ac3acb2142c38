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
    body = _body(tmp_path, SCRIPT_INVOKE="stall", SCRIPT_CHUNKS=2, SCRIPT_STALL=2)
    shown = peagle("invoke", name, "--body", body, "--read-timeout", "0.2")
    assert (shown.exit_code, shown.stdout) == (9, "token0 token1 \n")
    assert "error: The stream stalled: nothing came for 0.2 s." in shown.stderr
    told = json.loads(peagle("invoke", name, "--body", body, "--timeout", "0.2", "--format", "json").stderr)
    assert (told["error"]["type"], told["error"]["exit_code"]) == ("StreamStalled", 9)
    assert told["error"]["details"]["partial_text"] == "token0 token1 "
    assert told["error"]["details"]["total_timeout_s"] == 0.2


def test_times_are_those_of_a_stream(peagle: Run, name: str) -> None:
    result = peagle("invoke", name, "-p", "x", "--no-stream", "--timeout", "5")
    assert result.exit_code == 2
    assert "--timeout beside --no-stream" in result.stderr
    assert peagle("invoke", name, "-p", "x", "--read-timeout", "0").exit_code == 2


def test_a_prompt_of_a_dash_is_read_from_stdin(peagle: Run, name: str) -> None:
    asked = peagle("invoke", name, "-p", "-", "--no-stream", "--format", "json", stdin="def f():")
    assert "def f():" in asked.output, "the scripted engine gives back what it was sent"
    empty = peagle("invoke", name, "-p", "-", stdin="")
    assert (empty.exit_code, "no question was given" in empty.stderr) == (2, True)


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
    told = json.loads(peagle("invoke", name, "--body", body, "--no-stream", "--format", "json").stdout)
    assert told["tool_calls"] == [{"id": "c1", "name": "get_weather", "arguments": '{"city": "Köln"}'}]
    assert (told["text"], told["reasoning"]) == ("", "hm")
