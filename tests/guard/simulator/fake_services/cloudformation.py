"""The simulated CloudFormation: a stack with a switch, whose updates take time and cannot be believed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from tests.guard.simulator.fake_services.errors import AwsFault, NothingToUpdate
from tests.guard.simulator.fake_services.events import Events
from tests.guard.simulator.worlds.world import Interval

UPDATE_S = 40
"""From UpdateStack to the moment at which the stack deletes or creates the endpoint."""

BROKEN = frozenset(
    {"ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "UPDATE_ROLLBACK_FAILED", "CREATE_FAILED", "DELETE_FAILED"}
)
"""Statuses in which CloudFormation refuses an update."""


@dataclass(slots=True)
class Stack:
    """One Peagle-<endpoint> stack."""

    name: str
    endpoint: str
    busy: tuple[Interval, ...]
    state: str = "on"
    """Its parameter EndpointState; empty for a template without it."""
    image: str = "chosen"
    """Another parameter; an update that leaves it out sets it to its default."""
    status: str = "CREATE_COMPLETE"
    by: str = "guard"
    """Who asked for the last update."""

    def status_at(self, now: int) -> str:
        """Return StackStatus, somebody else's updates included."""
        if any(begin <= now < end for begin, end in self.busy):
            return "UPDATE_IN_PROGRESS"
        return self.status


@dataclass(slots=True)
class CloudFormation:
    """Stacks by name. ``turn`` creates or deletes the endpoint of a stack, and may fail."""

    events: Events
    turn: Callable[[Stack, str, int], None]
    asked: Callable[[Stack, str], None] = lambda *_: None
    """Called as an update is accepted."""
    update_s: int = UPDATE_S
    stacks: dict[str, Stack] = field(default_factory=dict)

    def update(self, name: str, state: str | None, now: int) -> Stack:
        """UpdateStack with the previous template and another EndpointState; None keeps the previous one."""
        if name not in self.stacks:
            raise AwsFault(f"Stack with id {name} does not exist", "ValidationError")
        stack = self.stacks[name]
        if stack.status_at(now).endswith("_IN_PROGRESS") or stack.status_at(now) in BROKEN:
            message = f"Stack:{name} is in {stack.status_at(now)} state and can not be updated."
            raise AwsFault(message, "ValidationError")
        if state is None or state == stack.state:
            raise NothingToUpdate
        stack.state, stack.status = state, "UPDATE_IN_PROGRESS"
        self.asked(stack, state)
        self.events.at(now + self.update_s, lambda moment: self._cleanup(stack, state, moment))
        return stack

    def _cleanup(self, stack: Stack, state: str, now: int) -> None:
        """The resource goes in the clean-up; a failure there is swallowed and the update still completes."""
        with suppress(AwsFault):
            self.turn(stack, state, now)
        stack.status = "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS" if state == "off" else "UPDATE_IN_PROGRESS"
        self.events.at(now + UPDATE_S, lambda _: self._complete(stack))

    def _complete(self, stack: Stack) -> None:
        stack.status = "UPDATE_COMPLETE"
