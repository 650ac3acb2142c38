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


class _Selector(selectors.SelectSelector):
    """Never waits: the seconds that it should wait are added to the loop's time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now += max(timeout or 0.0, 0.0)
        return super().select(0)


class VirtualTime:
    """``clock`` is the loop's time; ``run`` runs a coroutine in it, and may be called again."""

    def __init__(self) -> None:
        self._selector = _Selector()

    def clock(self) -> float:
        return self._selector.now

    def run(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        began, self._selector = self._selector.now, _Selector()
        self._selector.now = began
        loop = asyncio.SelectorEventLoop(self._selector)
        loop.time = self.clock  # type: ignore[method-assign]
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            return runner.run(main())


def in_virtual_time(main: Callable[[Clock], Coroutine[Any, Any, T]]) -> T:
    """Run ``main``, which is given the virtual clock."""
    time = VirtualTime()
    return time.run(lambda: main(time.clock))


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
