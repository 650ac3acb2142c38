"""Your own prompts: OpenAI chat or completion bodies, a JSON object a line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from peagle_sm.core.errors import SpecError
from peagle_sm.measure.prompt_files import empty, json_lines, read_bytes, sha256_of
from peagle_sm.measure.workloads.questions import Question, Source, refuse_repeated_ids

#: Fields of a line that are ours, not the request's.
_OURS = ("id", "custom_id", "category")


def read_own(path: Path) -> Source:
    """Read a file of request bodies.

    A line is an OpenAI body (``{"messages": …}`` or ``{"prompt": …}``), with ``id`` and ``category`` beside
    it if you like; or OpenAI's batch form ``{"custom_id": …, "body": {…}}``; or a conversation
    ``{"turns": ["…", "…"]}``.

    Raises:
        SpecError: a line is none of these, or the file holds no prompt.
    """
    content = read_bytes(path)
    questions = [_question(line, f"{path}, line {number}", number) for number, line in _lines(content, path)]
    if not questions:
        raise empty(str(path))
    refuse_repeated_ids(questions, str(path))
    return Source(path.name, tuple(questions), path.name, sha256_of(content), license=None)


def _lines(content: bytes, path: Path) -> list[tuple[int, Mapping[str, Any]]]:
    return list(json_lines(content, str(path)))


def _question(line: Mapping[str, Any], where: str, number: int) -> Question:
    name = str(line.get("id", line.get("custom_id", f"line/{number:05}")))
    category = None if line.get("category") is None else str(line["category"])
    if "turns" in line:
        return Question(name, turns=turns_of(line["turns"], where), category=category)
    body = line.get("body", line)
    if not isinstance(body, dict):
        raise SpecError(f"{where}: body is no JSON object", next_step='write {"body": {"messages": […]}}')
    body = {key: value for key, value in body.items() if body is not line or key not in _OURS}
    return Question(name, body=checked_body(body, where), category=category)


def turns_of(value: Any, where: str) -> tuple[str, ...]:
    """The turns of a conversation; raises SpecError unless they are one or more texts."""
    if not isinstance(value, list) or not value or not all(isinstance(turn, str) for turn in value):
        raise SpecError(
            f"{where}: turns must be a list of one or more texts, found {value!r:.60}",
            next_step='write {"turns": ["first question", "second question"]}',
        )
    return tuple(value)


def checked_body(body: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A request body that can be measured, without what the measurement itself decides.

    Raises:
        SpecError: it holds neither messages nor a prompt, or asks for several answers at once.
    """
    has = [key for key in ("messages", "prompt") if body.get(key)]
    if len(has) != 1:
        raise SpecError(
            f"{where}: found {' and '.join(has) or 'neither messages nor prompt'}"
            f" (fields: {', '.join(sorted(body)) or 'none'}); allowed: exactly one of messages, prompt",
            next_step="write OpenAI chat or completion bodies, one a line",
        )
    several = [key for key in ("n", "best_of") if body.get(key, 1) != 1]
    batch = body.get("prompt")
    if several or (isinstance(batch, list) and not all(isinstance(token, int) for token in batch)):
        raise SpecError(
            f"{where}: asks for several answers in one request ({several[0] if several else 'prompt'});"
            " a stream carries one",
            next_step="write a line for each prompt, without n and best_of",
        )
    return {key: value for key, value in body.items() if key not in ("stream", "stream_options")}
