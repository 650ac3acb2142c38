"""pause(): delete what is billed, keep config and model for resume().

`StackSwitch` turns the endpoint of a CloudFormation stack off and on: the guard's switch, a Lambda
function, updates the stack.
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
from peagle_sm.core.plan.tags_and_schedules import PAUSED, SCHEDULER_ROLE
from peagle_sm.service.inventory.guard_state import known_entry, note, rest_of
from peagle_sm.service.inventory.inspection import not_ours
from peagle_sm.service.inventory.listing import EndpointSummary, summary_of
from peagle_sm.service.inventory.resources import Belongings, belongings_of, require_own_stack
from peagle_sm.service.lifecycle.teardown import Teardown, end_with_the_local_server, remove_by_hand
from peagle_sm.service.progress import Pacing, Phase, Progress, Reporter

Way = Literal["off", "on"]
ASKED_IN_VAIN = 3


class SwitchStuck(PeagleError):
    """The guard's switch failed to turn the stack's endpoint off or on, or timed out."""


class StackSwitch:
    """One operation of the guard's switch: turns a stack's endpoint ``name`` off or on.

    ``phase`` is the phase of the events.
    """

    def __init__(
        self, session: Session, stack: str, name: str, pacing: Pacing, report: Reporter, phase: Phase
    ) -> None:
        self._session = session
        self._stack = stack
        self._name = name
        self._pacing = pacing
        self._report = report
        self._phase = phase
        self._deadline = pacing.monotonic() + pacing.delete_timeout_s

    def look(self) -> str | None:
        """Return the endpoint's status; None if it is gone."""
        facts = control.describe_endpoint(self._session, self._name)
        return None if facts is None else facts.status

    def off(self) -> None:
        """Turn the endpoint off; retry until it is gone and the stack is stable.

        Raises:
            PlanRefused: the switch refused; the message has its reason.
            SwitchStuck: a timeout; the endpoint may still exist.
        """
        self._wait_stable()
        while True:
            self._invoke_switch("off")
            status = self._wait_stable()
            if self.look() is None:
                self._report(self._phase, f"stack {self._stack} has turned its endpoint off", status=status)
                return
            self._wait(f"stack {self._stack} is {status}, and its endpoint still exists", status)

    def on(self) -> None:
        """Turn the endpoint on once, and follow it until it is InService.

        A failure is not retried automatically: each attempt costs money.

        Raises:
            PlanRefused: the switch refused; the message has its reason.
            SwitchStuck: the stack rolled back, or a timeout.
        """
        self._wait_stable()
        for _ in range(ASKED_IN_VAIN):
            began = self._invoke_switch("on")
            status = self._wait_stable()
            if self._wait_in_service():
                self._report(self._phase, f"stack {self._stack} has turned its endpoint on", status=status)
                return
            if began:
                break
            self._wait(f"stack {self._stack} is {status} and has not started; retrying", status)
        raise SwitchStuck(
            f"Stack {self._stack} is {status}, and its endpoint is {self.look() or 'missing'}.",
            next_step="Find the cause with `aws cloudformation describe-stack-events --stack-name "
            f"{self._stack}`, and the engine's last lines with `peagle-sm logs`.",
            details={"stack": self._stack, "status": status},
        )

    def _wait_in_service(self) -> bool:
        """Wait until the endpoint's status is final; return whether it is InService."""
        while (status := self.look()) in ON_ITS_WAY:
            self._wait(f"endpoint is {status}", status)
        return status == "InService"

    def _invoke_switch(self, way: Way) -> bool:
        """Invoke the switch; return whether it started, or waits for another change."""
        while True:
            try:
                answer = guard_resources.invoke(self._session, SWITCH, {"action": way, "stack": self._stack})
            except NotFound as error:
                raise PlanRefused(
                    f"Stack {self._stack} cannot be turned {way} without a guard: none is installed.",
                    next_step=f"Install it: `peagle-sm guard install{self._session.command_flags()}`.",
                    details={"findings": [], "function": SWITCH},
                ) from error
            except PeagleError as error:
                if not is_refused_now(error):
                    raise
                self._wait(f"the guard's switch did not answer; retrying ({error.message})", None)
                continue
            state, detail = str(answer.get("state", "")), str(answer.get("detail", ""))
            if state == "refused":
                raise PlanRefused(
                    f"The guard's switch refuses to turn stack {self._stack} {way}: {detail}",
                    next_step="Fix the reason that it gives, and run the command again.",
                    details={"findings": [], "answer": dict(answer)},
                )
            self._report(
                self._phase, detail or f"the guard's switch answers: {state}", resource=f"stack/{self._stack}"
            )
            return bool(answer.get("started", True))

    def _wait_stable(self) -> str:
        """Wait while the stack changes, then return its status."""
        while True:
            status = stack_status(self._session, self._stack) or "gone"
            if not status.endswith("_IN_PROGRESS"):
                return status
            self._wait(f"stack {self._stack} is {status}; endpoint: {self.look() or 'none'}", status)

    def _wait(self, message: str, status: str | None) -> None:
        if self._pacing.monotonic() >= self._deadline:
            raise SwitchStuck(
                f"Stack {self._stack} is still {status or 'not answering'} after the timeout.",
                next_step="Run the command again: it continues from the current status.",
                details={"stack": self._stack, "status": status},
            )
        self._report(self._phase, message, status=status, resource=f"stack/{self._stack}")
        self._pacing.sleep(self._pacing.poll_s)


@dataclass(frozen=True)
class PauseReport:
    """Result of a pause; ``kept`` is "kind/name" of what is kept at no cost."""

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
    """Turn an endpoint off, keep its config and model, and wait until it is gone.

    The endpoint of a stack is turned off by its stack. ``confirm`` receives what runs (None: no confirmation
    prompt). A timetable does not turn the endpoint on before `resume`. If the caller may not read its
    lifetime schedule, the pause continues and reports the schedule at the end.

    Raises:
        NotFound: no endpoint has that name.
        PlanRefused: peagle-sm did not create it, or the guard's switch refused.
        BillableLeft: AWS did not confirm that it is gone; ``next_step`` is the command that continues.
        Interrupted: Ctrl-C when the endpoint was already gone.
        Declined: ``confirm`` declined.
        PeagleError: it is off, but AWS did not confirm that its lifetime schedule is gone.
    """
    pacing = pacing or Pacing.for_session(session)
    belongings = belongings_of(session, name, need_lifetime=False)
    if belongings.endpoint is None:
        return _already_off(session, belongings, pacing, Reporter(progress, pacing))
    if belongings.stack is not None:
        require_own_stack(name, belongings.stack)
    summary = summary_of(session, belongings, session.now())
    if confirm is not None and not confirm(summary):
        raise Declined("Nothing was paused: it was not confirmed.", next_step="Run again and confirm.")
    report = Reporter(progress, pacing, summary.usd_per_hour)
    try:
        if belongings.stack is not None:
            _pause_stack(session, belongings, belongings.stack, pacing, report)
        else:
            _pause_endpoint(session, belongings, pacing, report)
    except KeyboardInterrupt:
        _interrupted(session, name)
    except BillableLeft as left:
        left.next_step = _command(session, name)
        raise
    kept = belongings_of(session, name, need_lifetime=False).resources
    report("done", f"endpoint {name} is paused", status="Paused")
    return PauseReport(name, False, belongings.stack, summary.usd_per_hour, kept)


def _already_off(session: Session, belongings: Belongings, pacing: Pacing, report: Reporter) -> PauseReport:
    if rest_of(belongings, known_entry(session, belongings.name)) is None:
        raise not_ours(session, belongings)
    note(
        session,
        belongings.name,
        lambda entry: {} if entry.paused else {"paused": True},
        pacing,
        report,
        "pause",
    )
    if belongings.stack is None:
        _remove(session, belongings, pacing, Reporter(None, pacing))  # what an interrupted pause left
    return PauseReport(
        belongings.name, True, belongings.stack, 0.0 if session.is_local else None, belongings.resources
    )


def _pause_stack(
    session: Session, belongings: Belongings, stack: str, pacing: Pacing, report: Reporter
) -> None:
    # Before the deletion: otherwise the guard's timetable would turn the missing endpoint on.
    note(session, belongings.name, lambda entry: {"paused": True}, pacing, report, "pause")
    try:
        StackSwitch(session, stack, belongings.name, pacing, report, "pause").off()
    except SwitchStuck as stuck:
        raise BillableLeft(
            f"Endpoint {belongings.name} may still be running and billed: {stuck.message}",
            details={"resources": [f"endpoint/{belongings.name}"], "region": session.region, **stuck.details},
        ) from stuck


def _pause_endpoint(session: Session, belongings: Belongings, pacing: Pacing, report: Reporter) -> None:
    facts = control.describe_endpoint(session, belongings.name)
    config = None if facts is None else control.describe_endpoint_config(session, facts.config_name)
    if config is None:
        raise NotFound(
            f"endpoint {belongings.name} was not paused: its config is missing, so `resume` would fail.",
            next_step=f"Delete it, and deploy again: `peagle-sm delete {belongings.name}"
            f"{session.command_flags()}`.",
            details={"name": belongings.name},
        )
    marks = {PAUSED: pacing.clock().isoformat(timespec="seconds")}
    if belongings.lifetime is not None and belongings.lifetime.role_arn is not None:
        marks[SCHEDULER_ROLE] = belongings.lifetime.role_arn
    control.add_tags(session, config.arn, marks)
    note(session, belongings.name, lambda entry: {"paused": True}, pacing, report, "pause")
    report("pause", f"config {config.name} is kept", resource=f"endpoint-config/{config.name}")
    _remove(session, belongings, pacing, report)


def _remove(session: Session, belongings: Belongings, pacing: Pacing, report: Reporter) -> None:
    """Delete what does not rest; last its schedule, which must not delete a new endpoint."""
    active = [resource for resource in belongings.to_remove if not resource.rests]
    removed = Teardown(session, pacing, report, "pause").run(active)
    if removed.left:
        left = ", ".join(f"{resource} ({why})" for resource, why in removed.left.items())
        by_hand = " ".join(remove_by_hand(session, resource) for resource in removed.left)
        raise PeagleError(
            f"Endpoint {belongings.name} is paused, but AWS did not confirm that these are gone: {left}",
            next_step=f"Run it again: `{_command(session, belongings.name)}`. {by_hand} "
            "If the schedule uses your own role, do not delete it: `resume` reads the role from it.",
            details={"left": sorted(removed.left)},
        )


def _interrupted(session: Session, name: str) -> NoReturn:
    gone = False
    try:
        gone = control.describe_endpoint(session, name) is None
    except (PeagleError, KeyboardInterrupt) as error:
        end_with_the_local_server(session, error)
    if gone:
        raise Interrupted(
            f"Interrupted: endpoint {name} is paused; its lifetime schedule may be left (free).",
            next_step=_command(session, name),
            details={"name": name},
        ) from None
    raise BillableLeft(
        f"Interrupted: endpoint {name} is not paused yet and may still be running and billed; its lifetime "
        "schedule still deletes it.",
        next_step=_command(session, name),
        details={"resources": [f"endpoint/{name}"], "region": session.region},
    ) from None


def _command(session: Session, name: str) -> str:
    return f"peagle-sm pause {name} --yes{session.command_flags()}"
