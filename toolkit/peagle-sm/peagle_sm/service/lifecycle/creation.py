"""Creation of an endpoint's resources in order.

Each step can be repeated: what an earlier, killed run created is used. `Run` is one start of an endpoint, by
a deploy or a resume, with the state for a clean-up.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Literal
from urllib.parse import urlencode

from peagle_sm.aws.control import executor, lifetime
from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.control.sagemaker import EndpointFacts
from peagle_sm.aws.session.errors import is_not_visible_yet, is_taken, is_unsettled
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import EndpointFailed, EngineError, NotFound, PeagleError, PlanRefused
from peagle_sm.core.planning import Plan
from peagle_sm.core.resources.alarm import Alarm, policy_placeholder
from peagle_sm.core.resources.component import Component
from peagle_sm.core.resources.endpoint import Endpoint
from peagle_sm.core.resources.lifetime_schedule import LifetimeSchedule
from peagle_sm.core.resources.log_group import KEPT_DAYS, LogGroup
from peagle_sm.core.resources.resource import Resource
from peagle_sm.service.inventory.guard_state import prolonged
from peagle_sm.service.inventory.inspection import follow_endpoint, patience_s, poll_repeatedly
from peagle_sm.service.inventory.resources import belongs_to
from peagle_sm.service.progress import Pacing, Phase, Reporter, create_once, once_visible

_PHASES: dict[str, Phase] = {
    "model": "model",
    "endpoint-config": "config",
    "log-group": "config",
    "endpoint": "endpoint",
    "inference-component": "component",
}


@dataclass
class Run:
    """One start of an endpoint, with the state for a clean-up.

    ``resources`` are what it creates, in order; a clean-up deletes them backwards, and ``undo`` is the
    command that finishes it by hand. ``owns`` decides by its tags whether an existing resource is used.
    ``may_exist``: the endpoint may exist, so a clean-up that gets no answer from AWS must report it.
    ``unsettled``: a CreateEndpoint was sent and its answer is not known.
    ``began_at``: the endpoint's creation time from AWS; None if not known yet.
    ``companions`` returns what a clean-up deletes at the same time, without a report.
    """

    name: str
    config: str
    resources: tuple[Resource, ...]
    undo: Literal["delete", "pause"]
    startup_timeout_s: float
    session: Session
    pacing: Pacing
    report: Reporter
    may_exist: bool = field(default=False, kw_only=True)
    unsettled: bool = field(default=False, kw_only=True)
    began_at: datetime | None = field(default=None, kw_only=True)
    companions: Callable[[], Sequence[Sequence[Resource]]] = field(default=tuple, kw_only=True)

    def owns(self, arn: str, tags: Mapping[str, str]) -> bool:
        """Return whether the resource with these tags is one that this run may use."""
        return belongs_to(tags, self.name)

    @property
    def schedules(self) -> tuple[LifetimeSchedule, ...]:
        """Return its lifetime schedules, the endpoint's own first."""
        return tuple(resource for resource in self.resources if isinstance(resource, LifetimeSchedule))

    @property
    def prepared(self) -> tuple[Resource, ...]:
        """Return what is created before the endpoint and costs nothing, without the schedules."""
        return tuple(resource for resource in self.resources if resource.rests)

    @property
    def endpoint(self) -> Resource:
        """Return its endpoint."""
        return next(resource for resource in self.resources if isinstance(resource, Endpoint))

    @property
    def started(self) -> tuple[Resource, ...]:
        """Return what is created once the endpoint is in service: its component and autoscaling."""
        return self.resources[self.resources.index(self.endpoint) + 1 :]


def create_all(run: Run, resources: Sequence[Resource]) -> None:
    """Create resources in order, or use existing ones; wait for a component.

    Raises:
        EndpointFailed: the component failed, or took too long.
        PlanRefused: another plan's resource has one of the names.
        PeagleError: AWS refused, or did not answer several times.
    """
    arns: dict[str, str] = {}
    for resource in resources:
        if isinstance(resource, LogGroup):
            _create_log_group(run, resource)
            continue
        if resource.replaces:
            arns |= _put(run, resource, arns)
            outcome = "set"
        else:
            outcome = _create_or_use(run, resource)
        _report(run, resource, outcome, status="Creating" if isinstance(resource, Endpoint) else None)
        if isinstance(resource, Component):
            _wait_for(run, resource)


def _put(run: Run, resource: Resource, arns: Mapping[str, str]) -> dict[str, str]:
    """Create or replace a resource; return a policy's ARN by its placeholder.

    "There might be a brief delay until the operation achieves eventual consistency" (API reference of
    RegisterScalableTarget). Without a retry the deploy would delete an endpoint that serves.
    """
    if isinstance(resource, Alarm) and resource.parameters and "AlarmActions" in resource.parameters:
        actions = [arns[action] for action in resource.parameters["AlarmActions"]]
        resource = replace(resource, parameters={**resource.parameters, "AlarmActions": actions})
    answer = once_visible(
        partial(executor.create, run.session, resource),
        run.pacing,
        run.report,
        is_early=lambda error: is_not_visible_yet(error) or isinstance(error, NotFound),
    )
    return {policy_placeholder(resource.name): answer["PolicyARN"]} if "PolicyARN" in answer else {}


def _create_or_use(run: Run, resource: Resource) -> str:
    def send() -> None:
        if not isinstance(resource, Endpoint):
            executor.create(run.session, resource)
            return
        run.may_exist = run.unsettled = True
        try:
            executor.create(run.session, resource)
        except PeagleError as error:
            # CreateEndpoint's own answer counts; a refused DescribeEndpoint afterwards proves nothing.
            run.may_exist = run.unsettled = is_unsettled(error) or is_taken(error)
            raise

    if isinstance(resource, Endpoint):
        run.report.start_billing()
    try:
        outcome = create_once(send, partial(_is_own, run, resource), run.pacing, run.report)
    except PlanRefused:
        if isinstance(resource, Endpoint):  # another endpoint has the name
            run.may_exist = run.unsettled = False
        raise
    if isinstance(resource, Endpoint):
        run.unsettled = False
    return outcome


def _is_own(run: Run, resource: Resource) -> bool:
    """Return whether the resource exists and belongs to this run.

    Raises:
        PlanRefused: it exists and belongs to another spec.
    """
    facts = executor.describe(run.session, resource)
    arn = None if facts is None else facts[resource.arn_field or ""]
    tags = None if arn is None else control.tags_of(run.session, arn)
    if facts is None or arn is None or tags is None:
        return False
    if run.owns(arn, tags) and facts.get("EndpointName", run.name) == run.name:
        return True
    raise PlanRefused(
        f"{arn} exists and belongs to another spec; it was not changed.",
        next_step="Choose another name for the spec, or delete that resource.",
        details={"findings": [], "arn": arn},
    )


def _create_log_group(run: Run, group: LogGroup) -> None:
    """Create the log group, unless it exists.

    Without it the endpoint works, but its log lines are lost unless its role may create the group. So a
    failure is only reported.
    """
    try:
        executor.create(run.session, group)
    except PeagleError as error:
        if is_taken(error):
            _report(run, group, "already exists")
        else:
            run.report(
                "config", f"log group {group.name} not created, so log lines may be lost: {error.message}"
            )
        return
    _report(run, group, f"created; it keeps logs for {KEPT_DAYS} days")


def _report(run: Run, resource: Resource, outcome: str, *, status: str | None = None) -> None:
    phase = _PHASES.get(resource.kind, "scaling")
    run.report(phase, f"{resource.words} {resource.name} {outcome}", status=status, resource=resource.label)


def _wait_for(run: Run, component: Component) -> None:
    look = partial(executor.describe, run.session, component)
    patience = patience_s(run.startup_timeout_s)
    name, label = f"Inference component {component.name}", component.label
    reason = f"it was not InService after {patience / 60:.0f} minutes"
    for facts in poll_repeatedly(run.session, look, patience=patience, pacing=run.pacing, report=run.report):
        status = "missing" if facts is None else str(facts["InferenceComponentStatus"])
        if status == "InService":
            return
        if facts is None or status in ("Failed", "Deleting"):
            reason = (facts or {}).get("FailureReason") or f"it is {status}"
            break
        run.report("waiting", f"inference component {component.name}", status=status, resource=label)
    raise EndpointFailed(f"{name} is not in service: {reason}", details={"failure_reason": reason})


def arm(run: Run, lease: datetime | None = None) -> lifetime.Lifetime:
    """Create or replace the lifetime schedules; return the endpoint's.

    They fire no earlier than a lease of `keep` ends.
    """
    armed = [
        once_visible(
            partial(lifetime.arm, run.session, prolonged(schedule.parameters or {}, lease)),
            run.pacing,
            run.report,
        )
        for schedule in run.schedules
    ]
    run.report(
        "lifetime",
        f"lifetime schedule created: deletes the endpoint at {time_text(armed[0])}",
        resource=f"schedule/{armed[0].name}",
    )
    return armed[0]


def time_text(limit: lifetime.Lifetime) -> str:
    """Format the time at which a lifetime schedule fires."""
    return "an unknown time" if limit.expires_at is None else f"{limit.expires_at:%Y-%m-%d %H:%M} UTC"


def follow(run: Run) -> EndpointFacts:
    """Poll the endpoint until it is InService with the requested config.

    Raises:
        EndpointFailed: it failed, vanished, took too long, or runs another config.
        PeagleError: AWS did not answer many polls in a row.
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


def fetch_files(session: Session, plan: Plan, report: Reporter) -> None:
    """Have the local SageMaker put target and head into its S3, where it downloads some only when needed.

    Does nothing on AWS.

    Raises:
        EngineError: they cannot be downloaded.
    """
    if not session.is_local:
        return
    uris = [("uri", uri) for uri in (plan.draft.model_uri, plan.draft.head_uri) if uri]
    with suppress(NotFound):  # a server of an older version fetches them when the engine starts
        for line in session.admin_lines(f"artifacts?{urlencode(uris)}"):
            event = json.loads(line)
            if "error" in event:
                raise EngineError(event["error"], next_step=event["next_step"])
            if event["line"]:
                report("files", event["line"])
