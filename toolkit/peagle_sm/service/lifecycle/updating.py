"""update(): an endpoint that exists comes to serve another spec, in place or off and on again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from peagle_sm.aws.control import alarms as cloudwatch
from peagle_sm.aws.control import lifetime
from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.control.lifetime import Lifetime
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import Declined, Interrupted, PeagleError
from peagle_sm.core.plan import tags as keys
from peagle_sm.core.plan.plan import Plan
from peagle_sm.core.plan.updates import stale_tags, update_alarm
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, Update
from peagle_sm.service.endpoint import Endpoint
from peagle_sm.service.events import Pacing, Progress, Reporter
from peagle_sm.service.guard.guarding import require_guard
from peagle_sm.service.guard.leases import note, unpaused
from peagle_sm.service.inventory.belongings import Belongings, ToRemove, belongings_of
from peagle_sm.service.inventory.survey import survey
from peagle_sm.service.lifecycle.bringup import Deploy, create_free
from peagle_sm.service.lifecycle.deployment import bring_up
from peagle_sm.service.lifecycle.pausing import pause
from peagle_sm.service.lifecycle.teardown import Removed, Teardown
from peagle_sm.service.lifecycle.update_in_place import InPlace
from peagle_sm.service.lifecycle.update_offer import CurrentState, UpdateOffer, current_state, offer_of
from peagle_sm.service.planning.planning import plan_for, refuse_errors


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
        cloudwatch.remove(session, update_alarm(run.name)["AlarmName"])
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
