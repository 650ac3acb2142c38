"""Custom::PeagleLifetime, and turning on endpoints without a stack; both create schedules first.

The schedules are EventBridge rates, not single shots: a single shot fails on an endpoint that is Creating
or Updating. A rate without StartDate fires at once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from botocore.exceptions import ClientError

from peagle_guard import records
from peagle_guard import settings as environment
from peagle_guard.aws import Register
from peagle_guard.boto_aws import client, described, is_refusal
from peagle_guard.cfn_response import Context, Made, ProviderError, respond
from peagle_guard.register import DynamoRegister
from peagle_guard.settings import Settings
from peagle_sm.core.plan.tags_and_schedules import (
    COMPONENT,
    SCALING,
    hard_name,
    sagemaker_target,
    schedule_name,
    schedule_request,
)

# How long the stack's switch has for itself before the endpoint is deleted directly.
HARD_AFTER = timedelta(minutes=30)


class NotArmed(Exception):
    """Error: a schedule differs from what was written; no endpoint may be created without it."""


@dataclass(frozen=True)
class Arming:
    """Settings of the schedules: what is deleted, when, and with which role."""

    name: str
    endpoint: str
    expires_at: datetime
    role_arn: str
    dead_letters_arn: str
    # Of an endpoint in a stack: the switch's ARN and the stack.
    switch_arn: str = ""
    stack: str = ""
    # They block a deletion of the endpoint.
    components: tuple[str, ...] = ()

    @property
    def partition(self) -> str:
        """Return the ARN partition of the role."""
        return self.role_arn.split(":")[1]


def schedules(arming: Arming) -> list[dict[str, Any]]:
    """Return the schedules' requests.

    In a stack the switch is invoked first; half an hour later SageMaker is called directly, for the
    components before the endpoint. Without a stack SageMaker is called at once; if components still block the
    deletion, the next firing succeeds.
    """
    if not arming.stack:
        return [
            *_component_schedules(arming, arming.expires_at),
            _schedule(arming, arming.name, arming.expires_at, *_delete_endpoint(arming)),
        ]
    call = {
        "action": "off",
        "stack": arming.stack,
        "expires_at": arming.expires_at.astimezone(UTC).isoformat(timespec="seconds"),
    }
    hard_at = arming.expires_at + HARD_AFTER
    return [
        _schedule(arming, arming.name, arming.expires_at, arming.switch_arn, call),
        *_component_schedules(arming, hard_at),
        _schedule(arming, hard_name(arming.name), hard_at, *_delete_endpoint(arming)),
    ]


def arm(scheduler: Any, arming: Arming) -> None:
    """Create or overwrite the schedules, and read each back.

    Raises:
        NotArmed: a schedule differs from what was written.
    """
    for request in schedules(arming):
        try:
            scheduler.create_schedule(**request)
        except ClientError as error:
            if error.response["Error"]["Code"] != "ConflictException":
                raise
            # An old schedule must never meet a new endpoint of the same name.
            scheduler.update_schedule(**request)
        _check(scheduler.get_schedule(Name=request["Name"]), request)


def disarm_all(scheduler: Any, name: str) -> None:
    """Delete the lifetime schedule of that name and its hard schedules, if they exist."""
    _delete(scheduler, name)
    disarm_hard(scheduler, name)


def disarm_hard(scheduler: Any, name: str) -> None:
    """Delete the hard schedules of the lifetime schedule of that name, if they exist."""
    _delete(scheduler, hard_name(name))
    disarm_components(scheduler, name)


def disarm_components(scheduler: Any, name: str, after: int = 0) -> None:
    """Delete the schedules of the components numbered above ``after``; they are numbered without a gap."""
    for number in count(after + 1):
        if not _delete(scheduler, hard_name(name, number)):
            return


def _delete(scheduler: Any, name: str) -> bool:
    try:
        scheduler.delete_schedule(Name=name)
    except ClientError as error:
        if error.response["Error"]["Code"] != "ResourceNotFoundException":
            raise
        return False
    return True


def _check(stored: Any, request: dict[str, Any]) -> None:
    name, start = request["Name"], stored.get("StartDate")
    # Scheduler keeps whole seconds.
    late = start is None or abs(start - request["StartDate"]) > timedelta(seconds=1)
    target = stored.get("Target", {})
    if (
        late
        or stored.get("State", "ENABLED") != "ENABLED"
        or any(target.get(key) != request["Target"][key] for key in ("Arn", "Input"))
    ):
        raise NotArmed(
            f"schedule {name} does not read back as it was written (StartDate {start}, "
            f"state {stored.get('State')}, target {target.get('Arn')}); nothing was started"
        )


def _component_schedules(arming: Arming, start: datetime) -> list[dict[str, Any]]:
    """Make a schedule for each component: components block the deletion of their endpoint."""
    target = sagemaker_target(arming.partition, "deleteInferenceComponent")
    return [
        _schedule(
            arming, hard_name(arming.name, number), start, target, {"InferenceComponentName": component}
        )
        for number, component in enumerate(arming.components, start=1)
    ]


def _delete_endpoint(arming: Arming) -> tuple[str, dict[str, str]]:
    return sagemaker_target(arming.partition, "deleteEndpoint"), {"EndpointName": arming.endpoint}


def _schedule(
    arming: Arming, name: str, start: datetime, target: str, event: dict[str, str]
) -> dict[str, Any]:
    request = schedule_request(name, arming.endpoint, start, arming.role_arn, target, event)
    # Undeliverable events go to the dead-letter queue.
    target_fields = {**request["Target"], "DeadLetterConfig": {"Arn": arming.dead_letters_arn}}
    return {**request, "Target": target_fields}


_MOST_HOURS = 8760.0
_WRITE_TRIES = 5


def provide(
    scheduler: Any,
    endpoints: Any,
    register: Register,
    settings: Settings,
    event: Mapping[str, Any],
    now: datetime,
) -> Made:
    """Handle CloudFormation's request for one lifetime.

    CloudFormation tries three times to delete the endpoint in its cleanup, and then goes on: the schedules
    of an endpoint that still exists stay armed. The sweep has them removed once the endpoint is gone.

    Raises:
        ProviderError: a property is not what it must be, or a scaling endpoint changes its instance type.
        NotArmed: a schedule does not read back as it was written.
    """
    properties = event["ResourceProperties"]
    if event["RequestType"] == "Delete":
        name, endpoint = str(event["PhysicalResourceId"]), str(properties.get("EndpointName", ""))
        if name != schedule_name(endpoint) or described(endpoints, endpoint) is None:
            disarm_all(scheduler, name)
        return Made(name)
    if event["RequestType"] == "Update":
        _refuse_another_type(endpoints, properties, event.get("OldResourceProperties", {}))
    arming = _arming(event, settings, now)
    record = register.get(arming.endpoint)
    # The lease of `keep` still applies; a pause by hand does not end it.
    is_kept = record.paused or (event["RequestType"] == "Update" and record.gone_at is None)
    if is_kept and record.keep_until is not None and record.keep_until > arming.expires_at:
        arming = replace(arming, expires_at=_seconds(record.keep_until))
    arm(scheduler, arming)
    # Also on Create: an older endpoint of the name may have had more components.
    disarm_components(scheduler, arming.name, after=len(arming.components))
    if event["RequestType"] == "Update":
        _note_end(register, arming, now)
    expires = arming.expires_at.isoformat(timespec="seconds")
    return Made(arming.name, {"ScheduleName": arming.name, "ExpiresAt": expires})


def wake(
    scheduler: Any,
    endpoints: Any,
    register: Register,
    settings: Settings,
    event: Mapping[str, Any],
) -> dict[str, Any]:
    """Create the schedules of an endpoint without a stack, then the endpoint from its kept config."""
    name, config, now = event.get("endpoint"), event.get("config"), environment.time_of(event.get("time"))
    if not (isinstance(name, str) and name and isinstance(config, str) and config and now):
        detail = f"found {dict(event)!r}; allowed: endpoint, config and time"
        return {"state": "refused", "detail": detail}
    if described(endpoints, name) is not None:
        # Delivered twice: `keep` may have moved its schedule since.
        return {"state": "done", "detail": f"{name} exists already"}
    kept = register.get(name).tags
    if not records.is_ours(name, kept):
        return {"state": "refused", "detail": f"the register holds no tags of {name}: the guard never saw it"}
    if SCALING in kept or COMPONENT in kept:
        # Alone it would be billed without its component, and would not scale.
        detail = f"{name} scales: the guard creates endpoints, not their components and autoscaling"
        return {"state": "refused", "detail": detail}
    arming = Arming(
        name=schedule_name(name),
        endpoint=name,
        expires_at=_seconds(now) + records.lifecycle_from_tags(kept).max_lifetime,
        role_arn=settings.scheduler_role_arn,
        dead_letters_arn=settings.dead_letters_arn,
    )
    # An older stack of the name may have left some, and they would end this endpoint.
    disarm_hard(scheduler, arming.name)
    arm(scheduler, arming)
    rows = [{"Key": key, "Value": value} for key, value in kept.items()]
    try:
        endpoints.create_endpoint(EndpointName=name, EndpointConfigName=config, Tags=rows)
    except ClientError as error:
        message = error.response["Error"].get("Message", "")
        if "already existing" in message.lower():
            return {"state": "done", "detail": f"{name} exists already"}
        if not is_refusal(error):
            raise  # it may exist all the same, and needs its schedules
        disarm_all(scheduler, arming.name)
        return {"state": "refused", "detail": f"CreateEndpoint: {message}"}
    return {"state": "done", "detail": f"{name} is being created from {config}"}


def _refuse_another_type(endpoints: Any, wanted: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    """Refuse an update that SageMaker would refuse, before anything of the stack has changed.

    `ScalingInstanceTypes` is set only where Application Auto Scaling counts the instances. In a rollback of
    CloudFormation the endpoint already runs the wanted config; a refusal would then block the stack.
    """
    old, new = (list(each.get("ScalingInstanceTypes") or ()) for each in (before, wanted))
    if not old or not new or old == new:
        return
    name = str(wanted.get("EndpointName", ""))
    endpoint = described(endpoints, name)
    if endpoint is None or endpoint.config_name == wanted.get("EndpointConfigName"):
        return
    raise ProviderError(
        f"endpoint {name} scales, and SageMaker does not change its instance type while it does: found "
        f"{', '.join(old)}, wanted {', '.join(new)}. Run `peagle-sm pause {name}`, deploy the stack again, "
        f"then run `peagle-sm resume {name}`"
    )


def _arming(event: Mapping[str, Any], settings: Settings, now: datetime) -> Arming:
    properties = event["ResourceProperties"]
    missing = [key for key in ("EndpointName", "StackName", "ScheduleName") if not properties.get(key)]
    if missing:
        raise ProviderError(f"not given: {', '.join(missing)}")
    return Arming(
        name=str(properties["ScheduleName"]),
        endpoint=str(properties["EndpointName"]),
        expires_at=_seconds(now) + timedelta(hours=_hours(properties.get("MaxLifetimeHours"))),
        role_arn=settings.scheduler_role_arn,
        dead_letters_arn=settings.dead_letters_arn,
        switch_arn=_switch_arn(str(properties.get("ServiceToken", "")), settings),
        stack=str(properties["StackName"]),
        components=_components(event),
    )


def _hours(value: object) -> float:
    try:
        hours = float(str(value))
    except ValueError:
        hours = math.nan
    if not 0 < hours <= _MOST_HOURS:
        raise ProviderError(f"MaxLifetimeHours: found {value!r}; allowed: above 0, at most {_MOST_HOURS:g}")
    return hours


def _switch_arn(service_token: str, settings: Settings) -> str:
    """Return the switch's ARN, derived from this function's ARN in the request."""
    if settings.switch_function.startswith("arn:"):
        return settings.switch_function
    beside, _, _ = service_token.rpartition(":")
    if not beside.startswith("arn:"):
        raise ProviderError(f"ServiceToken: found {service_token!r}; it must be this function's ARN")
    return f"{beside}:{settings.switch_function}"


def _components(event: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the components to delete, including those that this update removes at its cleanup."""
    new, old = (
        [str(name) for name in event.get(key, {}).get("InferenceComponentNames") or ()]
        for key in ("ResourceProperties", "OldResourceProperties")
    )
    return tuple(dict.fromkeys([*new, *old]))


def _note_end(register: Register, arming: Arming, now: datetime) -> None:
    """Write the new end of an existing endpoint's lifetime into the register."""
    for _ in range(_WRITE_TRIES):
        record = register.get(arming.endpoint)
        if record.created_at is None or record.gone_at is not None or record.expires_at == arming.expires_at:
            return
        if register.put(replace(record, expires_at=arming.expires_at), now):
            return
    raise ProviderError(
        f"the register of {arming.endpoint} changed {_WRITE_TRIES} times while it was written"
    )


def _seconds(moment: datetime) -> datetime:
    return moment.replace(microsecond=0)


def handler(event: Mapping[str, Any], context: Context) -> dict[str, Any] | None:
    """Handle a request of CloudFormation, or turn on an endpoint."""
    if event.get("action") == "wake":
        settings = environment.load()
        answer = wake(client("scheduler"), client("sagemaker"), _register(settings), settings, event)
        print(json.dumps({"event": dict(event), "answer": answer}))
        return answer
    wanted = str(event.get("ResourceProperties", {}).get("ScheduleName", "")) or "not-created"
    respond(event, context, lambda: _provided(event), wanted)
    return None


def _provided(event: Mapping[str, Any]) -> Made:
    settings = environment.load()
    now = environment.now(settings)
    return provide(client("scheduler"), client("sagemaker"), _register(settings), settings, event, now)


def _register(settings: Settings) -> Register:
    return DynamoRegister(client("dynamodb"), settings.table)
