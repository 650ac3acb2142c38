"""`peagle-sm chat` from a pipe, against a scripted engine: what is sent, printed, kept and retried."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sagemaker_local.process import client
from tests.cli.conftest import Run
from tests.local.serving import Server

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def endpoint(server: Server) -> str:
    return server.deploy(SCRIPT_INVOKE="chat", SCRIPT_CHUNKS="3")


@pytest.fixture
def fault(server: Server, endpoint: str) -> Iterator[Any]:
    """Sets a fault on the endpoint for one request."""

    def add(kind: str, **options: Any) -> None:
        told = {"kind": kind, "endpoint": endpoint, "times": 1, **options}
        client.add_fault(server.status.port, told)

    yield add
    client.clear_faults(server.status.port)


def turns(stdout: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stdout.splitlines()]


ANSWER = "token0 token1 token2 "


def test_each_line_of_a_pipe_is_a_turn(peagle: Run, endpoint: str) -> None:
    result = peagle("chat", endpoint, stdin="one\n\ntwo\n")
    assert (result.exit_code, result.stdout) == (0, f"{ANSWER}\n{ANSWER}\n")
    lines = result.stderr.splitlines()
    assert lines[0] == f"{endpoint} (InService; unknown; no cost)"
    assert lines[1].startswith("small stand-in weights")
    assert lines[2].startswith("(3 tokens · ")
    assert lines[2].endswith(" · context 10 tokens · stopped by its token limit)")
    assert lines[-1].startswith("2 turns, 6 tokens in ")


def test_an_answer_without_figures_prints_no_empty_brackets(peagle: Run, server: Server) -> None:
    name = server.deploy(SCRIPT_INVOKE="sse", SCRIPT_CHUNKS="3")
    result = peagle("chat", name, stdin="one\n")
    assert result.exit_code == 0
    assert "()" not in result.stderr


def test_with_json_each_turn_is_an_object(peagle: Run, endpoint: str) -> None:
    script = '"""\ndef add(a, b):\n    return\n"""\na line that \\\ngoes on\n/exit\nnever said\n'
    result = peagle("chat", endpoint, "--format", "json", stdin=script)
    assert result.exit_code == 0
    first, second = turns(result.stdout)
    assert first["user"] == "def add(a, b):\n    return"
    assert second["user"] == "a line that \ngoes on"
    assert (first["turn"], second["turn"]) == (1, 2)
    assert first["assistant"] == ANSWER
    assert first["complete"]
    assert first["summary"]["output_tokens"] == 3
    assert first["spent_usd"] == 0
    assert first["stand_in_weights"] is True
    assert first["error"] is None


def test_what_is_saved_is_what_was_said(peagle: Run, endpoint: str, in_empty_folder: Path) -> None:
    script = "/system Be brief.\none\n/save talk.json\n/save talk.json\n/reset\n//two\n/save rest.json\n"
    result = peagle("chat", endpoint, stdin=script)
    assert result.exit_code == 0
    assert "talk.json already exists and was not changed" in result.stderr
    system = {"role": "system", "content": "Be brief."}
    answer = {"role": "assistant", "content": ANSWER}
    saved = json.loads((in_empty_folder / "talk.json").read_text())
    assert saved == [system, {"role": "user", "content": "one"}, answer]
    rest = json.loads((in_empty_folder / "rest.json").read_text())
    assert rest == [system, {"role": "user", "content": "/two"}, answer]
    again = peagle("invoke", endpoint, "--messages", "talk.json")
    assert again.exit_code == 0


def test_a_stream_that_breaks_ends_a_script_with_its_error_and_the_part_is_shown(
    peagle: Run, endpoint: str, fault: Any
) -> None:
    fault("stream-error", after_events=2)
    result = peagle("chat", endpoint, "--format", "json", stdin="one\ntwo\n")
    assert result.exit_code == 9
    (turn,) = turns(result.stdout)
    assert (turn["assistant"], turn["complete"]) == ("token0 token1 ", False)
    assert turn["error"]["message"]
    assert json.loads(result.stderr.splitlines()[-1])["error"]["exit_code"] == 9


def test_retry_asks_again_in_place_of_the_part(
    peagle: Run, endpoint: str, fault: Any, in_empty_folder: Path
) -> None:
    fault("cut", where="event", clean=True, after_events=1)
    result = peagle("chat", endpoint, stdin="one\n/retry\n/retry\n/save talk.json\n")
    assert (result.exit_code, result.stdout) == (0, f"token0 \n{ANSWER}\n{ANSWER}\n")
    saved = json.loads((in_empty_folder / "talk.json").read_text())
    assert [message["content"] for message in saved] == ["one", ANSWER]


def test_a_refusal_of_the_service_is_told_and_can_be_retried(peagle: Run, endpoint: str, fault: Any) -> None:
    fault("model-error", status=400, message="no such field")
    result = peagle("chat", endpoint, stdin="one\n/retry\n", environ={})
    assert (result.exit_code, result.stdout) == (0, f"{ANSWER}\n")


_TOO_LONG = "This model's maximum context length is 40 tokens. However, your request has 50 input tokens."


def test_a_conversation_that_is_too_long_loses_its_oldest_turn_and_says_so(
    peagle: Run, server: Server, endpoint: str, fault: Any
) -> None:
    fault("split", operation="stream")  # the first turn passes
    fault("model-error", status=400, message=json.dumps({"error": {"message": _TOO_LONG}}))
    result = peagle("chat", endpoint, "--format", "json", stdin="one\ntwo\nthree\n")
    assert result.exit_code == 0
    assert [turn["turns_left_out"] for turn in turns(result.stdout)] == [0, 1, 1]
    assert "its oldest turn is no longer sent" in result.stderr


def test_with_keep_all_it_refuses(peagle: Run, endpoint: str, fault: Any) -> None:
    fault("split", operation="stream")
    fault("model-error", status=400, message=json.dumps({"error": {"message": _TOO_LONG}}))
    result = peagle("chat", endpoint, "--keep-all", stdin="one\ntwo\n")
    assert (result.exit_code, result.stdout) == (2, f"{ANSWER}\n")
    assert "maximum context length is 40 tokens" in result.stderr


def test_a_question_that_is_too_long_by_itself_drops_nothing(peagle: Run, endpoint: str, fault: Any) -> None:
    fault("split", operation="stream")
    for _ in range(2):
        fault("model-error", status=400, message=json.dumps({"error": {"message": _TOO_LONG}}))
    result = peagle("chat", endpoint, "--format", "json", stdin="one\ntwo\n")
    assert result.exit_code == 2
    assert turns(result.stdout)[-1]["turns_left_out"] == 0


def test_commands_that_are_wrong_are_told_and_the_chat_goes_on(peagle: Run, endpoint: str) -> None:
    lines = ["/temprature 1", "/temperature 9", "/temperature 0.5", "/max-tokens none", "/max-tokens 7"]
    result = peagle("chat", endpoint, stdin="\n".join([*lines, "/save", "/retry", "/help", ""]))
    assert (result.exit_code, result.stdout) == (0, "")
    expected = """\
unknown command /temprature; did you mean /temperature? /help lists commands; // begins a line with a slash
temperature: found '9'; allowed: 0 to 2, or off
(temperature: 0.5)
max-tokens: found 'none'; allowed: a whole number, 1 or more
(an answer has at most 7 tokens)
give a file name: /save FILE
there is no message to retry yet
  /help           Show this list.
  /reset          Delete the conversation; keep the system message.
  /system TEXT    Set the system message; `off` removes it; without TEXT, show it.
  /save FILE      Write the conversation as JSON messages, for `invoke --messages`.
  /temperature X  Set the sampling temperature; 0 is greedy, `off` the engine's default.
  /max-tokens N   Set the maximum output tokens per answer.
  /retry          Send the last message again and replace its answer.
  /exit           End the chat; Ctrl-D does the same.
  line\\           A backslash at the end continues on the next line.
  \"\"\"             Begins and ends a text of several lines.
  Ctrl-C          Stop the answer; keep the received part.
"""
    assert expected in result.stderr
    assert result.stderr.splitlines()[-1] == "0 turns, 0 tokens in 0s"


def test_an_endpoint_that_is_not_there(peagle: Run) -> None:
    assert peagle("chat", "nobody", stdin="one\n").exit_code == 4
