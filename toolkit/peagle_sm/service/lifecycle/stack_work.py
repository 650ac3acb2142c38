"""Following a stack until it stands still, event by event, and telling why when it failed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from peagle_sm.aws.control import stacks
from peagle_sm.aws.control.stacks import StackEvent, StackFacts
from peagle_sm.aws.session.errors import is_unsettled
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import ServiceFault
from peagle_sm.service.events import Pacing, Reporter

Wanted = Literal["CREATE_COMPLETE", "UPDATE_COMPLETE", "DELETE_COMPLETE"]
TIMEOUT_S = 1800.0
_CONSEQUENCES = ("cancelled", "canceled", "the following resource(s) failed")
"""Events that only repeat that something else failed."""


class StackWork:
    """One operation on one stack: remembers the events that were there before it began."""

    def __init__(self, session: Session, name: str, pacing: Pacing, report: Reporter) -> None:
        """Begin with nothing seen."""
        self._session = session
        self._name = name
        self._pacing = pacing
        self._report = report
        self._seen: set[str] = set()
        self._failed: list[StackEvent] = []

    def remember(self, stack_id: str) -> None:
        """Take the stack's history so far as known."""
        self._seen.update(event.event_id for event in stacks.events(self._session, stack_id))

    def settle(self, stack_id: str) -> StackFacts | None:
        """Wait until nothing moves in the stack any more, telling its events; None when it is gone.

        Raises:
            ServiceFault: it still moves after half an hour.
        """
        deadline = self._pacing.monotonic() + TIMEOUT_S
        while True:
            facts = self._look(stack_id)
            if facts is None or not facts.moving:
                return facts
            if self._pacing.monotonic() > deadline:
                raise ServiceFault(
                    f"The stack {self._name} is still {facts.status} after {TIMEOUT_S / 60:.0f} minutes.",
                    operation="DescribeStacks",
                    code="Timeout",
                    next_step="Look at its events in the CloudFormation console; then run the command again.",
                )
            self._pacing.sleep(self._pacing.poll_s if self._session.is_local else 3.0)

    def reach(self, stack_id: str, wanted: Wanted) -> None:
        """Wait until the stack stands where it should.

        Raises:
            ServiceFault: it stands elsewhere; the message has the first reason that its events give.
        """
        facts = self.settle(stack_id)
        status = stacks.GONE if facts is None else facts.status
        if status == wanted:
            return
        cause = first_cause(self._failed)
        reason = cause.reason if cause else (facts.reason if facts else None)
        what = f" ({cause.logical_id}, {cause.resource_type})" if cause else ""
        raise ServiceFault(
            f"The stack {self._name} is {status}: {reason or 'AWS gives no reason'}{what}.",
            operation="CloudFormation",
            code=status,
            next_step=_remedy(reason or "", self._session.command_flags()),
            details={"stack": self._name, "status": status, "resource": cause.logical_id if cause else None},
        )

    def _look(self, stack_id: str) -> StackFacts | None:
        try:
            facts = stacks.describe(self._session, stack_id)
            self._tell(stack_id)
        except ServiceFault as error:
            if not is_unsettled(error):
                raise
            # A call that got no answer says nothing about the stack: look again.
            return StackFacts(self._name, stack_id, "UNKNOWN_IN_PROGRESS")
        return None if facts is None or facts.status == stacks.GONE else facts

    def _tell(self, stack_id: str) -> None:
        fresh: list[StackEvent] = []
        for event in stacks.events(self._session, stack_id):
            if event.event_id in self._seen:
                break
            fresh.append(event)
        for event in reversed(fresh):
            self._seen.add(event.event_id)
            if "FAILED" in event.status:
                self._failed.append(event)
            if event.status.endswith("_IN_PROGRESS") and event.logical_id != self._name:
                continue  # half of all lines, and each is followed by what came of it
            said = f"{event.logical_id} {event.status}"
            if event.reason and "FAILED" in event.status:
                said += f": {event.reason}"
            self._report("stack", said, status=event.status, resource=event.logical_id)


def first_cause(failed: Iterable[StackEvent]) -> StackEvent | None:
    """Return the first failure, in order of time, that is not the consequence of another one."""
    for event in failed:
        said = (event.reason or "").lower()
        if said and not any(words in said for words in _CONSEQUENCES):
            return event
    return None


def _remedy(reason: str, flags: str) -> str:
    if "UnreservedConcurrentExecution" in reason:
        return (
            "This account's quota of concurrent Lambda executions leaves none to reserve: run "
            f"`peagle-sm guard install --no-reserve-concurrency{flags}`, or raise the quota "
            "(Service Quotas, Lambda)."
        )
    if "not authorized" in reason.lower() or "AccessDenied" in reason:
        return "Ask for the permission that the message names; docs/reference/stacks-guard.md lists them all."
    return "Mend what the message names and run the command again; it takes up what exists."
