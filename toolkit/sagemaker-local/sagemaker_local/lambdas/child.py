"""Runs inside a function's interpreter: loads the handler, calls it once, reports the result.

Standard library only, and run by path, with ``-I -S``: besides the function's own files it finds what
Lambda's Python runtime has (the standard library, boto3 and what boto3 needs) and nothing else that is
installed here.

    python -I -S child.py RESULT_FD < {"code", "site", "handler", "event", "context", "deadline_s"}

On RESULT_FD it writes lines: ``{"began": true}`` before the handler is called, then ``{"result": …}`` or
``{"error": {…}}``.
"""

import ctypes
import importlib
import importlib.machinery
import json
import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

# What AWS lists as part of its Python runtimes: the SDK and its dependencies.
_RUNTIME = frozenset({"boto3", "botocore", "dateutil", "jmespath", "s3transfer", "six", "urllib3"})


_PR_SET_PDEATHSIG = 1


class RuntimeFinder:
    """Finds the SDK, after the function's own files."""

    def __init__(self, site: str) -> None:
        self._site = site

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find one of the runtime's packages."""
        if path is None and name in _RUNTIME:
            return importlib.machinery.PathFinder.find_spec(name, [self._site])
        return None


class Context(SimpleNamespace):
    """The second argument of a handler."""

    def get_remaining_time_in_millis(self) -> int:
        """How long the invocation may still take, in milliseconds."""
        return max(0, int((self._deadline - time.monotonic()) * 1000))


class _Formatter(logging.Formatter):
    """Lambda's own format of log records."""

    converter = staticmethod(time.gmtime)

    def __init__(self, request_id: str) -> None:
        super().__init__("[%(levelname)s]\t%(asctime)s.%(msecs)03dZ\t" + request_id + "\t%(message)s")
        self.datefmt = "%Y-%m-%dT%H:%M:%S"


def main() -> int:
    """Run one invocation."""
    _end_with_the_server()
    task = json.load(sys.stdin)
    report = os.fdopen(int(sys.argv[1]), "w")

    def say(message: dict[str, Any]) -> None:
        # The server ends this process as soon as it has the answer.
        sys.stdout.flush()
        sys.stderr.flush()
        report.write(json.dumps(message) + "\n")
        report.flush()

    sys.path.insert(0, task["code"])
    sys.meta_path.append(RuntimeFinder(task["site"]))
    shown = logging.StreamHandler(sys.stdout)
    shown.setFormatter(_Formatter(task["context"]["aws_request_id"]))
    logging.getLogger().addHandler(shown)
    try:
        handler = _load(task["handler"])
        say({"began": True})
        context = Context(**task["context"], _deadline=time.monotonic() + task["deadline_s"])
        say({"result": _serialised(handler(task["event"], context))})
    except _Failure as failure:
        say({"error": _described(failure.kind, str(failure), [], task)})
    except Exception as error:
        stack = traceback.format_list(traceback.extract_tb(error.__traceback__)[1:])
        print("[ERROR]", f"{type(error).__name__}: {error}", file=sys.stdout)
        traceback.print_exc(file=sys.stdout)
        say({"error": _described(type(error).__name__, str(error), stack, task)})
    return 0


def _end_with_the_server() -> None:
    """Have the kernel end this process when the server dies, however that happens (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class _Failure(Exception):
    """An error of the runtime's own, by Lambda's name."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def _load(handler: str) -> Any:
    module_name, _, attribute = handler.rpartition(".")
    try:
        module = importlib.import_module(module_name.replace("/", "."))
    except ImportError as error:
        raise _Failure(
            "Runtime.ImportModuleError", f"Unable to import module '{module_name}': {error}"
        ) from error
    except SyntaxError as error:
        raise _Failure(
            "Runtime.UserCodeSyntaxError", f"Syntax error in module '{module_name}': {error}"
        ) from error
    if not hasattr(module, attribute):
        raise _Failure("Runtime.HandlerNotFound", f"Handler '{attribute}' missing on module '{module_name}'")
    return getattr(module, attribute)


def _serialised(result: object) -> str:
    try:
        return json.dumps(result)
    except (TypeError, ValueError) as error:
        raise _Failure("Runtime.MarshalError", f"Unable to marshal response: {error}") from error


def _described(kind: str, message: str, stack: list[str], task: dict[str, Any]) -> dict[str, Any]:
    return {
        "errorMessage": message,
        "errorType": kind,
        "requestId": task["context"]["aws_request_id"],
        "stackTrace": stack,
    }


if __name__ == "__main__":
    sys.exit(main())
