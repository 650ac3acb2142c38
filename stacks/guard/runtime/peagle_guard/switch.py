"""Switch: turns an endpoint off or on through its stack or directly; only it may update stacks.

It never waits: an unfinished change is ``in-progress``, and the next sweep invokes it again.
UPDATE_COMPLETE is not proof: the endpoint counts as off only when SageMaker does not find it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Any, Protocol

import boto3
from botocore.exceptions import ClientError

from peagle_guard import settings as environment
from peagle_guard import training
from peagle_guard.aws import JobKind, same_arn, same_time
from peagle_guard.boto_aws import BRIEF, client, described, is_missing, is_refusal, tags_of
from peagle_guard.records import BUSY, STACK_PREFIX, Endpoint, is_ours, stack_of
from peagle_guard.register import Claims, DynamoRegister, claim, is_later, is_parting, moved_to, unclaim
from peagle_guard.settings import Settings, parse_time
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


class NoUpdates(Exception):
    """CloudFormation answered "No updates are to be performed"."""


@dataclass(frozen=True)
class Stack:
    """A stack as CloudFormation describes it."""

    name: str
    status: str
    parameters: Mapping[str, str]


class SwitchAws(Claims, training.JobSwitch, Protocol):
    """AWS calls that the switch needs."""

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

    def schedule_times(self, name: str) -> tuple[datetime | None, datetime | None] | None:
        """StartDate and LastModificationDate of a schedule; None where there is none of that name."""

    def delete_schedule(self, name: str) -> None:
        """DeleteSchedule; none of that name is fine."""

    def delete_alarms(self, names: Sequence[str]) -> None:
        """DeleteAlarms; those that do not exist are fine."""


Answer = dict[str, Any]


def turn(aws: SwitchAws, event: Mapping[str, Any]) -> Answer:
    """Handle an event; return ``{"state": "done" | "in-progress" | "refused", "detail", "started"}``.

    Before components are deleted, the register marks the endpoint as parting, so each sweep finishes it.
    """
    action, stack, endpoint = event.get("action"), event.get("stack"), event.get("endpoint")
    kind = training.kind_of_action(action)
    if kind is not None:
        return training.stop(aws, kind, event)
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
    if endpoint is not None and expires_at is not None:
        if endpoint.created_at > expires_at:
            return _refused(f"{name} was created after this limit ended: it is another endpoint's limit")
        start, _ = aws.schedule_times(schedule_name(name)) or (None, None)
        if start is not None and is_later(start, expires_at):
            return _refused(moved_to(name, start))
    if stack is None or stack.status == "REVIEW_IN_PROGRESS":
        return _delete_itself(aws, endpoint, stack_name, event)
    if stack.status.endswith("_IN_PROGRESS"):
        return _waiting(f"{stack_name} is {stack.status}")
    if stack.status not in _UPDATABLE:
        # A failed stack cannot be updated, and its endpoint is still billed.
        return _delete_itself(aws, endpoint, stack_name, event)
    if endpoint is not None and (endpoint.status in BUSY or endpoint.status == "Deleting"):
        # CloudFormation would try once, be refused, and lose the endpoint.
        return _waiting(f"{name} is {endpoint.status}")
    if PARAMETER not in stack.parameters:
        return _refused(f"{stack_name} has no parameter {PARAMETER}: it was not created by peagle-sm")
    if stack.parameters[PARAMETER] == "off":
        return _delete_itself(aws, endpoint, stack_name, event)
    moved = None if endpoint is None else claim(aws, endpoint, expires_at)
    if moved is not None:
        return _refused(moved)
    try:
        aws.update_stack(stack_name, _parameters(stack, "off"))
    except NoUpdates:
        return _delete_itself(aws, endpoint, stack_name, event)
    return _begun(f"{stack_name} is being updated to {PARAMETER}=off")


def _off_direct(aws: SwitchAws, event: Mapping[str, Any], name: str) -> Answer:
    """Turn off an endpoint without a stack; after its deletion remove its schedules and alarms."""
    created_at = _moment(event.get("created_at"))
    arn = str(event.get("arn", ""))
    if created_at is None or not arn:
        return _refused(f"found {dict(event)!r}; arn and created_at say which endpoint {name} is meant")
    endpoint = aws.describe_endpoint(name)
    if endpoint is not None and same_time(endpoint.created_at, created_at) and same_arn(endpoint.arn, arn):
        return _delete_itself(aws, endpoint, None, {})
    expires_at = _moment(event.get("expires_at"))
    if expires_at is not None:
        hard_expires_at = _moment(event.get("hard_expires_at")) or expires_at
        _disarm(aws, name, expires_at, hard_expires_at, _moment(event.get("last_seen_at")) or created_at)
        if endpoint is None:  # else they may belong to the next endpoint
            # The lifetime schedules delete component and endpoint, and leave their autoscaling.
            _deregister(aws, [f"inference-component/{name}", f"endpoint/{name}/variant/{_VARIANT}"])
            return _done(f"{name} is gone") | {"fault": _silence(aws, name, arn)}
    return _done(f"{name} is gone")


def _silence(aws: SwitchAws, name: str, arn: str) -> str:
    """Delete the alarms of a killed update and of scaling from zero; return why they may remain.

    Not an error: the sweep would not record that the endpoint is gone, and its timetable would not wake it.
    """
    names = (*alarm_names(name), from_zero_alarm(name))
    try:
        aws.delete_alarms(names)
    except Exception as error:
        told = f"--region {arn.split(':')[3]} --alarm-names {' '.join(names)}"
        return f"run `aws cloudwatch delete-alarms {told}`: {type(error).__name__}: {error}"
    return ""


def _disarm(
    aws: SwitchAws, name: str, expires_at: datetime, hard_expires_at: datetime, last_seen_at: datetime
) -> None:
    """Remove the schedules of the deleted endpoint, but not newer ones of the next endpoint."""
    schedule = schedule_name(name)
    _disarm_one(aws, schedule, expires_at, last_seen_at)
    _disarm_one(aws, hard_name(schedule), hard_expires_at, last_seen_at)
    for number in count(1):
        # One per component, numbered without a gap.
        if not _disarm_one(aws, hard_name(schedule, number), hard_expires_at, last_seen_at):
            break


def _disarm_one(aws: SwitchAws, name: str, expires_at: datetime, last_seen_at: datetime) -> bool:
    """Remove a schedule unless it is the next endpoint's; return whether it existed.

    A deploy creates schedules before the endpoint, also for a lifetime that ends earlier than the old one, so
    schedules written after the old endpoint was last seen (``last_seen_at``) are kept.
    """
    times = aws.schedule_times(name)
    if times is None:
        return False
    start, changed_at = times
    is_old = changed_at is not None and changed_at <= last_seen_at
    if start is not None and start <= expires_at and is_old:
        aws.delete_schedule(name)
    return True


def _delete_itself(
    aws: SwitchAws, endpoint: Endpoint | None, stack: str | None, event: Mapping[str, Any]
) -> Answer:
    """Delete the endpoint, its components first; its configuration and model are kept."""
    if endpoint is None:
        return _done("the endpoint is gone")
    if endpoint.status == "Deleting":
        _deregister(aws, _variants(endpoint))
        return _waiting(f"{endpoint.name} is being deleted")
    if endpoint.status in BUSY:
        return _waiting(f"AWS refuses a deletion while {endpoint.name} is {endpoint.status}")
    tags = aws.endpoint_tags(endpoint.arn)
    if not is_ours(endpoint.name, tags) or stack_of(tags) != stack:
        return _refused(
            f"the tags of {endpoint.name} do not say that it belongs to {stack or 'peagle-sm alone'}"
        )
    components = aws.components(endpoint.name)
    targets = aws.scalable_targets([f"inference-component/{component}" for component in components])
    begun = is_parting(aws, endpoint)
    moved = claim(aws, endpoint, _moment(event.get("expires_at")), parting=bool(components))
    if moved is not None:
        return _refused(moved)
    if components:
        _dismantle(aws, endpoint, components, targets, begun)
        return _begun(f"the inference components of {endpoint.name} are being deleted; the endpoint is next")
    aws.delete_endpoint(endpoint.name)
    # Not earlier: if AWS refused the deletion, the endpoint would lose its autoscaling.
    _deregister(aws, _variants(endpoint))
    return _begun(f"{endpoint.name} is being deleted")


def _dismantle(
    aws: SwitchAws,
    endpoint: Endpoint,
    components: Sequence[str],
    targets: Sequence[tuple[str, str]],
    begun: bool,
) -> None:
    """Delete the components, their autoscaling first.

    If AWS refuses the first call, nothing changes, unless an earlier try has already ``begun``.
    """
    try:
        for resource_id, dimension in targets:
            aws.deregister(resource_id, dimension)
            begun = True
        for component in components:
            aws.delete_component(component)
            begun = True
    except Exception as error:
        if not begun and is_refusal(error):
            unclaim(aws, endpoint)
        raise


def _variants(endpoint: Endpoint) -> list[str]:
    return [f"endpoint/{endpoint.name}/variant/{variant}" for variant in endpoint.variants]


def _deregister(aws: SwitchAws, resource_ids: Sequence[str]) -> None:
    for resource_id, dimension in aws.scalable_targets(resource_ids):
        aws.deregister(resource_id, dimension)


# --- on -----------------------------------------------------------------------------------------------


def _on(aws: SwitchAws, stack: Stack | None, stack_name: str, name: str) -> Answer:
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
    if stack.parameters[PARAMETER] == "on":
        if endpoint is not None:
            return _done(f"{name} is on")
        # Deleted outside its stack: off first, so that CloudFormation creates it again.
        return _update(aws, stack, "off", started=False)
    if endpoint is not None:
        return _refused(f"{name} exists although {stack_name} is off; turn it off first")
    return _update(aws, stack, "on", started=True)


def _update(aws: SwitchAws, stack: Stack, state: str, *, started: bool) -> Answer:
    try:
        aws.update_stack(stack.name, _parameters(stack, state))
    except NoUpdates:
        return _refused(f"{stack.name}: CloudFormation found nothing to update for {PARAMETER}={state}")
    detail = f"{stack.name} is being updated to {PARAMETER}={state}"
    return _begun(detail) if started else _waiting(detail)


def _parameters(stack: Stack, state: str) -> list[dict[str, Any]]:
    """Return all parameters: an omitted one would fall back to its default."""
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


_NO_UPDATES = "no updates are to be performed"
# DescribeScalableTargets takes at most 50 resource ids.
_MOST_IDS = 50


class BotoSwitch:
    """AWS calls of the switch by boto3."""

    def __init__(self, settings: Settings, session: boto3.Session | None = None) -> None:
        """Take the settings, and a session (the Lambda's own by default)."""
        self._settings = settings
        self._register = DynamoRegister(client("dynamodb", session), settings.table)
        self._cloudformation = client("cloudformation", session)
        self._sagemaker = client("sagemaker", session)
        self._scheduler = client("scheduler", session)
        self._scaling = client("application-autoscaling", session)
        self._cloudwatch = client("cloudwatch", session, BRIEF)

    @property
    def register(self) -> DynamoRegister:
        """The guard's memory."""
        return self._register

    @property
    def now(self) -> datetime:
        """The present."""
        return environment.now(self._settings)

    def describe_stack(self, name: str) -> Stack | None:
        """DescribeStacks; None where there is none of that name."""
        try:
            found = self._cloudformation.describe_stacks(StackName=name)["Stacks"][0]
        except ClientError as error:
            if "does not exist" in error.response["Error"].get("Message", ""):
                return None
            raise
        parameters = {
            row["ParameterKey"]: row.get("ParameterValue", "") for row in found.get("Parameters", ())
        }
        return Stack(name, found["StackStatus"], parameters)

    def update_stack(self, name: str, parameters: Sequence[Mapping[str, Any]]) -> None:
        """UpdateStack with the previous template.

        Raises:
            NoUpdates: CloudFormation sees no difference.
        """
        try:
            self._cloudformation.update_stack(
                StackName=name, UsePreviousTemplate=True, Parameters=list(parameters)
            )
        except ClientError as error:
            if _NO_UPDATES in error.response["Error"].get("Message", "").lower():
                raise NoUpdates from error
            raise

    def describe_endpoint(self, name: str) -> Endpoint | None:
        """DescribeEndpoint; None where there is none of that name."""
        return described(self._sagemaker, name)

    def endpoint_tags(self, arn: str) -> Mapping[str, str]:
        """ListTags."""
        return tags_of(self._sagemaker, arn)

    def components(self, endpoint: str) -> Sequence[str]:
        """ListInferenceComponents of one endpoint, those that are being deleted included."""
        pages = self._sagemaker.get_paginator("list_inference_components").paginate(
            EndpointNameEquals=endpoint
        )
        return [row["InferenceComponentName"] for page in pages for row in page["InferenceComponents"]]

    def scalable_targets(self, resource_ids: Sequence[str]) -> Sequence[tuple[str, str]]:
        """DescribeScalableTargets: resource id and dimension of each."""
        pages = self._scaling.get_paginator("describe_scalable_targets")
        return [
            (row["ResourceId"], row["ScalableDimension"])
            for first in range(0, len(resource_ids), _MOST_IDS)
            for page in pages.paginate(
                ServiceNamespace="sagemaker", ResourceIds=list(resource_ids[first : first + _MOST_IDS])
            )
            for row in page["ScalableTargets"]
        ]

    def deregister(self, resource_id: str, dimension: str) -> None:
        """DeregisterScalableTarget; one that is gone already is fine."""
        try:
            self._scaling.deregister_scalable_target(
                ServiceNamespace="sagemaker", ResourceId=resource_id, ScalableDimension=dimension
            )
        except ClientError as error:
            if error.response["Error"]["Code"] != "ObjectNotFoundException":
                raise

    def delete_component(self, name: str) -> None:
        """DeleteInferenceComponent; one that is gone or being deleted already is left alone."""
        try:
            status = self._sagemaker.describe_inference_component(InferenceComponentName=name)
            if status["InferenceComponentStatus"] != "Deleting":
                self._sagemaker.delete_inference_component(InferenceComponentName=name)
        except ClientError as error:
            if not is_missing(error):
                raise

    def stop_job(self, kind: JobKind, name: str) -> None:
        """StopTrainingJob or StopProcessingJob; one that has ended is left alone."""
        try:
            if kind == "training":
                self._sagemaker.stop_training_job(TrainingJobName=name)
            else:
                self._sagemaker.stop_processing_job(ProcessingJobName=name)
        except ClientError as error:
            code, text = error.response["Error"]["Code"], error.response["Error"].get("Message", "")
            ended = "is in status" in text or "not found" in text.lower()
            if code != "ResourceNotFound" and (code != "ValidationException" or not ended):
                raise

    def delete_endpoint(self, name: str) -> None:
        """DeleteEndpoint; the configuration and the model are kept."""
        self._sagemaker.delete_endpoint(EndpointName=name)

    def schedule_times(self, name: str) -> tuple[datetime | None, datetime | None] | None:
        """StartDate and LastModificationDate of a schedule; None where there is none of that name."""
        try:
            answer = self._scheduler.get_schedule(Name=name)
        except ClientError as error:
            if error.response["Error"]["Code"] == "ResourceNotFoundException":
                return None
            raise
        start, changed_at = answer.get("StartDate"), answer.get("LastModificationDate")
        return (
            None if start is None else start.astimezone(UTC),
            None if changed_at is None else changed_at.astimezone(UTC),
        )

    def delete_schedule(self, name: str) -> None:
        """DeleteSchedule; none of that name is fine."""
        try:
            self._scheduler.delete_schedule(Name=name)
        except ClientError as error:
            if error.response["Error"]["Code"] != "ResourceNotFoundException":
                raise

    def delete_alarms(self, names: Sequence[str]) -> None:
        """DeleteAlarms; those that do not exist are fine."""
        self._cloudwatch.delete_alarms(AlarmNames=list(names))


def handler(event: Mapping[str, Any], context: object) -> dict[str, Any]:
    """Handle an event; a refusal is a response, an AWS error is raised."""
    answer = turn(BotoSwitch(environment.load()), event)
    print(json.dumps({"event": dict(event), "answer": answer}))
    return answer
