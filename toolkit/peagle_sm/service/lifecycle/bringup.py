"""From a plan to an endpoint in service; every step takes up what an earlier, killed run has made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from peagle_sm.aws.control import lifetime
from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.control.sagemaker import EndpointFacts
from peagle_sm.aws.session.errors import is_taken, is_unsettled
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import PeagleError, PlanRefused
from peagle_sm.core.failure_words import cause_first
from peagle_sm.core.plan.plan import Plan
from peagle_sm.core.plan.tags import PAUSED, SPEC_HASH
from peagle_sm.service.events import Pacing, Reporter
from peagle_sm.service.guard.leases import lease_of, prolonged
from peagle_sm.service.guard.rest import awake
from peagle_sm.service.inventory.belongings import ToRemove
from peagle_sm.service.inventory.log_groups import create_group
from peagle_sm.service.inventory.ownership import belongs_to, stack_of
from peagle_sm.service.inventory.survey import Survey
from peagle_sm.service.lifecycle.following import follow_endpoint, patience_s
from peagle_sm.service.lifecycle.teardown import Removed, Teardown

CREATE_ATTEMPTS = 5


@dataclass
class Run:
    """One endpoint that is brought up, by a deploy or a resume, and what a clean-up must know of it.

    ``to_remove`` is what a clean-up removes, and ``undo`` the command that finishes it by hand.
    ``may_exist``: an endpoint of ours may be there, so a clean-up that cannot ask AWS must say so.
    ``unsettled``: a CreateEndpoint was sent and its answer has not come.
    ``began_at``: when AWS says that the endpoint was created; None while it has not said.
    """

    name: str
    config: str
    to_remove: ToRemove
    undo: Literal["delete", "pause"]
    startup_timeout_s: float
    session: Session
    pacing: Pacing
    report: Reporter
    may_exist: bool = field(default=False, kw_only=True)
    unsettled: bool = field(default=False, kw_only=True)
    began_at: datetime | None = field(default=None, kw_only=True)


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
    """Arm the plan's lifetime limit, or one that lasts as long as a lease of `keep`."""
    arm_schedule(run, prolonged(run.parameters("create_schedule"), lease_of(run.session, run.name)))


def arm_schedule(run: Run, parameters: dict[str, Any]) -> None:
    """Arm a lifetime limit, and remove what an older stack of the name has left beside it."""
    lifetime.remove_hard(run.session, run.name)
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
    """Create an endpoint, or adopt the one that is there and ``is_ours``.

    Raises:
        PeagleError: AWS refused, or gave no answer several times.
    """
    run.may_exist = run.unsettled = True
    run.report.start_billing()
    try:
        made = create_once(
            run,
            lambda: control.create_endpoint(run.session, parameters),
            lambda: is_ours(control.describe_endpoint(run.session, run.name)),
        )
    except PeagleError as error:
        run.may_exist = run.unsettled = is_unsettled(error)
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
