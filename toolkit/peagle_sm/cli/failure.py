"""What a failure looks like on stderr, in each format; only here an exception becomes an exit code."""

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

from peagle_sm.core.errors import PeagleError
from peagle_sm.core.files import CannotWrite, cannot_write, is_about_the_disk, write_file

UNEXPECTED = 1
USAGE = 2
INTERRUPTED = 130
TAIL_LINES = 15
"""How much of an engine's log a failure shows; --format json has all that came with the error."""
_CARRIED = ("operation", "code", "request_id", "partial_text")
BROKEN_PIPE = 141
"""128 + SIGPIPE, as a shell shows it: the reader of our stdout went away."""


@dataclass(frozen=True)
class Failure:
    """One error in the parts that both formats print."""

    type: str
    message: str
    exit_code: int
    next_step: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


def from_exception(error: BaseException, environ: Mapping[str, str] = os.environ) -> Failure:
    """Describe any exception; one that nobody foresaw has its traceback written to a file."""
    if isinstance(error, PeagleError):
        return Failure(
            type(error).__name__, str(error), error.exit_code, error.next_step, _all_details(error)
        )
    if isinstance(error, click.UsageError):
        return Failure("UsageError", error.format_message(), USAGE, _help_command(error))
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


def _all_details(error: PeagleError) -> dict[str, Any]:
    # Some errors carry facts as attributes of their own: AWS's code and request id, the text so far.
    carried = {name: getattr(error, name, "") for name in _CARRIED}
    return {**{name: value for name, value in carried.items() if value}, **error.details}


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else "(no message)"


def _help_command(error: click.UsageError) -> str | None:
    return f"{error.ctx.command_path} --help" if error.ctx else None


def _write_traceback(error: BaseException, environ: Mapping[str, str]) -> Path | str:
    state = environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    path = Path(state) / "peagle-sm" / "errors" / f"{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}.txt"
    try:
        write_file(path, "".join(traceback.format_exception(error)), parents=True)
    except CannotWrite as problem:
        return f"(not written: {problem})"
    return path


def render_text(failure: Failure) -> str:
    """`error: …`, then each detail and the next step on a line of its own; the message alone for a no."""
    if failure.type == "Declined":  # an answer, not an error
        return failure.message
    lines = ["error: " + failure.message.replace("\n", "\n  ")]
    labelled = [
        (key, failure.details[key])
        for key in ("found", "allowed", "traceback", "resources")
        if failure.details.get(key) not in (None, "", [], ())
    ]
    for key, value in labelled:
        if not re.search(rf"\b{key}\b", failure.message):  # most messages of the core say it themselves
            lines.append(f"  {key}: {_inline(value)}")
    lines += _log_tail(failure)
    if failure.next_step:
        lines.append("  next: " + failure.next_step.replace("\n", "\n        "))
    return "\n".join(lines)


def _log_tail(failure: Failure) -> list[str]:
    tail = [str(line) for line in failure.details.get("log_tail") or ()][-TAIL_LINES:]
    if not tail or "\n".join(tail) in failure.message:
        return []
    return ["  the engine's last lines:", *(f"    {line}" for line in tail)]


def _inline(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence):
        return ", ".join(_inline(item) for item in value)
    if isinstance(value, Mapping):
        return " ".join(f"{key}={_inline(item)}" for key, item in value.items())
    return str(value)


def render_json(failure: Failure) -> str:
    """One JSON object: type, message, next_step, details and the exit code."""
    return json.dumps(
        {
            "error": {
                "type": failure.type,
                "message": failure.message,
                "next_step": failure.next_step,
                "details": dict(failure.details),
                "exit_code": failure.exit_code,
            }
        },
        default=str,
    )


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether a command line that could not be parsed asked for JSON."""
    joined = " ".join(arguments)
    return "--format json" in joined or "--format=json" in joined
