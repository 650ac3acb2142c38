"""`peagle-sm chat` on a real terminal: Ctrl-C stops the answer and not the chat, Ctrl-D leaves."""

from __future__ import annotations

import json
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
def terminal(server: Server, tmp_path: Path) -> Iterator[Terminal]:
    name = server.deploy(SCRIPT_INVOKE="chat", SCRIPT_CHUNKS="2000", SCRIPT_CHUNK_DELAY="0.05")
    program = str(Path(sys.executable).with_name("peagle-sm"))
    shown = Terminal([program, "chat", name, "--local-port", str(server.status.port)], tmp_path)
    yield shown
    shown.close()


def test_keys_typed_while_an_answer_streams_are_neither_shown_nor_sent(terminal: Terminal) -> None:
    terminal.until("Ctrl-D ends the chat.")
    terminal.until("> ")
    terminal.type(b"one\r")
    terminal.until("token3 ")
    terminal.type(b"sent by mistake\r")
    terminal.until("token9 ")
    terminal.type(CTRL_C)
    terminal.until("(stopped; the received part is kept. /retry sends the message again)")
    terminal.until("> ")
    terminal.type(b"/exit\r")
    assert terminal.end() == 0
    assert "mistake" not in terminal.shown
    assert "1 turn, 0 tokens in" in terminal.shown
    assert "/exit" in terminal.shown, "the prompt echoes again"


def test_ctrl_c_stops_the_answer_and_ctrl_d_leaves(terminal: Terminal, tmp_path: Path) -> None:
    terminal.until("Ctrl-D ends the chat.")
    terminal.until("> ")
    terminal.type(b"one\r")
    terminal.until("token3 ")
    terminal.type(CTRL_C)
    terminal.until("(stopped; the received part is kept. /retry sends the message again)")
    terminal.until("> ")
    terminal.type(b"half a line" + CTRL_C)
    terminal.until("(Ctrl-D or /exit ends the chat)")
    terminal.until("> ")
    terminal.type(b"/save talk.json\r")
    terminal.until("(saved to talk.json, turns: 1)")
    terminal.until("> ")
    terminal.type(CTRL_D)
    assert terminal.end() == 0
    user, answer = json.loads((tmp_path / "talk.json").read_text())
    assert user == {"role": "user", "content": "one"}
    assert answer["content"].startswith("token0 token1 token2 token3 ")
    assert "1 turn, 0 tokens in" in terminal.shown
    assert "\x1b[1;23r" in terminal.shown  # the last row is kept for the status line
    assert "no cost · /help" in terminal.shown
    assert terminal.shown.rindex("\x1b[r") > terminal.shown.rindex("\x1b[1;23r")  # and given back
