"""update(): make an existing endpoint serve another spec, in place or by a stop and a start.

In place, UpdateEndpoint starts a second fleet beside the first; an update that SageMaker rolls back is
reported as a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import NoReturn

from peagle_sm.aws.control import cloudwatch, guard_resources, lifetime
from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.control.guard_resources import Entry, Value
from peagle_sm.aws.control.lifetime import Lifetime
from peagle_sm.aws.control.sagemaker import EndpointFacts
from peagle_sm.aws.session.errors import is_refused_now, is_unsettled
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.streams.refusals import ON_ITS_WAY
from peagle_sm.core.errors import Declined, EndpointFailed, Interrupted, PeagleError
from peagle_sm.core.plan import tags as keys
from peagle_sm.core.plan.payloads import BAKING_S, deployment_config, stale_tags, update_alarm
from peagle_sm.core.plan.plan import Plan
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, Update
from peagle_sm.service.endpoint import Endpoint
from peagle_sm.service.inventory.guard_state import lease_of, note, prolonged, require_guard, unpaused
from peagle_sm.service.inventory.inspection import follow_endpoint, patience_s
from peagle_sm.service.inventory.resources import Belongings, ToRemove, belongings_of
from peagle_sm.service.lifecycle.deployment import CREATE_ATTEMPTS, Deploy, bring_up, create_free
from peagle_sm.service.lifecycle.existing import CurrentState, UpdateOffer, current_state, offer_of, survey
from peagle_sm.service.lifecycle.pausing import pause
from peagle_sm.service.lifecycle.teardown import LOG_LINES, PLAIN_ATTEMPTS, Removed, Teardown
from peagle_sm.service.progress import Pacing, Progress, Reporter
from peagle_sm.service.spec_to_plan import plan_for, refuse_errors

# DescribeEndpoint may lag behind UpdateEndpoint; an old InService must not be taken for a rollback.
_BEGINS_WITHIN_S = 60.0


class InPlace:
    """One update of an endpoint that serves and goes on serving."""

    def __init__(self, run: Deploy, found: CurrentState, offer: UpdateOffer) -> None:
        """Remember how it stood, so that a failure puts it back."""
        self._run = run
        self._offer = offer
        self._limit: Lifetime | None = found.one.lifetime
        self._created = None if found.facts is None else found.facts.created_at

    def bring_about(self) -> None:
        """Extend the lifetime, create model and config, update, and follow.

        Raises:
            EndpointFailed: SageMaker rolled back; what was made for the update is gone again.
            Interrupted: Ctrl-C; the message says whether SageMaker goes on.
            PeagleError: AWS refused or did not answer; ``next_step`` says how it stands.
        """
        run = self._run
        try:
            self._extend()
            if not self._offer.fleet:
                return
            create_free(run)
            cloudwatch.put_alarm(run.session, update_alarm(run.name))
            self._send()
            self._follow()
        except (KeyboardInterrupt, Exception) as cause:
            self._stopped(cause)

    def _extend(self) -> None:
        """Write the new end of its life: first of all, so that what is started has one."""
        run = self._run
        schedule = prolonged(run.parameters("create_schedule"), self._lease())
        armed = lifetime.arm(run.session, schedule)
        self._remember(armed.expires_at)
        run.report(
            "lifetime",
            f"lifetime limit armed: deleted at {armed.expires_at:%Y-%m-%d %H:%M} UTC",
            resource=f"schedule/{armed.name}",
        )

    def _lease(self) -> datetime | None:
        return lease_of(self._run.session, self._run.name, self._created)

    def _remember(self, ends: datetime | None) -> None:
        """The guard counts from the endpoint's creation, unless its register has another end."""

        def change(seen: Entry) -> Mapping[str, Value]:
            older = {} if seen.is_of(self._created) else {"created_at": None, "keep_until": None}
            return {"expires_at": ends, **older}

        guard_resources.update(self._run.session, self._run.name, change)

    def _send(self) -> None:
        """Ask once; after an unclear answer, or a refusal that may pass, look before asking again."""
        run, config = self._run, self._run.plan.names.config
        run.report.start_billing()
        for attempt in range(1, CREATE_ATTEMPTS + 1):
            if self._begun():
                break
            try:
                deployment = deployment_config(self._offer.alarms)
                retain = not self._offer.changes_field("InitialInstanceCount")
                control.update_endpoint(run.session, run.name, config, deployment, retain=retain)
            except PeagleError as error:
                if not is_refused_now(error) or attempt == CREATE_ATTEMPTS:
                    raise
                run.report("check", f"no clear answer, looking before trying again ({error.message})")
                run.pacing.sleep(min(run.pacing.poll_s, 2.0**attempt))
            else:
                break
        run.report("endpoint", f"endpoint {run.name} is being updated", status="Updating")

    def _begun(self) -> bool:
        facts = control.describe_endpoint(self._run.session, self._run.name)
        config = self._run.plan.names.config
        return facts is not None and config in (facts.pending_config, facts.config_name)

    def _follow(self) -> None:
        run = self._run
        until = run.pacing.monotonic() + _BEGINS_WITHIN_S
        while not self._begun() and run.pacing.monotonic() < until:
            run.pacing.sleep(run.pacing.poll_s)
        follow_endpoint(
            run.session,
            run.name,
            run.plan.names.config,
            patience=patience_s(run.plan.spec.startup_timeout_s) + BAKING_S,
            pacing=run.pacing,
            report=run.report,
            note=lambda facts: None,
        )

    def _stopped(self, cause: BaseException) -> NoReturn:
        """Put back what can be put back, and tell how it stands."""
        run = self._run
        run.report.quiet = True
        try:
            facts = self._look()
        except (PeagleError, KeyboardInterrupt):
            self._raise(
                cause,
                f"How endpoint {run.name} stands is not known; its lifetime limit holds. Left, costing "
                "nothing by the hour: the new config and model, and the alarm of the update.",
            )
        if facts is None:
            self._raise(cause, f"Endpoint {run.name} is gone.")
        if run.plan.names.config in (facts.config_name, facts.pending_config) or facts.status in ON_ITS_WAY:
            self._raise(
                cause,
                f"SageMaker goes on updating endpoint {run.name}, and the second fleet costs until it is "
                "over; its lifetime limit holds.",
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

    def _put_back(self, facts: EndpointFacts, cause: BaseException) -> NoReturn:
        run, names, left = self._run, self._run.plan.names, {}
        if isinstance(cause, EndpointFailed):
            with suppress(PeagleError):
                cause.details["log_tail"] = [
                    line.message for line in cloudwatch.tail(run.session, run.name, LOG_LINES, None)
                ]
        gone = Removed()
        try:
            new = ToRemove(run.name, (names.config,), (names.model,))
            Teardown(run.session, run.pacing, run.report).remove_free(new, gone)
            left = dict(gone.left)
            cloudwatch.remove_alarm(run.session, update_alarm(run.name)["AlarmName"])
            if self._limit is not None and self._limit.expires_at is not None:
                lifetime.move(run.session, self._limit, self._limit.expires_at)
                self._remember(self._limit.expires_at)
        except (PeagleError, KeyboardInterrupt) as error:
            left[f"alarm or lifetime limit of {run.name}"] = str(error)
        serves = f"Endpoint {run.name} runs its old config {facts.config_name} ({facts.status})"
        if isinstance(cause, EndpointFailed):
            cause.message = (
                f"The update of endpoint {run.name} failed: SageMaker rolled back. {serves}, as before."
            )
            cause.details |= {"config": facts.config_name, "asked": names.config}
            cause.next_step = cause.next_step or (
                "Read the engine's last lines (details.log_tail), correct the spec, and update again."
            )
        elif isinstance(cause, PeagleError):
            cause.next_step = f"{serves}, as before. {cause.next_step or 'Run the update again.'}"
        if isinstance(cause, PeagleError):
            cause.details |= {"deleted": gone.deleted, "left": sorted(left)}
            if left:
                cause.next_step = f"{cause.next_step} Left, costing nothing by the hour: {', '.join(left)}."
        elif isinstance(cause, KeyboardInterrupt):
            raise Interrupted(f"Interrupted: nothing was updated. {serves}, as before.") from None
        raise cause

    def _raise(self, cause: BaseException, how: str) -> NoReturn:
        flags = self._run.session.command_flags()
        step = (
            f"{how} Follow it by running the update again; look with `peagle-sm status {self._run.name}"
            f"{flags}`; end it with `peagle-sm delete {self._run.name} --yes{flags}`."
        )
        if isinstance(cause, KeyboardInterrupt):
            raise Interrupted(f"Interrupted. {how}", next_step=step) from None
        if isinstance(cause, PeagleError):
            cause.next_step = f"{cause.next_step or ''} {step}".strip()
        raise cause


def update(
    spec: EndpointSpec,
    *,
    session: Session,
    strategy: Update | None = None,
    alarms: Sequence[str] = (),
    confirm: Callable[[UpdateOffer], bool] | None = None,
    progress: Progress | None = None,
    pacing: Pacing | None = None,
    unguarded: bool = False,
    preflight: Callable[[Plan], object] | None = None,
    skip_checks: Collection[str] = (),
) -> Endpoint:
    """Bring the endpoint of ``spec`` to what the spec says now, and follow until it serves that.

    ``strategy`` (None: the spec's ``update``) in-place starts a second fleet, which is paid for until the
    first one is gone, and never stops serving; CloudWatch alarms undo it: one on the server's errors that
    this makes for the time of the update, and the ``alarms`` named. off-update-on pauses the endpoint first
    and starts it anew. Where only tags differ nothing is started. The lifetime begins anew with each update.
    A run that was killed is taken up by the next one.

    Raises:
        Declined: ``confirm`` said no.
        PlanRefused: a finding forbids it, or the endpoint cannot be updated as it stands.
        NotFound: there is no such endpoint.
        GuardMissing: no guard is installed, and ``unguarded`` is False.
        EndpointFailed: SageMaker rolled back: the old config serves as before. Or, with off-update-on, the
            new one did not come up: the endpoint is paused, and `resume` brings the old one back.
        Interrupted: Ctrl-C; the message says what goes on.
        BillableLeft: an endpoint may remain that nobody wants; ``next_step`` is the command that ends it.
        PeagleError: AWS refused or did not answer; ``next_step`` says how it stands.
    """
    pacing = pacing or Pacing.for_session(session)
    try:
        offer, found = _agree(
            spec, session, strategy, alarms, confirm, pacing, unguarded, preflight, skip_checks
        )
    except KeyboardInterrupt:
        raise Interrupted("Interrupted: nothing was changed.") from None
    run = Deploy.of(offer.plan, session, pacing, Reporter(progress, pacing, offer.usd_per_hour))
    if offer.done:
        _end_the_pause(run, found.one.lifetime)  # one that an earlier run could not write
        run.report("ready", f"endpoint {run.name} serves this spec already", status="InService")
    elif found.facts is not None and offer.strategy == "in-place":
        InPlace(run, found, offer).bring_about()
        _finish(run, offer)
    else:
        _off_and_on(run, found)
        _finish(run, offer)
    return Endpoint(run.name, session, pacing=pacing)


def _agree(
    spec: EndpointSpec,
    session: Session,
    strategy: Update | None,
    alarms: Sequence[str],
    confirm: Callable[[UpdateOffer], bool] | None,
    pacing: Pacing,
    unguarded: bool,
    preflight: Callable[[Plan], object] | None,
    skip: Collection[str],
) -> tuple[UpdateOffer, CurrentState]:
    way = strategy or spec.update
    plan = plan_for(spec, session)
    refuse_errors(plan, skip)
    if not unguarded:
        require_guard(session)
    if preflight is not None:
        preflight(plan)
    found = current_state(session, plan, way)
    names = (str(update_alarm(spec.name)["AlarmName"]), *alarms)
    offer = offer_of(session, plan, found, way, names, pacing.clock())
    if confirm is not None and not offer.done and not confirm(offer):
        raise Declined(
            f"Endpoint {spec.name} was not updated: it was not confirmed.",
            next_step="Nothing was changed. Run again and confirm, or give --yes (yes=True).",
        )
    return offer, found


def _off_and_on(run: Deploy, found: CurrentState) -> None:
    back = f"peagle-sm resume {run.name}{run.session.command_flags()}"
    ours = found.facts is not None and found.facts.config_name == run.plan.names.config
    create_free(run)  # what AWS does not take is refused while the old one still serves
    if found.facts is not None and not ours:
        pause(run.name, session=run.session, pacing=run.pacing, progress=run.report.progress)
    seen = survey(run.session, run.plan)
    if seen.serves:
        return
    try:
        bring_up(run, seen)
    except PeagleError as error:
        kept = found.old_config != run.plan.names.config
        if kept and error.next_step is not None:
            error.next_step += f" The old config {found.old_config} is kept: `{back}` brings it back."
        raise


def _finish(run: Deploy, offer: UpdateOffer) -> None:
    """What comes once the new config serves; a later run may do each step again."""
    session = run.session
    _end_the_pause(run, lifetime.get(session, run.plan.names.schedule))
    if offer.strategy == "in-place":
        cloudwatch.remove_alarm(session, update_alarm(run.name)["AlarmName"])
    one = belongings_of(session, run.name)
    _write_tags(run, one, offer)
    _remove_the_old(run, one)
    run.report("ready", f"endpoint {run.name} is in service", status="InService")


def _end_the_pause(run: Deploy, limit: Lifetime | None) -> None:
    ends = None if limit is None else limit.expires_at
    note(run.session, run.name, lambda entry: unpaused(entry, ends), run.pacing, run.report, "check")


def _write_tags(run: Deploy, one: Belongings, offer: UpdateOffer) -> None:
    wanted = {tag["Key"]: tag["Value"] for tag in run.parameters("create_endpoint")["Tags"]}
    stale = stale_tags(one.tags, wanted)
    if one.endpoint is None or (not stale and all(one.tags.get(key) == wanted[key] for key in wanted)):
        return
    if not offer.fleet:  # the config of before stays, and a resume takes the endpoint's tags from it
        config = control.describe_endpoint_config(run.session, run.plan.names.config)
        for arn in () if config is None else (config.arn,):
            control.add_tags(run.session, arn, wanted)
            control.remove_tags(run.session, arn, (*stale, keys.PAUSED, keys.SCHEDULER_ROLE))
    if stale:
        control.remove_tags(run.session, one.endpoint.arn, stale)
    control.add_tags(run.session, one.endpoint.arn, wanted)


def _remove_the_old(run: Deploy, one: Belongings) -> None:
    names = run.plan.names
    old = ToRemove(
        run.name,
        tuple(name for name in one.configs if name != names.config),
        tuple(name for name in one.models if name != names.model),
    )
    gone = Removed()
    Teardown(run.session, run.pacing, run.report).remove_free(old, gone)
    if gone.left:
        left = ", ".join(f"{resource} ({why})" for resource, why in gone.left.items())
        raise PeagleError(
            f"Endpoint {run.name} is updated, but what it had before is left, costing nothing: {left}",
            next_step="Run the update again: it takes up what exists.",
            details={"left": sorted(gone.left)},
        )
