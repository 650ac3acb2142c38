"""Content of an answer: text, tool calls, tokens, times, acceptance. Pure.

The formats are OpenAI's, as written by vLLM 0.32.0 (``entrypoints/generate/base/protocol.py``,
``entrypoints/openai/*/protocol.py``). Functions that parse a part raise `ValueError`, `TypeError`, `KeyError`
or `AttributeError` on another format.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from peagle_sm.core.display import Card, Shown


@dataclass(frozen=True)
class ToolCall:
    """One tool call of the model; ``arguments`` is its JSON text, not validated."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class ToolCallPart:
    """A piece of a tool call; the pieces with one ``index`` form a `ToolCall`."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True)
class TokenLogprob:
    """One output token with its natural log-probability.

    ``top`` are the most likely tokens at its position. ``data`` are the token's bytes, which may be part of a
    character; None if not reported. ``logprob`` is None if not reported.
    """

    token: str
    logprob: float | None
    top: tuple[tuple[str, float], ...] = ()
    data: bytes | None = None


@dataclass(frozen=True)
class Usage:
    """Token counts of the engine; None if not reported."""

    prompt_tokens: int | None
    completion_tokens: int | None
    total_tokens: int | None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


def choice_content(
    choice: Mapping[str, Any],
) -> tuple[str, str, tuple[ToolCallPart, ...], tuple[TokenLogprob, ...]]:
    """Return text, reasoning, tool calls and log-probabilities of one choice.

    The choice may be of a completion or a chat, whole or a delta. vLLM's field is ``reasoning``; older
    versions and other engines use ``reasoning_content``.
    """
    logprobs_field = choice.get("logprobs")
    logprobs = logprobs_of(logprobs_field) if logprobs_field else ()
    if "text" in choice:
        return _text(choice["text"]), "", (), logprobs
    message = choice["delta"] if "delta" in choice else choice["message"]
    thought, calls = message.get("reasoning"), message.get("tool_calls")
    if thought is None:
        thought = message.get("reasoning_content")
    return (
        _text(message.get("content")),
        "" if thought is None else _text(thought),
        () if calls is None else tool_call_parts(calls),
        logprobs,
    )


def usage_of(usage: Mapping[str, Any]) -> Usage:
    """Parse a ``usage`` object."""
    prompt = usage.get("prompt_tokens_details") or {}
    completion = usage.get("completion_tokens_details") or {}
    return Usage(
        _count(usage.get("prompt_tokens")),
        _count(usage.get("completion_tokens")),
        _count(usage.get("total_tokens")),
        _count(prompt.get("cached_tokens")),
        _count(completion.get("reasoning_tokens")),
    )


def tool_call_parts(calls: Any) -> tuple[ToolCallPart, ...]:
    """Parse the ``tool_calls`` of a delta, or of a whole message (in order)."""
    return tuple(_tool_call_part(call, place) for place, call in enumerate(calls))


def _tool_call_part(call: Mapping[str, Any], place: int) -> ToolCallPart:
    function = call.get("function") or {}
    index = call.get("index", place)
    if isinstance(index, bool) or not isinstance(index, int):
        raise TypeError(f"index of type {type(index).__name__}")
    return ToolCallPart(
        index, _text(call.get("id")), _text(function.get("name")), _text(function.get("arguments"))
    )


class ToolCalls:
    """Collector that joins the pieces of tool calls."""

    def __init__(self) -> None:
        self._calls: dict[int, tuple[list[str], list[str], list[str]]] = {}

    def add(self, part: ToolCallPart) -> None:
        """Add the next piece."""
        ids, names, arguments = self._calls.setdefault(part.index, ([], [], []))
        ids.append(part.id)
        names.append(part.name)
        arguments.append(part.arguments)

    def all(self) -> tuple[ToolCall, ...]:
        """Return the calls so far, in the order of their index."""
        return tuple(
            ToolCall(next(filter(None, ids), ""), "".join(names), "".join(arguments))
            for _, (ids, names, arguments) in sorted(self._calls.items())
        )


def logprobs_of(logprobs: Mapping[str, Any] | None) -> tuple[TokenLogprob, ...]:
    """Parse the ``logprobs`` of a choice, in the format of chats or completions."""
    if not logprobs:
        return ()
    if "tokens" in logprobs:
        return _of_completion(logprobs)
    return tuple(
        TokenLogprob(
            _text(each["token"]),
            _number(each.get("logprob")),
            tuple(
                (_text(other["token"]), float(other["logprob"])) for other in each.get("top_logprobs") or ()
            ),
            None if each.get("bytes") is None else bytes(each["bytes"]),
        )
        for each in logprobs.get("content") or ()
    )


def _of_completion(logprobs: Mapping[str, Any]) -> tuple[TokenLogprob, ...]:
    tokens = logprobs["tokens"]
    chosen = logprobs.get("token_logprobs") or [None] * len(tokens)
    others = logprobs.get("top_logprobs") or [None] * len(tokens)
    return tuple(
        TokenLogprob(
            _text(token),
            _number(logprob),
            tuple((name, float(value)) for name, value in (top or {}).items()),
        )
        for token, logprob, top in zip(tokens, chosen, others, strict=True)
    )


def _text(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError(f"text of type {type(value).__name__}")
    return value


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _count(value: Any) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise TypeError(f"a count of type {type(value).__name__}")


#: vLLM's finish reasons for incomplete answers (``v1/engine/__init__.py``, 0.32.0).
_GIVEN_UP = ("abort", "error")


@dataclass(frozen=True)
class Chunk:
    """One piece of a stream.

    ``token_count`` is None if not reported; with speculation a chunk may hold several tokens. ``at_ms``
    counts from the sending of the request. ``reasoning`` is a reasoning model's text before its answer;
    ``tool_calls`` are pieces, which `TokenStream.tool_calls` joins; ``logprobs`` has one entry per token if
    requested.
    """

    text: str
    token_count: int | None
    finish_reason: str | None
    at_ms: float
    reasoning: str = ""
    tool_calls: tuple[ToolCallPart, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True)
class Acceptance:
    """Acceptance of one request's draft tokens.

    ``acceptance_length`` is tokens per target step, the bonus token included; ``survival[i - 1]`` is the
    share of steps that accepted at least i draft tokens; ``histogram[j]`` counts steps that accepted
    exactly j. A step without a draft, as ngram and suffix have them, accepted none.
    """

    acceptance_length: float
    survival: tuple[float, ...]
    target_steps: int
    draft_tokens: int
    accepted_tokens: int
    num_speculative_tokens: int
    histogram: tuple[int, ...]


@dataclass(frozen=True)
class StreamSummary(Shown):
    """Times and token counts of one request.

    ``ttft_ms``: sending to first text; None when not streamed. ``total_ms``: sending to the end.
    ``otps``: output tokens per second of ``total_ms``. ``tpot_ms``: (last text - first text) /
    (output tokens - 1); None below two tokens. Token counts come from the engine's ``usage``, which is kept
    in full; None if the engine did not send it.
    """

    output_tokens: int | None
    prompt_tokens: int | None
    ttft_ms: float | None
    total_ms: float
    otps: float | None
    tpot_ms: float | None
    finish_reason: str | None
    request_id: str
    acceptance: Acceptance | None
    usage: Usage | None = None

    @property
    def acceptance_length(self) -> float | None:
        """Tokens per target step; None if not reported (mode none)."""
        return None if self.acceptance is None else self.acceptance.acceptance_length

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {**asdict(self), "acceptance_length": self.acceptance_length}

    def card(self) -> Card:
        """Return the summary that a notebook shows."""
        acceptance = self.acceptance
        drafts = "" if acceptance is None else f"{acceptance.acceptance_length:.2f} tokens per target step"
        if acceptance is not None:
            drafts += f" ({acceptance.accepted_tokens} of {acceptance.draft_tokens} draft tokens accepted)"
        fields = (
            ("tokens", "" if self.output_tokens is None else f"{self.output_tokens} out"),
            ("speed", "" if self.otps is None else f"{self.otps:.1f} tokens/s"),
            ("time", f"{self.total_ms:.0f} ms"),
            ("first token", "" if self.ttft_ms is None else f"after {self.ttft_ms:.0f} ms"),
            ("acceptance", drafts),
            ("ended", self.finish_reason or ""),
        )
        return Card("One answer", fields=tuple((name, value) for name, value in fields if value))


@dataclass(frozen=True)
class Choice:
    """One of several answers to a request."""

    index: int
    text: str
    finish_reason: str | None
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True)
class Completion:
    """A whole answer; ``raw`` is the engine's JSON document.

    For a stream, ``raw`` is the last document with ``usage``. If a request has several answers (``n`` above
    1, or a list of prompts), the fields are those of the first, ``others`` are the rest, and the summary
    counts the tokens of all.
    """

    text: str
    finish_reason: str | None
    summary: StreamSummary
    raw: Mapping[str, Any]
    request_id: str
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    others: tuple[Choice, ...] = ()

    @property
    def choices(self) -> tuple[Choice, ...]:
        """All answers, in the engine's order."""
        first = Choice(0, self.text, self.finish_reason, self.reasoning, self.tool_calls, self.logprobs)
        return (first, *self.others)


def choices_of(document: Mapping[str, Any]) -> list[Choice]:
    """Parse all answers of a whole response, in the engine's order."""
    choices = [_choice(choice, place) for place, choice in enumerate(document["choices"])]
    return sorted(choices, key=lambda choice: choice.index)


def _choice(choice: Mapping[str, Any], place: int) -> Choice:
    text, reasoning, calls, logprobs = choice_content(choice)
    joined = ToolCalls()
    for call in calls:
        joined.add(call)
    index = choice.get("index", place)
    if not isinstance(index, int):
        raise TypeError(f"index of type {type(index).__name__}")
    return Choice(index, text, choice.get("finish_reason"), reasoning, joined.all(), logprobs)


def acceptance_of(document: Mapping[str, Any]) -> Acceptance | None:
    """Parse vLLM's per-request speculation metrics from a response or last chunk.

    vLLM 0.29 and later writes them. None if they are absent (speculation off, ``n`` above 1, or the flag not
    set) or have an unknown format: vLLM calls them experimental, and they do not affect the answer.
    """
    metrics = speculation_in(document)
    if metrics is None:
        return None
    try:
        return _acceptance(metrics, document.get("usage") or {})
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        return None


def _acceptance(metrics: Mapping[str, Any], usage: Mapping[str, Any]) -> Acceptance:
    drafts, accepted = int(metrics["num_spec_steps"]), int(metrics["num_accepted_draft_tokens"])
    target_steps, histogram = every_step(
        usage.get("completion_tokens"),
        drafts,
        accepted,
        tuple(int(count) for count in metrics["acceptance_histogram"]),
    )
    steps, length = sum(histogram), float(metrics["mean_acceptance_length"])
    return Acceptance(
        acceptance_length=length if target_steps == drafts else 1 + accepted / target_steps,
        survival=tuple(sum(histogram[i:]) / steps if steps else 0.0 for i in range(1, len(histogram))),
        target_steps=target_steps,
        draft_tokens=int(metrics["num_draft_tokens"]),
        accepted_tokens=accepted,
        num_speculative_tokens=int(metrics["num_spec_tokens"]),
        histogram=histogram,
    )


def every_step(
    tokens: int | None, drafts: int, accepted: int, histogram: tuple[int, ...]
) -> tuple[int, tuple[int, ...]]:
    """Return the steps of an answer and their histogram, with the steps that had no draft.

    vLLM counts ``drafts``, the steps with one. ngram and suffix draft only where the text repeats: by their
    drafts alone, a step would give too many tokens. The pass over the prompt gives the first of the
    ``tokens``, and each later step gives one more than it accepted.
    """
    plain = 0 if tokens is None else max(0, tokens - 1 - drafts - accepted)
    return drafts + plain, (histogram[0] + plain, *histogram[1:]) if histogram else ()


def speculation_in(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the metrics for `acceptance_of` from a response; None without any."""
    metrics = document.get("metrics") or (document.get("usage") or {}).get("metrics")
    speculation = metrics.get("speculative_decoding") if isinstance(metrics, Mapping) else None
    return speculation if isinstance(speculation, Mapping) else None


def error_in(document: Mapping[str, Any]) -> str | None:
    """Return the message of an engine's JSON error; None if it is not an error.

    vLLM writes ``{"error": {...}}``, older versions ``{"object": "error", "message": ...}``, and its FastAPI
    layer ``{"detail": ...}``.
    """
    error = engine_error(document)
    if error is None:
        return None
    message = error.get("message")
    return message if isinstance(message, str) and message else json.dumps(error, ensure_ascii=False)


def engine_error(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return an error's fields (message, type, code, param); None if not an error."""
    error = document.get("error")
    if not error and document.get("object") == "error":
        error = {name: value for name, value in document.items() if name not in ("object", "error")}
    elif not error and "choices" not in document:
        error = document.get("detail")
    if not error:
        return None
    if isinstance(error, Mapping):
        return error
    return {"message": error if isinstance(error, str) else json.dumps(error, ensure_ascii=False)}


class FinishedAnswers:
    """The answers of a stream that have begun, and those that have their finish_reason.

    ``requested`` is the number of answers that the request asks for: its prompts times ``n``.
    """

    def __init__(self, requested: int = 1) -> None:
        self.finished: set[int] = set()
        self._requested = requested
        self._begun: set[int] = set()

    def take(self, document: Mapping[str, Any]) -> None:
        """Add an event, in which each choice belongs to an answer."""
        for choice in document["choices"] or ():
            index = choice.get("index") or 0
            self._begun.add(index)
            if choice.get("finish_reason"):
                self.finished.add(index)

    @property
    def unfinished(self) -> set[int]:
        """Answers that have begun and have no finish_reason."""
        return self._begun - self.finished

    @property
    def expected(self) -> int:
        """Number of answers that the stream should have."""
        return max(self._requested, len(self._begun))

    @property
    def missing(self) -> int:
        """Number of expected answers that have no finish_reason."""
        return self.expected - len(self.finished)

    @property
    def are_whole(self) -> bool:
        """True if every expected answer has its finish_reason."""
        return not self.missing


def aborted_in(document: Mapping[str, Any]) -> str | None:
    """Return the finish_reason of an aborted answer (abort, error); else None."""
    choices = document.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        reason = choice.get("finish_reason") if isinstance(choice, Mapping) else None
        if reason in _GIVEN_UP:
            return str(reason)
    return None


def summarise(
    usage: Usage | None,
    acceptance: Acceptance | None,
    *,
    finish_reason: str | None,
    request_id: str,
    total_ms: float,
    first_ms: float | None = None,
    last_ms: float | None = None,
) -> StreamSummary:
    """Create the summary from the engine's token counts and the times."""
    tokens = None if usage is None else usage.completion_tokens
    otps = tokens / total_ms * 1000 if tokens is not None and total_ms > 0 else None
    tpot = None
    if tokens is not None and tokens > 1 and first_ms is not None and last_ms is not None:
        tpot = (last_ms - first_ms) / (tokens - 1)
    return StreamSummary(
        output_tokens=tokens,
        prompt_tokens=None if usage is None else usage.prompt_tokens,
        ttft_ms=first_ms,
        total_ms=total_ms,
        otps=otps,
        tpot_ms=tpot,
        finish_reason=finish_reason,
        request_id=request_id,
        acceptance=acceptance,
        usage=usage,
    )
