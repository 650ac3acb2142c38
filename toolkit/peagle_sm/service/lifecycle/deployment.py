"""deploy(): from a spec to an endpoint in service, or to nothing at all."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import timedelta

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import Declined, EndpointFailed, Interrupted
from peagle_sm.core.plan.plan import Plan, prolonged_plan
from peagle_sm.core.plan.updates import tag_changes
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.service.endpoint import Endpoint
from peagle_sm.service.events import Pacing, Progress, Reporter
from peagle_sm.service.guard.guarding import require_guard
from peagle_sm.service.guard.leases import lease_of
from peagle_sm.service.inventory.survey import Survey, survey
from peagle_sm.service.lifecycle.bringup import Deploy, arm, arm_anew, create, create_planned_endpoint, follow
from peagle_sm.service.lifecycle.capacity import ATTEMPTS, is_short, no_capacity
from peagle_sm.service.lifecycle.rescue import rescue
from peagle_sm.service.lifecycle.teardown import Removed, Teardown
from peagle_sm.service.planning.planning import plan_for, refuse_errors

STALE_PLAN = timedelta(minutes=1)


def deploy(
    spec: EndpointSpec,
    *,
    session: Session,
    confirm: Callable[[Plan], bool] | None = None,
    progress: Progress | None = None,
    pacing: Pacing | None = None,
    wait: bool = True,
    unguarded: bool = False,
    preflight: Callable[[Plan], object] | None = None,
    skip_checks: Collection[str] = (),
    surveyed: Callable[[Survey], object] | None = None,
) -> Endpoint:
    """Deploy ``spec``: arm the lifetime limit, create model, config and endpoint, follow, verify.

    ``confirm`` sees the plan first (None: no question), and ``surveyed`` before that what exists under its
    names. Where the endpoint is in service with this spec and its limit is armed, nothing is asked. Ctrl-C
    cleans up; a second one leaves the endpoint to its lifetime limit, brought forward. What a killed run of
    the same spec has made is taken up. With ``wait`` False it returns once CreateEndpoint is accepted.
    ``unguarded`` does without the guard that turns idle endpoints off; the lifetime limit is armed all the
    same. ``preflight`` sees the plan before ``confirm`` and raises where it would fail; ``skip_checks`` are
    ids of checks whose errors do not refuse.

    Raises:
        Declined: ``confirm`` said no.
        PlanRefused: a finding forbids it (``details["findings"]``), or the name is taken.
        GuardMissing: no guard is installed, and ``unguarded`` is False.
        EndpointFailed: it did not come up and was cleaned up; ``details`` has failure_reason and log_tail.
        Interrupted: Ctrl-C; nothing billable is left.
        BillableLeft: the endpoint may remain; ``next_step`` is the command that removes it.
        CredentialsError, ServiceFault: AWS refused or did not answer; what was created is cleaned up.
    """
    pacing = pacing or Pacing.for_session(session)
    try:
        plan, found = _agree(spec, session, confirm, pacing, unguarded, preflight, skip_checks, surveyed)
    except KeyboardInterrupt:
        raise Interrupted("Interrupted: nothing was created.") from None
    run = Deploy.of(plan, session, pacing, Reporter(progress, pacing, plan.usd_per_hour))
    if found.serves:
        _take_up_what_serves(run, found)
    else:
        bring_up(run, found, wait)
    return Endpoint(run.name, session, pacing=pacing, made_here=not found.serves)


def _agree(
    spec: EndpointSpec,
    session: Session,
    confirm: Callable[[Plan], bool] | None,
    pacing: Pacing,
    unguarded: bool,
    preflight: Callable[[Plan], object] | None,
    skip: Collection[str],
    surveyed: Callable[[Survey], object] | None,
) -> tuple[Plan, Survey]:
    plan = plan_for(spec, session)
    refuse_errors(plan, skip)
    if not unguarded:
        require_guard(session)
    if preflight is not None:
        preflight(plan)
    found = survey(session, plan)
    if found.state in ("absent", "leaving", "failed"):
        plan = prolonged_plan(plan, lease_of(session, plan.names.endpoint))
    if surveyed is not None:
        surveyed(found)
    asks = not _changes_nothing(plan, found, pacing)
    if asks:
        _ask(confirm, plan)
    if plan.context.now is None or pacing.clock() - plan.context.now > STALE_PLAN:
        # The lifetime counts from the start, not from when the question was asked.
        plan = plan_for(spec, session)
        found = survey(session, plan)
        if not asks and not _changes_nothing(plan, found, pacing):
            _ask(confirm, plan)  # what served is gone since
    return plan, found


def _ask(confirm: Callable[[Plan], bool] | None, plan: Plan) -> None:
    if confirm is not None and not confirm(plan):
        raise Declined(
            f"Endpoint {plan.names.endpoint} was not deployed: the plan was not confirmed.",
            next_step="Nothing was created. Run again and confirm, or give --yes (yes=True).",
        )


def _changes_nothing(plan: Plan, found: Survey, pacing: Pacing) -> bool:
    limit = found.lifetime
    return found.serves and limit is not None and limit.guards(plan.names.endpoint, pacing.clock())


def _take_up_what_serves(run: Deploy, found: Survey) -> None:
    # Traffic may depend on it: a failure or Ctrl-C from here on must not delete it.
    try:
        arm(run, found)
        follow(run)
        told = f"endpoint {run.name} is in service with this spec already: nothing was created"
        run.report("ready", told + _other_tags(run, found), status="InService")
    except KeyboardInterrupt:
        raise Interrupted(f"Interrupted: endpoint {run.name} was there before and is left.") from None


def _other_tags(run: Deploy, found: Survey) -> str:
    """Say where the spec asks for other tags: its minutes and limits are no part of the spec's hash."""
    wanted = {tag["Key"]: tag["Value"] for tag in run.parameters("create_endpoint")["Tags"]}
    fields = [one.field.removeprefix("Tags.") for one in tag_changes(found.tags, wanted)]
    if not fields:
        return ""
    flags = run.session.command_flags()
    return f". The spec asks for other tags ({', '.join(fields)}): `peagle-sm update SPEC{flags}` writes them"


def bring_up(run: Deploy, found: Survey, wait: bool = True) -> None:
    """Arm, create and follow; whatever fails or stops it is cleaned up (`rescue` tells what it raises)."""
    run.may_exist = found.state == "creating"
    try:
        run.report("check", f"plan for {run.name} accepted", status=found.state)
        arm(run, found)
        create(run, found)
        if wait:
            _follow_while_short(run)
            run.report("ready", f"endpoint {run.name} is in service", status="InService")
    except BaseException as cause:
        rescue(run, cause)


def _follow_while_short(run: Deploy) -> None:
    """Follow, and create the endpoint again where AWS had no instance left; each failed one goes first.

    Raises:
        NoCapacity: it had none each time.
        EndpointFailed: it failed for another reason.
    """
    wait = run.pacing.capacity_wait_s
    for attempt in range(1, ATTEMPTS + 1):
        try:
            follow(run)
            return
        except EndpointFailed as error:
            if not is_short(error):
                raise
            if attempt == ATTEMPTS:
                raise no_capacity(run.session, run.plan, error, wait) from error
        run.report(
            "waiting",
            f"AWS has no capacity (attempt {attempt} of {ATTEMPTS}); trying again in {wait / 60:.0f} minutes",
            status="Failed",
        )
        Teardown(run.session, run.pacing, run.report, "check").remove_endpoint(run.name, Removed())
        run.pacing.sleep(wait)
        # The guard may have seen the endpoint gone meanwhile, and removed its lifetime limit.
        arm_anew(run)
        create_planned_endpoint(run)
