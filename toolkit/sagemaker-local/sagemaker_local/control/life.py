"""What the lives of endpoints and of inference components share.

One transition at a time, a watch over what serves, and engines that finish their requests before they end.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from sagemaker_local.clock import LocalClock

from .engines import Engine, EnginePlan, Tell, Timing, guarded, stopped
from .records import Kind, OnEvent

MakeEngine = Callable[[EnginePlan, Tell], Engine]


class Serving(Protocol):
    """An engine, or the engines of an endpoint."""

    async def drain(self) -> None:
        """Wait for requests in flight, at most the drain timeout."""

    async def end(self) -> None:
        """End the processes and remove their files; safe to call twice."""


class Life(ABC):
    """Runs the transitions of one endpoint or one component."""

    def __init__(
        self, *, make_engine: MakeEngine, clock: LocalClock, timing: Timing, on_event: OnEvent
    ) -> None:
        self._make_engine = make_engine
        self._clock = clock
        self._timing = timing
        self._on_event = on_event
        self._transition: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._retiring: dict[asyncio.Task[None], Serving] = {}

    @abstractmethod
    def _present(self) -> list[Serving | None]:
        """Return what serves, and what is being started."""

    @abstractmethod
    def _fail(self, reason: str) -> None:
        """Become Failed."""

    @abstractmethod
    def _tell(self, kind: Kind, message: str, engine: Engine | None = None) -> None:
        """Report an event."""

    async def close(self) -> None:
        """End everything, in any status."""
        tasks = [task for task in (self._transition, self._watch, *self._retiring) if task is not None]
        for task in tasks:
            task.cancel()
        # A task that is cancelled before it began has not ended what it retires.
        retiring = tuple(self._retiring.values())
        await asyncio.gather(*tasks, return_exceptions=True)
        for serving in (*self._present(), *retiring):
            if serving is not None:
                await serving.end()

    def _run(self, transition: Coroutine[Any, Any, None], what: str) -> None:
        self._transition = asyncio.create_task(guarded(transition, what, self._fail))

    def _retire(self, serving: Serving) -> None:
        """Let it finish what it serves, then end it."""

        async def retire() -> None:
            try:
                await serving.drain()
            finally:
                await serving.end()

        task = asyncio.create_task(retire())
        self._retiring[task] = serving
        task.add_done_callback(self._retiring.pop)

    async def _stop_watching(self) -> None:
        await stopped(self._watch)

    def _engine(self, plan: EnginePlan) -> Engine:
        return self._make_engine(plan, lambda engine, kind, message: self._tell(kind, message, engine))
