"""What `invoke` sends: a prompt, messages or a whole body, from options, files or stdin."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from peagle_sm.core.errors import SpecError
from peagle_sm.core.spec.utf8 import encoded_utf8, utf8_text

MAX_TOKENS = 256
"""Where an answer stops unless told otherwise; vLLM stops a prompt at 16, a chat at the context's end."""


@dataclass(frozen=True)
class Question:
    """Exactly one of the three is given."""

    prompt: str | None = None
    messages: list[Any] | None = None
    body: dict[str, Any] | None = None


def question(
    prompt: str | None, messages: Path | None, body: Path | None, stdin_text: str | None
) -> Question:
    """Build the question from the options; stdin counts only when no option was given.

    Raises:
        SpecError: none or several are given, a file cannot be read, or it is not the JSON that it should be.
    """
    given = [
        flag
        for flag, value in (("--prompt", prompt), ("--messages", messages), ("--body", body))
        if value is not None
    ]
    if len(given) > 1:
        raise SpecError(
            f"several questions at once: {' and '.join(given)}",
            next_step="give one of --prompt, --messages and --body",
            details={"found": given, "allowed": "exactly one"},
        )
    if prompt is not None:
        encoded_utf8(prompt, "--prompt")
        return Question(prompt=prompt)
    if messages is not None:
        return Question(messages=_messages(_json_file(messages), str(messages)))
    if body is not None:
        return Question(body=_object(_json_file(body), str(body)))
    return _from_stdin(stdin_text)


def parameters(asked: Question, max_tokens: int | None, temperature: float | None) -> dict[str, Any]:
    """The fields to add to a question: what was given, and a token limit except to a whole body."""
    limit = MAX_TOKENS if max_tokens is None and asked.body is None else max_tokens
    given = {"max_tokens": limit, "temperature": temperature}
    return {name: value for name, value in given.items() if value is not None}


BODY_HINT = "--body FILE sends a JSON request body, --body - reads it from stdin"


def refuse_loose_words(name: str, extra: list[str]) -> None:
    """Refuse a question that was typed without its option.

    Raises:
        UsageError: there are words besides the endpoint's name, or a JSON body in its place.
    """
    loose = extra if not name.startswith(("{", "[")) else [name]
    if not loose:
        return
    first = loose[0] if len(loose[0]) <= 60 else loose[0][:59] + "…"
    remedy = BODY_HINT if first.startswith(("{", "[")) else "-p TEXT sends a prompt"
    raise click.UsageError(
        f"Unexpected argument {first!r}: {remedy}.", click.get_current_context(silent=True)
    )


def body_hint(asked: Question) -> str | None:
    """What to say of a prompt that looks like a request body: it is sent as text."""
    try:
        value = json.loads(asked.prompt or "")
    except (ValueError, RecursionError):
        return None
    if isinstance(value, dict) and value.keys() & {"prompt", "messages"}:
        return f"note: the prompt looks like a JSON request body, and is sent as plain text; {BODY_HINT}"
    return None


def stdin_text() -> str:
    """Return all of stdin.

    Raises:
        SpecError: it is not UTF-8.
    """
    return utf8_text(sys.stdin.buffer.read(), "stdin").replace("\r\n", "\n").replace("\r", "\n")


def _from_stdin(text: str | None) -> Question:
    if text is None or not text.strip():
        raise SpecError(
            "no question was given",
            next_step="add -p 'your prompt', --messages FILE or --body FILE, or pipe text or JSON into stdin",
            details={"allowed": "--prompt, --messages, --body or stdin"},
        )
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return Question(prompt=text)
    if isinstance(value, list):
        return Question(messages=_messages(value, "stdin"))
    return Question(body=value) if isinstance(value, dict) else Question(prompt=text)


def _json_file(path: Path) -> Any:
    try:
        text = stdin_text() if str(path) == "-" else utf8_text(path.read_bytes(), str(path))
    except OSError as error:
        raise SpecError(
            f"{path}: cannot be read: {error.strerror or error}",
            next_step="name a file with JSON in it",
        ) from error
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{path}: not JSON: {error}", next_step="correct the JSON") from error


def _messages(value: Any, origin: str) -> list[Any]:
    if isinstance(value, dict) and "messages" in value:
        value = value["messages"]
    if isinstance(value, list) and value and all(isinstance(each, dict) and "role" in each for each in value):
        return value
    raise SpecError(
        f'{origin}: found {type(value).__name__}; allowed: a list like [{{"role": "user", "content": "…"}}]',
        next_step="write the messages as OpenAI's chat format has them",
        details={"found": type(value).__name__, "allowed": "a list of objects with role and content"},
    )


def _object(value: Any, origin: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise SpecError(
        f"{origin}: found {type(value).__name__}; allowed: a JSON object",
        next_step="write the body as OpenAI's API has it: an object with messages or prompt",
        details={"found": type(value).__name__, "allowed": "object"},
    )
