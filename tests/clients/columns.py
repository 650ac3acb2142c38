"""The ways in which an answer reaches a client, each a fault of the local SageMaker."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

#: Events of the recorded stream that may pass before it ends early: text is missing after any of them.
EVENTS = range(1, 60)
_PLACES = ("frame", "part", "event")

Fault = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """One column: the fault of the nth stream, and whether the whole answer arrives."""

    key: str
    title: str
    of: Callable[[int], Fault]
    whole: bool
    framed_only: bool = False

    def fault(self, number: int, operation: str) -> Fault | None:
        """The fault for the nth stream; None where there is no such thing on this way."""
        if self.framed_only and operation != "stream":
            return None
        return {**self.of(number), "operation": operation, "seed": number, "times": 1}


def _after(number: int) -> int:
    return random.Random(number).choice(EVENTS)


def _early(kind: str, **options: Any) -> Callable[[int], Fault]:
    return lambda number: {"kind": kind, "after_events": _after(number), **options}


def _cut(*, clean: bool) -> Callable[[int], Fault]:
    return lambda number: {**_early("cut", clean=clean)(number), "where": _PLACES[number % 3]}


COLUMNS = (
    # A silence of no seconds after all events: nothing but a part for each event.
    Column(
        "plain",
        "an event a part",
        lambda number: {"kind": "stall", "seconds": 0, "after_events": 1000},
        whole=True,
    ),
    Column("split", "random byte splits", lambda number: {"kind": "split", "parts": "random"}, whole=True),
    Column("one", "all events in one part", lambda number: {"kind": "split", "parts": "one"}, whole=True),
    Column("cut", "cut short, ends properly", _cut(clean=True), whole=False),
    Column("dropped", "cut short, connection drops", _cut(clean=False), whole=False),
    Column("reported", "`error` event", _early("sse-error", message="the engine died"), whole=False),
    Column("failed", "`ModelStreamError`", _early("stream-error"), whole=False, framed_only=True),
    Column("damaged", "damaged bytes", _early("corrupt"), whole=False),
)
