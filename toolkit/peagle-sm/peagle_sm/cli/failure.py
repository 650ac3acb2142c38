"""Error messages on stderr, in each format, and the exit code of each exception."""

from __future__ import annotations

import json
import os
import re
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from peagle_sm.aws.files import CannotWrite, cannot_write, is_about_the_disk, write_file
from peagle_sm.core.errors import PeagleError

UNEXPECTED = 1
USAGE = 2
INTERRUPTED = 130
TAIL_LINES = 15
"""Lines of the engine's log in an error message; --format json has all that came with the error."""
_CARRIED = ("operation", "code", "request_id", "partial_text")


@dataclass(frozen=True)
class Failure:
    """One error in the parts that both formats print."""

    type: str
    message: str
    exit_code: int
    next_step: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


def from_exception(error: BaseException, environ: Mapping[str, str] = os.environ) -> Failure:
    """Describe any exception; write the traceback of an unexpected one to a file."""
    if isinstance(error, PeagleError):
        # Some errors have facts as attributes: AWS's error code and request id, the partial text.
        carried = {name: value for name in _CARRIED if (value := getattr(error, name, ""))}
        details = {**carried, **error.details}
        return Failure(type(error).__name__, str(error), error.exit_code, error.next_step, details)
    if isinstance(error, click.UsageError):
        step = f"{error.ctx.command_path} --help" if error.ctx else None
        return Failure("UsageError", error.format_message(), USAGE, step)
    if isinstance(error, click.ClickException):
        return Failure(type(error).__name__, error.format_message(), error.exit_code)
    done = "written" if getattr(error, "filename", None) is None else "read or written"
    if isinstance(error, OSError) and is_about_the_disk(error):
        return from_exception(cannot_write(error, error.filename, done), environ)
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return Failure("Interrupted", "interrupted", INTERRUPTED)
    return Failure(
        "Unexpected",
        f"unexpected {type(error).__name__}: {_first_line(str(error))}",
        UNEXPECTED,
        "please report this with the traceback; --debug prints it here",
        {"traceback": str(_write_traceback(error, environ))},
    )


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else "(no message)"


def _write_traceback(error: BaseException, environ: Mapping[str, str]) -> Path | str:
    state = environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    path = Path(state) / "peagle-sm" / "errors" / f"{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}.txt"
    try:
        write_file(path, "".join(traceback.format_exception(error)), parents=True)
    except CannotWrite as problem:
        return f"(not written: {problem})"
    return path


def render_text(failure: Failure) -> str:
    """Render `error: …`, then the details and the next step, one per line.

    A declined prompt has its message alone.
    """
    if failure.type == "Declined":
        return failure.message
    lines = ["error: " + failure.message.replace("\n", "\n  ")]
    labelled = [
        (key, failure.details[key])
        for key in ("found", "allowed", "traceback", "resources")
        if failure.details.get(key) not in (None, "", [], ())
    ]
    for key, value in labelled:
        if not re.search(rf"\b{key}\b", failure.message):  # most messages already contain it
            lines.append(f"  {key}: {_inline(value)}")
    lines += _log_tail(failure)
    if failure.next_step:
        lines.append("  next: " + failure.next_step.replace("\n", "\n        "))
    # Messages of other programs can end in blanks or a line break.
    return "\n".join(row.rstrip() for line in lines for row in line.rstrip().split("\n"))


def _log_tail(failure: Failure) -> list[str]:
    tail = [str(line) for line in failure.details.get("log_tail") or ()][-TAIL_LINES:]
    if not tail or "\n".join(tail) in failure.message:
        return []
    return ["  last lines of the engine's log:", *(f"    {line}" for line in tail)]


def _inline(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence):
        return ", ".join(_inline(item) for item in value)
    if isinstance(value, Mapping):
        return " ".join(f"{key}={_inline(item)}" for key, item in value.items())
    return str(value)


def render_json(failure: Failure) -> str:
    """Render one JSON object: type, message, next_step, details and the exit code."""
    return json.dumps({"error": vars(failure)}, default=str)


def wants_json(arguments: Sequence[str]) -> bool:
    """Return whether the arguments ask for JSON, even if they could not be parsed."""
    joined = " ".join(arguments)
    return "--format json" in joined or "--format=json" in joined
