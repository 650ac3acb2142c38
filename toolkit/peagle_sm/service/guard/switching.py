"""A stack's endpoint is turned off and on by its owner: the guard's switch, which updates the stack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from peagle_sm.aws.control import lambdas
from peagle_sm.aws.control.stacks import stack_status
from peagle_sm.aws.session.errors import is_refused_now
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.streams.refusals import ON_ITS_WAY
from peagle_sm.core.errors import NotFound, PeagleError, PlanRefused
from peagle_sm.core.guard.names import SWITCH
from peagle_sm.service.events import Pacing, Phase, Reporter

Way = Literal["off", "on"]
Look = Callable[[], str | None]
ASKED_IN_VAIN = 3


class SwitchStuck(PeagleError):
    """The switch did not bring the stack to where it was asked to, in time or at all."""


class StackSwitch:
    """One turning off or on.

    ``look`` gives the endpoint's status, None when it is gone; ``phase`` is what the events are called.
    """

    def __init__(
        self, session: Session, stack: str, look: Look, pacing: Pacing, report: Reporter, phase: Phase
    ) -> None:
        self._session = session
        self._stack = stack
        self._look = look
        self._pacing = pacing
        self._report = report
        self._phase = phase
        self._deadline = pacing.monotonic() + pacing.delete_timeout_s

    def off(self) -> None:
        """Turn it off, asking again until the endpoint is gone and the stack has settled.

        Raises:
            PlanRefused: the switch refuses, and says why.
            SwitchStuck: not in time; the endpoint may still be there.
        """
        self._settle()
        while True:
            self._ask("off")
            status = self._settle()
            if self._look() is None:
                self._report(self._phase, f"stack {self._stack} has turned its endpoint off", status=status)
                return
            self._pause(f"stack {self._stack} is {status}, and its endpoint is still there", status)

    def on(self) -> None:
        """Turn it on once, and follow until the endpoint is in service.

        What failed is not tried again by itself: each try costs.

        Raises:
            PlanRefused: the switch refuses, and says why.
            SwitchStuck: the stack rolled back, or not in time.
        """
        self._settle()
        for _ in range(ASKED_IN_VAIN):
            began = self._ask("on")
            status = self._settle()
            if self._arrived():
                self._report(self._phase, f"stack {self._stack} has turned its endpoint on", status=status)
                return
            if began:
                break
            self._pause(f"stack {self._stack} is {status} and has not begun; asking again", status)
        raise SwitchStuck(
            f"Stack {self._stack} is {status}, and its endpoint is {self._look() or 'not there'}.",
            next_step=f"Look why: `aws cloudformation describe-stack-events --stack-name {self._stack}`, "
            f"and `peagle-sm logs` for the engine's last words.",
            details={"stack": self._stack, "status": status},
        )

    def _arrived(self) -> bool:
        """Whether the endpoint is in service, once it is no longer on its way."""
        while (status := self._look()) in ON_ITS_WAY:
            self._pause(f"endpoint is {status}", status)
        return status == "InService"

    def _ask(self, way: Way) -> bool:
        """Ask the switch; return whether it began what it was asked for, or only waits for something else."""
        while True:
            try:
                answer = lambdas.invoke(self._session, SWITCH, {"action": way, "stack": self._stack})
            except NotFound as error:
                raise PlanRefused(
                    f"Stack {self._stack} is turned {way} by the guard's switch, and no guard is installed.",
                    next_step=f"Install it: `peagle-sm guard install{self._session.command_flags()}`.",
                    details={"findings": [], "function": SWITCH},
                ) from error
            except PeagleError as error:
                if not is_refused_now(error):
                    raise
                self._pause(f"the switch did not answer, asking again ({error.message})", None)
                continue
            state, detail = str(answer.get("state", "")), str(answer.get("detail", ""))
            if state == "refused":
                raise PlanRefused(
                    f"The switch refuses to turn stack {self._stack} {way}: {detail}",
                    next_step="Do what it says, and run the command again.",
                    details={"findings": [], "answer": dict(answer)},
                )
            self._report(
                self._phase, detail or f"the switch answers: {state}", resource=f"stack/{self._stack}"
            )
            return bool(answer.get("started", True))

    def _settle(self) -> str:
        """Wait while the stack changes, and return its status then."""
        while True:
            status = stack_status(self._session, self._stack) or "gone"
            if not status.endswith("_IN_PROGRESS"):
                return status
            self._pause(f"stack {self._stack} is {status}; endpoint: {self._look() or 'none'}", status)

    def _pause(self, said: str, status: str | None) -> None:
        if self._pacing.monotonic() >= self._deadline:
            raise SwitchStuck(
                f"Stack {self._stack} is still {status or 'not answering'}; gave up waiting.",
                next_step="Run the command again: it goes on where it is.",
                details={"stack": self._stack, "status": status},
            )
        self._report(self._phase, said, status=status, resource=f"stack/{self._stack}")
        self._pacing.sleep(self._pacing.poll_s)
