"""What one response tells about itself: text, tokens, times and acceptance. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Chunk:
    """One piece of a stream.

    ``token_count`` is None when the engine does not say; a chunk may hold several tokens when
    speculating. ``at_ms`` counts from the sending of the request. ``reasoning`` is what a reasoning
    model thinks before it answers.
    """

    text: str
    token_count: int | None
    finish_reason: str | None
    at_ms: float
    reasoning: str = ""


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
class StreamSummary:
    """The figures of one request.

    ``ttft_ms``: sending to first text; None when not streamed. ``total_ms``: sending to the end.
    ``otps``: output tokens per second of ``total_ms``. ``tpot_ms``: (last text - first text) /
    (output tokens - 1); None below two tokens. Token counts come from the engine's ``usage``.
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

    @property
    def acceptance_length(self) -> float | None:
        """Tokens per target step, or None when the engine does not report it (mode none)."""
        return None if self.acceptance is None else self.acceptance.acceptance_length

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {**asdict(self), "acceptance_length": self.acceptance_length}


@dataclass(frozen=True)
class Completion:
    """A whole answer; ``raw`` is the engine's own document."""

    text: str
    finish_reason: str | None
    summary: StreamSummary
    raw: Mapping[str, Any]
    request_id: str


def acceptance_of(document: Mapping[str, Any]) -> Acceptance | None:
    """Read vLLM's per-request speculative-decoding metrics (0.32 and later) from a response or last chunk.

    None when they are absent: speculation off, ``n`` above 1, or the flag not set.
    """
    told = speculation_in(document)
    if told is None:
        return None
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
    metrics = document.get("metrics") or (document.get("usage") or {}).get("metrics") or {}
    told = metrics.get("speculative_decoding")
    return told if isinstance(told, Mapping) else None


def error_in(document: Mapping[str, Any]) -> str | None:
    """What an engine says in an event that is an error, in vLLM's form or OpenAI's; None for any other."""
    told = document.get("error")
    if not told and document.get("object") != "error":
        return None
    told = told or document
    return str(told.get("message", told) if isinstance(told, Mapping) else told)


def text_of(choice: Mapping[str, Any]) -> tuple[str, str]:
    """Return (text, reasoning) of one choice: completion or chat, whole or delta."""
    if "text" in choice:
        return choice["text"] or "", ""
    said = choice.get("delta") or choice.get("message") or {}
    return said.get("content") or "", said.get("reasoning_content") or said.get("reasoning") or ""


def summarise(
    document: Mapping[str, Any],
    *,
    finish_reason: str | None,
    request_id: str,
    total_ms: float,
    first_ms: float | None = None,
    last_ms: float | None = None,
) -> StreamSummary:
    """Make the summary from the document that carries ``usage`` (may be empty) and the times."""
    usage = document.get("usage") or {}
    tokens = usage.get("completion_tokens")
    otps = tokens / total_ms * 1000 if tokens is not None and total_ms > 0 else None
    tpot = None
    if tokens is not None and tokens > 1 and first_ms is not None and last_ms is not None:
        tpot = (last_ms - first_ms) / (tokens - 1)
    return StreamSummary(
        output_tokens=tokens,
        prompt_tokens=usage.get("prompt_tokens"),
        ttft_ms=first_ms,
        total_ms=total_ms,
        otps=otps,
        tpot_ms=tpot,
        finish_reason=finish_reason,
        request_id=request_id,
        acceptance=acceptance_of(document),
    )
