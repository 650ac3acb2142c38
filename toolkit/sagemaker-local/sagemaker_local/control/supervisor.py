"""The life of one endpoint: its status follows its engines.

Creating --answers--> InService --UpdateEndpoint--> Updating --new fleet answers--> InService (new config)
   |                     |                             `--new fleet fails, or an alarm--> RollingBack
   | fails               | an engine dies      old fleet lives --> InService (old) <--|
   v                     v                 old fleet died --> UpdateRollbackFailed <--'
Failed <----------------'
any status but those in progress --DeleteEndpoint--> Deleting --> gone
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sagemaker_local.clock import LocalClock

from .capacity import Stock
from .engines import Engine, EnginePlan, StartupFailed, Timing
from .errors import died
from .life import Life, MakeEngine, Serving
from .records import EndpointRecord, Event, Kind, OnEvent, VariantCapacity


@dataclass(frozen=True)
class Death:
    """An engine that died while it served; `reason` is the endpoint's FailureReason."""

    engine: Engine
    reason: str


@dataclass(frozen=True)
class TrafficShift:
    """How the traffic moves to a new fleet in steps.

    Attributes:
        steps: (share of the traffic, seconds of the local clock until the next step); the last share is 1.
        alarms: one in state ALARM meanwhile takes all traffic back.
    """

    steps: tuple[tuple[float, float], ...]
    alarms: tuple[str, ...]


Tripped = Callable[[Sequence[str]], Awaitable[str | None]]
"""Return the first of these alarms that is in state ALARM, or None."""


async def _none_tripped(_: Sequence[str]) -> str | None:
    return None


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
        """Wait until every engine answers; if one fails, stop the others.

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
            await self.end()
            raise

    async def death(self) -> Death:
        """Wait for the first engine to die; for ever if there is none."""
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

    async def drain(self) -> None:
        """Wait for requests in flight, at most the drain timeout."""
        await asyncio.gather(*(engine.drain() for engine in self.engines.values()))

    async def end(self) -> None:
        """End every engine and remove its directory; safe to call twice."""
        await asyncio.gather(*(engine.end() for engine in self.engines.values()), return_exceptions=True)


class Supervisor(Life):
    """Runs the transitions of one endpoint, one at a time."""

    def __init__(
        self,
        record: EndpointRecord,
        *,
        make_engine: MakeEngine,
        clock: LocalClock,
        timing: Timing,
        on_event: OnEvent,
        stock: Stock | None = None,
        tripped: Tripped | None = None,
    ) -> None:
        super().__init__(make_engine=make_engine, clock=clock, timing=timing, on_event=on_event)
        self.record = record
        self._stock = stock or Stock()
        self._tripped = tripped or _none_tripped
        #: Of the traffic, on `coming`.
        self.share = 0.0
        self.fleet: Fleet | None = None
        self.coming: Fleet | None = None

    # --- what the API asks for -----------------------------------------------------------------------

    def create(self, plans: list[EnginePlan]) -> None:
        """Start creating; return at once."""
        self._become("Creating", "creating")
        self._run(self._create(plans), f"endpoint {self.record.name}")

    def update(
        self,
        plans: list[EnginePlan],
        capacities: dict[str, VariantCapacity],
        shift: TrafficShift | None = None,
    ) -> None:
        """Start updating to the record's pending configuration; return at once.

        Without ``shift`` all traffic moves as soon as the new fleet answers.
        """
        self._become("Updating", "a new fleet is being started")
        self._run(self._update(plans, capacities, shift), f"endpoint {self.record.name}")

    def reweigh(self, capacities: dict[str, VariantCapacity]) -> None:
        """Start updating the variants' weights and instance counts; return at once."""
        self._become("Updating", "weights and capacities are being changed")
        self._run(self._reweigh(capacities), f"endpoint {self.record.name}")

    def delete(self, gone: Callable[[], None]) -> None:
        """Start deleting; return at once, and call `gone` when nothing is left."""
        self._become("Deleting", "deleting")
        self._run(self._delete(gone), f"endpoint {self.record.name}")

    def _present(self) -> list[Serving | None]:
        return [self.coming, self.fleet]

    # --- transitions ---------------------------------------------------------------------------------

    async def _create(self, plans: list[EnginePlan]) -> None:
        self.coming = Fleet(plans, self._engine)
        try:
            placed = await self._instances(self.record.config)
            await self._started(self.coming)
        except StartupFailed as failure:
            self.coming = None
            self._fail(str(failure))
            return
        self.record.placed = placed
        self._swap()
        self._become("InService", "every engine answers")

    async def _update(
        self, plans: list[EnginePlan], capacities: dict[str, VariantCapacity], shift: TrafficShift | None
    ) -> None:
        self.coming = Fleet(plans, self._engine)
        try:
            placed = await self._instances(self.record.pending or self.record.config)
            await self._started(self.coming)
        except StartupFailed as failure:
            self.coming = None
            await self._roll_back(str(failure))
            return
        reason = None if shift is None else await self._shift(self.coming, shift)
        if reason is not None:
            coming, self.coming, self.share = self.coming, None, 0.0
            self._retire(coming)
            await self._roll_back(reason)
            return
        self.record.placed = placed
        old = self.fleet
        self.record.capacities = capacities
        self.record.last_update_failure = None
        self._swap()
        self._become("InService", "the new fleet took over")
        if old is not None:
            self._retire(old)

    async def _shift(self, coming: Fleet, shift: TrafficShift) -> str | None:
        """Move the traffic step by step; return why it must go back, None when the last step is over."""
        for share, seconds in shift.steps:
            self.share = share
            ends = self._clock.now() + timedelta(seconds=seconds)
            while True:
                now = self._clock.now()  # before the alarms: the clock may be moved forward meanwhile
                alarm = await self._tripped(shift.alarms)
                if alarm is not None:
                    return f"alarm {alarm} is in state ALARM with {share:.0%} of the traffic on the new fleet"
                if not coming.alive:
                    return f"the new fleet died with {share:.0%} of the traffic"
                if now >= ends:
                    break
                await asyncio.sleep(self._timing.poll_s)
        return None

    async def _instances(self, config: Mapping[str, Any]) -> dict[str, str]:
        """Variant -> instance type; raises StartupFailed, after a moment, if capacity is insufficient."""
        try:
            return self._stock.place(config)
        except StartupFailed:
            await asyncio.sleep(self._timing.poll_s)
            raise

    async def _started(self, fleet: Fleet) -> None:
        if not fleet.engines:  # an endpoint for components: only its instances come up
            await asyncio.sleep(self._timing.poll_s)
        await fleet.start()

    async def _roll_back(self, reason: str) -> None:
        self.record.last_update_failure = reason
        self._become("RollingBack", reason)
        await asyncio.sleep(self._timing.rolling_back_s)
        self.record.pending = None
        if self.fleet is not None and self.fleet.alive:
            self._become("InService", f"rolled back to {self.record.config['EndpointConfigName']}: {reason}")
            return
        old = self.record.failure_reason or "the old fleet died during the update"
        self.record.failure_reason = reason
        self._become("UpdateRollbackFailed", f"{reason} And {old}")

    async def _reweigh(self, capacities: dict[str, VariantCapacity]) -> None:
        await asyncio.sleep(self._timing.poll_s)
        self.record.capacities = capacities
        if self.fleet is not None and self.fleet.alive:
            self._become("InService", "weights and capacities changed")
        else:
            self._fail(self.record.failure_reason or "the fleet died during the update")

    async def _delete(self, gone: Callable[[], None]) -> None:
        await self._stop_watching()
        if self.fleet is not None:
            await self.fleet.end()
        self.fleet = None
        await asyncio.gather(*self._retiring, return_exceptions=True)
        await asyncio.sleep(self._timing.deleting_s)
        gone()
        self._tell("status", "deleted")

    def _swap(self) -> None:
        """Make the new fleet and the pending configuration the active ones."""
        if self._watch is not None:
            self._watch.cancel()
        self.fleet, self.coming, self.share = self.coming, None, 0.0
        if self.record.pending is not None:
            self.record.config, self.record.pending = self.record.pending, None
        self.record.deployed_at = self._clock.now()
        engines = self.fleet.engines if self.fleet is not None else {}
        self.record.images = {variant: engine.plan.image for variant, engine in engines.items()}
        self.record.failure_reason = None
        if self.fleet is not None:
            self._watch = asyncio.create_task(self._watch_fleet(self.fleet))

    # --- death in service ----------------------------------------------------------------------------

    async def _watch_fleet(self, fleet: Fleet) -> None:
        death = await fleet.death()
        self._tell("engine-died", death.reason, death.engine)
        if self.record.status != "InService":
            # An update runs: it will replace the fleet, or find it dead when it rolls back.
            self.record.failure_reason = death.reason
            return
        self._fail(death.reason)
        await fleet.end()

    # --- small things --------------------------------------------------------------------------------

    def _fail(self, reason: str) -> None:
        self.record.failure_reason = reason
        self.record.pending = None
        self._become("Failed", reason)

    def _become(self, status: str, why: str) -> None:
        self.record.status = status
        self.record.modified = self._clock.now()
        self._tell("status", why)

    def _tell(self, kind: Kind, message: str, engine: Engine | None = None) -> None:
        self._on_event(
            Event(
                kind=kind,
                endpoint=self.record.name,
                status=self.record.status,
                message=message,
                at=self._clock.now(),
                variant=engine.plan.variant if engine else None,
                engine_id=engine.engine_id if engine else None,
            )
        )
