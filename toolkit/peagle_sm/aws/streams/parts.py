"""The typed parts of an answer beside its text: tool calls, log-probabilities, token counts. Pure.

The forms are OpenAI's as vLLM 0.32.0 writes them (``entrypoints/generate/base/protocol.py``,
``entrypoints/openai/*/protocol.py``). Every function here raises `ValueError`, `TypeError`, `KeyError` or
`AttributeError` on another form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ToolCall:
    """One call that the model asks for; ``arguments`` is JSON as the model wrote it, not checked."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class ToolCallPart:
    """A piece of a tool call: joined by ``index``, the pieces make a `ToolCall`."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True)
class TokenLogprob:
    """One output token and its natural log-probability; ``top`` are the likeliest tokens at its place.

    ``data`` are the token's bytes, which need not be whole characters; None where the engine does not tell
    them. ``logprob`` is None where the engine gives none.
    """

    token: str
    logprob: float | None
    top: tuple[tuple[str, float], ...] = ()
    data: bytes | None = None


@dataclass(frozen=True)
class Usage:
    """The engine's own count of tokens; None where it does not say."""

    prompt_tokens: int | None
    completion_tokens: int | None
    total_tokens: int | None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


def said_in(
    choice: Mapping[str, Any],
) -> tuple[str, str, tuple[ToolCallPart, ...], tuple[TokenLogprob, ...]]:
    """Text, reasoning, tool calls and log-probabilities of one choice: completion or chat, whole or delta.

    vLLM calls a model's thoughts ``reasoning``; it called them ``reasoning_content`` before, as others do.
    """
    told = choice.get("logprobs")
    logprobs = logprobs_of(told) if told else ()
    if "text" in choice:
        return _text(choice["text"]), "", (), logprobs
    said = choice["delta"] if "delta" in choice else choice["message"]
    thought, calls = said.get("reasoning"), said.get("tool_calls")
    if thought is None:
        thought = said.get("reasoning_content")
    return (
        _text(said.get("content")),
        "" if thought is None else _text(thought),
        () if calls is None else tool_call_parts(calls),
        logprobs,
    )


def usage_of(told: Mapping[str, Any]) -> Usage:
    """Read a ``usage`` object."""
    prompt = told.get("prompt_tokens_details") or {}
    completion = told.get("completion_tokens_details") or {}
    return Usage(
        _count(told.get("prompt_tokens")),
        _count(told.get("completion_tokens")),
        _count(told.get("total_tokens")),
        _count(prompt.get("cached_tokens")),
        _count(completion.get("reasoning_tokens")),
    )


def tool_call_parts(told: Any) -> tuple[ToolCallPart, ...]:
    """Read the ``tool_calls`` of a delta, or of a whole message, which numbers them by their order."""
    return tuple(_tool_call_part(call, place) for place, call in enumerate(told))


def _tool_call_part(call: Mapping[str, Any], place: int) -> ToolCallPart:
    function = call.get("function") or {}
    index = call.get("index", place)
    if isinstance(index, bool) or not isinstance(index, int):
        raise TypeError(f"index of type {type(index).__name__}")
    return ToolCallPart(
        index, _text(call.get("id")), _text(function.get("name")), _text(function.get("arguments"))
    )


class ToolCalls:
    """Joins the pieces of tool calls."""

    def __init__(self) -> None:
        """None yet."""
        self._calls: dict[int, tuple[list[str], list[str], list[str]]] = {}

    def add(self, part: ToolCallPart) -> None:
        """Take the next piece."""
        ids, names, arguments = self._calls.setdefault(part.index, ([], [], []))
        ids.append(part.id)
        names.append(part.name)
        arguments.append(part.arguments)

    def all(self) -> tuple[ToolCall, ...]:
        """The calls as far as they have come, in the order of their index."""
        return tuple(
            ToolCall(next(filter(None, ids), ""), "".join(names), "".join(arguments))
            for _, (ids, names, arguments) in sorted(self._calls.items())
        )


def logprobs_of(told: Mapping[str, Any] | None) -> tuple[TokenLogprob, ...]:
    """Read the ``logprobs`` of a choice, in the form of chats or of completions."""
    if not told:
        return ()
    if "tokens" in told:
        return _of_completion(told)
    return tuple(
        TokenLogprob(
            _text(each["token"]),
            _number(each.get("logprob")),
            tuple(
                (_text(other["token"]), float(other["logprob"])) for other in each.get("top_logprobs") or ()
            ),
            None if each.get("bytes") is None else bytes(each["bytes"]),
        )
        for each in told.get("content") or ()
    )


def _of_completion(told: Mapping[str, Any]) -> tuple[TokenLogprob, ...]:
    tokens = told["tokens"]
    chosen = told.get("token_logprobs") or [None] * len(tokens)
    others = told.get("top_logprobs") or [None] * len(tokens)
    return tuple(
        TokenLogprob(
            _text(token),
            _number(logprob),
            tuple((name, float(value)) for name, value in (top or {}).items()),
        )
        for token, logprob, top in zip(tokens, chosen, others, strict=True)
    )


def _text(told: Any) -> str:
    if told is None:
        return ""
    if not isinstance(told, str):
        raise TypeError(f"text of type {type(told).__name__}")
    return told


def _number(told: Any) -> float | None:
    return None if told is None else float(told)


def _count(told: Any) -> int | None:
    if told is None or (isinstance(told, int) and not isinstance(told, bool)):
        return told
    raise TypeError(f"a count of type {type(told).__name__}")
