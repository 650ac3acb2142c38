"""Loads in virtual time: an event loop that never waits, and a sender that answers as it is told."""

from __future__ import annotations

import asyncio
import contextlib
import selectors
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from peagle_bench.load import Clock, Target, Timeouts
from peagle_bench.load.answer import Answer
from peagle_bench.load.http_client import Sender

T = TypeVar("T")


class _Skipping(selectors.SelectSelector):
    skipped = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout > 0:
            self.skipped += timeout
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its time passes only when nothing else is left to do."""

    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.skipped


def in_virtual_time(main: Callable[[Clock], Coroutine[Any, Any, T]]) -> T:
    """Run ``main``, which is given the virtual clock."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main(runner.get_loop().time))


class ScriptedSender:
    """Answers by the body: ``seconds`` it takes, ``tokens`` in one chunk each, the ``error`` at its end."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.in_flight = self.most_in_flight = 0
        self.sent: list[tuple[str, Any]] = []

    async def send(self, target: Target, body: Mapping[str, Any]) -> Answer:
        sent, seconds, tokens = self._clock(), float(body.get("seconds", 1.0)), int(body.get("tokens", 10))
        self.sent.append((target.arm, body.get("prompt")))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.in_flight -= 1
        error = body.get("error")
        gap = seconds / tokens
        return Answer(
            sent=sent,
            done=sent + seconds,
            first=None if error else sent + gap,
            last=None if error else sent + seconds,
            gaps_ms=() if error else (gap * 1000,) * (tokens - 1),
            chunks=0 if error else tokens,
            input_tokens=3,
            output_tokens=None if error else tokens,
            finish_reason=None if error else "stop",
            text=f"answer to {body.get('prompt')}",
            output_sha256=None,
            error=error,
            error_message="as the script says" if error else None,
        )


class Connections:
    """Opens scripted senders; ``opened`` has them all."""

    def __init__(self) -> None:
        self.opened: list[ScriptedSender] = []
        self.closed = 0

    @contextlib.asynccontextmanager
    async def __call__(
        self, targets: list[Target], timeouts: Timeouts, connections: int, clock: Clock
    ) -> AsyncIterator[Sender]:
        sender = ScriptedSender(clock)
        self.opened.append(sender)
        try:
            yield sender
        finally:
            self.closed += 1
