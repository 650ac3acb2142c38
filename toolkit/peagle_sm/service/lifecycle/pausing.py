"""pause(): delete what is billed and keep what is free, so that resume() brings the same endpoint back.

`StackSwitch` turns an endpoint of a CloudFormation stack off and on: the guard's switch updates the stack.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, NoReturn

from peagle_sm.aws.control import guard_resources
from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.control.stacks import stack_status
from peagle_sm.aws.session.errors import is_refused_now
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.streams.refusals import ON_ITS_WAY
from peagle_sm.core.errors import BillableLeft, Declined, Interrupted, NotFound, PeagleError, PlanRefused
from peagle_sm.core.guard import SWITCH
from peagle_sm.core.plan.tags import PAUSED, SCHEDULER_ROLE
from peagle_sm.service.inventory.guard_state import known_entry, note, rest_of
from peagle_sm.service.inventory.inspection import absent
from peagle_sm.service.inventory.listing import EndpointSummary, summary_of
from peagle_sm.service.inventory.resources import Belongings, ToRemove, belongings_of, require_own_stack
from peagle_sm.service.lifecycle.teardown import Teardown, end_with_the_local_server, remove_by_hand
from peagle_sm.service.progress import Pacing, Phase, Progress, Reporter

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
                answer = guard_resources.invoke(self._session, SWITCH, {"action": way, "stack": self._stack})
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


@dataclass(frozen=True)
class PauseReport:
    """``was_off`` where there was nothing to do; ``kept`` is "kind/name" of what stays, costing nothing."""

    name: str
    was_off: bool
    stack: str | None
    usd_per_hour: float | None
    kept: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {**asdict(self), "kept": list(self.kept)}


def pause(
    name: str,
    *,
    session: Session,
    confirm: Callable[[EndpointSummary], bool] | None = None,
    progress: Progress | None = None,
    pacing: Pacing | None = None,
) -> PauseReport:
    """Turn an endpoint off and keep what brings it back; waits until it is really gone.

    A stack's endpoint is turned off by its stack. ``confirm`` sees what runs (None: no question). The
    timetable, if there is one, does not wake it before `resume`. A lifetime schedule that the caller may not
    read is named at the end, and stops nothing.

    Raises:
        NotFound: there is none of that name.
        PlanRefused: it is not ours, or the guard's switch refuses.
        BillableLeft: it could not be proven gone; ``next_step`` is the command that goes on.
        Interrupted: Ctrl-C when the endpoint was gone already.
        Declined: ``confirm`` said no.
        PeagleError: it is off, but its lifetime schedule is not proven gone.
    """
    pacing = pacing or Pacing.for_session(session)
    one = belongings_of(session, name, need_lifetime=False)
    if one.endpoint is None:
        return _off_already(session, one, pacing, Reporter(progress, pacing))
    if one.stack is not None:
        require_own_stack(name, one.stack)
    summary = summary_of(session, one, session.now())
    if confirm is not None and not confirm(summary):
        raise Declined("Nothing was paused: it was not confirmed.", next_step="Run again and confirm.")
    report = Reporter(progress, pacing, summary.usd_per_hour)
    try:
        if one.stack is not None:
            _by_its_stack(session, one, one.stack, pacing, report)
        else:
            _by_itself(session, one, pacing, report)
    except KeyboardInterrupt:
        _interrupted(session, name)
    except BillableLeft as left:
        left.next_step = _command(session, name)
        raise
    kept = belongings_of(session, name, need_lifetime=False).resources
    report("done", f"endpoint {name} is paused", status="Paused")
    return PauseReport(name, False, one.stack, summary.usd_per_hour, kept)


def _off_already(session: Session, one: Belongings, pacing: Pacing, report: Reporter) -> PauseReport:
    if rest_of(one, known_entry(session, one.name)) is None:
        if not one.resources and control.describe_endpoint(session, one.name) is not None:
            raise PlanRefused(
                f"endpoint {one.name} exists but was not made by peagle-sm; it is not touched.",
                next_step="Look at it with `aws sagemaker describe-endpoint`.",
                details={"findings": []},
            )
        raise absent(session, one.name, one)
    note(session, one.name, lambda entry: {} if entry.paused else {"paused": True}, pacing, report, "pause")
    if one.stack is None:
        _remove(session, one, pacing, Reporter(None, pacing))  # what an interrupted pause has left
    return PauseReport(one.name, True, one.stack, 0.0 if session.is_local else None, one.resources)


def _by_its_stack(session: Session, one: Belongings, stack: str, pacing: Pacing, report: Reporter) -> None:
    def look() -> str | None:
        facts = control.describe_endpoint(session, one.name)
        return None if facts is None else facts.status

    # Before it goes: the guard must not take the absence for something that its timetable ends.
    note(session, one.name, lambda entry: {"paused": True}, pacing, report, "pause")
    try:
        StackSwitch(session, stack, look, pacing, report, "pause").off()
    except SwitchStuck as stuck:
        raise BillableLeft(
            f"Endpoint {one.name} may still be running and billed: {stuck.message}",
            details={"resources": [f"endpoint/{one.name}"], "region": session.region, **stuck.details},
        ) from stuck


def _by_itself(session: Session, one: Belongings, pacing: Pacing, report: Reporter) -> None:
    facts = control.describe_endpoint(session, one.name)
    config = None if facts is None else control.describe_endpoint_config(session, facts.config_name)
    if config is None:
        raise NotFound(
            f"the config of endpoint {one.name} does not exist any more: it could not be resumed.",
            next_step=f"Delete it: `peagle-sm delete {one.name}{session.command_flags()}`, and deploy again.",
            details={"name": one.name},
        )
    marks = {PAUSED: pacing.clock().isoformat(timespec="seconds")}
    if one.lifetime is not None and one.lifetime.role_arn is not None:
        marks[SCHEDULER_ROLE] = one.lifetime.role_arn
    control.add_tags(session, config.arn, marks)
    note(session, one.name, lambda entry: {"paused": True}, pacing, report, "pause")
    report("pause", f"config {config.name} is kept", resource=f"endpoint-config/{config.name}")
    _remove(session, one, pacing, report)


def _remove(session: Session, one: Belongings, pacing: Pacing, report: Reporter) -> None:
    """Delete the endpoint, and the schedule last: an old one must never meet a new endpoint."""
    schedules = one.to_remove.schedules
    gone = Teardown(session, pacing, report, "pause").run(ToRemove(one.name, (), (), schedules))
    if gone.left:
        left = ", ".join(f"{resource} ({why})" for resource, why in gone.left.items())
        by_hand = " ".join(remove_by_hand(session, resource) for resource in gone.left)
        raise PeagleError(
            f"Endpoint {one.name} is gone and paused, but its lifetime schedule is not proven gone: {left}",
            next_step=f"Run it again: `{_command(session, one.name)}`. {by_hand} "
            "Keep it where its role is your own: `resume` reads the role from it.",
            details={"left": sorted(gone.left)},
        )


def _interrupted(session: Session, name: str) -> NoReturn:
    gone = False
    try:
        gone = control.describe_endpoint(session, name) is None
    except (PeagleError, KeyboardInterrupt) as error:
        end_with_the_local_server(session, error)
    if gone:
        raise Interrupted(
            f"Interrupted: endpoint {name} is gone and paused; its lifetime schedule may be left (free).",
            next_step=_command(session, name),
            details={"name": name},
        ) from None
    raise BillableLeft(
        f"Interrupted while pausing: endpoint {name} may still be running and billed; its lifetime limit "
        "holds.",
        next_step=_command(session, name),
        details={"resources": [f"endpoint/{name}"], "region": session.region},
    ) from None


def _command(session: Session, name: str) -> str:
    return f"peagle-sm pause {name} --yes{session.command_flags()}"
