"""What stands under a plan's names already: nothing, an earlier run's work, or somebody else's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from peagle_sm.aws.control import lifetime
from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.control.lifetime import Lifetime
from peagle_sm.aws.control.sagemaker import EndpointFacts
from peagle_sm.aws.control.stacks import stack_status
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import PlanRefused
from peagle_sm.core.guard.names import endpoint_stack
from peagle_sm.core.plan.plan import Plan
from peagle_sm.core.plan.tags import SPEC_HASH
from peagle_sm.service.inventory.ownership import is_ours, stack_of

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
