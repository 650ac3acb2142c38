"""Switch: turns an endpoint off or on; of the guard's functions only this one updates stacks and deletes.

It never waits: an unfinished change is ``in-progress``, and the next sweep invokes it again.
UPDATE_COMPLETE is not proof: the endpoint counts as off only when SageMaker does not find it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from typing import Any

from peagle_guard import settings as environment
from peagle_guard import training
from peagle_guard.aws import Aws, NoUpdates, Stack, same_arn, same_time
from peagle_guard.boto_aws import BotoAws, is_refusal
from peagle_guard.records import BUSY, STACK_PREFIX, Endpoint, is_ours, stack_of
from peagle_guard.register import claim, is_later, is_parting, moved_to, unclaim
from peagle_guard.settings import time_of
from peagle_sm.core.plan.tags_and_schedules import alarm_names, from_zero_alarm, hard_name, schedule_name

PARAMETER = "EndpointState"
_VARIANT = "AllTraffic"  # of each endpoint of peagle-sm
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

Answer = dict[str, Any]


@dataclass(frozen=True)
class Target:
    """The endpoint that an event means.

    ``stack`` is the stack that owns it. ``arn`` and ``created_at`` identify it; an event without them means
    whichever endpoint has the name. ``limit`` is the end of the lifetime whose schedule sent the event.
    ``remaining`` is set if what remains of the endpoint is to be removed once it is gone.
    """

    name: str
    stack: str | None
    arn: str = ""
    created_at: datetime | None = None
    limit: datetime | None = None
    remaining: Remaining | None = None

    def is_other(self, endpoint: Endpoint) -> bool:
        """Decide whether an endpoint only has this one's name."""
        return self.created_at is not None and not (
            same_time(endpoint.created_at, self.created_at) and same_arn(endpoint.arn, self.arn)
        )


@dataclass(frozen=True)
class Remaining:
    """Which schedules of the name are those of a deleted endpoint.

    They start by ``expires_at`` (hard schedules: by ``hard_expires_at``) and were written by
    ``last_seen_at``. Newer ones are the next endpoint's: a deploy creates schedules before the endpoint, also
    for a lifetime that ends earlier than the old one.
    """

    expires_at: datetime
    hard_expires_at: datetime
    last_seen_at: datetime


def turn(aws: Aws, event: Mapping[str, Any]) -> Answer:
    """Handle an event; return ``{"state": "done" | "in-progress" | "refused", "detail", "started"}``.

    Before components are deleted, the register marks the endpoint as parting, so each sweep finishes it.
    """
    action = event.get("action")
    if action == training.STOP:
        return training.stop(aws, event)
    stack, endpoint = event.get("stack"), event.get("endpoint")
    if action not in ("on", "off") or not (
        isinstance(stack, str) or (action == "off" and isinstance(endpoint, str))
    ):
        return _refused(f"found {dict(event)!r}; allowed: action on or off with stack, or off with endpoint")
    if isinstance(stack, str) and not stack.startswith(STACK_PREFIX):
        return _refused(f"{stack} is not a stack of peagle-sm; their names begin with {STACK_PREFIX}")
    if action == "on":
        return _turn_on(aws, str(stack))
    target = _target(event)
    return _refused(target) if isinstance(target, str) else _turn_off(aws, target)


def _target(event: Mapping[str, Any]) -> Target | str:
    """Read which endpoint an event means; a text says why it cannot be read."""
    stack, name = event.get("stack"), event.get("endpoint")
    expires_at = time_of(event.get("expires_at"))
    if not isinstance(name, str):
        return Target(str(stack).removeprefix(STACK_PREFIX), str(stack), limit=expires_at)
    if stack is not None and stack != f"{STACK_PREFIX}{name}":
        return f"stack {stack} does not own endpoint {name}; allowed: {STACK_PREFIX}{name}, or no stack"
    arn, created_at = str(event.get("arn", "")), time_of(event.get("created_at"))
    if created_at is None or not arn:
        return f"found {dict(event)!r}; arn and created_at must say which endpoint {name} is meant"
    remaining = None
    if expires_at is not None:
        remaining = Remaining(
            expires_at,
            time_of(event.get("hard_expires_at")) or expires_at,
            time_of(event.get("last_seen_at")) or created_at,
        )
    return Target(name, stack, arn, created_at, remaining=remaining)


# --- off ----------------------------------------------------------------------------------------------


def _turn_off(aws: Aws, target: Target) -> Answer:
    """Turn the endpoint off: by its stack where that can be updated, else by deleting the endpoint."""
    name = target.name
    endpoint = aws.describe_endpoint(name)
    if endpoint is not None and target.is_other(endpoint):
        return _gone(aws, target, next_exists=True)
    moved = None if endpoint is None else _moved_limit(aws, endpoint, target.limit)
    if moved is not None:
        return _refused(moved)
    stack = None if target.stack is None else aws.describe_stack(target.stack)
    if stack is not None and stack.status.endswith("_IN_PROGRESS") and stack.status != "REVIEW_IN_PROGRESS":
        return _waiting(f"{stack.name} is {stack.status}")
    if endpoint is not None and endpoint.status == "Deleting":
        _deregister(aws, _variants(endpoint))
        return _waiting(f"{name} is being deleted")
    if endpoint is not None and endpoint.status in BUSY:
        # AWS refuses the deletion now. CloudFormation would try once, be refused, and lose the endpoint.
        return _waiting(f"AWS refuses a deletion while {name} is {endpoint.status}")
    if stack is not None and stack.status in _UPDATABLE:
        if PARAMETER not in stack.parameters:
            return _refused(f"{stack.name} has no parameter {PARAMETER}: it was not created by peagle-sm")
        if stack.parameters[PARAMETER] != "off":
            moved = None if endpoint is None else claim(aws, endpoint, target.limit)
            if moved is not None:
                return _refused(moved)
            if _update(aws, stack, "off"):
                return _begun(f"{stack.name} is being updated to {PARAMETER}=off")
    # No stack, or one that is off already or failed; what it left behind is still billed.
    return _gone(aws, target) if endpoint is None else _delete(aws, endpoint, target)


def _moved_limit(aws: Aws, endpoint: Endpoint, limit: datetime | None) -> str | None:
    """Return why the end of a lifetime does not apply to this endpoint (any more); None if it does."""
    if limit is None:
        return None
    if endpoint.created_at > limit:
        return f"{endpoint.name} was created after this limit ended: it is another endpoint's limit"
    start, _ = aws.schedule_times(schedule_name(endpoint.name)) or (None, None)
    return moved_to(endpoint.name, start) if start is not None and is_later(start, limit) else None


def _delete(aws: Aws, endpoint: Endpoint, target: Target) -> Answer:
    """Delete the endpoint, its components first; its configuration and model are kept."""
    tags = aws.endpoint_tags(endpoint.arn)
    if not is_ours(endpoint.name, tags) or stack_of(tags) != target.stack:
        owner = target.stack or "peagle-sm alone"
        return _refused(f"the tags of {endpoint.name} do not say that it belongs to {owner}")
    components = aws.components(endpoint.name)
    scaling = aws.scalable_targets([f"inference-component/{component}" for component in components])
    begun = is_parting(aws, endpoint)
    moved = claim(aws, endpoint, target.limit, parting=bool(components))
    if moved is not None:
        return _refused(moved)
    if components:
        _dismantle(aws, endpoint, components, scaling, begun)
        return _begun(f"the inference components of {endpoint.name} are being deleted; the endpoint is next")
    aws.delete_endpoint(endpoint.name)
    # Not earlier: if AWS refused the deletion, the endpoint would lose its autoscaling.
    _deregister(aws, _variants(endpoint))
    return _begun(f"{endpoint.name} is being deleted")


def _dismantle(
    aws: Aws,
    endpoint: Endpoint,
    components: Sequence[str],
    scaling: Sequence[tuple[str, str]],
    begun: bool,
) -> None:
    """Delete the components, their autoscaling first.

    If AWS refuses the first call, nothing changes, unless an earlier try has already ``begun``.
    """
    try:
        for resource_id, dimension in scaling:
            aws.deregister(resource_id, dimension)
            begun = True
        for component in components:
            aws.delete_component(component)
            begun = True
    except Exception as error:
        if not begun and is_refusal(error):
            unclaim(aws, endpoint)
        raise


def _gone(aws: Aws, target: Target, *, next_exists: bool = False) -> Answer:
    """Remove what remains of a deleted endpoint: schedules, autoscaling, alarms.

    Autoscaling and alarms have no time of creation. If the next endpoint of the name exists, they may be its.
    """
    answer = _done(f"{target.name} is gone")
    if target.remaining is None:
        return answer
    _remove_schedules(aws, target.name, target.remaining)
    if next_exists:
        return answer
    # The lifetime schedules delete component and endpoint, and leave their autoscaling.
    _deregister(aws, [f"inference-component/{target.name}", f"endpoint/{target.name}/variant/{_VARIANT}"])
    return answer | {"fault": _remove_alarms(aws, target)}


def _remove_schedules(aws: Aws, name: str, remaining: Remaining) -> None:
    schedule = schedule_name(name)
    _remove_schedule(aws, schedule, remaining.expires_at, remaining)
    _remove_schedule(aws, hard_name(schedule), remaining.hard_expires_at, remaining)
    for number in count(1):
        # One per component, numbered without a gap.
        if not _remove_schedule(aws, hard_name(schedule, number), remaining.hard_expires_at, remaining):
            break


def _remove_schedule(aws: Aws, name: str, until: datetime, remaining: Remaining) -> bool:
    """Remove a schedule unless it is the next endpoint's; return whether it existed."""
    times = aws.schedule_times(name)
    if times is None:
        return False
    start, written_at = times
    is_old = written_at is not None and written_at <= remaining.last_seen_at
    if start is not None and start <= until and is_old:
        aws.delete_schedule(name)
    return True


def _remove_alarms(aws: Aws, target: Target) -> str:
    """Delete the alarms of a killed update and of scaling from zero; return why they may remain.

    A failure is not raised: the sweep would not record that the endpoint is gone, and its hours would not
    turn it on again.
    """
    names = (*alarm_names(target.name), from_zero_alarm(target.name))
    try:
        aws.delete_alarms(names)
    except Exception as error:
        options = f"--region {target.arn.split(':')[3]} --alarm-names {' '.join(names)}"
        return f"run `aws cloudwatch delete-alarms {options}`: {type(error).__name__}: {error}"
    return ""


def _variants(endpoint: Endpoint) -> list[str]:
    return [f"endpoint/{endpoint.name}/variant/{variant}" for variant in endpoint.variants]


def _deregister(aws: Aws, resource_ids: Sequence[str]) -> None:
    for resource_id, dimension in aws.scalable_targets(resource_ids):
        aws.deregister(resource_id, dimension)


# --- on -----------------------------------------------------------------------------------------------


def _turn_on(aws: Aws, stack_name: str) -> Answer:
    name = stack_name.removeprefix(STACK_PREFIX)
    stack = aws.describe_stack(stack_name)
    if stack is None:
        return _refused(f"stack {stack_name} does not exist; deploy it")
    if stack.status.endswith("_IN_PROGRESS"):
        return _waiting(f"{stack_name} is {stack.status}")
    if stack.status not in _UPDATABLE or PARAMETER not in stack.parameters:
        return _refused(
            f"{stack_name} is {stack.status} and cannot be updated; delete it and deploy it again"
        )
    endpoint = aws.describe_endpoint(name)
    if endpoint is not None and endpoint.status == "Deleting":
        return _waiting(f"{name} is still being deleted")
    is_on = stack.parameters[PARAMETER] == "on"
    if endpoint is not None:
        if is_on:
            return _done(f"{name} is on")
        return _refused(f"{name} exists although {stack_name} is off; turn it off first")
    # An endpoint that was deleted outside its stack: off first, so that CloudFormation creates it again.
    state = "off" if is_on else "on"
    if not _update(aws, stack, state):
        return _refused(f"{stack_name}: CloudFormation found nothing to update for {PARAMETER}={state}")
    detail = f"{stack_name} is being updated to {PARAMETER}={state}"
    return _waiting(detail) if is_on else _begun(detail)


def _update(aws: Aws, stack: Stack, state: str) -> bool:
    """Update the stack's parameter; False if CloudFormation finds nothing to update.

    All parameters are passed: an omitted one would fall back to its default.
    """
    parameters = [
        {"ParameterKey": key, "ParameterValue": state}
        if key == PARAMETER
        else {"ParameterKey": key, "UsePreviousValue": True}
        for key in stack.parameters
    ]
    try:
        aws.update_stack(stack.name, parameters)
    except NoUpdates:
        return False
    return True


def _done(detail: str) -> Answer:
    return {"state": "done", "detail": detail, "started": True}


def _begun(detail: str) -> Answer:
    return {"state": "in-progress", "detail": detail, "started": True}


def _waiting(detail: str) -> Answer:
    return {"state": "in-progress", "detail": detail, "started": False}


def _refused(detail: str) -> Answer:
    return {"state": "refused", "detail": detail, "started": False}


def handler(event: Mapping[str, Any], context: object) -> dict[str, Any]:
    """Handle an event; a refusal is a response, an AWS error is raised."""
    answer = turn(BotoAws(environment.load()), event)
    print(json.dumps({"event": dict(event), "answer": answer}))
    return answer
