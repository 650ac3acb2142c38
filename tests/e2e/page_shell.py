"""One bash session for the commands of a page, and a local SageMaker with scripted engines in a process."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.local.scripted_engine import ScriptedLauncher
from tests.local.serving import running_server

# jsii unpacks the CDK's 400 MB below HOME: once a user, not once for each HOME that a test makes.
JSII_CACHE = {
    "JSII_RUNTIME_PACKAGE_CACHE_ROOT": str(Path.home() / ".cache" / "aws" / "jsii" / "package-cache")
}
_END = re.compile(rb"\x1e(\d+)\n")
_PROMPT = re.compile(rb"\[y/N\]:? ?$|\(y/n\):? ?$")


@dataclass(frozen=True)
class Finished:
    """One command of the page: its exit status, and what it wrote to stdout and stderr."""

    command: str
    status: int
    output: str


def commands(script: str) -> list[str]:
    """Split a script into complete commands: lines are joined until bash can parse them."""
    complete: list[str] = []
    lines: list[str] = []
    for line in script.splitlines():
        lines.append(line)
        text = "\n".join(lines)
        parses = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
        # bash takes a backslash before the end of the input for a complete command.
        if line.strip() and not line.endswith("\\") and parses.returncode == 0 and not parses.stderr:
            complete.append(text.strip())
            lines = []
    if "\n".join(lines).strip():
        raise ValueError(f"incomplete command: {lines}")
    return complete


class Shell:
    """A bash process that keeps its variables and functions from one command to the next."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._keyboard, self._terminal = pty.openpty()
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder,
            env=dict(environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def run(self, command: str) -> Finished:
        """Run one command and wait for it; answer its confirmation prompts with `y` at a terminal."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        script = f"{{ {command}\n}} <{os.ttyname(self._terminal)} 2>&1; printf '\\x1e%s\\n' $?\n"
        stdin.write(script.encode())
        stdin.flush()
        output = b""
        while not (ended := _END.search(output)):
            part = os.read(stdout.fileno(), 65536)
            if not part:
                raise AssertionError(f"the shell ended in {command!r}: {output.decode()}")
            output += part
            # Not earlier: what is typed before a prompt does not count.
            if _PROMPT.search(output):
                os.write(self._keyboard, b"y\n")
        return Finished(command, int(ended[1]), output[: ended.start()].decode())

    def close(self) -> None:
        """End the session."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
        os.close(self._terminal)
        os.close(self._keyboard)


@contextmanager
def scripted_server(folder: Path) -> Iterator[dict[str, Any]]:
    """Start a local SageMaker of its own (moto has one state a process); gives its status."""
    program = [sys.executable, "-m", "tests.e2e.page_shell", str(folder)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield dict(json.loads(process.stdout.readline()))
    finally:
        process.stdin.close()
        process.wait(timeout=120)


def _serve(folder: Path) -> None:
    """Serve until stdin ends."""
    # The page's specs name no script: every engine answers as OpenAI's API does.
    ScriptedLauncher.usual = {"SCRIPT_INVOKE": "openai"}
    for server in running_server(folder):
        bucket = server.status.artifacts["target"].split("/")[2]
        status = {"url": server.url, "port": server.status.port, "bucket": bucket}
        print(json.dumps(status), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
