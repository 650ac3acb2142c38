"""Faults of a streamed answer: payload in; bytes, pauses and cuts out. Pure.

Every class takes the parts of an answer one after the other and gives `Action`s; bytes that it is given come
out again in their order, unless the fault is that they do not.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from sagemaker_local.faults.book import Strike
from sagemaker_local.faults.events import EventCount, events_of, first_event
from sagemaker_local.faults.wires import Wire
from sagemaker_local.wire import eventstream


@dataclass(frozen=True)
class Send:
    """Bytes for the connection."""

    data: bytes


@dataclass(frozen=True)
class Wait:
    """Pause for this many seconds."""

    seconds: float


@dataclass(frozen=True)
class Cut:
    """End the answer here: properly (``clean``), or by dropping the connection."""

    clean: bool


Action = Send | Wait | Cut


class Transform(Protocol):
    """One answer with one fault. It is not used after a `Cut`."""

    def part(self, payload: bytes) -> Iterator[Action]:
        """Process the next part of the answer."""

    def end(self) -> Iterator[Action]:
        """Process the answer's end."""


class _AfterEvents(ABC):
    """Passes some events on, then applies the fault once: to what follows, or at the answer's end.

    The events that pass come in a part each, however the engine's bytes were read: a client then meets the
    fault alone, and not also what it makes of several events in one part.
    """

    def __init__(self, strike: Strike, wire: Wire) -> None:
        self._of = strike
        self._wire = wire
        self._count = EventCount(strike.option("after_events"))
        self._struck = False

    def part(self, payload: bytes) -> Iterator[Action]:
        if self._struck:
            yield Send(self._wire.part(payload))
            return
        before, after = self._count.split(payload)
        for event in events_of(before):
            yield Send(self._wire.part(event))
        if after:
            self._struck = True
            yield from self._strike(after)

    def end(self) -> Iterator[Action]:
        if not self._struck:
            self._struck = True
            yield from self._strike(b"")

    @abstractmethod
    def _strike(self, after: bytes) -> Iterator[Action]:
        """Apply the fault to what follows the passed events; empty at the answer's end."""


class _CutShort(_AfterEvents):
    def _strike(self, after: bytes) -> Iterator[Action]:
        # An answer that has ended has no further event to break, so that one begins which never was.
        event = first_event(after) or b"data: {"
        if self._of.option("where") == "frame":
            whole = self._wire.part(event)
            yield Send(whole[: self._of.chance.randrange(1, len(whole))])
        elif self._of.option("where") == "part":
            text = event.rstrip(b"\r\n")
            yield Send(self._wire.part(text[: self._of.chance.randrange(1, max(2, len(text)))]))
        yield Cut(clean=self._of.option("clean"))


class _Stalled(_AfterEvents):
    def _strike(self, after: bytes) -> Iterator[Action]:
        yield Wait(float(self._of.option("seconds")))
        if after:
            yield Send(self._wire.part(after))


class _Corrupted(_AfterEvents):
    def _strike(self, after: bytes) -> Iterator[Action]:
        event = first_event(after)
        yield Send(self._wire.damaged(event or b"\n", self._of.option("where"), self._of.chance))
        if after[len(event) :]:
            yield Send(self._wire.part(after[len(event) :]))


class _Excepted(_AfterEvents):
    def _strike(self, after: bytes) -> Iterator[Action]:
        members = {"Message": str(self._of.option("message"))}
        if self._of.kind == "stream-error":
            members["ErrorCode"] = str(self._of.option("code"))
            yield Send(eventstream.exception("ModelStreamError", members))
        else:
            yield Send(eventstream.exception("InternalStreamFailure", members))
        yield Cut(clean=True)


class _ErrorEvent(_AfterEvents):
    def _strike(self, after: bytes) -> Iterator[Action]:
        error = {"message": self._of.option("message"), "type": "InternalServerError", "param": None}
        event = json.dumps({"error": {**error, "code": 500}})
        yield Send(self._wire.part(f"data: {event}\n\n".encode()))
        yield Send(self._wire.part(b"data: [DONE]\n\n"))  # vLLM closes so after an error too
        yield Cut(clean=True)


class _Doubled:
    """One event comes twice; everything else passes as it is."""

    def __init__(self, strike: Strike, wire: Wire) -> None:
        self._upto = strike.option("after_events") + 1
        self._wire = wire
        self._seen = b""
        self._struck = False

    def part(self, payload: bytes) -> Iterator[Action]:
        if self._struck:
            yield Send(self._wire.part(payload))
            return
        before = len(self._seen)
        self._seen += payload
        whole, rest = EventCount(self._upto).split(self._seen)
        yield Send(self._wire.part(whole[before:]))
        if rest is None:
            return
        self._struck = True
        yield Send(self._wire.part(list(events_of(whole))[-1]))
        if rest:
            yield Send(self._wire.part(rest))

    def end(self) -> Iterator[Action]:
        return iter(())


class _Split:
    """The same payload in other parts."""

    def __init__(self, strike: Strike, wire: Wire) -> None:
        self._how = strike.option("parts")
        self._chance = strike.chance
        self._wire = wire
        self._held = b""
        self._next = self._size()

    def part(self, payload: bytes) -> Iterator[Action]:
        self._held += payload
        while self._how != "one" and len(self._held) >= self._next:
            piece, self._held = self._held[: self._next], self._held[self._next :]
            self._next = self._size()
            yield Send(self._wire.part(piece))

    def end(self) -> Iterator[Action]:
        if self._held:
            yield Send(self._wire.part(self._held))

    def _size(self) -> int:
        # Small pieces cut characters and field names, large ones hold several events: both are to occur.
        return 1 if self._how == "bytes" else self._chance.randint(1, 2 ** self._chance.randint(1, 11))


class _SplitCharacters:
    """Every character of several bytes in two parts."""

    def __init__(self, strike: Strike, wire: Wire) -> None:
        self._wire = wire

    def part(self, payload: bytes) -> Iterator[Action]:
        begin = 0
        for place, byte in enumerate(payload, 1):
            if byte >= 0xC0:  # the first byte of such a character
                yield Send(self._wire.part(payload[begin:place]))
                begin = place
        if payload[begin:]:
            yield Send(self._wire.part(payload[begin:]))

    def end(self) -> Iterator[Action]:
        return iter(())


_TRANSFORMS: Mapping[str, Callable[[Strike, Wire], Transform]] = {
    "cut": _CutShort,
    "stall": _Stalled,
    "corrupt": _Corrupted,
    "split": _Split,
    "utf8-split": _SplitCharacters,
    "stream-error": _Excepted,
    "internal-stream-failure": _Excepted,
    "sse-error": _ErrorEvent,
    "draft-tokens": _Doubled,
}


def transform(strike: Strike | None, wire: Wire) -> Transform | None:
    """The transform of a fault; None without one, or for a fault that acts before the answer begins."""
    if strike is None or strike.kind not in _TRANSFORMS:
        return None
    return _TRANSFORMS[strike.kind](strike, wire)
