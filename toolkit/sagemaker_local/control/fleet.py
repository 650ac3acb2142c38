"""The engines behind one configuration of an endpoint, one a variant: up together, down together.

An endpoint for inference components has an empty fleet: its components bring the engines.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .engines import Engine, forget
from .launching import EnginePlan
from .wording import died


@dataclass(frozen=True)
class Death:
    """An engine that died while it served; `reason` is the endpoint's FailureReason."""

    engine: Engine
    reason: str


class Fleet:
    """Starts, watches and stops the engines of the plans."""

    def __init__(self, plans: Iterable[EnginePlan], make: Callable[[EnginePlan], Engine]) -> None:
        self._make = make
        self.engines = {plan.variant: make(plan) for plan in plans}
        self._lost = False

    @property
    def alive(self) -> bool:
        """Whether every engine's process runs and none was found dead."""
        return not self._lost and all(engine.alive for engine in self.engines.values())

    async def start(self) -> None:
        """Returns when every engine answers; the first that fails brings the others down.

        Raises:
            StartupFailed: with the reason of the first failure.
        """
        starting = [asyncio.ensure_future(engine.start()) for engine in self.engines.values()]
        try:
            await asyncio.gather(*starting)
        except BaseException:
            for task in starting:
                task.cancel()
            await asyncio.gather(*starting, return_exceptions=True)
            await self.stop()
            raise

    async def death(self) -> Death:
        """Waits for the first engine to die; for ever when there is none."""
        if not self.engines:
            await asyncio.get_running_loop().create_future()
        watches = {asyncio.ensure_future(engine.died()): engine for engine in self.engines.values()}
        try:
            done, _ = await asyncio.wait(watches, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for watch in watches:
                watch.cancel()
            await asyncio.gather(*watches, return_exceptions=True)
        first = done.pop()
        engine = watches[first]
        self._lost = True
        how = first.result()
        return Death(engine, died(engine.plan.serves, how, engine.process.last_words()))

    async def replace(self, dead: Engine) -> None:
        """Starts the dead engine's plan again.

        Raises:
            StartupFailed: the new one did not come up either.
        """
        await dead.stop()
        await forget(dead)
        fresh = self._make(dead.plan)
        self.engines[dead.plan.variant] = fresh
        await fresh.start()
        self._lost = False

    async def drain(self) -> None:
        """Waits for what is in flight, within the time for draining."""
        await asyncio.gather(*(engine.drain() for engine in self.engines.values()))

    async def stop(self) -> None:
        """Ends every engine and removes its directory; safe to call twice."""
        engines = list(self.engines.values())
        await asyncio.gather(*(engine.stop() for engine in engines), return_exceptions=True)
        for engine in engines:
            await forget(engine)
