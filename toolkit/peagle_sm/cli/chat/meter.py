"""The figures of an answer while it comes, and when it is there. Pure but for the clock that it is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peagle_sm.aws.streams.runtime import Chunk, StreamSummary


class Meter:
    """Counts what comes. Tokens are counted where the engine says how many a chunk holds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """Start now."""
        self._monotonic = monotonic
        self._first_at: float | None = None
        self._chunks = 0
        self._tokens = 0
        self._first_tokens = 0

    def chunk(self, chunk: Chunk) -> None:
        """Take a chunk."""
        self._chunks += 1
        self._tokens += chunk.token_count or 0
        if self._first_at is None:
            self._first_at, self._first_tokens = self._monotonic(), self._tokens

    @property
    def tokens(self) -> int:
        """The tokens that have come so far, as far as the engine tells them with its chunks."""
        return self._tokens

    def text(self) -> str:
        """`12 tokens, 34.5 tokens/s, about 2.41 a step`: the rate since the first chunk.

        A chunk is what one step of the engine gave, so tokens a chunk come near the acceptance length, which
        the engine itself tells only at the end.
        """
        if self._first_at is None:
            return "waiting for the first token"
        if not self._tokens:
            return "1 chunk" if self._chunks == 1 else f"{self._chunks} chunks"
        seconds = self._monotonic() - self._first_at
        parts = [f"{self._tokens} tokens"]
        if seconds > 0 and self._tokens > self._first_tokens:
            parts.append(f"{(self._tokens - self._first_tokens) / seconds:.1f} tokens/s")
        parts.append(f"about {self._tokens / self._chunks:.2f} a step")
        return " · ".join(parts)


def figures(summary: StreamSummary) -> str:
    """The figures of a whole answer, as the engine told them."""
    parts = []
    if summary.output_tokens is not None:
        parts.append(f"{summary.output_tokens} tokens")
    if summary.otps is not None:
        parts.append(f"{summary.otps:.1f} tokens/s")
    if summary.acceptance is not None:
        most = summary.acceptance.num_speculative_tokens + 1
        parts.append(f"acceptance {summary.acceptance.acceptance_length:.2f} of {most}")
    if summary.prompt_tokens is not None and summary.output_tokens is not None:
        parts.append(f"context {summary.prompt_tokens + summary.output_tokens} tokens")
    if summary.finish_reason == "length":
        parts.append("stopped by its token limit")
    return " · ".join(parts)
