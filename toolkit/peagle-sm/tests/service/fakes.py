"""A small AWS in memory: the calls that a deploy makes, with a fault on demand at each of them.

It behaves as AWS does where it matters for the bill: Creating takes time and refuses deletion, a deletion
takes time, a schedule that is due deletes. What it must never see is an endpoint without its schedule.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

from botocore.exceptions import ClientError, ConnectionClosedError

from tests.service.fake_account import CloudWatch, Logs, Pricing, Sts
from tests.service.fake_errors import Params, client_error
from tests.service.fake_guard import (
    CloudFormation,
    DynamoDb,
    Lambda,
    ManyPages,
    Pages,
    Scaling,
    Scheduler,
    Tagging,
)

__all__ = [
    "ACCOUNT",
    "ROLE",
    "START",
    "Clock",
    "FakeAws",
    "Row",
    "broken",
    "client_error",
    "denied",
    "lost",
    "throttled",
]

START = datetime(2026, 11, 20, 8, 0, tzinfo=UTC)
ACCOUNT = "123456789012"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/peagle-sm-test"


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


class FakeAws:
    """The state, the call log, and the faults: ``before`` stops a call, ``after`` loses its answer."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or Clock()
        self.endpoints: dict[str, Row] = {}
        self.configs: dict[str, Row] = {}
        self.models: dict[str, Row] = {}
        self.schedules: dict[str, Params] = {}
        self.calls: list[str] = []
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
        self.untagged: set[str] = set()
        self.stale_tags: dict[str, dict[str, str]] = {}
        self.ahead = timedelta(0)
        """How far AWS's clock is ahead of the caller's."""
        self.switch: Callable[[Params], Params] | None = None

    def everything(self) -> list[str]:
        self._settle()
        return (
            [f"endpoint/{name}" for name in self.endpoints]
            + [f"endpoint-config/{name}" for name in self.configs]
            + [f"model/{name}" for name in self.models]
            + [f"schedule/{name}" for name in self.schedules]
        )

    def tagged(self) -> Iterator[tuple[str, dict[str, str]]]:
        """ARN and tags of every endpoint, config and model."""
        kinds = (("endpoint", self.endpoints), ("endpoint-config", self.configs), ("model", self.models))
        for kind, rows in kinds:
            for name, row in rows.items():
                yield arn_of(kind, name), dict(row.tags)

    def call(self, operation: str, action: Callable[[], Params]) -> Params:
        number = len(self.calls)
        self.calls.append(operation)
        self._settle()
        if (fault := self.before(self, number, operation)) is not None:
            raise fault
        try:
            return action()
        finally:
            self._look_for_unguarded(operation)
            if (fault := self.after(self, number, operation)) is not None:
                raise fault  # in place of the answer, whatever that was

    def _look_for_unguarded(self, operation: str) -> None:
        guarded = {json.loads(one["Target"]["Input"]).get("EndpointName") for one in self.schedules.values()}
        for name, row in self.endpoints.items():
            if row.tags.get("peagle-sm:managed-by") == "peagle-sm" and name not in guarded:
                self.unguarded.append(f"{name} after {operation}")

    def _settle(self) -> None:
        now = self.clock.seconds
        due, self.late = (
            [one for one in self.late if one[0] <= now],
            [one for one in self.late if one[0] > now],
        )
        for _, act in due:
            with suppress(ClientError):
                act()
        for name, row in list(self.endpoints.items()):
            if row.gone_at is not None and now >= row.gone_at:
                del self.endpoints[name]

    def dated(self) -> Params:
        """The Date header of an answer, by AWS's own clock."""
        now = self.clock.now() + self.ahead
        return {"ResponseMetadata": {"HTTPHeaders": {"date": format_datetime(now, usegmt=True)}}}

    def status(self, row: Row) -> str:
        if row.gone_at is not None:
            return "Deleting"
        return "Creating" if self.clock.seconds < row.ready_at else row.outcome

    def client(self, service: str, **_: Any) -> Any:
        kinds = {
            "application-autoscaling": Scaling,
            "cloudformation": CloudFormation,
            "cloudwatch": CloudWatch,
            "dynamodb": DynamoDb,
            "lambda": Lambda,
            "logs": Logs,
            "resourcegroupstaggingapi": Tagging,
            "pricing": Pricing,
            "sagemaker": SageMaker,
            "scheduler": Scheduler,
            "sts": Sts,
        }
        return kinds[service](self)

    region_name = "us-east-1"
    profile_name = "default"


def arn_of(kind: str, name: str) -> str:
    return f"arn:aws:sagemaker:us-east-1:{ACCOUNT}:{kind}/{name}"


def _tags(params: Params) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in params.get("Tags", [])}


class SageMaker:
    def __init__(self, aws: FakeAws) -> None:
        self.aws = aws
        self.kinds = {"endpoint": aws.endpoints, "endpoint-config": aws.configs, "model": aws.models}

    def _arn(self, kind: str, name: str) -> str:
        return arn_of(kind, name)

    def _get(self, operation: str, kind: str, name: str) -> Row:
        rows = self.kinds[kind]
        if name not in rows:
            raise client_error(
                operation, "ValidationException", f'Could not find {kind} "{self._arn(kind, name)}".'
            )
        return rows[name]

    def _add(self, operation: str, kind: str, name: str, params: Params) -> Row:
        if name in self.kinds[kind]:
            message = f'Cannot create already existing {kind} "{self._arn(kind, name)}".'
            raise client_error(operation, "ValidationException", message)
        row = self.kinds[kind][name] = Row(self.aws.clock.now(), params, _tags(params))
        return row

    def create_model(self, **params: Any) -> Params:
        return self.aws.call(
            "CreateModel", lambda: {"x": self._add("CreateModel", "model", params["ModelName"], params)}
        )

    def create_endpoint_config(self, **params: Any) -> Params:
        name = params["EndpointConfigName"]
        return self.aws.call(
            "CreateEndpointConfig",
            lambda: {"x": self._add("CreateEndpointConfig", "endpoint-config", name, params)},
        )

    def create_endpoint(self, **params: Any) -> Params:
        def act() -> Params:
            self._get("CreateEndpoint", "endpoint-config", params["EndpointConfigName"])
            row = self._add("CreateEndpoint", "endpoint", params["EndpointName"], params)
            row.ready_at = self.aws.clock.seconds + self.aws.create_s
            row.config = params["EndpointConfigName"]
            row.outcome, row.reason = self.aws.outcome, self.aws.reason
            return {}

        return self.aws.call("CreateEndpoint", act)

    def describe_endpoint(self, EndpointName: str) -> Params:
        def act() -> Params:
            row = self._get("DescribeEndpoint", "endpoint", EndpointName)
            status = self.aws.status(row)
            return {
                "EndpointArn": self._arn("endpoint", EndpointName),
                "EndpointStatus": status,
                "EndpointConfigName": row.config,
                "CreationTime": row.created,
                "FailureReason": row.reason if status == "Failed" else None,
                **(
                    {} if row.count is None else {"ProductionVariants": [{"CurrentInstanceCount": row.count}]}
                ),
            }

        return self.aws.call("DescribeEndpoint", act)

    def describe_endpoint_config(self, EndpointConfigName: str) -> Params:
        def act() -> Params:
            row = self._get("DescribeEndpointConfig", "endpoint-config", EndpointConfigName)
            return {**row.params, "EndpointConfigArn": self._arn("endpoint-config", EndpointConfigName)}

        return self.aws.call("DescribeEndpointConfig", act)

    def describe_model(self, ModelName: str) -> Params:
        def act() -> Params:
            row = self._get("DescribeModel", "model", ModelName)
            return {**row.params, "ModelArn": self._arn("model", ModelName)}

        return self.aws.call("DescribeModel", act)

    def delete_endpoint(self, EndpointName: str) -> Params:
        def act() -> Params:
            row = self._get("DeleteEndpoint", "endpoint", EndpointName)
            if self.aws.components:
                message = "Cannot delete endpoint with inference component associated."
                raise client_error("DeleteEndpoint", "ValidationException", message)
            if self.aws.status(row) == "Creating":
                message = f'Cannot update in-progress endpoint "{self._arn("endpoint", EndpointName)}".'
                raise client_error("DeleteEndpoint", "ValidationException", message)
            row.gone_at = row.gone_at or self.aws.clock.seconds + self.aws.delete_s
            return {}

        return self.aws.call("DeleteEndpoint", act)

    def delete_inference_component(self, InferenceComponentName: str) -> Params:
        def act() -> Params:
            self.aws.components.remove(InferenceComponentName)
            return {}

        return self.aws.call("DeleteInferenceComponent", act)

    def describe_inference_component(self, InferenceComponentName: str) -> Params:
        def act() -> Params:
            if InferenceComponentName not in self.aws.components:
                message = f"Inference component {InferenceComponentName} of account 1 not found"
                raise client_error("DescribeInferenceComponent", "ValidationException", message)
            return {"EndpointName": "demo", "InferenceComponentStatus": "InService"}

        return self.aws.call("DescribeInferenceComponent", act)

    def _components(self) -> Params:
        return {"InferenceComponents": [{"InferenceComponentName": name} for name in self.aws.components]}

    def delete_endpoint_config(self, EndpointConfigName: str) -> Params:
        def act() -> Params:
            self._get("DeleteEndpointConfig", "endpoint-config", EndpointConfigName)
            del self.aws.configs[EndpointConfigName]
            return {}

        return self.aws.call("DeleteEndpointConfig", act)

    def delete_model(self, ModelName: str) -> Params:
        def act() -> Params:
            self._get("DeleteModel", "model", ModelName)
            del self.aws.models[ModelName]
            return {}

        return self.aws.call("DeleteModel", act)

    def add_tags(self, ResourceArn: str, Tags: list[Params]) -> Params:
        def act() -> Params:
            self._tagged("AddTags", ResourceArn).tags.update({tag["Key"]: tag["Value"] for tag in Tags})
            return {}

        return self.aws.call("AddTags", act)

    def delete_tags(self, ResourceArn: str, TagKeys: list[str]) -> Params:
        def act() -> Params:
            row = self._tagged("DeleteTags", ResourceArn)
            row.tags = {key: value for key, value in row.tags.items() if key not in TagKeys}
            return {}

        return self.aws.call("DeleteTags", act)

    def get_paginator(self, operation: str) -> Pages | ManyPages:
        if operation == "list_tags":
            return Pages(lambda params: self.aws.call("ListTags", lambda: self._list_tags(params)))
        if operation == "list_inference_components":
            return Pages(lambda params: self.aws.call("ListInferenceComponents", self._components))
        kind, key, field_name = {
            "list_endpoints": ("endpoint", "Endpoints", "Endpoint"),
            "list_endpoint_configs": ("endpoint-config", "EndpointConfigs", "EndpointConfig"),
            "list_models": ("model", "Models", "Model"),
        }[operation]
        return ManyPages(
            self.aws,
            operation,
            key,
            lambda params: self._rows(kind, field_name, params.get("NameContains", "")),
        )

    def _rows(self, kind: str, field_name: str, part: str) -> list[Params]:
        return [
            {
                f"{field_name}Name": name,
                f"{field_name}Arn": self._arn(kind, name),
                "CreationTime": row.created,
                **({"EndpointStatus": self.aws.status(row)} if kind == "endpoint" else {}),
            }
            for name, row in sorted(self.kinds[kind].items(), key=lambda each: each[1].created, reverse=True)
            if part in name
        ]

    def _list_tags(self, params: Params) -> Params:
        row = self._tagged("ListTags", params["ResourceArn"])
        return {"Tags": [{"Key": key, "Value": value} for key, value in row.tags.items()]}

    def _tagged(self, operation: str, arn: str) -> Row:
        kind, name = arn.rsplit(":", 1)[1].split("/")
        return self._get(operation, kind, name)


def lost(operation: str) -> BaseException:
    """The connection broke: whether the call was carried out is unknown to the caller."""
    return ConnectionClosedError(endpoint_url=f"https://fake/{operation}")


def denied(operation: str) -> BaseException:
    return client_error(operation, "AccessDeniedException", f"not authorized to perform: {operation}")


def broken(operation: str) -> BaseException:
    return client_error(operation, "InternalFailure", "internal", 500)


def throttled(operation: str) -> BaseException:
    return client_error(operation, "ThrottlingException", "Rate exceeded", 400)
