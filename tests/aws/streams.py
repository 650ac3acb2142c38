"""Streams as vLLM 0.32.0 sends them (recorded), and ways to cut them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

from peagle_sm.aws.stream import TokenStream

RECORDED = Path(__file__).parent / "recorded"


def recorded(name: str) -> bytes:
    return (RECORDED / name).read_bytes()


class Ticks:
    """A monotonic clock that advances a millisecond at each look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


def read(parts: Iterable[bytes]) -> TokenStream:
    return TokenStream(parts, request_id="req-1", started=0.0, monotonic=Ticks())


def cut_at(data: bytes, positions: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted(position % (len(data) + 1) for position in positions), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def breaking(parts: Iterable[bytes], error: Exception) -> Iterator[bytes]:
    yield from parts
    raise error
