"""The endpoints, proxies and programs that the clients need, on one local server with scripted engines."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from tests.clients.clients import Client
from tests.clients.columns import Column
from tests.clients.trial import Cell, Program, tried
from tests.local.openai_client import route_url, token
from tests.local.serving import Server

RECORDED = Path(__file__).parent / "recorded" / "chat-utf8.sse"


def recorded_text() -> str:
    """The text of the recorded stream."""
    lines = RECORDED.read_text(encoding="utf-8").split("\n")
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    return "".join(event["choices"][0]["delta"].get("content", "") for event in events if event["choices"])


class Bench(ExitStack):
    """Each client has an endpoint of its own, so that faults of one never reach another.

    Clients of one program share its process; they are not to be asked at the same time.
    """

    def __init__(self, server: Server, progress: Callable[[str], None]) -> None:
        """Take the server, and whom to tell what is built."""
        super().__init__()
        self._server = server
        self._progress = progress
        self._programs: dict[str, Program] = {}
        self._jobs: dict[str, dict[str, Any]] = {}
        self._text = recorded_text()

    def __enter__(self) -> Self:
        super().__enter__()
        self._folder = Path(self.enter_context(tempfile.TemporaryDirectory()))
        return self

    def tried(self, client: Client, column: Column, numbers: Sequence[int]) -> Cell | None:
        """Let a client read a stream of a column for each number; None where it has no such column."""
        if client.key not in self._jobs:
            self._jobs[client.key] = self._job(client, self._server.deploy(**_SCRIPT))
            # What it imports and sets up at its first answer is no stream's time.
            self.program(client).read(self._jobs[client.key], warm=False)
        return tried(self.program(client), client, column, numbers, self._jobs[client.key], self._text)

    def program(self, client: Client) -> Program:
        """A client's program, in its environment."""
        if client.program not in self._programs:
            home = self._folder / client.program
            home.mkdir()
            program = Program(client.program, client.python(self._progress), home, self._server.url)
            self._programs[client.program] = self.enter_context(program)
        return self._programs[client.program]

    def _job(self, client: Client, endpoint: str) -> dict[str, Any]:
        job = job_of(client, self._server, endpoint)
        if client.way == "serve":
            job["openai_url"] = self.enter_context(Proxy(endpoint, self._server.status.port)).url
        return job


_SCRIPT: Mapping[str, str] = {"SCRIPT_INVOKE": "replay", "SCRIPT_FILE": str(RECORDED)}


def job_of(client: Client, server: Server, endpoint: str) -> dict[str, Any]:
    """What a program is told for one answer; the proxy's address is another's to add."""
    return {
        "endpoint": endpoint,
        "port": server.status.port,
        "asynchronous": client.asynchronous,
        "instead": client.instead,
        "prompt": "def add(a, b):",
        "options": {"max_tokens": 16, "temperature": 0},
        "openai_url": route_url(server, endpoint),
        "api_key": token(server),
        "model": endpoint if client.way == "serve" else "",
    }


class Proxy:
    """`peagle-sm serve`, as a process."""

    def __init__(self, endpoint: str, port: int) -> None:
        """Take the endpoint, and the local server's port."""
        words = [str(Path(sys.executable).with_name("peagle-sm")), "serve", endpoint, "--port", "0"]
        words += ["--local-port", str(port), "--format", "json"]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        self.url = str(json.loads(self._process.stdout.readline())["url"])
        return self

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        self._process.communicate(timeout=30)
