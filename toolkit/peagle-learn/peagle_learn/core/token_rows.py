"""Training rows: the target's own answers as token ids, ``*.tokens.jsonl``. Pure.

One line is ``{"input_ids": [int], "loss_mask": [0|1], "conversation": "<hash>"}``: the prompt as the engine
tokenized it, then the answer; the mask is 1 on the answer. The trainer reads nothing else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from peagle_sm.core.errors import ServiceFault


@dataclass(frozen=True)
class Sampled:
    """One answer of the target: token ids of prompt and answer, and why the answer ended."""

    prompt: str  #: the prompt's key
    conversation: str
    prompt_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]
    finish_reason: str | None
    turn: int = 0


def row(sampled: Sampled) -> str:
    """Return one line of the training file, without its line end."""
    line = {
        "input_ids": [*sampled.prompt_ids, *sampled.answer_ids],
        "loss_mask": [0] * len(sampled.prompt_ids) + [1] * len(sampled.answer_ids),
        "conversation": sampled.conversation,
    }
    return json.dumps(line, separators=(",", ":"))


def prompt_ids_of(documents: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    """Return the prompt's token ids from the events of a stream, as vLLM sends them in the first chunk."""
    for document in documents:
        ids = document.get("prompt_token_ids")
        for choice in document.get("choices") or ():
            ids = ids or choice.get("prompt_token_ids")
        if ids:
            return tuple(ids)
    return ()


def answer_text(documents: Iterable[Mapping[str, Any]]) -> str:
    """Return every text of a streamed answer: content, reasoning, names and arguments of tool calls."""
    parts: list[str] = []
    for document in documents:
        for choice in document.get("choices") or ():
            delta = choice.get("delta") or {}
            parts += [str(choice.get("text") or ""), *(str(delta.get(name) or "") for name in _TEXTS)]
            for call in delta.get("tool_calls") or ():
                function = call.get("function") or {}
                parts += [str(function.get("name") or ""), str(function.get("arguments") or "")]
    return "".join(parts)


_TEXTS = ("content", "reasoning", "reasoning_content")


def checked(sampled: Sampled, vocab_size: int | None) -> Sampled:
    """Return an answer that can be learned from.

    Raises:
        ServiceFault: the engine sent no token ids, or ids outside the target's vocabulary.
    """
    if not sampled.prompt_ids or not sampled.answer_ids:
        missing = "the prompt" if not sampled.prompt_ids else "the answer"
        raise ServiceFault(
            f"the endpoint sends no token ids of {missing}",
            code="NoTokenIds",
            next_step="Use an image with vLLM 0.10.2 or later, which has return_token_ids; this"
            " project's images"
            " and AWS's vLLM images since 0.16 have it.",
        )
    worst = max((*sampled.prompt_ids, *sampled.answer_ids))
    if vocab_size is not None and worst >= vocab_size:
        raise ServiceFault(
            f"the endpoint sent token id {worst:,}; the target's vocabulary has {vocab_size:,}: it serves"
            " another"
            " model than target.model",
            code="OtherModel",
            next_step="Correct target or endpoint in learn.yaml.",
        )
    return sampled


def data_hash(files: Mapping[str, bytes]) -> str:
    """Return the hash of the data: of the names and contents of all its files."""
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(f"{name}\0{hashlib.sha256(files[name]).hexdigest()}\n".encode())
    return digest.hexdigest()
