"""One invocation: the function's code in an interpreter and a group of processes of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import boto3

from sagemaker_local.lambdas.records import Function
from sagemaker_local.lambdas.unpack import unpacked

_CHILD = Path(__file__).with_name("child.py")
# Where boto3 is installed; the function finds it there as it finds the SDK in Lambda's runtime.
_SITE = Path(boto3.__file__).resolve().parents[1]
# Until the handler is called. Lambda allows 10 s; an interpreter on a machine that is busy may need more.
_INIT_S = 60.0
# For an interpreter that has closed its pipe to be gone.
_EXIT_S = 1.0
_MOST_OUTPUT = 4 * 1024 * 1024


@dataclass(frozen=True)
class Outcome:
    """Result of an invocation.

    Attributes:
        payload: the result, or the error as an object with errorMessage and errorType; JSON.
        error: what X-Amz-Function-Error says; None when all went well.
        output: the lines that it printed.
        duration_ms: from the call of the handler to its end.
    """

    request_id: str
    payload: bytes
    error: str | None
    output: list[str]
    duration_ms: float


@dataclass
class _Report:
    """Messages of the child process on its pipe."""

    born: float
    began: float | None = None
    result: str | None = None
    error: dict[str, Any] | None = None
    started: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def silent(self) -> bool:
        """Whether the child sent neither a result nor an error."""
        return self.result is None and self.error is None


class Runner:
    """Runs invocations."""

    def __init__(self, *, directory: Path, environment: Mapping[str, str]) -> None:
        self._directory = directory
        self._environment = environment

    async def run(self, function: Function, event: Any) -> Outcome:
        """Run a function once, to its end or its timeout; processes that it started end with it."""
        request_id = str(uuid.uuid4())
        if not function.runtime.startswith("python3"):
            message = f"the local Lambda runs only python3 functions; found {function.runtime}"
            return _failed(request_id, "Runtime.NotLocal", message, [message], 0.0)
        try:
            folder = await asyncio.to_thread(unpacked, function.code, self._directory)
        except ValueError as error:
            return _failed(request_id, "Runtime.InvalidPackage", str(error), [], 0.0)
        reading, writing = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-I",
                "-S",
                str(_CHILD),
                str(writing),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                cwd=folder,
                env=self._env(function, folder),
                pass_fds=(writing,),
                start_new_session=True,
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        task = _task(function, folder, event, request_id)
        try:
            return await self._follow(process, reading, function, json.dumps(task).encode(), request_id)
        finally:
            _kill_group(process.pid)
            await process.wait()

    async def _follow(
        self,
        process: asyncio.subprocess.Process,
        reading: int,
        function: Function,
        task: bytes,
        request_id: str,
    ) -> Outcome:
        report, output = _Report(born=monotonic()), bytearray()
        reading_report = asyncio.create_task(_read_report(reading, report))
        printed = asyncio.create_task(_read_output(process, output))
        try:
            await _feed(process, task)
            in_time = await _in_time(reading_report, report, function.timeout_s)
            took_ms = (monotonic() - (report.began or report.born)) * 1000
            if in_time and report.silent:  # it is ending by itself: let its exit status say how
                await asyncio.wait({asyncio.create_task(process.wait())}, timeout=_EXIT_S)
        finally:
            _kill_group(process.pid)
            await asyncio.gather(reading_report, printed, return_exceptions=True)
        lines = bytes(output).decode(errors="replace").splitlines()
        if not in_time:
            return _timed_out(request_id, function.timeout_s if report.began else _INIT_S, lines)
        if report.error is not None:
            return Outcome(request_id, json.dumps(report.error).encode(), "Unhandled", lines, took_ms)
        if report.result is None:
            return _exited(request_id, await process.wait(), lines, took_ms)
        return Outcome(request_id, report.result.encode(), None, lines, took_ms)

    def _env(self, function: Function, folder: Path) -> dict[str, str]:
        return {
            **function.environment,
            **self._environment,
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": "en_US.UTF-8",
            "TZ": ":UTC",
            "PYTHONIOENCODING": "utf-8",
            "LAMBDA_TASK_ROOT": str(folder),
            "_HANDLER": function.handler,
            "AWS_LAMBDA_FUNCTION_NAME": function.name,
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_mb),
            "AWS_LAMBDA_LOG_GROUP_NAME": function.log_group,
            "AWS_EXECUTION_ENV": f"AWS_Lambda_{function.runtime}",
        }


def _task(function: Function, folder: Path, event: Any, request_id: str) -> dict[str, Any]:
    return {
        "code": str(folder),
        "site": str(_SITE),
        "handler": function.handler,
        "event": event,
        "deadline_s": function.timeout_s,
        "context": {
            "aws_request_id": request_id,
            "function_name": function.name,
            "function_version": "$LATEST",
            "invoked_function_arn": function.arn,
            "memory_limit_in_mb": str(function.memory_mb),
            "log_group_name": function.log_group,
            "log_stream_name": request_id,
            "identity": None,
            "client_context": None,
        },
    }


async def _in_time(reading_report: asyncio.Task[None], report: _Report, timeout_s: float) -> bool:
    """Wait until the child has finished; False if it was too slow to start or to end."""
    started = asyncio.create_task(report.started.wait())
    try:
        await asyncio.wait({reading_report, started}, timeout=_INIT_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        started.cancel()
    if report.started.is_set() and not reading_report.done():
        await asyncio.wait({reading_report}, timeout=timeout_s)
    return reading_report.done()


async def _feed(process: asyncio.subprocess.Process, task: bytes) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError, ConnectionResetError):  # it ended before it read; its exit tells why
        process.stdin.write(task)
        await process.stdin.drain()
    process.stdin.close()


async def _read_report(descriptor: int, report: _Report) -> None:
    reader = asyncio.StreamReader(limit=64 * 1024 * 1024)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb")
    )
    try:
        while line := await reader.readline():
            message = json.loads(line)
            if "began" in message:
                report.began = monotonic()
                report.started.set()
            report.result = message.get("result", report.result)
            report.error = message.get("error", report.error)
            if "result" in message or "error" in message:
                return
    finally:
        transport.close()


async def _read_output(process: asyncio.subprocess.Process, output: bytearray) -> None:
    assert process.stdout is not None
    while chunk := await process.stdout.read(65_536):
        output += chunk[: max(0, _MOST_OUTPUT - len(output))]


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _timed_out(request_id: str, seconds: float, lines: list[str]) -> Outcome:
    message = f"RequestId: {request_id} Error: Task timed out after {seconds:.2f} seconds"
    return _failed(request_id, "Sandbox.Timedout", message, [*lines, message], seconds * 1000)


def _exited(request_id: str, status: int, lines: list[str], took_ms: float) -> Outcome:
    why = f"exit status {status}" if status >= 0 else f"signal: {signal.Signals(-status).name}"
    message = f"RequestId: {request_id} Error: Runtime exited with error: {why}"
    return _failed(request_id, "Runtime.ExitError", message, [*lines, message], took_ms)


def _failed(request_id: str, kind: str, message: str, lines: list[str], took_ms: float) -> Outcome:
    payload = json.dumps({"errorType": kind, "errorMessage": message}).encode()
    return Outcome(request_id, payload, "Unhandled", lines, took_ms)
