"""How the switch turns an endpoint off or on through its owner. It alone may update a stack, and never waits.

What is still on its way is ``in-progress``; the next sweep asks again. UPDATE_COMPLETE is never believed: the
endpoint is off only when SageMaker does not find it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from typing import Any, Protocol

from peagle_guard.records import BUSY, Endpoint
from peagle_guard.schedules import hard_name, schedule_name
from peagle_guard.settings import parse_time
from peagle_guard.tags import PREFIX, is_ours

STACK_PREFIX = "Peagle-"
PARAMETER = "EndpointState"
# Stacks in these states can be updated.
_UPDATABLE = frozenset(
    {
        "CREATE_COMPLETE",
        "UPDATE_COMPLETE",
        "UPDATE_ROLLBACK_COMPLETE",
        "UPDATE_FAILED",
        "IMPORT_COMPLETE",
        "IMPORT_ROLLBACK_COMPLETE",
    }
)


class NoUpdates(Exception):
    """CloudFormation answered "No updates are to be performed"."""


@dataclass(frozen=True)
class Stack:
    """A stack as CloudFormation describes it."""

    name: str
    status: str
    parameters: Mapping[str, str]


class SwitchAws(Protocol):
    """AWS as the switch sees it."""

    def describe_stack(self, name: str) -> Stack | None:
        """DescribeStacks; None where there is none of that name."""

    def update_stack(self, name: str, parameters: Sequence[Mapping[str, Any]]) -> None:
        """UpdateStack with the previous template; raises NoUpdates."""

    def describe_endpoint(self, name: str) -> Endpoint | None:
        """DescribeEndpoint; None where there is none of that name."""

    def endpoint_tags(self, arn: str) -> Mapping[str, str]:
        """ListTags."""

    def components(self, endpoint: str) -> Sequence[str]:
        """ListInferenceComponents of one endpoint, those that are being deleted included."""

    def scalable_targets(self, resource_ids: Sequence[str]) -> Sequence[tuple[str, str]]:
        """DescribeScalableTargets: resource id and dimension of each."""

    def deregister(self, resource_id: str, dimension: str) -> None:
        """DeregisterScalableTarget."""

    def delete_component(self, name: str) -> None:
        """DeleteInferenceComponent; one that is being deleted already is left alone."""

    def delete_endpoint(self, name: str) -> None:
        """DeleteEndpoint; the configuration and the model are kept."""

    def schedule_start(self, name: str) -> datetime | None:
        """StartDate of a schedule; None where there is none of that name."""

    def delete_schedule(self, name: str) -> None:
        """DeleteSchedule; none of that name is fine."""


Answer = dict[str, Any]


def turn(aws: SwitchAws, event: Mapping[str, Any]) -> Answer:
    """Do what an event asks: ``{"state": "done" | "in-progress" | "refused", "detail", "started"}``.

    With ``"parting": True`` where an endpoint without its components is left to be deleted by the next call.
    """
    action, stack, endpoint = event.get("action"), event.get("stack"), event.get("endpoint")
    if action == "off" and isinstance(endpoint, str):
        return _off_direct(aws, event, endpoint)
    if action not in ("on", "off") or not isinstance(stack, str):
        return _refused(f"found {dict(event)!r}; allowed: action on or off with stack, or off with endpoint")
    if not stack.startswith(STACK_PREFIX):
        return _refused(f"{stack} is not a stack of peagle-sm; their names begin with {STACK_PREFIX}")
    found = aws.describe_stack(stack)
    name = stack.removeprefix(STACK_PREFIX)
    return _on(aws, found, stack, name) if action == "on" else _off(aws, found, stack, name, event)


# --- off ----------------------------------------------------------------------------------------------


def _off(aws: SwitchAws, stack: Stack | None, stack_name: str, name: str, event: Mapping[str, Any]) -> Answer:
    endpoint = aws.describe_endpoint(name)
    expires_at = _moment(event.get("expires_at"))
    if endpoint is not None and expires_at is not None and endpoint.created_at > expires_at:
        return _refused(f"{name} was created after this limit ended: it is another endpoint's limit")
    if stack is None or stack.status == "REVIEW_IN_PROGRESS":
        return _delete_itself(aws, endpoint, stack_name)
    if stack.status.endswith("_IN_PROGRESS"):
        return _waiting(f"{stack_name} is {stack.status}")
    if stack.status not in _UPDATABLE:
        # A stack that failed cannot be updated, and its endpoint goes on costing.
        return _delete_itself(aws, endpoint, stack_name)
    if endpoint is not None and (endpoint.status in BUSY or endpoint.status == "Deleting"):
        # CloudFormation would try once, be refused, and forget the endpoint.
        return _waiting(f"{name} is {endpoint.status}")
    if PARAMETER not in stack.parameters:
        return _refused(f"{stack_name} has no parameter {PARAMETER}: it was not made by peagle-sm")
    if stack.parameters[PARAMETER] == "off":
        return _delete_itself(aws, endpoint, stack_name)
    try:
        aws.update_stack(stack_name, _parameters(stack, "off"))
    except NoUpdates:
        return _delete_itself(aws, endpoint, stack_name)
    return _begun(f"{stack_name} is being updated to {PARAMETER}=off")


def _off_direct(aws: SwitchAws, event: Mapping[str, Any], name: str) -> Answer:
    """An endpoint without a stack; once it is gone, its schedule too."""
    created_at = _moment(event.get("created_at"))
    arn = str(event.get("arn", ""))
    if created_at is None or not arn:
        return _refused(f"found {dict(event)!r}; arn and created_at say which endpoint {name} is meant")
    endpoint = aws.describe_endpoint(name)
    if endpoint is not None and endpoint.created_at == created_at and endpoint.arn == arn:
        return _delete_itself(aws, endpoint, None)
    expires_at = _moment(event.get("expires_at"))
    if expires_at is not None:
        _disarm(aws, name, expires_at)
    return _done(f"{name} is gone")


def _disarm(aws: SwitchAws, name: str, expires_at: datetime) -> None:
    """Remove the schedules of the endpoint that is gone; a later one belongs to the next of that name."""
    schedule = schedule_name(name)
    for each in (schedule, hard_name(schedule)):
        _disarm_one(aws, each, expires_at)
    for number in count(1):
        # One a component, numbered without a gap.
        if not _disarm_one(aws, hard_name(schedule, number), expires_at):
            break


def _disarm_one(aws: SwitchAws, name: str, expires_at: datetime) -> bool:
    """Say whether there was a schedule of that name; remove it unless it begins later."""
    start = aws.schedule_start(name)
    if start is not None and start <= expires_at:
        aws.delete_schedule(name)
    return start is not None


def _delete_itself(aws: SwitchAws, endpoint: Endpoint | None, stack: str | None) -> Answer:
    """Delete the endpoint, what blocks its deletion first; its configuration and model are kept."""
    if endpoint is None:
        return _done("the endpoint is gone")
    if endpoint.status == "Deleting":
        return _waiting(f"{endpoint.name} is being deleted")
    if endpoint.status in BUSY:
        return _waiting(f"AWS refuses a deletion while {endpoint.name} is {endpoint.status}")
    tags = aws.endpoint_tags(endpoint.arn)
    if not is_ours(endpoint.name, tags) or tags.get(f"{PREFIX}stack") != stack:
        return _refused(
            f"the tags of {endpoint.name} do not say that it belongs to {stack or 'peagle-sm alone'}"
        )
    components = aws.components(endpoint.name)
    targets = [f"endpoint/{endpoint.name}/variant/{variant}" for variant in endpoint.variants]
    targets += [f"inference-component/{component}" for component in components]
    for resource_id, dimension in aws.scalable_targets(targets):
        aws.deregister(resource_id, dimension)
    for component in components:
        aws.delete_component(component)
    if components:
        detail = f"the inference components of {endpoint.name} are being deleted; the endpoint is next"
        return {**_begun(detail), "parting": True}
    aws.delete_endpoint(endpoint.name)
    return _begun(f"{endpoint.name} is being deleted")


# --- on -----------------------------------------------------------------------------------------------


def _on(aws: SwitchAws, stack: Stack | None, stack_name: str, name: str) -> Answer:
    if stack is None:
        return _refused(f"there is no stack {stack_name}; deploy it")
    if stack.status.endswith("_IN_PROGRESS"):
        return _waiting(f"{stack_name} is {stack.status}")
    if stack.status not in _UPDATABLE or PARAMETER not in stack.parameters:
        return _refused(
            f"{stack_name} is {stack.status} and cannot be updated; delete it and deploy it again"
        )
    endpoint = aws.describe_endpoint(name)
    if endpoint is not None and endpoint.status == "Deleting":
        return _waiting(f"{name} is still being deleted")
    if stack.parameters[PARAMETER] == "on":
        if endpoint is not None:
            return _done(f"{name} is on")
        # Deleted behind its stack's back: off first, so that CloudFormation makes it anew.
        return _update(aws, stack, "off", started=False)
    if endpoint is not None:
        return _refused(f"{name} is there although {stack_name} is off; turn it off first")
    return _update(aws, stack, "on", started=True)


def _update(aws: SwitchAws, stack: Stack, state: str, *, started: bool) -> Answer:
    try:
        aws.update_stack(stack.name, _parameters(stack, state))
    except NoUpdates:
        return _refused(f"{stack.name}: CloudFormation sees nothing to update for {PARAMETER}={state}")
    detail = f"{stack.name} is being updated to {PARAMETER}={state}"
    return _begun(detail) if started else _waiting(detail)


def _parameters(stack: Stack, state: str) -> list[dict[str, Any]]:
    """Every parameter is passed: one that is left out falls back to its default."""
    return [
        {"ParameterKey": key, "ParameterValue": state}
        if key == PARAMETER
        else {"ParameterKey": key, "UsePreviousValue": True}
        for key in stack.parameters
    ]


def _moment(text: object) -> datetime | None:
    try:
        return parse_time(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _done(detail: str) -> Answer:
    return {"state": "done", "detail": detail, "started": True}


def _begun(detail: str) -> Answer:
    return {"state": "in-progress", "detail": detail, "started": True}


def _waiting(detail: str) -> Answer:
    return {"state": "in-progress", "detail": detail, "started": False}


def _refused(detail: str) -> Answer:
    return {"state": "refused", "detail": detail, "started": False}
