"""Ctrl-C, and a polite kill: a deploy deletes what it made, and following a log just ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.cli.conftest import Run
from tests.local.serving import Server

pytestmark = pytest.mark.slow


@contextmanager
def started(server: Server, *words: str) -> Iterator[subprocess.Popen[str]]:
    """The command as a process of its own, which can be sent a signal; it never outlives the test."""
    with subprocess.Popen(
        [sys.executable, "-m", "peagle_sm", *words, "--local-port", str(server.status.port)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def interrupt(process: subprocess.Popen[str]) -> str:
    """Press Ctrl-C, again if it was lost, and return what the process then wrote to stderr.

    Python drops a KeyboardInterrupt that is raised while it closes a collected file or HTTP response (1 of
    1,119 tries here).
    """
    for _ in range(3):
        os.kill(process.pid, signal.SIGINT)
        try:
            return process.communicate(timeout=20)[1]
        except subprocess.TimeoutExpired:
            continue
    raise AssertionError("three times Ctrl-C did not end the process")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "kill"])
def test_an_interrupted_deploy_leaves_nothing(
    server: Server, peagle: Run, spec: Callable[..., str], number: signal.Signals
) -> None:
    path = spec("stopped", SCRIPT_PING="3")
    with started(server, "deploy", path, "--unguarded", "--yes") as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "is Creating" in line:
                break
        os.kill(process.pid, number)
        _, rest = process.communicate(timeout=120)
    assert process.returncode == 130, rest
    assert "error: " in rest
    assert "Traceback" not in rest
    assert peagle("list", "--format", "quiet").stdout == ""


def test_ctrl_c_ends_following_a_log_quietly(server: Server, peagle: Run, spec: Callable[..., str]) -> None:
    assert peagle("deploy", spec("followed"), "--unguarded", "--yes", "--format", "quiet").exit_code == 0
    with started(server, "logs", "followed", "--follow") as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        rest = interrupt(process)
    assert (process.returncode, rest) == (0, "")
