"""Streams as vLLM 0.32.0 sends them (recorded), and ways to cut them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from peagle_sm.aws.streams.token_stream import ByteSource, TokenStream
from peagle_sm.core.errors import StreamError
from sagemaker_local.wire import eventstream

RECORDED = Path(__file__).parent / "recorded"
NAMES = tuple(sorted(path.name for path in RECORDED.glob("*.sse")))


def recorded(name: str) -> bytes:
    return (RECORDED / name).read_bytes()


def events_of(data: bytes) -> list[bytes]:
    """The events of a recorded stream, each with its blank line."""
    return [event + b"\n\n" for event in data.split(b"\n\n") if event]


@cache
def framed(name: str) -> bytes:
    """A recorded stream as SageMaker sends it: one message an event."""
    return b"".join(map(eventstream.payload_part, events_of(recorded(name))))


class Ticks:
    """A monotonic clock that advances a millisecond at each look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


@dataclass(frozen=True)
class Outcome:
    """What a reader made of a stream: the kind of its error, if any, and all that it read."""

    error: str | None
    text: str
    reasoning: str
    calls: tuple[tuple[str, str], ...]
    logprobs: int
    tokens: int | None
    said: str = ""

    @property
    def answer(self) -> tuple[object, ...]:
        """All but the counts, which come after the answer is whole."""
        return self.text, self.reasoning, self.calls, self.logprobs


def read(parts: Iterable[bytes], *, frames: bool = False) -> TokenStream:
    return TokenStream(
        ByteSource(iter(parts), framed=frames), request_id="req-1", started=0.0, monotonic=Ticks()
    )


def outcome(parts: Iterable[bytes], *, frames: bool = True) -> Outcome:
    stream = read(parts, frames=frames)
    error: StreamError | None = None
    text = ""
    try:
        for chunk in stream:
            text += chunk.text
    except StreamError as caught:
        error = caught
        assert error.partial_text == text
        assert error.request_id == "req-1"
        assert error.next_step
        assert type(error) is not StreamError
    assert stream.text == text
    return Outcome(
        None if error is None else type(error).__name__,
        text,
        stream.reasoning,
        tuple((call.name, call.arguments) for call in stream.tool_calls),
        len(stream.logprobs),
        None if error is not None else stream.summary.output_tokens,
        "" if error is None else str(error),
    )


def cut_at(data: bytes, positions: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted(position % (len(data) + 1) for position in positions), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def breaking(parts: Iterable[bytes], error: Exception) -> Iterator[bytes]:
    yield from parts
    raise error
