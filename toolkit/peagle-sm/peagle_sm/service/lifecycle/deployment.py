"""deploy(): create an endpoint from a spec, or clean up completely.

Every step resumes from what an earlier, killed run created. If AWS has no capacity, it retries a few times.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from peagle_sm.aws.control import lifetime
from peagle_sm.aws.control.sagemaker import EndpointFacts
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import Declined, EndpointFailed, Interrupted, PeagleError, PlanRefused
from peagle_sm.core.plan.changes import tag_changes
from peagle_sm.core.plan.tags_and_schedules import PAUSED, SPEC_HASH
from peagle_sm.core.planning import Plan, prolonged_plan
from peagle_sm.core.resources.scalable_target import scaling_of
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.core.words import cause_first
from peagle_sm.service.inventory.guard_state import awake, lease_of, require_guard
from peagle_sm.service.inventory.resources import ToRemove, belongs_to, stack_of
from peagle_sm.service.lifecycle.creation import Run, arm, create_all, fetch_files, follow, time_text
from peagle_sm.service.lifecycle.endpoint import Endpoint
from peagle_sm.service.lifecycle.existing import Survey, survey
from peagle_sm.service.lifecycle.rescue import rescue
from peagle_sm.service.lifecycle.teardown import Teardown
from peagle_sm.service.progress import Pacing, Progress, Reporter
from peagle_sm.service.spec_to_plan import plan_for

ATTEMPTS = 3
"""Attempts to create an endpoint. Shortages are often short: the release tests of AWS's images also try
three times, five minutes apart (aws/deep-learning-containers#6411)."""
STALE_PLAN = timedelta(minutes=1)
# Words of FailureReason: aws/deep-learning-containers#6673, DIAGNijmegen/rse-grand-challenge#2631.
_SHORT = (
    "insufficientinstancecapacity",
    "unable to provision requested ml compute capacity",
    "capacityerror",
)


class NoCapacity(EndpointFailed):
    """AWS had no capacity of the requested types in any attempt; nothing is left."""


def is_short(error: PeagleError) -> bool:
    """Return whether an endpoint failed because AWS had no such instance."""
    reason = str(error.details.get("failure_reason", "")).lower()
    return isinstance(error, EndpointFailed) and any(words in reason for words in _SHORT)


def _no_capacity(run: Deploy, error: EndpointFailed) -> NoCapacity:
    types, wait_s = run.plan.draft.instance_types, run.pacing.capacity_wait_s
    return NoCapacity(
        f"AWS has no capacity of {' or '.join(types)} in {run.session.region}: {ATTEMPTS} attempts to create "
        f"endpoint {run.name} failed, {wait_s / 60:.0f} minutes apart.",
        next_step="Add other placement.instance_types, in order of preference (at most 5), deploy in another "
        "region that has your quota and your artifacts, or use a capacity reservation.",
        details={**error.details, "instance_types": list(types)},
    )


@dataclass
class Deploy(Run):
    """One run of a deployment plan."""

    plan: Plan

    @classmethod
    def of(cls, plan: Plan, session: Session, pacing: Pacing, report: Reporter) -> Deploy:
        """Start a run; a clean-up deletes everything that the plan creates, except the log group."""
        names, timeout_s = plan.names, plan.spec.startup_timeout_s
        return cls(
            names.endpoint, names.config, plan.resources, "delete", timeout_s, session, pacing, report, plan
        )

    def owns(self, arn: str, tags: Mapping[str, str]) -> bool:
        """Return whether a deploy of the same plan created the resource; end its pause, if any."""
        same = belongs_to(tags, self.name) and tags.get(SPEC_HASH) == self.plan.spec_hash
        if same and stack_of(tags) is None:
            if PAUSED in tags:
                awake(self.session, arn)
            return True
        return False


def ensure_lifetime(run: Deploy, existing: Survey) -> None:
    """Create the lifetime schedules; keep those of an existing endpoint."""
    limit = existing.lifetime
    exists = existing.state in ("creating", "settling", "live")
    if exists and limit is not None and limit.guards(run.name, run.pacing.clock()):
        run.report(
            "lifetime",
            f"lifetime schedule kept: deletes the endpoint at {time_text(limit)}",
            resource=f"schedule/{limit.name}",
        )
        return
    arm_anew(run)


def arm_anew(run: Deploy) -> None:
    """Create the plan's lifetime schedules, no earlier than a lease of `keep` ends.

    First delete the second schedules of an older stack of this name, or of an older component.
    """
    lifetime.remove_hard(run.session, run.name)
    arm(run, lease_of(run.session, run.name))


def create(run: Deploy, existing: Survey) -> None:
    """Create everything up to the endpoint, or use what an earlier run of this plan created.

    Raises:
        PlanRefused: another plan's resource has one of the names.
        PeagleError: AWS refused, or did not answer several times.
    """
    if existing.state == "failed" and existing.endpoint is not None:
        reason = cause_first(existing.endpoint.failure_reason or "no reason given", "").splitlines()[0]
        run.report(
            "check", f"the endpoint of an earlier run failed ({reason}); replacing it", status="Failed"
        )
    if existing.state in ("failed", "leaving"):
        Teardown(run.session, run.pacing, run.report, "check").remove_endpoint(run.name)
    if existing.state == "creating":
        run.may_exist = True
        run.report.start_billing(_age_s(run, existing.endpoint))
        run.report("endpoint", f"continuing with endpoint {run.name} of an earlier run", status="Creating")
        return
    create_all(run, (*run.prepared, run.endpoint))


def _age_s(run: Deploy, facts: EndpointFacts | None) -> float:
    if facts is None or facts.created_at is None:
        return 0.0
    return (run.pacing.clock() - facts.created_at).total_seconds()


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
    companions: Callable[[], Sequence[ToRemove]] = tuple,
) -> Endpoint:
    """Deploy ``spec`` and return its endpoint.

    Creates the lifetime schedule, model, config and endpoint in this order, waits until the endpoint is
    InService, checks its config, and creates its inference component and autoscaling, if any. Resumes from
    what a killed run of the same spec created. Ctrl-C cleans up; a second Ctrl-C moves the lifetime schedule
    to now and leaves the deletion to it.

    ``surveyed`` receives what exists under the plan's names, ``preflight`` the plan (it raises if the deploy
    would fail), and ``confirm`` the plan (None: no confirmation prompt). Nothing is asked if the endpoint is
    already InService with this spec and has its lifetime schedule. With ``wait`` False this returns once
    CreateEndpoint is accepted; a spec that scales is refused then. ``unguarded`` deploys without the guard,
    which turns idle endpoints off; the lifetime schedule is still created. ``skip_checks`` are ids of checks
    whose errors are ignored.
    ``companions`` returns what a clean-up deletes together with this endpoint.

    Raises:
        Declined: ``confirm`` declined.
        PlanRefused: the plan has an error (``details["findings"]``), or the name is taken.
        GuardMissing: no guard is installed, and ``unguarded`` is False.
        EndpointFailed: it failed and was cleaned up; ``details`` has failure_reason and log_tail.
        Interrupted: Ctrl-C; nothing billable is left.
        BillableLeft: the endpoint may still exist; ``next_step`` is the command that deletes it.
        CredentialsError, ServiceFault: AWS refused or did not answer; what was created is cleaned up.
    """
    pacing = pacing or Pacing.for_session(session)
    try:
        plan = plan_for(spec, session)
        plan.refuse_errors(skip_checks)
        if not wait:
            _refuse_not_to_wait(plan)
        if not unguarded:
            require_guard(session)
        fetch_files(session, plan, Reporter(progress, pacing))
        if preflight is not None:
            preflight(plan)
        existing = survey(session, plan)
        if existing.state in ("absent", "leaving", "failed"):
            plan = prolonged_plan(plan, lease_of(session, plan.names.endpoint))
        if surveyed is not None:
            surveyed(existing)
        asks = not _changes_nothing(plan, existing, pacing)
        if asks:
            _ask(confirm, plan)
        if plan.context.now is None or pacing.clock() - plan.context.now > STALE_PLAN:
            # The lifetime counts from the start of the deploy, not from the prompt.
            plan = plan_for(spec, session)
            existing = survey(session, plan)
            if not asks and not _changes_nothing(plan, existing, pacing):
                _ask(confirm, plan)  # the endpoint that served is gone since
    except KeyboardInterrupt:
        raise Interrupted("Interrupted: nothing was created.") from None
    run = Deploy.of(plan, session, pacing, Reporter(progress, pacing, plan.usd_per_hour))
    run.companions = companions
    if existing.serves:
        _adopt_serving(run, existing)
    else:
        bring_up(run, existing, wait)
    return Endpoint(run.name, session, pacing=pacing, made_here=not existing.serves)


def _refuse_not_to_wait(plan: Plan) -> None:
    if scaling_of(plan.draft) is not None:
        raise PlanRefused(
            "autoscaling and lifecycle.idle: scale-to-zero are set up once the endpoint is InService, so the "
            "deploy must wait for it.",
            next_step="Leave out --no-wait (wait=False).",
            details={"findings": []},
        )


def _ask(confirm: Callable[[Plan], bool] | None, plan: Plan) -> None:
    if confirm is not None and not confirm(plan):
        raise Declined(
            f"Endpoint {plan.names.endpoint} was not deployed: the plan was not confirmed.",
            next_step="Nothing was created. Run again and confirm, or give --yes (yes=True).",
        )


def _changes_nothing(plan: Plan, existing: Survey, pacing: Pacing) -> bool:
    limit = existing.lifetime
    return existing.serves and limit is not None and limit.guards(plan.names.endpoint, pacing.clock())


def _adopt_serving(run: Deploy, existing: Survey) -> None:
    # Traffic may depend on it: a failure or Ctrl-C from here on must not delete it.
    try:
        ensure_lifetime(run, existing)
        follow(run)
        create_all(run, run.started)  # of a run that was killed before it
        message = f"endpoint {run.name} is already in service with this spec: nothing was created"
        run.report("ready", message + _other_tags(run, existing), status="InService")
    except KeyboardInterrupt:
        raise Interrupted(f"Interrupted: endpoint {run.name} existed before and is kept.") from None


def _other_tags(run: Deploy, existing: Survey) -> str:
    """Report tags that differ from the spec's: not all fields are part of its hash."""
    fields = [change.field.removeprefix("Tags.") for change in tag_changes(existing.tags, run.plan.tags())]
    if not fields:
        return ""
    flags = run.session.command_flags()
    return f". The spec has other tags ({', '.join(fields)}): `peagle-sm update SPEC{flags}` writes them"


def bring_up(run: Deploy, existing: Survey, wait: bool = True) -> None:
    """Create and follow an endpoint; clean up after a failure (errors as `rescue`)."""
    run.may_exist = existing.state == "creating"
    try:
        run.report("check", f"plan for {run.name} accepted", status=existing.state)
        ensure_lifetime(run, existing)
        create(run, existing)
        if wait:
            _follow_with_retries(run)
            create_all(run, run.started)
            run.report("ready", f"endpoint {run.name} is in service", status="InService")
    except BaseException as cause:
        rescue(run, cause)


def _follow_with_retries(run: Deploy) -> None:
    """Follow the endpoint; delete and create it again while AWS has no capacity.

    Raises:
        NoCapacity: AWS had no capacity in every attempt.
        EndpointFailed: the endpoint failed for another reason.
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
                raise _no_capacity(run, error) from error
        run.report(
            "waiting",
            f"AWS has no capacity (attempt {attempt} of {ATTEMPTS}); retrying in {wait / 60:.0f} minutes",
            status="Failed",
        )
        Teardown(run.session, run.pacing, run.report, "check").remove_endpoint(run.name)
        run.pacing.sleep(wait)
        # Meanwhile the guard may have found no endpoint and removed its lifetime schedule.
        arm_anew(run)
        create_all(run, [run.endpoint])
