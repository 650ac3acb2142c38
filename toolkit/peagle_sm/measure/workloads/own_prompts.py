"""User's own prompts: OpenAI request bodies, or random tokens."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from peagle_sm.aws.streams.refusals import KNOWN, refuse_ignored
from peagle_sm.core.errors import SpecError
from peagle_sm.core.request_slices import checked_labels, refuse_many_values
from peagle_sm.measure.workloads.prompt_files import (
    Question,
    Source,
    empty,
    is_placeholder,
    json_lines,
    read_bytes,
    refuse_repeated_ids,
    sha256_of,
)

#: Fields of a line that peagle-sm reads and that are not part of the request.
_OURS = ("id", "custom_id", "category", "labels", "conversation")
_SPELT = _OURS[1:]  #: those that a misspelt field can be meant for
_CLOSE = 0.75  #: likeness of such a field, as difflib counts it


def read_own(path: Path) -> Source:
    """Read a JSON lines file of request bodies.

    A line is an OpenAI body (``{"messages": …}`` or ``{"prompt": …}``), optionally with ``id``, ``category``,
    ``labels`` (``{"team": "search"}``, by which figures are split) and ``conversation`` (an id: turns of one
    conversation are not independent); or OpenAI's batch form
    ``{"custom_id": …, "body": {…}}``; or a conversation ``{"turns": ["…", "…"]}``.

    Raises:
        SpecError: a line is none of these, or the file has no prompts.
    """
    content = read_bytes(path)
    lines = _lines(content, path)
    _refuse_placeholders(lines, path)
    questions = [_own_question(line, f"{path}, line {number}", number) for number, line in lines]
    if not questions:
        raise empty(str(path))
    refuse_repeated_ids(questions, str(path))
    refuse_many_values((question.labels for question in questions), str(path))
    return Source(path.name, tuple(questions), path.name, sha256_of(content), license=None)


def _lines(content: bytes, path: Path) -> list[tuple[int, Mapping[str, Any]]]:
    return list(json_lines(content, str(path)))


def _refuse_placeholders(lines: list[tuple[int, Mapping[str, Any]]], path: Path) -> None:
    """Refuse rows of SPEED-Bench without their text, which would be measured as if they were prompts."""
    hidden = [number for number, line in lines if line.get("turns") and is_placeholder(line["turns"])]
    if hidden:
        raise SpecError(
            f"{path}: {len(hidden)} of {len(lines)} lines are placeholders without a prompt, the first is"
            f" line {hidden[0]}",
            next_step="fetch the texts with NVIDIA's prepare script (`peagle-sm help how-to/packs`), or give"
            " the file with --workload speed-bench --workload-file, which leaves them out",
            details={"placeholders": len(hidden), "lines": len(lines)},
        )


def _refuse_misspelt(line: Mapping[str, Any], where: str) -> None:
    """Refuse a field that is nearly one of ours: it would be sent to the engine, which ignores it."""
    for name in line:
        if name in _OURS or name in KNOWN:
            continue
        near = get_close_matches(name.lower(), _SPELT, n=1, cutoff=_CLOSE)
        # `subcategory` and `customer_id` are near, too, and somebody's own.
        if near and near[0] not in line and abs(len(name) - len(near[0])) <= 1:
            raise SpecError(
                f"{where}: found the field {name!r}, which would go to the engine; did you mean {near[0]!r}?",
                next_step=f'write "{near[0]}"; an engine field of that name goes into {{"body": {{…}}}}',
                details={"found": name, "near": near},
            )


def _own_question(line: Mapping[str, Any], where: str, number: int) -> Question:
    _refuse_misspelt(line, where)
    name = str(line.get("id", line.get("custom_id", f"line/{number:05}")))
    category = None if line.get("category") is None else str(line["category"])
    labels = checked_labels(line.get("labels") or {}, where)
    conversation = _conversation_of(line, where)
    if "turns" in line:
        turns = turns_of(line["turns"], where)
        return Question(name, turns=turns, category=category, labels=labels, conversation=conversation)
    body = line.get("body", line)
    if not isinstance(body, dict):
        raise SpecError(f"{where}: body is not a JSON object", next_step='write {"body": {"messages": […]}}')
    body = {key: value for key, value in body.items() if body is not line or key not in _OURS}
    asked = checked_body(body, where)
    return Question(name, body=asked, category=category, labels=labels, conversation=conversation)


def _conversation_of(line: Mapping[str, Any], where: str) -> str | None:
    value = line.get("conversation")
    if value is None:
        return None
    if type(value) not in (str, int) or not str(value).strip():
        raise SpecError(
            f"{where}: conversation: found {value!r:.60}; allowed: a text or a whole number",
            next_step="give all turns of a conversation the same id, or leave the field out",
        )
    return str(value)


def turns_of(value: Any, where: str) -> tuple[str, ...]:
    """Check the turns of a conversation; raise SpecError unless they are one or more texts."""
    if not isinstance(value, list) or not value or not all(isinstance(turn, str) for turn in value):
        raise SpecError(
            f"{where}: turns: found {value!r:.60}; allowed: a list of one or more texts",
            next_step='write {"turns": ["first question", "second question"]}',
        )
    return tuple(value)


def checked_body(body: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Check that a request body can be measured; return it without its streaming options.

    Raises:
        SpecError: not exactly one of messages and prompt, several answers requested at once, a value that
            no engine takes, or a field that the engine ignores.
    """
    has = [key for key in ("messages", "prompt") if body.get(key)]
    if len(has) != 1:
        raise SpecError(
            f"{where}: found {' and '.join(has) or 'neither messages nor prompt'}"
            f" (fields: {', '.join(sorted(body)) or 'none'}); allowed: exactly one of messages, prompt",
            next_step="write OpenAI chat or completion bodies, one per line",
        )
    refuse_ignored(body, where)
    _refuse_misshapen(body, where)
    several = [key for key in ("n", "best_of") if body.get(key, 1) != 1]
    batch = body.get("prompt")
    if several or (isinstance(batch, list) and not all(isinstance(token, int) for token in batch)):
        raise SpecError(
            f"{where}: {several[0] if several else 'prompt'} requests several answers; allowed: one answer"
            " per request",
            next_step="write one line for each prompt, without n and best_of",
        )
    return {key: value for key, value in body.items() if key not in ("stream", "stream_options")}


def _refuse_misshapen(body: Mapping[str, Any], where: str) -> None:
    """Refuse values that no engine takes, or that would make a limit or an estimate wrong."""
    messages, prompt, temperature = body.get("messages"), body.get("prompt"), body.get("temperature")
    if messages and not (
        isinstance(messages, list)
        and all(isinstance(each, Mapping) and isinstance(each.get("role"), str) for each in messages)
    ):
        raise SpecError(
            f"{where}: messages: found {messages!r:.60}; allowed: a list of objects, each with a role",
            next_step='write {"messages": [{"role": "user", "content": "…"}]}',
        )
    if prompt and not isinstance(prompt, str | list):
        raise SpecError(
            f"{where}: prompt: found {prompt!r:.60}; allowed: a text, or a list of token ids",
            next_step='write {"prompt": "…"}',
        )
    for name in ("max_tokens", "max_completion_tokens"):
        limit = body.get(name)
        if limit is not None and (type(limit) is not int or limit < 1):
            raise SpecError(
                f"{where}: {name}: found {limit!r:.60}; allowed: a whole number from 1",
                next_step=f"correct {name}, or leave it out",
            )
    if temperature is not None and not (type(temperature) in (int, float) and 0 <= temperature < math.inf):
        raise SpecError(
            f"{where}: temperature: found {temperature!r:.60}; allowed: a number from 0",
            next_step="correct temperature, or leave it out",
        )


#: Ids of ordinary tokens in all tokenizers of the catalogue (control tokens have lower or far higher ids).
_IDS = range(1000, 2000)
_COUNT = 256
_FORM = re.compile(r"(\d+)(?:-(\d+))?/(\d+)")


def make_synthetic(form: str, *, seed: int, count: int | None) -> Source:
    """Make random prompts: ``1024/128`` is 1,024 tokens in and 128 out, ``512-2048/128`` a range in.

    The token ids are random, so acceptance on them does not apply to real text. The output length is forced
    with ``ignore_eos``. ``count`` defaults to 256.

    Raises:
        SpecError: ``form`` is invalid.
    """
    found = _FORM.fullmatch(form)
    low, high, out = (int(found[1]), int(found[2] or found[1]), int(found[3])) if found else (0, 0, 0)
    if not 1 <= low <= high or out < 1:
        raise SpecError(
            f"found synthetic:{form}; allowed: synthetic:IN/OUT, lengths in tokens",
            next_step="write for example synthetic:1024/128 or synthetic:512-2048/128",
        )
    shuffler = random.Random(f"{seed}/{form}")
    questions = tuple(
        Question(
            f"synthetic/{number:05}",
            prompt=tuple(shuffler.choices(_IDS, k=shuffler.randint(low, high))),
            category=None,
        )
        for number in range(_COUNT if count is None else count)
    )
    return Source(
        name=f"synthetic:{form}",
        questions=questions,
        origin=f"made of random token ids, seed {seed}",
        sha256=None,
        license=None,
        notes=("random tokens: acceptance on them does not apply to real text; lengths are forced",),
        parameters={"max_tokens": out, "ignore_eos": True},
    )
