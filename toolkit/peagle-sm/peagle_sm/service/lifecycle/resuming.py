"""resume(): turn a paused endpoint on again, with a new lifetime schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from peagle_sm.aws.control import lifetime
from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.control.sagemaker import ConfigFacts
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import (
    BillableLeft,
    Declined,
    EndpointFailed,
    Interrupted,
    NotFound,
    PeagleError,
    PlanRefused,
)
from peagle_sm.core.guard import scheduler_role
from peagle_sm.core.plan import tags_and_schedules as keys
from peagle_sm.core.plan.tags_and_schedules import partition, schedule_name
from peagle_sm.core.resources.lifetime_schedule import LifetimeSchedule, lifetime_schedules
from peagle_sm.core.resources.ordered import component_of, resumed
from peagle_sm.service.inventory.guard_state import (
    awake,
    guard_works,
    guards_own,
    known_entry,
    lease_of,
    note,
    require_guard,
    unpaused,
)
from peagle_sm.service.inventory.inspection import kept_config, not_ours
from peagle_sm.service.inventory.listing import most_per_hour, plain, price_per_hour
from peagle_sm.service.inventory.resources import (
    Belongings,
    amount,
    belongings_of,
    require_own_stack,
)
from peagle_sm.service.lifecycle.creation import Run, arm, create_all, follow
from peagle_sm.service.lifecycle.pausing import StackSwitch, SwitchStuck
from peagle_sm.service.lifecycle.rescue import rescue
from peagle_sm.service.lifecycle.teardown import Teardown
from peagle_sm.service.progress import Pacing, Progress, Reporter

LONGEST_STARTUP_S = 3600
DEFAULT_LIFETIME_HOURS = 8.0


@dataclass(frozen=True)
class ResumeOffer:
    """Price of a resume: USD per hour and for the whole lifetime; None if unknown.

    ``max_usd`` counts autoscaling's maximum of instances, ``usd_per_hour`` the instances at the start.
    ``expires_at`` is the end of the new lifetime, or of an earlier lease of `keep` if that is later.
    ``is_on``: the endpoint is already on, so that no new cost begins. ``price_at_most``: the price is an
    upper bound.
    """

    name: str
    config: str
    stack: str | None
    usd_per_hour: float | None
    lifetime_hours: float
    max_usd: float | None
    expires_at: datetime
    hours: str | None
    is_on: bool = False
    price_at_most: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types; times as ISO text."""
        return {key: plain(value) for key, value in asdict(self).items()}


def resume(
    name: str,
    *,
    session: Session,
    confirm: Callable[[ResumeOffer], bool] | None = None,
    progress: Progress | None = None,
    pacing: Pacing | None = None,
    unguarded: bool = False,
) -> ResumeOffer:
    """Turn a paused endpoint on and follow it until it is InService.

    Its lifetime starts again. The endpoint of a stack is turned on by its stack. ``confirm`` receives the
    price (None: no confirmation prompt). ``unguarded`` resumes an endpoint without a stack if no guard is
    installed; the lifetime schedule is still created.

    Raises:
        GuardMissing: no guard is installed, and ``unguarded`` is False; nothing was created.
        NotFound: nothing of that name can be resumed.
        PlanRefused: peagle-sm did not create it, or the guard's switch refused.
        EndpointFailed: the endpoint failed; it is off again, and can be resumed.
        Interrupted: Ctrl-C; nothing billable is left.
        BillableLeft: the endpoint may still exist; ``next_step`` is the command that turns it off.
        Declined: ``confirm`` declined.
    """
    pacing = pacing or Pacing.for_session(session)
    belongings = belongings_of(session, name)
    config = _config(session, belongings)
    if belongings.stack is not None:
        require_own_stack(name, belongings.stack)
    lease = None if belongings.endpoint is not None else lease_of(session, name)
    offer = _offer(session, belongings, config, pacing.clock(), lease)
    report = Reporter(progress, pacing, offer.usd_per_hour)
    if offer.is_on:
        _finish(session, belongings, config, pacing, report)
        return offer
    if belongings.stack is None and not unguarded:
        require_guard(session)
    if confirm is not None and not confirm(offer):
        raise Declined("Nothing was resumed: it was not confirmed.", next_step="Run again and confirm.")
    if belongings.stack is not None:
        offer = _resume_stack(session, belongings.stack, offer, pacing, report)
    else:
        offer = _resume_endpoint(session, belongings, config, offer, pacing, report)
    note(session, name, lambda entry: unpaused(entry, offer.expires_at), pacing, report, "resume")
    report("ready", f"endpoint {name} is in service", status="InService")
    return offer


def _finish(
    session: Session, belongings: Belongings, config: ConfigFacts, pacing: Pacing, report: Reporter
) -> None:
    """Finish an interrupted resume: its component and autoscaling, and the tags of the pause."""
    if (
        belongings.stack is None
        and belongings.lifetime is not None
        and belongings.endpoint
        and belongings.endpoint.status == "InService"
    ):
        run = _run(session, belongings, config, (), pacing, report)
        create_all(run, run.started)
    if belongings.stack is None and belongings.kept_config is not None:
        _remove_pause_tags(session, config, report)
    ends = belongings.lifetime.expires_at if belongings.lifetime is not None else None
    note(session, belongings.name, lambda entry: unpaused(entry, ends), pacing, report, "resume")


def _remove_pause_tags(session: Session, config: ConfigFacts, report: Reporter) -> None:
    """Remove the tags of the pause from the config; a failure is only reported."""
    try:
        awake(session, config.arn)
    except PeagleError as error:
        report("resume", f"config {config.name} still has the tags of the pause ({error.message})")


def _config(session: Session, belongings: Belongings) -> ConfigFacts:
    if not belongings.configs:
        raise not_ours(session, belongings)
    running = control.describe_endpoint(session, belongings.name) if belongings.endpoint else None
    entry = (
        known_entry(session, belongings.name)
        if belongings.endpoint is None and belongings.kept_config is None
        else None
    )
    wanted = running.config_name if running else (entry and entry.config_name) or kept_config(belongings)
    config = control.describe_endpoint_config(session, wanted)
    if config is None or (config.model_name and control.describe_model(session, config.model_name) is None):
        raise NotFound(
            f"endpoint {belongings.name} cannot be resumed: its config {wanted} or its model is missing.",
            next_step="Deploy it again, or delete its remaining resources: "
            f"`peagle-sm delete {belongings.name}{session.command_flags()}`.",
            details={"name": belongings.name, "config": wanted},
        )
    return config


def _offer(
    session: Session, belongings: Belongings, config: ConfigFacts, now: datetime, lease: datetime | None
) -> ResumeOffer:
    hourly, at_most = price_per_hour(
        session, belongings.tags, config.instance_type, config.instance_count, ask=True
    )
    most = most_per_hour(belongings.tags.get(keys.INSTANCE_BOUNDS), hourly, config.instance_count)
    now = now.replace(microsecond=0)
    hours = amount(belongings.tags, keys.MAX_LIFETIME_HOURS) or DEFAULT_LIFETIME_HOURS
    expires_at = max(now + timedelta(hours=hours), lease or now)
    most_hours = (expires_at - now) / timedelta(hours=1)
    return ResumeOffer(
        name=belongings.name,
        config=config.name,
        stack=belongings.stack,
        usd_per_hour=hourly,
        lifetime_hours=hours,
        max_usd=None if most is None else round(most * most_hours, 2),
        expires_at=expires_at,
        hours=belongings.tags.get(keys.HOURS),
        price_at_most=at_most,
        is_on=belongings.endpoint is not None
        and belongings.endpoint.status not in ("Creating", "Deleting", "Failed"),
    )


def _resume_stack(
    session: Session, stack: str, offer: ResumeOffer, pacing: Pacing, report: Reporter
) -> ResumeOffer:
    name = offer.name
    switch = StackSwitch(session, stack, name, pacing, report, "resume")
    undo = f"peagle-sm pause {name} --yes{session.command_flags()}"
    details = {"resources": [f"endpoint/{name}"], "region": session.region}
    try:
        report.start_billing()
        switch.on()
    except KeyboardInterrupt:
        raise BillableLeft(
            f"Interrupted: stack {stack} is still turning endpoint {name} on.",
            next_step=undo,
            details=details,
        ) from None
    except SwitchStuck as stuck:
        if switch.look() is not None:
            raise BillableLeft(stuck.message, next_step=undo, details={**details, **stuck.details}) from stuck
        raise EndpointFailed(stuck.message, next_step=stuck.next_step, details=stuck.details) from stuck
    with suppress(PeagleError):  # it serves; `status` shows what could not be read here
        limit = lifetime.get(session, schedule_name(name))
        if limit is not None and limit.expires_at is not None:
            return replace(offer, expires_at=limit.expires_at)
    return offer


def _resume_endpoint(
    session: Session,
    belongings: Belongings,
    config: ConfigFacts,
    offer: ResumeOffer,
    pacing: Pacing,
    report: Reporter,
) -> ResumeOffer:
    ends = pacing.clock().replace(microsecond=0) + timedelta(hours=offer.lifetime_hours)
    expires_at = max(ends, offer.expires_at)
    component = component_of(belongings.name, belongings.tags)
    role = _role(session, belongings)
    schedules = lifetime_schedules(belongings.name, session.region, role, expires_at, component)
    run = _run(session, belongings, config, schedules, pacing, report)
    try:
        if belongings.endpoint is not None and belongings.endpoint.status in ("Deleting", "Failed"):
            Teardown(session, pacing, report, "check").remove_endpoint(belongings.name)
        lifetime.remove_hard(session, belongings.name)
        arm(run)
        create_all(run, [run.endpoint])
        follow(run)
        create_all(run, run.started)
    except (KeyboardInterrupt, Exception) as cause:
        try:
            rescue(run, cause)
        except Interrupted as stopped:
            stopped.message = f"Interrupted: endpoint {run.name} is off again, and can be resumed."
            raise
    _remove_pause_tags(session, config, report)
    return replace(offer, expires_at=expires_at)


def _run(
    session: Session,
    belongings: Belongings,
    config: ConfigFacts,
    schedules: Sequence[LifetimeSchedule],
    pacing: Pacing,
    report: Reporter,
) -> Run:
    """Return the run of a resume; its clean-up keeps config and model."""
    tags = control.tags_of(session, config.arn) or {}
    variant: Mapping[str, Any] = next(iter(config.raw.get("ProductionVariants") or ()), {})
    return Run(
        belongings.name,
        config.name,
        resumed(belongings.name, config.name, tags, schedules, variant),
        "pause",
        LONGEST_STARTUP_S,
        session,
        pacing,
        report,
        may_exist=belongings.endpoint is not None,
    )


def _role(session: Session, belongings: Belongings) -> str:
    """Return the schedule's role: its old one, the local server's, or the guard's."""
    role = belongings.tags.get(keys.SCHEDULER_ROLE) or (
        belongings.lifetime.role_arn if belongings.lifetime else None
    )
    if role and not guards_own(session, role):
        return role
    if session.local is not None and session.local.scheduler_role_arn:
        return session.local.scheduler_role_arn
    if guard_works(session):
        name = scheduler_role(session.region)
        return role or f"arn:{partition(session.region)}:iam::{session.account()}:role/{name}"
    if role:
        raise PlanRefused(
            f"endpoint {belongings.name} cannot be resumed: its lifetime schedule needs the guard's role, "
            "and no guard is installed.",
            next_step=f"Install the guard again: `peagle-sm guard install{session.command_flags()}`.",
            details={"findings": []},
        )
    raise PlanRefused(
        f"endpoint {belongings.name} cannot be resumed: it needs a lifetime schedule, and the role for that "
        "schedule is not known.",
        next_step="Deploy it again from its spec, which names scheduler_role_arn.",
        details={"findings": []},
    )
