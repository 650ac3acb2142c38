"""What one response tells about itself: text, tokens, times and acceptance. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from peagle_sm.aws.streams.parts import TokenLogprob, ToolCall, ToolCallPart, ToolCalls, Usage, said_in
from peagle_sm.core.display.card import Card, Shown

#: Of vLLM's finish reasons (``v1/engine/__init__.py``, 0.32.0) those of an answer that is not whole.
_GIVEN_UP = ("abort", "error")


@dataclass(frozen=True)
class Chunk:
    """One piece of a stream.

    ``token_count`` is None when the engine does not say; a chunk may hold several tokens when
    speculating. ``at_ms`` counts from the sending of the request. ``reasoning`` is what a reasoning
    model thinks before it answers; ``tool_calls`` are pieces, which `TokenStream.tool_calls` joins;
    ``logprobs`` has one entry a token where they were asked for.
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
    """How one request's drafts fared.

    ``acceptance_length`` is tokens per target step, the bonus token included; ``survival[i - 1]`` is the
    share of steps that accepted at least i draft tokens; ``histogram[j]`` counts steps that accepted
    exactly j.
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
    """The figures of one request.

    ``ttft_ms``: sending to first text; None when not streamed. ``total_ms``: sending to the end.
    ``otps``: output tokens per second of ``total_ms``. ``tpot_ms``: (last text - first text) /
    (output tokens - 1); None below two tokens. Token counts come from the engine's ``usage``, which is kept
    whole; None where the engine did not send it.
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
        """Tokens per target step, or None when the engine does not report it (mode none)."""
        return None if self.acceptance is None else self.acceptance.acceptance_length

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {**asdict(self), "acceptance_length": self.acceptance_length}

    def card(self) -> Card:
        """What a notebook shows of it."""
        told = self.acceptance
        drafts = "" if told is None else f"{told.acceptance_length:.2f} tokens a pass of the target"
        if told is not None:
            drafts += f" ({told.accepted_tokens} of {told.draft_tokens} draft tokens taken)"
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
    """One of the answers to a request that asks for several."""

    index: int
    text: str
    finish_reason: str | None
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True)
class Completion:
    """A whole answer; ``raw`` is the engine's own document (of a stream: the last one with ``usage``).

    Where a request asks for several answers (``n`` above 1, or a list of prompts), the fields are those of
    the first, ``others`` are the rest, and the summary counts the tokens of all.
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
        """Every answer, in the engine's order."""
        first = Choice(0, self.text, self.finish_reason, self.reasoning, self.tool_calls, self.logprobs)
        return (first, *self.others)


def choices_of(document: Mapping[str, Any]) -> list[Choice]:
    """Read every answer of a whole response, in the engine's order."""
    read = [_choice(told, place) for place, told in enumerate(document["choices"])]
    return sorted(read, key=lambda choice: choice.index)


def _choice(told: Mapping[str, Any], place: int) -> Choice:
    text, reasoning, calls, logprobs = said_in(told)
    joined = ToolCalls()
    for call in calls:
        joined.add(call)
    index = told.get("index", place)
    if not isinstance(index, int):
        raise TypeError(f"index of type {type(index).__name__}")
    return Choice(index, text, told.get("finish_reason"), reasoning, joined.all(), logprobs)


def acceptance_of(document: Mapping[str, Any]) -> Acceptance | None:
    """Read vLLM's per-request speculative-decoding metrics (0.32 and later) from a response or last chunk.

    None when they are absent (speculation off, ``n`` above 1, or the flag not set), or in a form that is not
    known: vLLM calls them experimental, and an answer is no worse for them.
    """
    told = speculation_in(document)
    if told is None:
        return None
    try:
        return _acceptance(told)
    except (KeyError, OverflowError, TypeError, ValueError):
        return None


def _acceptance(told: Mapping[str, Any]) -> Acceptance:
    histogram = tuple(int(count) for count in told["acceptance_histogram"])
    steps = sum(histogram)
    return Acceptance(
        acceptance_length=float(told["mean_acceptance_length"]),
        survival=tuple(sum(histogram[i:]) / steps if steps else 0.0 for i in range(1, len(histogram))),
        target_steps=int(told["num_spec_steps"]),
        draft_tokens=int(told["num_draft_tokens"]),
        accepted_tokens=int(told["num_accepted_draft_tokens"]),
        num_speculative_tokens=int(told["num_spec_tokens"]),
        histogram=histogram,
    )


def speculation_in(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The metrics that `acceptance_of` reads, wherever in a response they stand; None without any."""
    metrics = document.get("metrics") or (document.get("usage") or {}).get("metrics")
    told = metrics.get("speculative_decoding") if isinstance(metrics, Mapping) else None
    return told if isinstance(told, Mapping) else None


def error_in(document: Mapping[str, Any]) -> str | None:
    """The message of an error that the engine sent as JSON; None where the document is no error.

    vLLM writes ``{"error": {...}}``, older versions ``{"object": "error", "message": ...}``, and FastAPI
    below it ``{"detail": ...}``.
    """
    found = engine_error(document)
    if found is None:
        return None
    message = found.get("message")
    return message if isinstance(message, str) and message else json.dumps(found, ensure_ascii=False)


def engine_error(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The fields of an error (message, and where given type, code, param); None where it is no error."""
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


def aborted_in(document: Mapping[str, Any]) -> str | None:
    """The finish_reason of an answer that the engine gave up (vLLM: abort, error); None for any other."""
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
    """Make the summary from the engine's counts and the times."""
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
