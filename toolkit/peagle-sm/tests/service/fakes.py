"""A small AWS in memory: the calls of the service layer, with a fault on demand at each of them.

It behaves as AWS does where it matters for the bill: Creating takes time and refuses deletion, a deletion
takes time, a schedule that is due deletes. What it must never see is an endpoint without its schedule.
Time passes only in `Clock.sleep`. Where neither time nor faults matter, use the local server.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from tests.service.aws_errors import broken, client_error, denied, lost, throttled
from tests.service.setting import ACCOUNT, ROLE

Params = dict[str, Any]
START = datetime(2026, 11, 20, 8, 0, tzinfo=UTC)
__all__ = ["ACCOUNT", "ROLE", "broken", "client_error", "denied", "lost", "throttled"]


def arn_of(kind: str, name: str) -> str:
    return f"arn:aws:sagemaker:us-east-1:{ACCOUNT}:{kind}/{name}"


class Clock:
    """Time that passes only in sleep()."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@dataclass
class Row:
    """One resource."""

    created: datetime
    params: Params
    tags: dict[str, str] = field(default_factory=dict)
    ready_at: float = 0.0
    gone_at: float | None = None
    config: str = ""
    outcome: str = "InService"
    reason: str | None = None
    count: int | None = None


Fault = Callable[["FakeAws", int, str], BaseException | None]


class Client:
    """A boto3 client of any service: no two of the operations used have one name."""

    def __init__(self, aws: FakeAws) -> None:
        self._aws = aws

    def __getattr__(self, operation: str) -> Callable[..., Params]:
        return partial(self._aws.call, operation)

    def get_paginator(self, operation: str) -> Pages:
        return Pages(partial(self._aws.call, operation))


class Pages:
    """The pages of a List operation, each by a call of its own."""

    def __init__(self, send: Callable[..., Params]) -> None:
        self._send = send

    def paginate(self, **params: Any) -> Iterator[Params]:
        size, at = params.get("MaxResults") or params.get("ResourcesPerPage") or 100, 0
        while True:
            ((key, rows),) = self._send(**params).items()
            yield {key: rows[at : at + size]}
            at += size
            if at >= len(rows):
                return


class FakeAws:
    """A boto3 session over state in memory: a method for each operation, by boto3's name.

    ``calls`` has the operations in order and ``sent`` the last parameters of each. ``before`` stops a call,
    ``after`` loses its answer.
    """

    region_name = "us-east-1"
    profile_name = "default"

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or Clock()
        self.endpoints: dict[str, Row] = {}
        self.configs: dict[str, Row] = {}
        self.models: dict[str, Row] = {}
        self.kinds = {"endpoint": self.endpoints, "endpoint-config": self.configs, "model": self.models}
        self.schedules: dict[str, Params] = {}
        self.calls: list[str] = []
        self.sent: dict[str, Params] = {}
        self.before: Fault = lambda aws, number, operation: None
        self.after: Fault = lambda aws, number, operation: None
        self.create_s = 60.0
        self.delete_s = 20.0
        self.outcome = "InService"
        self.reason: str | None = None
        self.unguarded: list[str] = []
        self.log_lines: list[str] = []
        self.log_groups: set[str] = set()
        self.alarms: set[str] = set()
        self.late: list[tuple[float, Callable[[], object]]] = []
        self.stacks: dict[str, str] = {"PeagleGuard": "CREATE_COMPLETE"}
        self.components: list[str] = []
        """Inference components of whatever endpoint there is."""
        self.register: dict[str, Params] | None = {}
        """The items of the guard's table; None: there is no table."""
        self.untagged: set[str] = set()
        self.stale_tags: dict[str, dict[str, str]] = {}
        self.ahead = timedelta(0)
        """How far AWS's clock is ahead of the caller's."""
        self.switch: Callable[[Params], Params] | None = None
        """The guard's switch; None: no guard is installed."""

    def client(self, service: str, **_: Any) -> Client:
        return Client(self)

    def call(self, name: str, **params: Any) -> Params:
        """Carry out an operation of boto3's name, unless a fault comes before or after."""
        operation = name.title().replace("_", "")
        number = len(self.calls)
        self.calls.append(operation)
        self.sent[operation] = params
        self.settle()
        if (fault := self.before(self, number, operation)) is not None:
            raise fault
        try:
            answer: Params | None = getattr(self, name)(**params)
            return answer or {}
        finally:
            self._look_for_unguarded(operation)
            if (fault := self.after(self, number, operation)) is not None:
                raise fault  # in place of the answer, whatever that was

    def everything(self) -> list[str]:
        self.settle()
        rows = [f"{kind}/{name}" for kind, held in self.kinds.items() for name in held]
        return rows + [f"schedule/{name}" for name in self.schedules]

    def tagged(self) -> Iterator[tuple[str, dict[str, str]]]:
        """ARN and tags of every endpoint, config and model."""
        for kind, rows in self.kinds.items():
            for name, row in rows.items():
                yield arn_of(kind, name), dict(row.tags)

    def status(self, row: Row) -> str:
        if row.gone_at is not None:
            return "Deleting"
        return "Creating" if self.clock.seconds < row.ready_at else row.outcome

    def settle(self) -> None:
        """Let happen what is due."""
        now = self.clock.seconds
        due = [one for one in self.late if one[0] <= now]
        self.late = [one for one in self.late if one[0] > now]
        for _, act in due:
            with suppress(ClientError):
                act()
        for name, row in list(self.endpoints.items()):
            if row.gone_at is not None and now >= row.gone_at:
                del self.endpoints[name]

    def _look_for_unguarded(self, operation: str) -> None:
        guarded = {json.loads(one["Target"]["Input"]).get("EndpointName") for one in self.schedules.values()}
        for name, row in self.endpoints.items():
            if row.tags.get("peagle-sm:managed-by") == "peagle-sm" and name not in guarded:
                self.unguarded.append(f"{name} after {operation}")

    # --- SageMaker --------------------------------------------------------------------------------

    def _get(self, kind: str, name: str) -> Row:
        if name not in self.kinds[kind]:
            message = f'Could not find {kind} "{arn_of(kind, name)}".'
            raise client_error("Describe", "ValidationException", message)
        return self.kinds[kind][name]

    def _add(self, kind: str, name: str, params: Params) -> Row:
        if name in self.kinds[kind]:
            message = f'Cannot create already existing {kind} "{arn_of(kind, name)}".'
            raise client_error("Create", "ValidationException", message)
        tags = {tag["Key"]: tag["Value"] for tag in params.get("Tags", [])}
        row = self.kinds[kind][name] = Row(self.clock.now(), params, tags)
        return row

    def create_model(self, **params: Any) -> Params:
        self._add("model", params["ModelName"], params)
        return {"ModelArn": arn_of("model", params["ModelName"])}

    def create_endpoint_config(self, **params: Any) -> None:
        self._add("endpoint-config", params["EndpointConfigName"], params)

    def create_endpoint(self, **params: Any) -> None:
        self._get("endpoint-config", params["EndpointConfigName"])
        row = self._add("endpoint", params["EndpointName"], params)
        row.ready_at = self.clock.seconds + self.create_s
        row.config = params["EndpointConfigName"]
        row.outcome, row.reason = self.outcome, self.reason

    def describe_endpoint(self, EndpointName: str) -> Params:
        row = self._get("endpoint", EndpointName)
        status = self.status(row)
        variants = {} if row.count is None else {"ProductionVariants": [{"CurrentInstanceCount": row.count}]}
        return {
            "EndpointArn": arn_of("endpoint", EndpointName),
            "EndpointStatus": status,
            "EndpointConfigName": row.config,
            "CreationTime": row.created,
            "FailureReason": row.reason if status == "Failed" else None,
            **variants,
        }

    def describe_endpoint_config(self, EndpointConfigName: str) -> Params:
        row = self._get("endpoint-config", EndpointConfigName)
        return {**row.params, "EndpointConfigArn": arn_of("endpoint-config", EndpointConfigName)}

    def describe_model(self, ModelName: str) -> Params:
        """A model as AWS shows it: without its tags, and with what was left out."""
        params = {key: value for key, value in self._get("model", ModelName).params.items() if key != "Tags"}
        container = {**params["PrimaryContainer"], "Mode": "SingleModel"}
        return {**params, "PrimaryContainer": container, "ModelArn": arn_of("model", ModelName)}

    def delete_endpoint(self, EndpointName: str) -> None:
        row = self._get("endpoint", EndpointName)
        message = ""
        if self.components:
            message = "Cannot delete endpoint with inference component associated."
        elif self.status(row) == "Creating":
            message = f'Cannot update in-progress endpoint "{arn_of("endpoint", EndpointName)}".'
        if message:
            raise client_error("DeleteEndpoint", "ValidationException", message)
        row.gone_at = row.gone_at or self.clock.seconds + self.delete_s

    def delete_endpoint_config(self, EndpointConfigName: str) -> None:
        self._get("endpoint-config", EndpointConfigName)
        del self.configs[EndpointConfigName]

    def delete_model(self, ModelName: str) -> None:
        self._get("model", ModelName)
        del self.models[ModelName]

    def delete_inference_component(self, InferenceComponentName: str) -> None:
        self.components.remove(InferenceComponentName)

    def describe_inference_component(self, InferenceComponentName: str) -> Params:
        if InferenceComponentName not in self.components:
            message = f"Inference component {InferenceComponentName} of account 1 not found"
            raise client_error("DescribeInferenceComponent", "ValidationException", message)
        return {"EndpointName": "demo", "InferenceComponentStatus": "InService"}

    def list_inference_components(self, **_: Any) -> Params:
        return {"InferenceComponents": [{"InferenceComponentName": name} for name in self.components]}

    def list_endpoints(self, NameContains: str = "", **_: Any) -> Params:
        return {"Endpoints": self._rows("endpoint", "Endpoint", NameContains)}

    def list_endpoint_configs(self, NameContains: str = "", **_: Any) -> Params:
        return {"EndpointConfigs": self._rows("endpoint-config", "EndpointConfig", NameContains)}

    def list_models(self, NameContains: str = "", **_: Any) -> Params:
        return {"Models": self._rows("model", "Model", NameContains)}

    def _rows(self, kind: str, key: str, part: str) -> list[Params]:
        return [
            {
                f"{key}Name": name,
                f"{key}Arn": arn_of(kind, name),
                "CreationTime": row.created,
                **({"EndpointStatus": self.status(row)} if kind == "endpoint" else {}),
            }
            for name, row in sorted(self.kinds[kind].items(), key=lambda each: each[1].created, reverse=True)
            if part in name
        ]

    def _tagged(self, arn: str) -> Row:
        kind, name = arn.rsplit(":", 1)[1].split("/")
        return self._get(kind, name)

    def add_tags(self, ResourceArn: str, Tags: list[Params]) -> None:
        self._tagged(ResourceArn).tags.update({tag["Key"]: tag["Value"] for tag in Tags})

    def delete_tags(self, ResourceArn: str, TagKeys: list[str]) -> None:
        row = self._tagged(ResourceArn)
        row.tags = {key: value for key, value in row.tags.items() if key not in TagKeys}

    def list_tags(self, ResourceArn: str) -> Params:
        return {"Tags": _tag_rows(self._tagged(ResourceArn).tags)}

    def get_resources(self, ResourceTypeFilters: list[str], TagFilters: list[Params], **_: Any) -> Params:
        """The tagging API: it lags, so it lacks ``untagged`` and shows ``stale_tags``."""
        kinds = {kind.partition(":")[2] for kind in ResourceTypeFilters}
        live = {arn: tags for arn, tags in self.tagged() if arn not in self.untagged}
        rows = [
            {"ResourceARN": arn, "Tags": _tag_rows(tags)}
            for arn, tags in {**live, **self.stale_tags}.items()
            if arn.rpartition(":")[2].partition("/")[0] in kinds
            and all(tags.get(each["Key"]) in each["Values"] for each in TagFilters)
        ]
        return {"ResourceTagMappingList": rows}

    def deregister_scalable_target(self, **params: Any) -> None:
        message = f"No target {params['ResourceId']}"
        raise client_error("DeregisterScalableTarget", "ObjectNotFoundException", message)

    # --- EventBridge Scheduler --------------------------------------------------------------------

    def _schedule(self, name: str) -> Params:
        if name not in self.schedules:
            message = f"Schedule {name} does not exist."
            raise client_error("GetSchedule", "ResourceNotFoundException", message, 404)
        return self.schedules[name]

    def _arm(self, params: Params) -> None:
        start = params.get("StartDate")
        if start is not None and start < self.clock.now() - timedelta(minutes=5):
            message = "The StartDate you specify cannot be earlier than 5 minutes ago."
            raise client_error("CreateSchedule", "ValidationException", message)
        self.schedules[params["Name"]] = params

    def create_schedule(self, **params: Any) -> None:
        if params["Name"] in self.schedules:
            message = f"Schedule {params['Name']} already exists."
            raise client_error("CreateSchedule", "ConflictException", message, 409)
        self._arm(params)

    def update_schedule(self, **params: Any) -> None:
        self._schedule(params["Name"])
        self._arm(params)

    def get_schedule(self, Name: str) -> Params:
        return dict(self._schedule(Name))

    def delete_schedule(self, Name: str) -> None:
        self._schedule(Name)
        del self.schedules[Name]

    def list_schedules(self, NamePrefix: str, **_: Any) -> Params:
        return {"Schedules": [{"Name": name} for name in self.schedules if name.startswith(NamePrefix)]}

    # --- the guard: its stack, its table, its switch ----------------------------------------------

    def describe_stacks(self, StackName: str) -> Params:
        if StackName not in self.stacks:
            message = f"Stack with id {StackName} does not exist"
            raise client_error("DescribeStacks", "ValidationError", message)
        row = {"StackName": StackName, "StackId": "id", "StackStatus": self.stacks[StackName]}
        return {"Stacks": [row]}

    @property
    def _items(self) -> dict[str, Params]:
        if self.register is None:
            raise client_error("GetItem", "ResourceNotFoundException", "Requested resource not found")
        return self.register

    def get_item(self, Key: Params, **_: Any) -> Params:
        """An item, with a Date header by AWS's own clock."""
        now = format_datetime(self.clock.now() + self.ahead, usegmt=True)
        item = self._items.get(Key["pk"]["S"])
        answer = {"ResponseMetadata": {"HTTPHeaders": {"date": now}}}
        return answer if item is None else {**answer, "Item": item}

    def update_item(self, Key: Params, **params: Any) -> None:
        pk = Key["pk"]["S"]
        item = dict(self._items.get(pk, {}))
        values = params["ExpressionAttributeValues"]
        if item.get("version") != values.get(":seen"):
            raise client_error("UpdateItem", "ConditionalCheckFailedException", "The conditional failed")
        sets, _, removes = params["UpdateExpression"].partition(" REMOVE ")
        for part in sets.removeprefix("SET ").split(", "):
            name, _, value = part.partition(" = ")
            item[name.removeprefix("#")] = values[value]
        for name in filter(None, removes.split(", ")):
            item.pop(name.removeprefix("#"), None)
        self._items[pk] = {**item, "pk": {"S": pk}}

    def delete_item(self, Key: Params, **_: Any) -> None:
        self._items.pop(Key["pk"]["S"], None)

    def scan(self, **_: Any) -> Params:
        return {"Items": list(self._items.values())}

    def invoke(self, FunctionName: str, Payload: bytes, **_: Any) -> Params:
        if self.switch is None or FunctionName != "peagle-guard-switch":
            raise client_error("Invoke", "ResourceNotFoundException", "Function not found", 404)
        answer = self.switch(json.loads(Payload))
        return {"StatusCode": 200, "Payload": io.BytesIO(json.dumps(answer).encode())}

    # --- alarms, prices, identity and logs --------------------------------------------------------

    def delete_alarms(self, AlarmNames: list[str]) -> None:
        self.alarms.difference_update(AlarmNames)

    def get_products(self, **_: Any) -> None:
        """The price list, which most callers may not read."""
        raise client_error("GetProducts", "AccessDeniedException", "not authorized: pricing:GetProducts")

    def get_caller_identity(self) -> Params:
        return {"Account": ACCOUNT}

    def create_log_group(self, logGroupName: str) -> None:
        if logGroupName in self.log_groups:
            message = "The specified log group already exists"
            raise client_error("CreateLogGroup", "ResourceAlreadyExistsException", message)
        self.log_groups.add(logGroupName)

    def put_retention_policy(self, logGroupName: str, retentionInDays: int) -> None:
        assert logGroupName in self.log_groups

    def describe_log_groups(self, logGroupNamePrefix: str, **_: Any) -> Params:
        names = [name for name in sorted(self.log_groups) if name.startswith(logGroupNamePrefix)]
        return {"logGroups": [{"logGroupName": name} for name in names]}

    def delete_log_group(self, logGroupName: str) -> None:
        if logGroupName not in self.log_groups:
            raise _no_log_group()
        self.log_groups.remove(logGroupName)

    def describe_log_streams(self, logGroupName: str, **_: Any) -> Params:
        self._lines(logGroupName)
        return {"logStreams": [{"logStreamName": "AllTraffic/i-1"}]}

    def get_log_events(self, logGroupName: str, limit: int, **_: Any) -> Params:
        return {"events": self._lines(logGroupName)[-limit:]}

    def filter_log_events(self, logGroupName: str, startTime: int, **_: Any) -> Params:
        """No promise of order between streams."""
        rows = [one for one in self._lines(logGroupName) if one["timestamp"] >= startTime]
        return {"events": [{**one, "logStreamName": "AllTraffic/i-1"} for one in reversed(rows)]}

    def _lines(self, group: str) -> list[Params]:
        """The lines are those of an endpoint; no component has a group."""
        if "/InferenceComponents/" in group:
            raise _no_log_group()
        return [
            {"timestamp": i // 2 * 2, "message": line, "eventId": f"e{i}"}
            for i, line in enumerate(self.log_lines)
        ]


def _no_log_group() -> ClientError:
    message = "The specified log group does not exist."
    return client_error("FilterLogEvents", "ResourceNotFoundException", message)


def _tag_rows(tags: dict[str, str]) -> list[Params]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]
