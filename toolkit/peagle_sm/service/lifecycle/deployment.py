"""deploy(): from a spec to an endpoint in service, or to nothing at all.

Every step resumes from what an earlier, killed run created. Where AWS has no capacity it retries within
bounds, then names the places that offer the instance type.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from peagle_sm.aws.control import lifetime, prices
from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.control.sagemaker import EndpointFacts
from peagle_sm.aws.session.errors import is_taken, is_unsettled
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import Declined, EndpointFailed, Interrupted, PeagleError, PlanRefused
from peagle_sm.core.plan.payloads import tag_changes
from peagle_sm.core.plan.plan import Plan, instance_types, prolonged_plan
from peagle_sm.core.plan.tags import PAUSED, SPEC_HASH
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.core.words import cause_first
from peagle_sm.service.endpoint import Endpoint
from peagle_sm.service.inventory.guard_state import awake, lease_of, prolonged, require_guard
from peagle_sm.service.inventory.inspection import follow_endpoint, patience_s
from peagle_sm.service.inventory.resources import ToRemove, belongs_to, create_group, stack_of
from peagle_sm.service.lifecycle.existing import Survey, survey
from peagle_sm.service.lifecycle.teardown import Removed, Run, Teardown, rescue
from peagle_sm.service.progress import Pacing, Progress, Reporter
from peagle_sm.service.spec_to_plan import plan_for, refuse_errors

ATTEMPTS = 3
"""How often an endpoint is created in all. Shortages come and go: the release tests of AWS's own images try
three times, five minutes apart (aws/deep-learning-containers#6411)."""
_OFFERS = 5
# The words of FailureReason: aws/deep-learning-containers#6673, DIAGNijmegen/rse-grand-challenge#2631.
_SHORT = (
    "insufficientinstancecapacity",
    "unable to provision requested ml compute capacity",
    "capacityerror",
)


class NoCapacity(EndpointFailed):
    """Every instance type asked for is short, several times in a row; nothing is left.

    ``details["offers"]`` has the regions that list one of the types, each with its price.
    """


def is_short(error: PeagleError) -> bool:
    """Whether an endpoint failed because AWS had no such instance left."""
    reason = str(error.details.get("failure_reason", "")).lower()
    return isinstance(error, EndpointFailed) and any(words in reason for words in _SHORT)


def no_capacity(session: Session, plan: Plan, error: EndpointFailed, waited_s: float) -> NoCapacity:
    """Return what is told when every attempt, ``waited_s`` apart, was in vain; asks the price list."""
    types = instance_types(plan)
    offers = [offer for name in types for offer in prices.find_elsewhere(session, name)]
    offers.sort(key=lambda one: (one.usd_per_hour, types.index(one.instance)))
    told = "; ".join(
        f"{one.region}: {one.instance} at {one.usd_per_hour:.2f} USD/hour ({one.source}, {one.date})"
        for one in offers[:_OFFERS]
    )
    elsewhere = (
        f"Or deploy elsewhere, where your quota and your artifacts are: {told}."
        if told
        else "No price of another region is known: look at the Price List, or ask for a capacity reservation."
    )
    return NoCapacity(
        f"AWS has no {' or '.join(types)} left in {session.region}: endpoint {plan.names.endpoint} was tried "
        f"{ATTEMPTS} times, {waited_s / 60:.0f} minutes apart.",
        next_step=f"Add further placement.instance_types, in order of preference (at most 5). {elsewhere}",
        details={
            **error.details,
            "instance_types": types,
            "offers": [one.model_dump(mode="json") for one in offers[:_OFFERS]],
        },
    )


CREATE_ATTEMPTS = 5


@dataclass
class Deploy(Run):
    """The run of a plan."""

    plan: Plan

    @classmethod
    def of(cls, plan: Plan, session: Session, pacing: Pacing, report: Reporter) -> Deploy:
        """Begin with a plan; a clean-up removes everything that the plan makes."""
        names = plan.names
        everything = ToRemove(names.endpoint, (names.config,), (names.model,), (names.schedule,))
        timeout_s = plan.spec.startup_timeout_s
        return cls(
            names.endpoint, names.config, everything, "delete", timeout_s, session, pacing, report, plan
        )

    def parameters(self, operation: str) -> dict[str, Any]:
        """Return the plan's parameters of one operation."""
        return next(one.parameters for one in self.plan.requests if one.operation == operation)


def arm(run: Deploy, found: Survey) -> None:
    """Arm the lifetime limit, unless that of an endpoint which exists is armed: its time runs on."""
    limit = found.lifetime
    exists = found.state in ("creating", "settling", "live")
    if exists and limit is not None and limit.guards(run.name, run.pacing.clock()):
        run.report(
            "lifetime", f"lifetime limit kept: deleted at {_at(limit)}", resource=f"schedule/{limit.name}"
        )
        return
    arm_anew(run)


def arm_anew(run: Deploy) -> None:
    """Arm the plan's lifetime limit, or one that lasts as long as a lease of `keep`.

    What an older stack of the name has left beside it is removed first.
    """
    lifetime.remove_hard(run.session, run.name)
    arm_schedule(run, prolonged(run.parameters("create_schedule"), lease_of(run.session, run.name)))


def arm_schedule(run: Run, parameters: dict[str, Any]) -> None:
    """Arm a lifetime limit."""
    armed = lifetime.arm(run.session, parameters)
    run.report(
        "lifetime", f"lifetime limit armed: deleted at {_at(armed)}", resource=f"schedule/{armed.name}"
    )


def create(run: Deploy, found: Survey) -> None:
    """Create model, config and endpoint, or adopt what is there.

    Raises:
        PlanRefused: one of the names is taken by a resource that is not this plan's.
        PeagleError: AWS refused, or gave no answer several times.
    """
    _clear_the_name(run, found)
    if found.state == "creating":
        run.may_exist = True
        run.report.start_billing(_age_s(run, found.endpoint))
        run.report("endpoint", f"endpoint {run.name} of an earlier run is taken up", status="Creating")
        return
    create_free(run)
    create_group(run.session, run.name, run.report)
    create_planned_endpoint(run)


def create_free(run: Deploy) -> None:
    """Create model and config, which cost nothing, or adopt what is there.

    Raises:
        PlanRefused: one of the names is taken by a resource that is not this plan's.
        PeagleError: AWS refused, or gave no answer several times.
    """
    names, session = run.plan.names, run.session
    made = create_once(
        run,
        lambda: control.create_model(session, run.parameters("create_model")),
        lambda: _is_this_plans(run, control.describe_model(session, names.model)),
    )
    run.report("model", f"model {names.model} {made}", resource=f"model/{names.model}")
    made = create_once(
        run,
        lambda: control.create_endpoint_config(session, run.parameters("create_endpoint_config")),
        lambda: _is_this_plans(run, control.describe_endpoint_config(session, names.config)),
    )
    run.report("config", f"endpoint config {names.config} {made}", resource=f"endpoint-config/{names.config}")


def create_planned_endpoint(run: Deploy) -> None:
    """Create the plan's endpoint, or adopt the one that is there.

    Raises:
        PlanRefused: its name is taken by one that is not this plan's.
        PeagleError: AWS refused, or gave no answer several times.
    """
    create_endpoint(run, run.parameters("create_endpoint"), lambda facts: _is_this_plans(run, facts))


def create_endpoint(
    run: Run, parameters: dict[str, Any], is_ours: Callable[[EndpointFacts | None], bool]
) -> None:
    """Create an endpoint, or adopt the one that is there and ``is_ours``, which may raise PlanRefused.

    Raises:
        PlanRefused: the name is taken by an endpoint that is not ours.
        PeagleError: AWS refused, or gave no answer several times.
    """
    run.may_exist = run.unsettled = True
    run.report.start_billing()

    def send() -> None:
        try:
            control.create_endpoint(run.session, parameters)
        except PeagleError as error:
            # What the creation itself said counts: a look that is refused afterwards settles nothing.
            run.may_exist = run.unsettled = is_unsettled(error) or is_taken(error)
            raise

    try:
        made = create_once(run, send, lambda: is_ours(control.describe_endpoint(run.session, run.name)))
    except PlanRefused:  # the name is another's
        run.may_exist = run.unsettled = False
        raise
    run.unsettled = False
    run.report("endpoint", f"endpoint {run.name} {made}", status="Creating", resource=f"endpoint/{run.name}")


def follow(run: Run) -> EndpointFacts:
    """Look at the endpoint until it is in service with the config that was asked for.

    Raises:
        EndpointFailed: it failed, vanished, took too long, or runs another config.
        PeagleError: AWS could not be asked, many times in a row.
    """

    def note(facts: EndpointFacts) -> None:
        run.began_at = facts.created_at

    return follow_endpoint(
        run.session,
        run.name,
        run.config,
        patience=patience_s(run.startup_timeout_s),
        pacing=run.pacing,
        report=run.report,
        note=note,
    )


def _clear_the_name(run: Deploy, found: Survey) -> None:
    if found.state == "failed" and found.endpoint is not None:
        reason = cause_first(found.endpoint.failure_reason or "no reason given", "").splitlines()[0]
        run.report(
            "check", f"an earlier run's endpoint had failed ({reason}); it is replaced", status="Failed"
        )
    if found.state in ("failed", "leaving"):
        Teardown(run.session, run.pacing, run.report, "check").remove_endpoint(run.name, Removed())


def create_once(run: Run, send: Callable[[], None], is_there: Callable[[], bool]) -> str:
    """Create once; after an unclear answer look before trying again, and adopt what is there.

    Returns:
        What became of it, as the end of a sentence.
    """
    for attempt in range(1, CREATE_ATTEMPTS + 1):
        try:
            send()
        except PeagleError as error:
            if not (is_unsettled(error) or is_taken(error)):
                raise
            if is_there():
                return "was there already and is taken up"
            if attempt == CREATE_ATTEMPTS:
                raise
            run.report("check", f"no clear answer, trying again ({error.message})")
            run.pacing.sleep(min(run.pacing.poll_s, 2.0**attempt))
        else:
            return "created"
    raise AssertionError("unreachable")


def _is_this_plans(run: Deploy, facts: Any) -> bool:
    if facts is None:
        return False
    tags = control.tags_of(run.session, facts.arn)
    if tags is None:
        return False
    if belongs_to(tags, run.name) and tags.get(SPEC_HASH) == run.plan.spec_hash and stack_of(tags) is None:
        if PAUSED in tags:
            awake(run.session, facts.arn)
        return True
    raise PlanRefused(
        f"{facts.arn} exists and is not of this spec; it is not touched.",
        next_step="Choose another name for the spec, or delete what stands in the way.",
        details={"findings": [], "arn": facts.arn},
    )


def _age_s(run: Deploy, facts: EndpointFacts | None) -> float:
    if facts is None or facts.created_at is None:
        return 0.0
    return (run.pacing.clock() - facts.created_at).total_seconds()


def _at(limit: lifetime.Lifetime) -> str:
    return "an unknown time" if limit.expires_at is None else f"{limit.expires_at:%Y-%m-%d %H:%M} UTC"


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
