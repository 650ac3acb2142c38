"""Existing resources, read before a deploy or an update changes anything.

`survey` looks up a plan's names: they are free, an earlier run's, or not created by peagle-sm.
`offer_of` lists what an update would change, for the confirmation prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from peagle_sm.aws.control import executor, lifetime
from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.control.lifetime import Lifetime
from peagle_sm.aws.control.sagemaker import EndpointFacts
from peagle_sm.aws.control.stacks import stack_status
from peagle_sm.aws.session.session import Session
from peagle_sm.core.changes import Change
from peagle_sm.core.errors import NotFound, PeagleError, PlanRefused
from peagle_sm.core.guard import endpoint_stack
from peagle_sm.core.plan.changes import changes, tag_changes
from peagle_sm.core.plan.tags_and_schedules import SPEC_HASH
from peagle_sm.core.planning import Plan
from peagle_sm.core.resources.endpoint import LONGEST_UPDATE_S, Canary
from peagle_sm.core.resources.ordered import component_of
from peagle_sm.core.resources.scalable_target import ScalableTarget, resource_id
from peagle_sm.core.spec.endpoint_spec import Update
from peagle_sm.service.inventory.guard_state import lease_of
from peagle_sm.service.inventory.listing import plain
from peagle_sm.service.inventory.resources import Belongings, belongings_of, is_ours, stack_of

State = Literal["absent", "leaving", "failed", "creating", "settling", "live"]
_STATES: dict[str, State] = {
    "Creating": "creating",
    "Deleting": "leaving",
    "Failed": "failed",
    "InService": "live",
    "RollingBack": "settling",
    "SystemUpdating": "settling",
    "Updating": "settling",
}


@dataclass(frozen=True)
class Survey:
    """State and tags of an endpoint, and its lifetime schedule, if any.

    A deploy may finish or clean up the states ``absent``, ``leaving``, ``failed`` and ``creating``. Endpoints
    in ``live`` and ``settling`` serve traffic, or have served it: a failed deploy does not delete them.
    """

    state: State
    endpoint: EndpointFacts | None
    lifetime: Lifetime | None
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def serves(self) -> bool:
        """Return whether traffic may depend on the endpoint."""
        return self.state in ("live", "settling")


def survey(session: Session, plan: Plan) -> Survey:
    """Check whether the names of ``plan`` are already in use.

    Raises:
        PlanRefused: another spec, a stack, or a resource not created by peagle-sm has the name, or the
            endpoint has a status that only a deletion ends.
    """
    name = plan.names.endpoint
    _not_a_stacks(session, name)
    limit = lifetime.get(session, plan.names.schedule)
    if limit is not None and not limit.ends(name):
        raise _refused(
            f"schedule {limit.name} exists and does not delete endpoint {name}: it is not peagle-sm's.",
            "Choose another endpoint name, or delete that schedule.",
        )
    if limit is not None and limit.endpoint != name:
        limit = None  # a gone stack's schedule: it would not delete this endpoint, and is replaced
    endpoint = control.describe_endpoint(session, name)
    if endpoint is None:
        return Survey("absent", None, limit)
    tags = control.tags_of(session, endpoint.arn)
    if tags is None:  # it was deleted between the two calls
        return Survey("absent", None, limit)
    if not is_ours(tags):
        raise _refused(
            f"endpoint {name} exists and was not created by peagle-sm; it was not changed.",
            "Choose another name for the spec.",
        )
    if (stack := stack_of(tags)) is not None:
        change = f"`cdk deploy {stack} -c spec=FILE`"
        raise _refused(f"endpoint {name} belongs to stack {stack}.", f"Change it with {change}.")
    state = _STATES.get(endpoint.status)
    remove = f"peagle-sm delete {name}{session.command_flags()}"
    if state not in ("leaving", "failed") and tags.get(SPEC_HASH) != plan.spec_hash:
        raise _refused(
            f"endpoint {name} exists ({endpoint.status}) with another spec "
            f"(found hash {tags.get(SPEC_HASH, 'none')}, expected {plan.spec_hash}).",
            f"Change it with `peagle-sm update SPEC{session.command_flags()}`, delete it first: `{remove}`, "
            "or choose another name.",
        )
    if state is None:
        raise _refused(f"endpoint {name} exists and is {endpoint.status}.", f"Delete it first: `{remove}`.")
    return Survey(state, endpoint, limit, tags)


def _not_a_stacks(session: Session, name: str) -> None:
    """Refuse the name of a stack's endpoint: the stack needs it when turned on again."""
    stack = endpoint_stack(name)
    status = stack_status(session, stack)
    if status is not None and status != "DELETE_COMPLETE":
        raise _refused(
            f"endpoint {name} belongs to stack {stack} ({status}).",
            f"Change it with `cdk deploy {stack} -c spec=FILE`, turn it on with "
            f"`peagle-sm resume {name}{session.command_flags()}`, or choose another name.",
        )


# UpdateEndpoint takes these two alone; Updating is taken up where it is this update's own.
_UPDATABLE = ("InService", "UpdateRollbackFailed", "Updating")


@dataclass(frozen=True)
class CurrentState:
    """What an update starts from; ``facts`` is None if the endpoint is off."""

    belongings: Belongings
    facts: EndpointFacts | None
    tags: Mapping[str, str]
    old_config: str


@dataclass(frozen=True)
class UpdateOffer:
    """Changes that an update would make, with their price.

    ``changes`` are the fields that differ; ``fleet`` is False if only tags differ: nothing is started then.
    ``usd_per_hour`` is the price afterwards, ``second_fleet_usd_per_hour`` the extra price while both fleets
    run, for at most ``second_fleet_hours`` (0 without a second fleet); None: no price is known.
    ``expires_at`` is the new end of its lifetime, ``expired_at`` the previous one. ``done``: nothing to do.
    ``canary`` serves first; None: all traffic moves at once.
    """

    name: str
    strategy: Update
    config: str
    old_config: str
    changes: tuple[Change, ...]
    fleet: bool
    is_off: bool
    done: bool
    usd_per_hour: float | None
    price_source: str
    second_fleet_usd_per_hour: float | None
    second_fleet_hours: float
    expires_at: datetime
    expired_at: datetime | None
    alarms: tuple[str, ...]
    plan: Plan = field(repr=False)
    canary: Canary | None = None

    def changes_field(self, *names: str) -> bool:
        """Return whether a field with one of these names differs, at any depth."""
        return any(part in names for change in self.changes for part in change.field.split("."))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types; times as ISO text."""
        shown = {key: getattr(self, key) for key in self.__dataclass_fields__ if key != "plan"}
        shown["changes"] = [asdict(change) for change in self.changes]
        shown["canary"] = None if self.canary is None else asdict(self.canary)
        return {key: plain(value) for key, value in shown.items()}


def current_state(session: Session, plan: Plan, strategy: Update) -> CurrentState:
    """Read what an update starts from.

    Raises:
        NotFound: no endpoint has that name.
        PlanRefused: peagle-sm did not create it, a stack owns it, it is off, or its status forbids updates.
    """
    name, flags = plan.names.endpoint, session.command_flags()
    belongings = belongings_of(session, name)
    if belongings.stack is not None:
        raise _refused(
            f"endpoint {name} belongs to stack {belongings.stack}.",
            f"Change it with `cdk deploy {belongings.stack} -c spec=FILE`.",
        )
    facts = control.describe_endpoint(session, name)
    if facts is not None:
        _refuse_the_state(session, plan, facts, strategy)
        tags = control.tags_of(session, facts.arn) or {}
        if not is_ours(tags):
            raise _refused(
                f"endpoint {name} exists and was not created by peagle-sm; it was not changed.",
                "Choose another name for the spec.",
            )
        return CurrentState(belongings, facts, tags, facts.config_name)
    if not belongings.configs:
        raise NotFound(
            f"endpoint {name!r} does not exist in {session.region}: there is nothing to update.",
            next_step=f"Create it with `peagle-sm deploy SPEC{flags}`.",
            details={"name": name},
        )
    if strategy == "in-place":
        raise _refused(
            f"endpoint {name} is off, and an in place update needs a running endpoint.",
            f"Turn it on with the old spec: `peagle-sm resume {name}{flags}`, or start it with the new spec: "
            f"`peagle-sm update SPEC --strategy off-update-on{flags}`.",
        )
    return CurrentState(belongings, None, belongings.tags, belongings.kept_config or belongings.configs[0])


def offer_of(
    session: Session,
    plan: Plan,
    current: CurrentState,
    strategy: Update,
    alarms: Sequence[str],
    now: datetime,
    canary: Canary | None = None,
) -> UpdateOffer:
    """Compare the running endpoint with the plan, and price the update."""
    differences = (*_changed_fields(session, plan, current), *tag_changes(current.tags, plan.tags()))
    has_config = current.facts is not None and current.facts.config_name == plan.names.config
    fleet = not has_config or current.facts is None or current.facts.status != "InService"
    finished = has_config and current.tags.get(SPEC_HASH) == plan.spec_hash
    alone = current.belongings.configs == [plan.names.config] and current.belongings.models == [
        plan.names.model
    ]
    second = fleet and strategy == "in-place"
    now = now.replace(microsecond=0)
    ends = now + timedelta(hours=plan.spec.lifecycle.max_lifetime_hours)
    lease = lease_of(session, plan.names.endpoint, current.facts.created_at if current.facts else None)
    offer = UpdateOffer(
        name=plan.names.endpoint,
        strategy=strategy,
        config=plan.names.config,
        old_config=current.old_config,
        changes=differences,
        fleet=fleet,
        is_off=current.facts is None,
        done=finished and alone and not fleet and not differences,
        usd_per_hour=plan.usd_per_hour,
        price_source=plan.price_source,
        second_fleet_usd_per_hour=plan.usd_per_hour if second else 0.0,
        second_fleet_hours=LONGEST_UPDATE_S / 3600 if second else 0.0,
        expires_at=max(ends, lease or ends),
        expired_at=current.belongings.lifetime.expires_at if current.belongings.lifetime else None,
        alarms=tuple(alarms) if second else (),
        plan=plan,
        canary=canary if second else None,
    )
    _refuse_a_component(session, offer, current)
    _refuse_another_type(session, offer)
    return offer


def _refuse_a_component(session: Session, offer: UpdateOffer, current: CurrentState) -> None:
    has_component = component_of(offer.name, current.tags) or offer.plan.names.component
    if offer.fleet and not offer.is_off and offer.strategy == "in-place" and has_component:
        raise _refused(
            f"endpoint {offer.name} runs an inference component (lifecycle.idle: scale-to-zero), and "
            "UpdateEndpoint does not change a component's model.",
            "Replace it: `peagle-sm update SPEC --strategy off-update-on"
            f"{session.command_flags()}`. A stack updates it in place.",
        )


def _refuse_another_type(session: Session, offer: UpdateOffer) -> None:
    in_place = offer.fleet and not offer.is_off and offer.strategy == "in-place"
    if not in_place or not offer.changes_field("InstanceType", "InstancePools"):
        return
    target = ScalableTarget(resource_id(offer.name, None))
    try:
        scales = executor.describe(session, target) is not None
    except PeagleError:
        scales = False  # no permission: SageMaker itself refuses such an update
    if scales:
        flags = session.command_flags()
        raise _refused(
            f"endpoint {offer.name} is a target of Application Auto Scaling, so SageMaker cannot change its "
            "instance type in place.",
            f"Deregister it with `{target.delete().command}` and register it again after the update, or "
            f"replace the endpoint: `peagle-sm update SPEC --strategy off-update-on{flags}`.",
        )


def _changed_fields(session: Session, plan: Plan, current: CurrentState) -> tuple[Change, ...]:
    if current.old_config == plan.names.config:
        return ()
    config = control.describe_endpoint_config(session, current.old_config)
    model = control.describe_model(session, config.model_name) if config and config.model_name else None
    return (
        *changes(model.raw if model else {}, plan.parameters("create_model")),
        *changes(config.raw if config else {}, plan.parameters("create_endpoint_config")),
    )


def _refuse_the_state(session: Session, plan: Plan, facts: EndpointFacts, strategy: Update) -> None:
    if strategy == "off-update-on":
        return
    name, flags = facts.name, session.command_flags()
    if facts.status not in _UPDATABLE:
        raise _refused(
            f"endpoint {name} is {facts.status}: it cannot be updated in place.",
            f"Wait until it is InService (`peagle-sm status {name}{flags}`), or replace it: "
            f"`peagle-sm update SPEC --strategy off-update-on{flags}`.",
        )
    if facts.status == "Updating" and facts.pending_config != plan.names.config:
        raise _refused(
            f"endpoint {name} is already being updated to config {facts.pending_config}.",
            f"Wait until that update ends: `peagle-sm status {name}{flags}`.",
        )


def _refused(message: str, next_step: str) -> PlanRefused:
    return PlanRefused(message, next_step=next_step, details={"findings": []})
