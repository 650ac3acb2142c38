"""What exists before a deploy or an update changes anything.

`survey` looks up a plan's names: nothing, an earlier run's resources, or resources of somebody else.
`offer_of` says what an update would change; it is shown before the confirmation prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from peagle_sm.aws.control import lifetime
from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.control.lifetime import Lifetime
from peagle_sm.aws.control.sagemaker import EndpointFacts
from peagle_sm.aws.control.stacks import stack_status
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import NotFound, PlanRefused
from peagle_sm.core.guard import endpoint_stack
from peagle_sm.core.plan.payloads import LONGEST_UPDATE_S, VARIANT, Change, changes, tag_changes
from peagle_sm.core.plan.plan import Plan
from peagle_sm.core.plan.tags import SPEC_HASH
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
    """The endpoint's state and tags, and its lifetime limit if there is one.

    ``absent``, ``leaving``, ``failed`` and ``creating`` are a deploy's to finish and to clean up.
    ``live`` and ``settling`` serve, or have served, traffic: a deploy that fails leaves them alone.
    """

    state: State
    endpoint: EndpointFacts | None
    lifetime: Lifetime | None
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def serves(self) -> bool:
        """Whether traffic may depend on the endpoint."""
        return self.state in ("live", "settling")


def survey(session: Session, plan: Plan) -> Survey:
    """Look what stands under the names of ``plan``.

    Raises:
        PlanRefused: the name is taken by another spec or by a stack, by an endpoint or schedule that is not
            ours, or by one that is in a state which only a deletion ends.
    """
    name = plan.names.endpoint
    _not_a_stacks(session, name)
    limit = lifetime.get(session, plan.names.schedule)
    if limit is not None and not limit.ends(name):
        raise _taken(
            f"schedule {limit.name} exists and does not delete endpoint {name}: it is not peagle-sm's.",
            "Choose another endpoint name, or remove that schedule.",
        )
    if limit is not None and limit.endpoint != name:
        limit = None  # of a stack that is gone: it would not end this endpoint, and is rewritten
    endpoint = control.describe_endpoint(session, name)
    if endpoint is None:
        return Survey("absent", None, limit)
    tags = control.tags_of(session, endpoint.arn)
    if tags is None:  # it went between the two calls
        return Survey("absent", None, limit)
    if not is_ours(tags):
        raise _taken(
            f"endpoint {name} exists and was not made by peagle-sm; it is not touched.",
            "Choose another name for the spec.",
        )
    if (stack := stack_of(tags)) is not None:
        change = f"`cdk deploy {stack} -c spec=FILE`"
        raise _taken(f"endpoint {name} belongs to stack {stack}.", f"Change it with {change}.")
    state = _STATES.get(endpoint.status)
    remove = f"peagle-sm delete {name}{session.command_flags()}"
    if state not in ("leaving", "failed") and tags.get(SPEC_HASH) != plan.spec_hash:
        raise _taken(
            f"endpoint {name} exists ({endpoint.status}) with another spec "
            f"(hash {tags.get(SPEC_HASH, 'none')}, this one is {plan.spec_hash}).",
            f"Change it with `peagle-sm update SPEC{session.command_flags()}`, delete it first: `{remove}`, "
            "or choose another name.",
        )
    if state is None:
        raise _taken(f"endpoint {name} is {endpoint.status}.", f"Delete it first: `{remove}`.")
    return Survey(state, endpoint, limit, tags)


def _not_a_stacks(session: Session, name: str) -> None:
    """A stack that is turned off would find its endpoint's name taken when it is turned on again."""
    stack = endpoint_stack(name)
    status = stack_status(session, stack)
    if status is not None and status != "DELETE_COMPLETE":
        raise _taken(
            f"endpoint {name} belongs to stack {stack} ({status}).",
            f"Change it with `cdk deploy {stack} -c spec=FILE`, turn it on with "
            f"`peagle-sm resume {name}{session.command_flags()}`, or choose another name.",
        )


def _taken(message: str, next_step: str) -> PlanRefused:
    return PlanRefused(message, next_step=next_step, details={"findings": []})


# UpdateEndpoint takes these two alone; Updating is taken up where it is this update's own.
_UPDATABLE = ("InService", "UpdateRollbackFailed", "Updating")


@dataclass(frozen=True)
class CurrentState:
    """What there is under the name: ``facts`` None where the endpoint is off; ``tags`` are the endpoint's."""

    one: Belongings
    facts: EndpointFacts | None
    tags: Mapping[str, str]
    old_config: str


@dataclass(frozen=True)
class UpdateOffer:
    """What an update would do.

    ``changes`` are the fields that differ; ``fleet`` is False where only tags do, so that nothing is started.
    ``usd_per_hour`` is the price afterwards, ``second_fleet_usd_per_hour`` what is paid on top while both
    fleets run, for at most ``second_fleet_hours`` (0 where there is no second one); None: no price is known.
    ``expires_at`` is the new end of its life, ``expired_at`` the one it had. ``done`` where nothing is to do.
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

    def changes_field(self, *names: str) -> bool:
        """Return whether a field of one of these names differs, at any depth."""
        return any(part in names for change in self.changes for part in change.field.split("."))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types; times as ISO text."""
        shown = {key: getattr(self, key) for key in self.__dataclass_fields__ if key != "plan"}
        shown["changes"] = [asdict(one) for one in self.changes]
        return {key: plain(value) for key, value in shown.items()}


def current_state(session: Session, plan: Plan, strategy: Update) -> CurrentState:
    """Look what there is to update.

    Raises:
        NotFound: nothing of that name.
        PlanRefused: it is not ours, a stack's, off, or in a state in which it cannot be updated.
    """
    name, flags = plan.names.endpoint, session.command_flags()
    one = belongings_of(session, name)
    if one.stack is not None:
        raise _refused(
            f"endpoint {name} belongs to stack {one.stack}.",
            f"Change it with `cdk deploy {one.stack} -c spec=FILE`.",
        )
    facts = control.describe_endpoint(session, name)
    if facts is not None:
        _refuse_the_state(session, plan, facts, strategy)
        tags = control.tags_of(session, facts.arn) or {}
        if not is_ours(tags):
            raise _refused(
                f"endpoint {name} exists and was not made by peagle-sm; it is not touched.",
                "Choose another name for the spec.",
            )
        return CurrentState(one, facts, tags, facts.config_name)
    if not one.configs:
        raise NotFound(
            f"endpoint {name!r} does not exist in {session.region}: there is nothing to update.",
            next_step=f"Create it with `peagle-sm deploy SPEC{flags}`.",
            details={"name": name},
        )
    if strategy == "in-place":
        raise _refused(
            f"endpoint {name} is off: there is no fleet beside which a second one could run.",
            f"Bring it back as it was with `peagle-sm resume {name}{flags}`, or start it with the new spec: "
            f"`peagle-sm update SPEC --strategy off-update-on{flags}`.",
        )
    return CurrentState(one, None, one.tags, one.kept_config or one.configs[0])


def offer_of(
    session: Session,
    plan: Plan,
    found: CurrentState,
    strategy: Update,
    alarms: Sequence[str],
    now: datetime,
) -> UpdateOffer:
    """Compare what runs with what the plan would make, and price the way there."""
    wanted = {one.operation: one.parameters for one in plan.requests}
    marks = {tag["Key"]: tag["Value"] for tag in wanted["create_endpoint"]["Tags"]}
    fields = _changed_fields(session, plan, found, wanted)
    told = (*fields, *tag_changes(found.tags, marks))
    there = found.facts is not None and found.facts.config_name == plan.names.config
    fleet = not there or found.facts is None or found.facts.status != "InService"
    finished = there and found.tags.get(SPEC_HASH) == plan.spec_hash
    alone = found.one.configs == [plan.names.config] and found.one.models == [plan.names.model]
    second = fleet and strategy == "in-place"
    now = now.replace(microsecond=0)
    ends = now + timedelta(hours=plan.spec.lifecycle.max_lifetime_hours)
    lease = lease_of(session, plan.names.endpoint, found.facts.created_at if found.facts else None)
    offer = UpdateOffer(
        name=plan.names.endpoint,
        strategy=strategy,
        config=plan.names.config,
        old_config=found.old_config,
        changes=told,
        fleet=fleet,
        is_off=found.facts is None,
        done=finished and alone and not fleet and not told,
        usd_per_hour=plan.usd_per_hour,
        price_source=plan.price_source,
        second_fleet_usd_per_hour=plan.usd_per_hour if second else 0.0,
        second_fleet_hours=LONGEST_UPDATE_S / 3600 if second else 0.0,
        expires_at=max(ends, lease or ends),
        expired_at=found.one.lifetime.expires_at if found.one.lifetime else None,
        alarms=tuple(alarms) if second else (),
        plan=plan,
    )
    _refuse_another_type(session, offer)
    return offer


def _refuse_another_type(session: Session, offer: UpdateOffer) -> None:
    in_place = offer.fleet and not offer.is_off and offer.strategy == "in-place"
    if not in_place or not offer.changes_field("InstanceType", "InstancePools"):
        return
    if control.is_scalable(session, offer.name, VARIANT):
        name, flags = offer.name, session.command_flags()
        raise _refused(
            f"endpoint {name} is a target of Application Auto Scaling: SageMaker does not change its "
            "instance type in place.",
            "Deregister it with `aws application-autoscaling deregister-scalable-target --service-namespace "
            f"sagemaker --scalable-dimension sagemaker:variant:DesiredInstanceCount --resource-id "
            f"endpoint/{name}/variant/{VARIANT}` and register it again after the update, or replace the "
            f"endpoint: `peagle-sm update SPEC --strategy off-update-on{flags}`.",
        )


def _changed_fields(
    session: Session, plan: Plan, found: CurrentState, wanted: Mapping[str, Mapping[str, Any]]
) -> tuple[Change, ...]:
    if found.old_config == plan.names.config:
        return ()
    config = control.describe_endpoint_config(session, found.old_config)
    model = control.describe_model(session, config.model_name) if config and config.model_name else None
    return (
        *changes(model.raw if model else {}, wanted["create_model"]),
        *changes(config.raw if config else {}, wanted["create_endpoint_config"]),
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
            f"endpoint {name} is being updated to config {facts.pending_config} already.",
            f"Wait until that is over: `peagle-sm status {name}{flags}`.",
        )


def _refused(message: str, next_step: str) -> PlanRefused:
    return PlanRefused(message, next_step=next_step, details={"findings": []})
