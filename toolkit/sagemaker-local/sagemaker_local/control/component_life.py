"""The life of one inference component: its status follows its engine.

Creating --answers--> InService --update--> Updating --new engine answers--> InService (new specification)
   |                    |                      `--it fails--> InService (old one), or Failed without one
   | fails              | the engine dies
   v                    v
 Failed <---------------'          any status but those in progress --delete--> Deleting --> gone

One engine serves every copy: two cores gain nothing from a second one. At zero copies none runs.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from sagemaker_local.clock import LocalClock

from .engines import Engine, EnginePlan, StartupFailed, Timing
from .errors import died
from .life import Life, MakeEngine, Serving
from .records import ComponentRecord, Event, Kind, OnEvent


class ComponentLife(Life):
    """Runs the transitions of one component, one at a time.

    Args:
        record: the component; kept up to date.
        plan: of its engine.
        changed: called when the number of copies has changed.
    """

    def __init__(
        self,
        record: ComponentRecord,
        plan: EnginePlan,
        *,
        make_engine: MakeEngine,
        clock: LocalClock,
        timing: Timing,
        on_event: OnEvent,
        changed: Callable[[], None],
    ) -> None:
        super().__init__(make_engine=make_engine, clock=clock, timing=timing, on_event=on_event)
        self.record = record
        self.engine: Engine | None = None
        self.coming: Engine | None = None
        self._plan = plan
        self._changed = changed

    # --- what the API asks for -----------------------------------------------------------------------

    def create(self, copies: int, shortage: str | None) -> None:
        """Start creating; return at once. `shortage`: why the instances cannot hold the copies."""
        self._begin("Creating", "CREATE_IN_PROGRESS")
        self._run(self._create(copies, shortage), f"inference component {self.record.name}")

    def update(
        self, plan: EnginePlan, specification: dict[str, Any], copies: int, shortage: str | None
    ) -> None:
        """Start updating specification and number of copies; `shortage` as in create."""
        self._begin("Updating", "UPDATE_IN_PROGRESS")
        self._run(
            self._update(plan, specification, copies, shortage), f"inference component {self.record.name}"
        )

    def scale(self, copies: int) -> None:
        """Start updating the number of copies; return at once."""
        self._begin("Updating", "UPDATE_RC_IN_PROGRESS")
        self._run(self._scale(copies), f"inference component {self.record.name}")

    def delete(self, gone: Callable[[], None]) -> None:
        """Start deleting; return at once, and call `gone` when nothing is left."""
        self._begin("Deleting", "DELETE_IN_PROGRESS")
        self._run(self._delete(gone), f"inference component {self.record.name}")

    def _present(self) -> list[Serving | None]:
        return [self.coming, self.engine]

    # --- transitions ---------------------------------------------------------------------------------

    async def _create(self, copies: int, shortage: str | None) -> None:
        await asyncio.sleep(self._timing.poll_s)
        if shortage is not None:
            self._fail(shortage)
            return
        reason = await self._started(self._plan)
        if reason is not None:
            self._fail(reason)
            return
        self._serve(copies, "the engine answers")

    async def _update(
        self, plan: EnginePlan, specification: dict[str, Any], copies: int, shortage: str | None
    ) -> None:
        await asyncio.sleep(self._timing.poll_s)
        if shortage is not None:
            self._undo(shortage)
            return
        if copies > 0:
            reason = await self._started(plan)
            if reason is not None:
                self._undo(reason)
                return
        else:
            await self._retire_engine()
        self._plan, self.record.specification, self.record.image = plan, specification, plan.image
        self.record.last_update_failure = None
        self._serve(copies, "updated")

    async def _scale(self, copies: int) -> None:
        await asyncio.sleep(self._timing.poll_s)
        if copies == 0:
            await self._retire_engine()
        elif self.engine is None or not self.engine.alive:
            reason = await self._started(self._plan)
            if reason is not None:
                self._fail(reason)
                return
        self._serve(copies, f"{copies} copies")

    async def _delete(self, gone: Callable[[], None]) -> None:
        await self._stop_watching()
        if self.engine is not None:
            await self.engine.end()
        self.engine = None
        await asyncio.gather(*self._retiring, return_exceptions=True)
        await asyncio.sleep(self._timing.deleting_s)
        self.record.current_copies = 0
        gone()
        self._changed()
        self._tell("component-status", "deleted")

    async def _started(self, plan: EnginePlan) -> str | None:
        """Replace the engine; return the reason if that fails."""
        self.coming = self._engine(plan)
        try:
            await self.coming.start()
        except StartupFailed as failure:
            self.coming = None
            return str(failure)
        await self._retire_engine()
        self.engine, self.coming = self.coming, None
        self.record.deployed_at = self._clock.now()
        self._watch = asyncio.create_task(self._watch_engine(self.engine))
        return None

    def _serve(self, copies: int, why: str) -> None:
        if copies > 0 and (self.engine is None or not self.engine.alive):
            self._fail("The container died during the update.")
            return
        self.record.current_copies = copies
        self.record.failure_reason = None
        self._become("InService", why)
        self._changed()

    def _undo(self, reason: str) -> None:
        """Handle a failed update: the old engine, if any, keeps serving."""
        self.record.last_update_failure = reason
        self.record.desired_copies = self.record.current_copies
        if self.record.current_copies == 0 or (self.engine is not None and self.engine.alive):
            self._become("InService", f"the update was undone: {reason}")
        else:
            self._fail(reason)

    # --- death in service ----------------------------------------------------------------------------

    async def _watch_engine(self, engine: Engine) -> None:
        how = await engine.died()
        reason = died(engine.plan.serves, how, engine.process.last_words())
        self._tell("engine-died", reason, engine)
        if self.record.status == "InService":
            self._fail(reason)
            await engine.stop()

    async def _retire_engine(self) -> None:
        """Drain the engine in service and end it."""
        await self._stop_watching()
        engine, self.engine = self.engine, None
        if engine is not None:
            self._retire(engine)

    # --- small things --------------------------------------------------------------------------------

    def _begin(self, status: str, activity: str) -> None:
        self._become(status, activity)
        self.record.activity = activity

    def _fail(self, reason: str) -> None:
        self.record.failure_reason = reason
        self.record.current_copies = 0
        self._become("Failed", reason)
        self._changed()

    def _become(self, status: str, why: str) -> None:
        self.record.status, self.record.activity = status, ""
        self.record.modified = self._clock.now()
        self._tell("component-status", why)

    def _tell(self, kind: Kind, message: str, engine: Engine | None = None) -> None:
        self._on_event(
            Event(
                kind=kind,
                endpoint=self.record.endpoint,
                status=self.record.status,
                message=message,
                at=self._clock.now(),
                variant=self.record.variant,
                engine_id=engine.engine_id if engine else None,
                component=self.record.name,
            )
        )
