"""Resource types whose three verbs are one API call each: one handler, and a row for each type.

A type that checks, waits or makes several calls has a class of its own, in the rooms of this folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sagemaker_local.cloudformation.resources.base import (
    Created,
    Kind,
    Properties,
    ResourceContext,
    generated_name,
)
from sagemaker_local.cloudformation.resources.calls import gone_is_fine, merged_tags, retag, send, tag_list

Attributes = Callable[[ResourceContext, str, Properties, Mapping[str, Any]], Mapping[str, Any]]
"""Values for Fn::GetAtt, from the context, the name, the properties and the answer of the call."""


@dataclass(frozen=True)
class Row:
    """The calls of one type. ``name`` is the member with the name, which is also the Ref.

    Attributes:
        service: name of the boto3 client.
        create: operation that creates it, from all properties with name and tags.
        delete: operation that deletes it, by name and the properties in ``deleted_with``.
        update: operation that changes it in place, as ``create`` but without tags; None: only tags change.
        longest: length of a generated name; 0: the template always gives the name.
        prefix: what a generated name begins with.
        members: the API's name of a property, where the template has another.
        listed: True if the deletion takes a list of names, in a member with an s at the end.
        update_with: further members of an update.
        tags: members with the resource whose tags change, from its name and answer; None: tags do not change.
        tagged: True if the creation takes tags.
        gone: error codes of a deletion of what does not exist.
    """

    service: str
    create: str
    delete: str
    name: str
    gone: tuple[str, ...]
    update: str | None = None
    longest: int = 0
    prefix: str = ""
    members: Mapping[str, str] | None = None
    deleted_with: tuple[str, ...] = ()
    listed: bool = False
    update_with: Mapping[str, Any] | None = None
    tagged: bool = False
    tags: Callable[[ResourceContext, str], Mapping[str, Any]] | None = None
    tag_calls: tuple[str, str] = ("TagResource", "UntagResource")
    attributes: Attributes = lambda ctx, name, properties, answer: {}


class FromTable:
    """Handler of a type with a row in the table."""

    def __init__(self, row: Row) -> None:
        """Set the row."""
        self._row = row

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        """Send the creating call."""
        row = self._row
        name = properties.get(row.name) or row.prefix + generated_name(ctx, logical_id, row.longest)
        tags = {"Tags": tag_list(merged_tags(ctx, properties)) or None} if row.tagged else {}
        answer = send(ctx, row.service, row.create, {**self._request(name, properties), **tags})
        return self._created(ctx, name, properties, answer)

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        """Send the updating call, and change the tags."""
        row = self._row
        answer: Mapping[str, Any] = {}
        if row.update is not None:
            request = self._request(physical_id, new) | dict(row.update_with or {})
            answer = send(ctx, row.service, row.update, request)
        if row.tags is not None:
            tag, untag = row.tag_calls
            retag(ctx, row.service, row.tags(ctx, physical_id), old, new, tag=tag, untag=untag)
        return self._created(ctx, physical_id, new, answer)

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        """Send the deleting call."""
        row = self._row
        named: dict[str, Any] = {f"{row.name}s": [physical_id]} if row.listed else {row.name: physical_id}
        with gone_is_fine(*row.gone):
            send(ctx, row.service, row.delete, named | {key: properties[key] for key in row.deleted_with})

    def _request(self, name: str, properties: Properties) -> dict[str, Any]:
        members = self._row.members or {}
        request = {members.get(key, key): value for key, value in properties.items() if key != "Tags"}
        return request | {self._row.name: name}

    def _created(
        self, ctx: ResourceContext, name: str, properties: Properties, answer: Mapping[str, Any]
    ) -> Created:
        return Created(name, dict(self._row.attributes(ctx, name, properties, answer)))


class Metadata:
    """The CDK's usage metadata: a resource that is only an id."""

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        """Return an id."""
        return Created(generated_name(ctx, logical_id, 128))

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        """Keep the id."""
        return Created(physical_id)

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        """Do nothing."""


def _arn(service: str, kind: str) -> Callable[[ResourceContext, str], str]:
    return lambda ctx, name: f"arn:{ctx.partition}:{service}:{ctx.region}:{ctx.account}:{kind}/{name}"


_group_arn = _arn("scheduler", "schedule-group")
_parameter_arn = _arn("ssm", "parameter")

ROWS = {
    "AWS::CloudWatch::Dashboard": Row(  # moto cannot change a dashboard's tags
        "cloudwatch",
        create="PutDashboard",
        update="PutDashboard",
        delete="DeleteDashboards",
        name="DashboardName",
        longest=255,
        listed=True,
        tagged=True,
        gone=("ResourceNotFound", "DashboardNotFoundError"),
    ),
    "AWS::KMS::Alias": Row(
        "kms",
        create="CreateAlias",
        update="UpdateAlias",
        delete="DeleteAlias",
        name="AliasName",
        gone=("NotFoundException",),
    ),
    "AWS::Lambda::Permission": Row(  # all of its properties are immutable
        "lambda",
        create="AddPermission",
        delete="RemovePermission",
        name="StatementId",
        longest=100,
        deleted_with=("FunctionName",),
        gone=("ResourceNotFoundException",),
        attributes=lambda ctx, name, properties, answer: {"Id": name},
    ),
    "AWS::S3::BucketPolicy": Row(
        "s3",
        create="PutBucketPolicy",
        update="PutBucketPolicy",
        delete="DeleteBucketPolicy",
        name="Bucket",
        members={"PolicyDocument": "Policy"},
        gone=("NoSuchBucket", "404", "NoSuchBucketPolicy"),
    ),
    "AWS::Scheduler::ScheduleGroup": Row(
        "scheduler",
        create="CreateScheduleGroup",
        delete="DeleteScheduleGroup",
        name="Name",
        longest=64,
        tagged=True,
        tags=lambda ctx, name: {"ResourceArn": _group_arn(ctx, name)},
        gone=("ResourceNotFoundException",),
        attributes=lambda ctx, name, properties, answer: {"Arn": _group_arn(ctx, name)},
    ),
    "AWS::SSM::Parameter": Row(
        "ssm",
        create="PutParameter",
        update="PutParameter",
        update_with={"Overwrite": True},
        delete="DeleteParameter",
        name="Name",
        longest=1000,
        prefix="CFN-",
        tagged=True,
        tags=lambda ctx, name: {"ResourceType": "Parameter", "ResourceId": name},
        tag_calls=("AddTagsToResource", "RemoveTagsFromResource"),
        gone=("ParameterNotFound",),
        attributes=lambda ctx, name, properties, answer: {
            "Type": properties["Type"],
            "Value": properties["Value"],
            "Arn": _parameter_arn(ctx, name.removeprefix("/")),
        },
    ),
}

KINDS: dict[str, Kind] = {
    "AWS::CDK::Metadata": Metadata(),
    **{type_name: FromTable(row) for type_name, row in ROWS.items()},
}
