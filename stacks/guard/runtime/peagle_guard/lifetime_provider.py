"""Custom::PeagleLifetime, and waking an endpoint that has no stack: both arm the dead-man's switch first."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from botocore.exceptions import ClientError

from peagle_guard import settings as environment
from peagle_guard import tags
from peagle_guard.aws import Register
from peagle_guard.cfn_response import Context, Made, ProviderError, respond
from peagle_guard.clients import client
from peagle_guard.lifetime import Arming, Scheduler, arm, disarm
from peagle_guard.register import DynamoRegister
from peagle_guard.schedules import hard_name, schedule_name
from peagle_guard.settings import Settings

_MOST_HOURS = 8760.0
_WRITE_TRIES = 5


class Endpoints(Protocol):
    """The part of boto3's SageMaker client that is used."""

    def create_endpoint(self, **parameters: Any) -> Any:
        """CreateEndpoint."""


def provide(
    scheduler: Scheduler, register: Register, settings: Settings, event: Mapping[str, Any], now: datetime
) -> Made:
    """Do what CloudFormation asks for one lifetime.

    Raises:
        ProviderError: a property is not what it must be.
        NotArmed: a schedule does not read back as it was written.
    """
    properties = event["ResourceProperties"]
    if event["RequestType"] == "Delete":
        name = str(event["PhysicalResourceId"])
        disarm(scheduler, _names(name, len(_components(properties))))
        return Made(name)
    arming = _arming(properties, settings, now)
    arm(scheduler, arming)
    if event["RequestType"] == "Update":
        _forget_components(scheduler, event, arming)
        _prolong(register, arming, now)
    expires = arming.expires_at.isoformat(timespec="seconds")
    return Made(arming.name, {"ScheduleName": arming.name, "ExpiresAt": expires})


def wake(
    scheduler: Scheduler,
    endpoints: Endpoints,
    register: Register,
    settings: Settings,
    event: Mapping[str, Any],
) -> dict[str, Any]:
    """Arm the schedule of an endpoint without a stack, then create it from its kept configuration."""
    name, config, now = event.get("endpoint"), event.get("config"), environment.time_of(event)
    if not (isinstance(name, str) and name and isinstance(config, str) and config and now):
        detail = f"found {dict(event)!r}; allowed: endpoint, config and time"
        return {"state": "refused", "detail": detail}
    kept = register.get(name).tags
    if not tags.is_ours(name, kept):
        return {"state": "refused", "detail": f"the register holds no tags of {name}: the guard never saw it"}
    arming = Arming(
        name=schedule_name(name),
        endpoint=name,
        expires_at=_seconds(now) + tags.lifecycle(kept).max_lifetime,
        role_arn=settings.scheduler_role_arn,
        dead_letters_arn=settings.dead_letters_arn,
    )
    arm(scheduler, arming)
    rows = [{"Key": key, "Value": value} for key, value in kept.items()]
    try:
        endpoints.create_endpoint(EndpointName=name, EndpointConfigName=config, Tags=rows)
    except ClientError as error:
        message = error.response["Error"].get("Message", "")
        if "already existing" in message.lower():
            return {"state": "done", "detail": f"{name} is there already"}
        disarm(scheduler, [arming.name])
        return {"state": "refused", "detail": f"CreateEndpoint: {message}"}
    return {"state": "done", "detail": f"{name} is being created from {config}"}


def _arming(properties: Mapping[str, Any], settings: Settings, now: datetime) -> Arming:
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
        components=_components(properties),
    )


def _hours(found: object) -> float:
    try:
        hours = float(str(found))
    except ValueError:
        hours = math.nan
    if not 0 < hours <= _MOST_HOURS:
        raise ProviderError(f"MaxLifetimeHours: found {found!r}; allowed: above 0, at most {_MOST_HOURS:g}")
    return hours


def _switch_arn(service_token: str, settings: Settings) -> str:
    """The switch stands beside this function, whose ARN CloudFormation called."""
    if settings.switch_function.startswith("arn:"):
        return settings.switch_function
    beside, _, _ = service_token.rpartition(":")
    if not beside.startswith("arn:"):
        raise ProviderError(f"ServiceToken: found {service_token!r}; it must be this function's ARN")
    return f"{beside}:{settings.switch_function}"


def _components(properties: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(name) for name in properties.get("InferenceComponentNames") or ())


def _names(schedule: str, components: int) -> list[str]:
    return [schedule, hard_name(schedule), *(hard_name(schedule, n) for n in range(1, components + 1))]


def _forget_components(scheduler: Scheduler, event: Mapping[str, Any], arming: Arming) -> None:
    """Remove the schedules of components that this update has taken away."""
    before = len(_components(event.get("OldResourceProperties", {})))
    gone = range(len(arming.components) + 1, before + 1)
    disarm(scheduler, [hard_name(arming.name, number) for number in gone])


def _prolong(register: Register, arming: Arming, now: datetime) -> None:
    """An update of a living endpoint begins its lifetime anew, and keeps its creation: tell the sweeper."""
    for _ in range(_WRITE_TRIES):
        record = register.get(arming.endpoint)
        if record.created_at is None or record.gone_at is not None:
            return
        if record.expires_at is not None and record.expires_at >= arming.expires_at:
            return
        if register.put(replace(record, expires_at=arming.expires_at), now):
            return
    raise ProviderError(
        f"the register of {arming.endpoint} changed {_WRITE_TRIES} times while it was written"
    )


def _seconds(moment: datetime) -> datetime:
    return moment.replace(microsecond=0)


def handler(event: Mapping[str, Any], context: Context) -> dict[str, Any] | None:
    """Answer a request of CloudFormation, or wake an endpoint."""
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
    return provide(client("scheduler"), _register(settings), settings, event, environment.now(settings))


def _register(settings: Settings) -> Register:
    return DynamoRegister(client("dynamodb"), settings.table)
