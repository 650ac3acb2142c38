"""`peagle-sm chat` on a real terminal: Ctrl-C stops the answer and not the chat, Ctrl-D leaves."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.local.serving import Server

pytestmark = pytest.mark.slow

CTRL_C, CTRL_D = b"\x03", b"\x04"
PATIENCE_S = 60


class Terminal:
    """A program on a pseudo-terminal of 80 by 24, and what it has shown."""

    def __init__(self, words: list[str], folder: Path) -> None:
        command = f"stty rows 24 cols 80; exec {shlex.join(words)}"
        # A fork of this process would copy the server's threads, so another interpreter makes the terminal.
        launcher = f"import pty, sys; sys.exit(pty.spawn(['sh', '-c', {command!r}]) >> 8)"
        self._process = subprocess.Popen(
            [sys.executable, "-c", launcher],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=folder,
            env={**os.environ, "TERM": "xterm"},
        )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self.shown = ""
        self._seen = 0

    def type(self, keys: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(keys)
        self._process.stdin.flush()

    def until(self, text: str) -> None:
        """Wait until a text is shown, after what was waited for before."""
        limit = time.monotonic() + PATIENCE_S
        while text not in self.shown[self._seen :]:
            assert time.monotonic() < limit, f"{text!r} was not shown: {self.shown!r}"
            self._read()
        self._seen = self.shown.index(text, self._seen) + len(text)

    def end(self) -> int:
        limit = time.monotonic() + PATIENCE_S
        while self._process.poll() is None:
            assert time.monotonic() < limit, f"it did not end: {self.shown!r}"
            self._read()
        self._read()
        return self._process.returncode

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        data = self._process.stdout.read()
        if data:
            self.shown += data.decode(errors="replace")
        else:
            time.sleep(0.02)


@pytest.fixture
def terminal(server: Server, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Terminal]:
    name = server.deploy(
        SCRIPT_INVOKE="chat", SCRIPT_CHUNKS=getattr(request, "param", "2000"), SCRIPT_CHUNK_DELAY="0.05"
    )
    program = str(Path(sys.executable).with_name("peagle-sm"))
    shown = Terminal([program, "chat", name, "--local-port", str(server.status.port)], tmp_path)
    yield shown
    shown.close()


@pytest.mark.parametrize(
    "terminal", ["40"], indirect=True
)  # it ends by itself: Ctrl-C would discard the line
def test_lines_typed_while_an_answer_streams_are_not_sent(terminal: Terminal) -> None:
    terminal.until("> ")
    terminal.type(b"one\r")
    terminal.until("token3 ")
    terminal.type(b"by mistake\r")
    terminal.until("tokens/s")
    terminal.until("> ")
    terminal.type(b"/quit\r")
    assert terminal.end() == 0
    assert "1 turn, 40 tokens in" in terminal.shown


def test_ctrl_c_stops_the_answer_and_ctrl_d_ends_the_chat(terminal: Terminal) -> None:
    terminal.until("> ")
    terminal.type(b"one\r")
    terminal.until("token3 ")
    terminal.type(CTRL_C)
    terminal.until("(stopped; the received part is kept)")
    terminal.until("> ")
    terminal.type(b"half a line" + CTRL_C)
    terminal.until("(Ctrl-D or /quit ends the chat)")
    terminal.until("> ")
    terminal.type(CTRL_D)
    assert terminal.end() == 0
    assert "1 turn, 0 tokens in" in terminal.shown
