"""`peagle-sm chat` from a pipe, against a scripted engine: what is sent, printed and kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from peagle_sm.cli.base import State
from peagle_sm.cli.commands.endpoints.chat import Chat
from peagle_sm.core.errors import SpecError
from sagemaker_local.process import client
from tests.cli.conftest import Run
from tests.local.serving import Server

pytestmark = pytest.mark.slow
ANSWER = "token0 token1 token2 "


@pytest.fixture(scope="module")
def endpoint(server: Server) -> str:
    return server.deploy(SCRIPT_INVOKE="chat", SCRIPT_CHUNKS="3")


@pytest.fixture
def fault(server: Server, endpoint: str) -> Iterator[Any]:
    """Sets a fault on the endpoint for one request."""

    def add(kind: str, **options: Any) -> None:
        client.add_fault(server.status.port, {"kind": kind, "endpoint": endpoint, "times": 1, **options})

    yield add
    client.clear_faults(server.status.port)


def turns(stdout: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stdout.splitlines()]


def test_each_line_of_a_pipe_is_a_turn_with_its_figures(peagle: Run, endpoint: str) -> None:
    result = peagle("chat", endpoint, stdin="one\n\ntwo\n/quit\nthree\n")
    assert (result.exit_code, result.stdout) == (0, f"{ANSWER}\n{ANSWER}\n")
    lines = result.stderr.splitlines()
    assert lines[0] == f"{endpoint} (InService; unknown; no cost)"
    figures = [line for line in lines if line.startswith("(TTFT ")]
    assert len(figures) == 2
    assert " 3 tokens in " in figures[0]
    assert " tokens/s" in figures[0]
    assert lines[-1].startswith("2 turns, 6 tokens in ")


def test_quiet_prints_the_answers_alone(peagle: Run, endpoint: str) -> None:
    result = peagle("chat", endpoint, "--format", "quiet", stdin="one\n")
    assert (result.stdout, result.stderr) == (f"{ANSWER}\n", "")


def test_with_json_each_turn_is_an_object(peagle: Run, endpoint: str) -> None:
    result = peagle("chat", endpoint, "--format", "json", stdin="one\n /two\n")
    assert result.exit_code == 0
    first, second = turns(result.stdout)
    assert (first["user"], second["user"]) == ("one", "/two")
    assert (first["turn"], second["turn"]) == (1, 2)
    assert (first["assistant"], first["complete"], first["error"]) == (ANSWER, True, None)
    assert first["summary"]["output_tokens"] == 3
    assert (first["stand_in_weights"], first["figures_of"]) == (False, "a model on a CPU")


@pytest.mark.parametrize(
    ("kind", "options", "part", "exit_code"),
    [
        ("stream-error", {"after_events": 2}, "token0 token1 ", 6),
        ("model-error", {"status": 400, "message": "no such field"}, "", 2),
    ],
)
def test_a_failed_answer_ends_a_pipe_with_its_exit_code(
    peagle: Run, endpoint: str, fault: Any, kind: str, options: dict[str, Any], part: str, exit_code: int
) -> None:
    fault(kind, **options)
    result = peagle("chat", endpoint, "--format", "json", stdin="one\ntwo\n")
    assert result.exit_code == exit_code
    (turn,) = turns(result.stdout)
    assert (turn["assistant"], turn["complete"]) == (part, False)
    assert turn["error"]["message"]
    assert json.loads(result.stderr.splitlines()[-1])["error"]["exit_code"] == exit_code


def test_an_unknown_command_is_not_sent_and_the_chat_goes_on(peagle: Run, endpoint: str) -> None:
    result = peagle("chat", endpoint, stdin="/rest\n/help\none\n")
    assert (result.exit_code, result.stdout) == (0, f"{ANSWER}\n")
    assert "unknown command /rest. Commands: /reset, /help, /quit" in result.stderr
    assert "/reset  Delete the conversation" in result.stderr


def test_an_endpoint_that_does_not_exist(peagle: Run) -> None:
    assert peagle("chat", "nobody", stdin="one\n").exit_code == 4


class Recorder:
    """An endpoint that records what is sent, and fails on request."""

    def __init__(self) -> None:
        self.sent: list[list[str]] = []

    def stream(self, *, messages: list[dict[str, str]], **parameters: Any) -> Any:
        self.sent.append([message["content"] for message in messages])
        if messages[-1]["content"] == "fail":
            raise SpecError("too long", next_step="shorten it")
        return Stream(f"answer {len(self.sent)}", stops=messages[-1]["content"] == "stop")


class Stream:
    """A stream without chunks, whole or stopped by Ctrl-C."""

    summary = None

    def __init__(self, text: str, *, stops: bool) -> None:
        self.text = text
        self._stops = stops

    def __iter__(self) -> Iterator[Any]:
        if self._stops:
            raise KeyboardInterrupt
        return iter(())

    def close(self) -> None:
        """Nothing to close."""


def test_each_request_has_the_conversation_so_far(capsys: pytest.CaptureFixture[str]) -> None:
    recorder: Any = Recorder()
    lines = ["one", "stop", "fail", "two", "/reset", "three"]
    Chat(State(), recorder, "be brief", {}, target=None).run(iter(lines), interactive=True)
    assert recorder.sent == [
        ["be brief", "one"],
        ["be brief", "one", "answer 1", "stop"],
        ["be brief", "one", "answer 1", "stop", "answer 2", "fail"],
        ["be brief", "one", "answer 1", "stop", "answer 2", "two"],
        ["be brief", "three"],
    ]
    assert "error: too long\n  next: shorten it" in capsys.readouterr().err
