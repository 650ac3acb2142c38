"""pause(): what bills goes, what is free stays, so that resume() brings the same endpoint back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import BillableLeft, Declined, Interrupted, NotFound, PeagleError, PlanRefused
from peagle_sm.core.plan.tags import PAUSED, SCHEDULER_ROLE
from peagle_sm.service.events import Pacing, Progress, Reporter
from peagle_sm.service.guard.leases import note
from peagle_sm.service.guard.rest import known_entry, rest_of
from peagle_sm.service.guard.switching import StackSwitch, SwitchStuck
from peagle_sm.service.inventory.belongings import Belongings, ToRemove, belongings_of
from peagle_sm.service.inventory.inspection import absent
from peagle_sm.service.inventory.listing import EndpointSummary, summary_of
from peagle_sm.service.inventory.ownership import require_own_stack
from peagle_sm.service.lifecycle.handover import end_with_the_local_server
from peagle_sm.service.lifecycle.teardown import Teardown, remove_by_hand


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
