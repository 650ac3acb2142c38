"""The shell completes the names of existing endpoints, and stays silent where that fails."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from click.shell_completion import ShellComplete

from peagle_sm.cli.app import app
from peagle_sm.cli.base import State
from tests.local.serving import Server


def _complete(words: list[str], incomplete: str) -> list[str]:
    shell = ShellComplete(app, {"obj": State(environ={})}, "peagle-sm", "_PEAGLE_SM_COMPLETE")
    return [item.value for item in shell.get_completions(words, incomplete)]


@pytest.mark.parametrize("command", ["status", "delete", "keep", "invoke", "serve"])
def test_names_of_the_local_server(command: str, server: Server) -> None:
    name = server.deploy()
    words = ["--local-port", str(server.status.port), command]
    assert name in _complete(words, name[:3])
    assert _complete(words, name + "-no") == []


def test_a_failure_is_silent() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "peagle_sm"],
        env={
            "PATH": os.environ["PATH"],
            "_PEAGLE_SM_COMPLETE": "bash_complete",
            "COMP_WORDS": "peagle-sm status --local-port 1 de",
            "COMP_CWORD": "4",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")
