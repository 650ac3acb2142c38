"""The engine over a cloud of fakes: things are made, changed, deleted in memory, and fail when told to."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError
from botocore.parsers import create_parser
from botocore.serialize import create_serializer

from sagemaker_local.cloudformation.api import wire
from sagemaker_local.cloudformation.api.drafts import Sources
from sagemaker_local.cloudformation.api.service import CloudFormation
from sagemaker_local.cloudformation.resources.base import (
    Created,
    Handler,
    Properties,
    ResourceContext,
    ResourceFailure,
)
from tests.local.serving import eventually

ROLE = "arn:aws:iam::123456789012:role/deployer"


@dataclass
class Cloud:
    """Everything that exists, by physical id, and the calls that were made."""

    things: dict[str, dict[str, Any]] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    roles: list[str | None] = field(default_factory=list)
    failures: dict[tuple[str, str], str] = field(default_factory=dict)
    failures_once: dict[tuple[str, str], str] = field(default_factory=dict)
    half_made: set[str] = field(default_factory=set)
    gates: dict[tuple[str, str], threading.Event] = field(default_factory=dict)
    numbers: Any = field(default_factory=lambda: itertools.count(1))

    def fail(self, verb: str, name: str, reason: str = "no room") -> None:
        self.failures[(verb, name)] = reason

    def hold(self, verb: str, name: str) -> threading.Event:
        """Let a call wait until the gate is set."""
        return self.gates.setdefault((verb, name), threading.Event())

    def begin(self, ctx: ResourceContext, verb: str, name: str) -> None:
        self.calls.append((verb, name))
        self.roles.append(ctx.role_arn)
        gate = self.gates.get((verb, name))
        while gate is not None and not gate.is_set():
            ctx.pause(0.01)
        if (verb, name) in self.failures_once:
            raise ResourceFailure(self.failures_once.pop((verb, name)))
        if (verb, name) in self.failures:
            created = name if name in self.half_made and verb == "create" else None
            if created is not None:
                self.things[created] = {}
            raise ResourceFailure(self.failures[(verb, name)], physical_id=created)


class Thing:
    """A fake resource type: its property Name names it, and cannot be changed; failures go by logical id."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        self._cloud.begin(ctx, "create", logical_id)
        physical_id = properties.get("Name") or f"{logical_id}-{next(self._cloud.numbers)}"
        if physical_id in self._cloud.things:
            raise ResourceFailure(f"{physical_id} already exists")
        return self._put(ctx, physical_id, properties)

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        self._cloud.begin(ctx, "update", ctx.logical_id)
        return self._put(ctx, physical_id, new)

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        self._cloud.begin(ctx, "delete", ctx.logical_id)
        self._cloud.things.pop(physical_id, None)

    def _put(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> Created:
        self._cloud.things[physical_id] = {"properties": dict(properties), "tags": dict(ctx.tags)}
        return Created(physical_id, {"Arn": f"arn:{physical_id}", "Size": properties.get("Size", 1)})


class Whim(Thing):
    """A custom resource, which takes another physical id when its property Token changes."""

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        if old.get("Token") == new.get("Token"):
            return super().update(ctx, physical_id, old, new)
        self._cloud.begin(ctx, "update", ctx.logical_id)
        return self._put(ctx, f"{ctx.logical_id}-{next(self._cloud.numbers)}", new)


class FakeTypes:
    """Test::Thing, Custom::Whim, and IAM roles that are things."""

    def __init__(self, cloud: Cloud) -> None:
        thing = Thing(cloud)
        self._known: dict[str, Handler] = {
            "Test::Thing": thing,
            "Custom::Whim": Whim(cloud),
            "AWS::IAM::Role": thing,
        }

    def handler(self, type_name: str) -> Handler | None:
        return self._known.get(type_name)

    def immutable(self, type_name: str) -> frozenset[str]:
        return frozenset() if type_name == "Custom::Whim" else frozenset({"Name"})

    def wrong_property(self, type_name: str, properties: Mapping[str, Any]) -> str | None:
        return "Encountered unsupported property Bogus" if "Bogus" in properties else None

    def taggable(self, type_name: str) -> bool:
        return type_name == "Test::Thing"


class World:
    """CloudFormation over the fake cloud, called as boto3 calls it but without a port."""

    def __init__(self) -> None:
        self.cloud = Cloud()
        self.objects: dict[tuple[str, str], bytes] = {}
        self.stored: dict[str, str] = {}
        self._ticks = itertools.count()
        self.service = CloudFormation(
            account="123456789012",
            region="us-east-1",
            now=lambda: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=next(self._ticks)),
            types=FakeTypes(self.cloud),
            client=lambda service: None,
            sources=Sources(
                read_object=lambda bucket, key: self.objects.get((bucket, key)),
                stored=self.stored.get,
                trusts=lambda role, service: role == ROLE,
            ),
        )

    def call(self, operation: str, **parameters: Any) -> dict[str, Any]:
        """Call an operation; a refusal is raised as boto3 raises it."""
        model = wire.operation_of({"Action": operation})
        request = create_serializer("query").serialize_to_request(parameters, model)
        form = {name: str(value) for name, value in request["body"].items()}
        status, body = self.service.answer(form)
        answer = {"status_code": status, "headers": {}, "body": body}
        parsed: dict[str, Any] = create_parser("query").parse(answer, model.output_shape)
        if status >= 300:
            raise ClientError(parsed, operation)  # type: ignore[arg-type]
        return parsed

    def create(self, resources: dict[str, Any], name: str = "s", **more: Any) -> str:
        """Create a stack and wait for its rest; give its id."""
        sections = {key: more.pop(key) for key in list(more) if key in _SECTIONS}
        answer = self.call("CreateStack", StackName=name, TemplateBody=body(resources, **sections), **more)
        self.rest(answer["StackId"])
        return str(answer["StackId"])

    def update(self, resources: dict[str, Any], name: str = "s", **more: Any) -> str:
        """Update a stack and wait for its rest; give its status then."""
        sections = {key: more.pop(key) for key in list(more) if key in _SECTIONS}
        self.call("UpdateStack", StackName=name, TemplateBody=body(resources, **sections), **more)
        return self.rest(name)

    def delete(self, stack_id: str, **more: Any) -> str:
        """Delete a stack by its id and wait for its rest; give its status then."""
        self.call("DeleteStack", StackName=stack_id, **more)
        return self.rest(stack_id)

    def rest(self, name: str) -> str:
        """Wait until nothing goes on; give the status."""
        return str(eventually(lambda: None if (s := self.status(name)).endswith("_IN_PROGRESS") else s))

    def stack(self, name: str = "s") -> dict[str, Any]:
        return dict(self.call("DescribeStacks", StackName=name)["Stacks"][0])

    def status(self, name: str = "s") -> str:
        return str(self.stack(name)["StackStatus"])

    def outputs(self, name: str = "s") -> dict[str, str]:
        return {row["OutputKey"]: row["OutputValue"] for row in self.stack(name).get("Outputs", [])}

    def history(self, name: str = "s") -> list[str]:
        """Every event, oldest first, as ``<logical id> <status>``."""
        events = self.call("DescribeStackEvents", StackName=name)["StackEvents"]
        return [f"{row['LogicalResourceId']} {row['ResourceStatus']}" for row in reversed(events)]

    def reasons(self, name: str = "s") -> dict[str, str]:
        """The last reason told of each resource and status."""
        events = self.call("DescribeStackEvents", StackName=name)["StackEvents"]
        lines = [row for row in reversed(events) if "ResourceStatusReason" in row]
        return {
            f"{row['LogicalResourceId']} {row['ResourceStatus']}": row["ResourceStatusReason"]
            for row in lines
        }

    def physical_ids(self, name: str = "s") -> dict[str, str]:
        rows = self.call("DescribeStackResources", StackName=name)["StackResources"]
        return {row["LogicalResourceId"]: row.get("PhysicalResourceId", "") for row in rows}


_SECTIONS = ("Parameters", "Conditions", "Outputs", "Mappings", "Rules", "Metadata", "Description")


def body(resources: dict[str, Any], **sections: Any) -> str:
    """A template of things: a resource without a Type is a Test::Thing, given by its properties."""
    full = {
        name: each if "Type" in each else {"Type": "Test::Thing", "Properties": each}
        for name, each in resources.items()
    }
    return json.dumps({**sections, "Resources": full})


def thing(
    *, kind: str = "Test::Thing", properties: dict[str, Any] | None = None, **members: Any
) -> dict[str, Any]:
    """A resource with members besides its properties."""
    return {"Type": kind, "Properties": properties or {}, **members}


def ref(name: str) -> dict[str, str]:
    return {"Ref": name}


def arn(name: str) -> dict[str, list[str]]:
    return {"Fn::GetAtt": [name, "Arn"]}
