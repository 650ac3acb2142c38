"""update(): bring an existing endpoint to another spec.

An in place update starts a second fleet beside the first; a rollback by SageMaker is reported as a failure.
A stop-and-start update pauses the endpoint first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import NoReturn

from peagle_sm.aws.control import cloudwatch, executor, guard_resources, lifetime
from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.control.guard_resources import RegisterEntry, Value
from peagle_sm.aws.control.lifetime import Lifetime
from peagle_sm.aws.control.sagemaker import EndpointFacts
from peagle_sm.aws.session.errors import is_refused_now, is_unsettled
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.streams.refusals import ON_ITS_WAY
from peagle_sm.core.errors import Declined, EndpointFailed, Interrupted, PeagleError
from peagle_sm.core.plan import tags_and_schedules as keys
from peagle_sm.core.plan.changes import stale_tags
from peagle_sm.core.planning import Plan
from peagle_sm.core.resources.alarm import Alarm, update_alarms, update_alarms_deletion
from peagle_sm.core.resources.component import Component
from peagle_sm.core.resources.endpoint import BAKING_S, Canary, update_request
from peagle_sm.core.resources.endpoint_config import VARIANT, EndpointConfig
from peagle_sm.core.resources.model import Model
from peagle_sm.core.resources.ordered import named
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, Update
from peagle_sm.service.inventory.guard_state import lease_of, note, require_guard, unpaused
from peagle_sm.service.inventory.inspection import follow_endpoint, patience_s
from peagle_sm.service.inventory.resources import Belongings, ToRemove, belongings_of
from peagle_sm.service.lifecycle.creation import arm, create_all, fetch_files, follow
from peagle_sm.service.lifecycle.deployment import Deploy, bring_up
from peagle_sm.service.lifecycle.endpoint import Endpoint
from peagle_sm.service.lifecycle.existing import CurrentState, UpdateOffer, current_state, offer_of, survey
from peagle_sm.service.lifecycle.pausing import pause
from peagle_sm.service.lifecycle.teardown import LOG_LINES, PLAIN_ATTEMPTS, Removed, Teardown
from peagle_sm.service.progress import Pacing, Progress, Reporter, create_once
from peagle_sm.service.spec_to_plan import plan_for

# DescribeEndpoint may lag behind UpdateEndpoint: an old InService is not a rollback.
_BEGINS_WITHIN_S = 60.0


class InPlace:
    """One in place update; the endpoint serves during it."""

    def __init__(
        self, run: Deploy, current: CurrentState, offer: UpdateOffer, alarms: Sequence[Alarm]
    ) -> None:
        """Take the present state, to restore it after a failure, and the alarms that exist meanwhile."""
        self._run = run
        self._offer = offer
        self._alarms = alarms
        self._limit: Lifetime | None = current.belongings.lifetime
        self._created = None if current.facts is None else current.facts.created_at

    def bring_about(self) -> None:
        """Extend the lifetime, create model and config, update the endpoint, and follow.

        Raises:
            EndpointFailed: SageMaker rolled back; everything created for the update was deleted.
            Interrupted: Ctrl-C; the message states whether SageMaker continues the update.
            PeagleError: AWS refused or did not answer; ``next_step`` describes the present state.
        """
        run = self._run
        try:
            lease = lease_of(run.session, run.name, self._created)
            self._remember(arm(run, lease).expires_at)  # before anything is started
            if not self._offer.fleet:
                return
            create_all(run, _free(run))
            for alarm in self._alarms:
                executor.create(run.session, alarm)
            self._send()
            self._follow()
        except (KeyboardInterrupt, Exception) as cause:
            self._recover(cause)

    def _remember(self, ends: datetime | None) -> None:
        """Write the end to the register: by default the guard counts from the creation."""

        def change(seen: RegisterEntry) -> Mapping[str, Value]:
            older = {} if seen.is_of(self._created) else {"created_at": None, "keep_until": None}
            return {"expires_at": ends, **older}

        guard_resources.update(self._run.session, self._run.name, change)

    def _send(self) -> None:
        """Send UpdateEndpoint; after an unclear answer, check before a retry."""
        run, offer = self._run, self._offer
        retain = not offer.changes_field("InitialInstanceCount")
        request = update_request(run.name, run.config, offer.alarms, offer.canary, retain=retain)
        run.report.start_billing()
        if not self._has_begun():
            send = partial(executor.send, run.session, request, once=True)
            create_once(send, self._has_begun, run.pacing, run.report, is_refused_now)
        run.report("endpoint", f"endpoint {run.name} is being updated", status="Updating")

    def _has_begun(self) -> bool:
        facts = control.describe_endpoint(self._run.session, self._run.name)
        return facts is not None and self._run.config in (facts.pending_config, facts.config_name)

    def _follow(self) -> None:
        run = self._run
        canary_s = 0 if self._offer.canary is None else self._offer.canary.seconds
        until = run.pacing.monotonic() + _BEGINS_WITHIN_S
        while not self._has_begun() and run.pacing.monotonic() < until:
            run.pacing.sleep(run.pacing.poll_s)
        follow_endpoint(
            run.session,
            run.name,
            run.plan.names.config,
            patience=patience_s(run.plan.spec.startup_timeout_s) + BAKING_S + canary_s,
            pacing=run.pacing,
            report=run.report,
            note=lambda facts: None,
        )

    def _recover(self, cause: BaseException) -> NoReturn:
        """Restore what can be restored, and raise an error with the present state."""
        run = self._run
        run.report.quiet = True
        if not self._offer.fleet:
            with suppress(PeagleError, KeyboardInterrupt):  # then the longer lifetime holds
                self._put_back_lifetime()
            self._raise(cause, f"Nothing was started: endpoint {run.name} serves as before.")
        try:
            facts = self._look()
        except (PeagleError, KeyboardInterrupt):
            self._raise(
                cause,
                f"The status of endpoint {run.name} is unknown; its lifetime schedule still deletes it. "
                "Remaining, at no hourly cost: the new config and model, and the alarms of the update.",
            )
        if facts is None:
            self._raise(cause, f"Endpoint {run.name} is gone.")
        if run.plan.names.config in (facts.config_name, facts.pending_config) or facts.status in ON_ITS_WAY:
            self._raise(
                cause,
                f"SageMaker is still updating endpoint {run.name}, and the second fleet is billed until the "
                "update ends; the lifetime schedule still deletes the endpoint. Its alarms stay and can "
                "still roll it back.",
            )
        self._put_back(facts, cause)

    def _look(self) -> EndpointFacts | None:
        for attempt in range(PLAIN_ATTEMPTS):
            try:
                return control.describe_endpoint(self._run.session, self._run.name)
            except PeagleError as error:
                if not is_unsettled(error) or attempt + 1 == PLAIN_ATTEMPTS:
                    raise
                self._run.pacing.sleep(self._run.pacing.poll_s)
        raise AssertionError("unreachable")

    def _put_back_lifetime(self) -> None:
        """Restore the end of the lifetime; of a component too, since it keeps its endpoint alive."""
        run = self._run
        if self._limit is None:
            return
        ends = lifetime.put_back(run.session, self._limit, run.pacing.clock())
        of_component = lifetime.get(run.session, keys.hard_schedule_name(run.name, 1))
        if of_component is not None and ends is not None:
            lifetime.move(run.session, of_component, ends)
        self._remember(ends)

    def _put_back(self, facts: EndpointFacts, cause: BaseException) -> NoReturn:
        run, names, left = self._run, self._run.plan.names, {}
        if isinstance(cause, EndpointFailed):
            with suppress(PeagleError):
                cause.details["log_tail"] = [
                    line.message for line in cloudwatch.tail(run.session, run.name, LOG_LINES, None)
                ]
        gone = Removed()
        try:
            Teardown(run.session, run.pacing, run.report).remove_free(_free(run), run.name, gone)
            left = dict(gone.left)
            executor.send(run.session, update_alarms_deletion(run.name))
            self._put_back_lifetime()
        except (PeagleError, KeyboardInterrupt) as error:
            left[f"alarms or lifetime schedule of {run.name}"] = str(error)
        serves = f"Endpoint {run.name} still runs its old config {facts.config_name} ({facts.status})"
        if isinstance(cause, EndpointFailed):
            cause.message = f"The update of endpoint {run.name} failed: SageMaker rolled back. {serves}."
            cause.details |= {"config": facts.config_name, "asked": names.config}
            cause.next_step = cause.next_step or (
                "Read the engine's last lines (details.log_tail), correct the spec, and update again."
            )
        elif isinstance(cause, PeagleError):
            cause.next_step = f"{serves}. {cause.next_step or 'Run the update again.'}"
        if isinstance(cause, PeagleError):
            cause.details |= {"deleted": gone.deleted, "left": sorted(left)}
            if left:
                cause.next_step = f"{cause.next_step} Remaining, at no hourly cost: {', '.join(left)}."
        elif isinstance(cause, KeyboardInterrupt):
            raise Interrupted(f"Interrupted: nothing was updated. {serves}.") from None
        raise cause

    def _raise(self, cause: BaseException, how: str) -> NoReturn:
        flags = self._run.session.command_flags()
        step = (
            f"{how} Run the update again to follow it; check it with `peagle-sm status {self._run.name}"
            f"{flags}`; delete it with `peagle-sm delete {self._run.name} --yes{flags}`."
        )
        if isinstance(cause, KeyboardInterrupt):
            raise Interrupted(f"Interrupted. {how}", next_step=step) from None
        if isinstance(cause, PeagleError):
            cause.next_step = f"{cause.next_step or ''} {step}".strip()
        raise cause


def _free(run: Deploy) -> ToRemove:
    """Return the model and the config of the new spec."""
    return [resource for resource in run.resources if isinstance(resource, Model | EndpointConfig)]


def update(
    spec: EndpointSpec,
    *,
    session: Session,
    strategy: Update | None = None,
    alarms: Sequence[str] = (),
    least_acceptance: float | None = None,
    canary: Canary | None = None,
    confirm: Callable[[UpdateOffer], bool] | None = None,
    progress: Progress | None = None,
    pacing: Pacing | None = None,
    unguarded: bool = False,
    preflight: Callable[[Plan], object] | None = None,
    skip_checks: Collection[str] = (),
) -> Endpoint:
    """Update the endpoint of ``spec`` to its present content, and follow it.

    ``strategy`` (None: the spec's ``update``): "in-place" starts a second fleet, which is billed until the
    first one is gone, and the endpoint serves all the time. CloudWatch alarms roll it back: one on server
    errors, with ``least_acceptance`` one on a lower acceptance length, and the given ``alarms``. The first
    two exist from the confirmation to the end of the update, also if this process ends before: then the
    repeated update removes them, or `delete`. With ``canary`` a share of the second
    fleet serves first; left out, all traffic moves at once. "off-update-on" pauses the endpoint and
    starts it with the new spec. If only tags differ, nothing is started. Each update starts the lifetime
    again. A repeated run continues a killed one.

    Raises:
        Declined: ``confirm`` declined.
        PlanRefused: the plan has an error, or the endpoint's status forbids an update.
        NotFound: the endpoint does not exist.
        GuardMissing: no guard is installed, and ``unguarded`` is False.
        EndpointFailed: SageMaker rolled back; the old config serves as before. Or, with off-update-on, the
            new endpoint failed: the endpoint is paused, and `resume` starts the old one.
        Interrupted: Ctrl-C; the message states what continues.
        BillableLeft: an endpoint may still exist; ``next_step`` is the command that deletes it.
        PeagleError: AWS refused or did not answer; ``next_step`` describes the present state.
    """
    pacing = pacing or Pacing.for_session(session)
    try:
        way = strategy or spec.update
        plan = plan_for(spec, session)
        plan.refuse_errors(skip_checks)
        if not unguarded:
            require_guard(session)
        fetch_files(session, plan, Reporter(progress, pacing))
        if preflight is not None:
            preflight(plan)
        existing = current_state(session, plan, way)
        own = update_alarms(spec.name, least_acceptance)
        names = (*(alarm.name for alarm in own), *alarms)
        offer = offer_of(session, plan, existing, way, names, pacing.clock(), canary)
        if confirm is not None and not offer.done and not confirm(offer):
            raise Declined(
                f"Endpoint {spec.name} was not updated: it was not confirmed.",
                next_step="Nothing was changed. Run again and confirm, or give --yes (yes=True).",
            )
    except KeyboardInterrupt:
        raise Interrupted("Interrupted: nothing was changed.") from None
    run = Deploy.of(offer.plan, session, pacing, Reporter(progress, pacing, offer.usd_per_hour))
    if offer.done:
        _end_the_pause(run, existing.belongings.lifetime)  # if an earlier run could not write it
        run.report("ready", f"endpoint {run.name} already serves this spec", status="InService")
    elif existing.facts is not None and offer.strategy == "in-place":
        InPlace(run, existing, offer, own).bring_about()
        _finish(run, offer)
    else:
        _stop_and_start(run, existing)
        _finish(run, offer)
    return Endpoint(run.name, session, pacing=pacing)


def _stop_and_start(run: Deploy, current: CurrentState) -> None:
    back = f"peagle-sm resume {run.name}{run.session.command_flags()}"
    ours = current.facts is not None and current.facts.config_name == run.plan.names.config
    create_all(run, _free(run))  # AWS refuses an invalid request now, while the old endpoint still serves
    if current.facts is not None and not ours:
        pause(run.name, session=run.session, pacing=run.pacing, progress=run.report.progress)
    seen = survey(run.session, run.plan)
    if seen.serves:
        return
    try:
        bring_up(run, seen)
    except PeagleError as error:
        kept = current.old_config != run.plan.names.config
        if kept and error.next_step is not None:
            error.next_step += f" The old config {current.old_config} is kept: `{back}` starts it again."
        raise


def _finish(run: Deploy, offer: UpdateOffer) -> None:
    """Finish an update whose new config serves; each step may be repeated."""
    session = run.session
    _end_the_pause(run, lifetime.get(session, run.plan.names.schedule))
    if offer.strategy == "in-place":
        executor.send(session, update_alarms_deletion(run.name))
    belongings = belongings_of(session, run.name)
    create_all(run, run.started)
    if belongings.tags.get(keys.SCALING) and keys.SCALING not in run.plan.tags():
        _end_scaling(run, named(run.name, belongings.tags, scheduled=False))
    _write_tags(run, belongings, offer)
    _remove_old(run, belongings)
    run.report("ready", f"endpoint {run.name} is in service", status="InService")


def _end_scaling(run: Deploy, old: ToRemove) -> None:
    """Remove the autoscaling, and return to the plan's number of instances.

    Application Auto Scaling leaves the number as it is, and nothing else would lower it.
    """
    removed, count = Removed(), run.plan.spec.placement.instance_count
    Teardown(run.session, run.pacing, run.report).remove_free(old, run.name, removed)
    if removed.left:
        left = ", ".join(f"{resource} ({reason})" for resource, reason in removed.left.items())
        raise PeagleError(
            f"Endpoint {run.name} is updated, but its old autoscaling is left and may start more instances: "
            f"{left}",
            next_step="Run the update again: it deletes it.",
            details={"left": sorted(removed.left)},
        )
    facts = control.describe_endpoint(run.session, run.name)
    variants = () if facts is None else facts.raw.get("ProductionVariants") or ()
    counts = {row.get("CurrentInstanceCount") for row in variants} - {None}
    if counts - {count} and not any(isinstance(resource, Component) for resource in old):
        control.set_instance_count(run.session, run.name, VARIANT, count)
        run.report("endpoint", f"endpoint {run.name} returns to {count} instances", status="Updating")
        follow(run)


def _end_the_pause(run: Deploy, limit: Lifetime | None) -> None:
    ends = None if limit is None else limit.expires_at
    note(run.session, run.name, lambda entry: unpaused(entry, ends), run.pacing, run.report, "check")


def _write_tags(run: Deploy, belongings: Belongings, offer: UpdateOffer) -> None:
    wanted = run.plan.tags()
    stale = stale_tags(belongings.tags, wanted)
    if belongings.endpoint is None or (
        not stale and all(belongings.tags.get(key) == wanted[key] for key in wanted)
    ):
        return
    if not offer.fleet:  # the old config is kept, and a resume takes the endpoint's tags from it
        config = control.describe_endpoint_config(run.session, run.plan.names.config)
        for arn in () if config is None else (config.arn,):
            control.add_tags(run.session, arn, wanted)
            control.remove_tags(run.session, arn, (*stale, keys.PAUSED, keys.SCHEDULER_ROLE))
    if stale:
        control.remove_tags(run.session, belongings.endpoint.arn, stale)
    control.add_tags(run.session, belongings.endpoint.arn, wanted)


def _remove_old(run: Deploy, belongings: Belongings) -> None:
    names = run.plan.names
    old = [
        *(Model(name) for name in belongings.models if name != names.model),
        *(EndpointConfig(name) for name in belongings.configs if name != names.config),
    ]
    gone = Removed()
    Teardown(run.session, run.pacing, run.report).remove_free(old, run.name, gone)
    if gone.left:
        left = ", ".join(f"{resource} ({why})" for resource, why in gone.left.items())
        raise PeagleError(
            f"Endpoint {run.name} is updated, but its old resources are left, at no cost: {left}",
            next_step="Run the update again: it deletes them.",
            details={"left": sorted(gone.left)},
        )
