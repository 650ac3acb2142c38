"""One client against one kind of stream, over HTTP, as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sagemaker_local.process import client as local
from tests.clients.clients import PROGRAMS, Client
from tests.clients.columns import Column
from tests.own_packages import link_packages

EXACT, WRONG, ERROR, HANG = "exact", "wrong", "error", "hang"
#: A stream of the table takes a client some 20 ms of CPU.
CPU_S, WALL_S = 1.0, 20.0
_COLD = {"cpu_s": 60.0, "wall_s": 300.0}


@dataclass
class Cell:
    """What became of the streams of one client and one column; ``errors`` by their classes' names."""

    outcomes: list[str] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)

    def counts(self) -> Counter[str]:
        """How often each outcome was."""
        return Counter(self.outcomes)


class Program(AbstractContextManager["Program"]):
    """A program of `programs/`, which reads one answer a job."""

    def __init__(self, name: str, python: Path, home: Path, url: str) -> None:
        """Take its name, the Python of its environment, an empty folder, and the local server's address."""
        self._name = name
        self._python = python
        self._home = home
        self._url = url
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        link_packages(self._home / "path")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def read(self, job: Mapping[str, Any], *, warm: bool = True) -> dict[str, Any]:
        """Let it read one answer; it is started where it does not run.

        What it imports and sets up at its first answer is no stream's time: then it is not ``warm``.
        """
        if self._process is None:
            self._process, warm = self._start(), False
        limits = {"cpu_s": CPU_S, "wall_s": WALL_S} if warm else _COLD
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        print(json.dumps({"url": self._url, **job, **limits}), file=process.stdin, flush=True)
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._name} ended: {(self._home / 'stderr').read_text()[-4000:]}")
        written = json.loads(line)
        if written.get("ended"):
            self._end()
            # Where its threads stand: for whoever asks why.
            print((self._home / "stderr").read_text()[-4000:], file=sys.stderr)
        assert isinstance(written, dict)
        return written

    def _start(self) -> subprocess.Popen[str]:
        environ = {
            "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME": self._url,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
            "AWS_EC2_METADATA_DISABLED": "true",
            "LITELLM_LOG": "CRITICAL",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # it would fetch one from the network
            "HOME": str(self._home),
            "PATH": os.defpath,
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(self._home / "path"),
        }
        with (self._home / "stderr").open("a") as stderr:
            return subprocess.Popen(
                [self._python, PROGRAMS / f"{self._name}.py"],
                cwd=self._home,
                env=environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )

    def _end(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()
            process.communicate()


def tried(
    program: Program,
    client: Client,
    column: Column,
    numbers: Sequence[int],
    job: Mapping[str, Any],
    text: str,
) -> Cell | None:
    """Read a stream for each number; None where there is no such column for this client.

    ``job`` names the endpoint, which nobody else asks in the meantime, and the server's port; ``text`` is the
    right one.

    Raises:
        RuntimeError: a fault did not strike, so that nothing was tried.
    """
    cell = Cell()
    for number in numbers:
        fault = column.fault(number, client.operation)
        if fault is None:
            return None
        added = local.add_fault(job["port"], {**fault, "endpoint": job["endpoint"]})
        answer = program.read(job)
        if any(each["id"] == added["id"] for each in local.faults(job["port"])):
            local.clear_faults(job["port"], [added["id"]])
            if not answer["hang"]:  # a client may also hang before it asks
                raise RuntimeError(f"{client.key}, {column.key}: the fault of stream {number} did not strike")
        cell.outcomes.append(outcome(answer, text))
        if answer["error"] is not None:
            cell.errors[answer["error"].rpartition(".")[2]] += 1
    return cell


def outcome(found: Mapping[str, Any], text: str) -> str:
    """What a client made of an answer whose text is known."""
    if found["hang"]:
        return HANG
    if found["error"] is not None:
        return ERROR
    return EXACT if found["text"] == text else WRONG
