"""The Model Registry: model package groups and their versions. Records alone: nothing is deployed from them.

Unversioned model packages (AWS Marketplace) are not local.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sagemaker_local.clock import LocalClock

from .errors import ApiError, invalid, not_local
from .models import check_image, from_list
from .records import Record, Table, Tables
from .requests import checked, page

# ModelPackageContainerDefinition$Environment: "We support up to 16 entries in the map."
MOST_ENVIRONMENT_ENTRIES = 16
MOST_PROPERTIES = 50  # CustomerMetadataMap's maximum length in SageMaker's model
_GROUP_ARN = re.compile(r"arn:[^:]+:sagemaker:[^:]*:\d{12}:model-package-group/([^/]+)")
_PACKAGE_ARN = re.compile(r"arn:[^:]+:sagemaker:[^:]*:\d{12}:model-package/([^/]+/\d+)")
# What CreateModelPackage takes and the local server has no use for.
_NOT_LOCAL = {
    "SourceAlgorithmSpecification": "give InferenceSpecification.",
    "SourceUri": "give InferenceSpecification.",
    "ValidationSpecification": "a version of a group is not validated.",
    "AdditionalInferenceSpecifications": "give one InferenceSpecification.",
    "ModelCard": "leave it out.",
    "SecurityConfig": "leave it out.",
}


@dataclass
class GroupRecord(Record):
    """A model package group; the number of a deleted version is not given again."""

    last_version: int = 0


@dataclass
class PackageRecord(Record):
    """A version of a group; its name is `group/version`."""

    group: str = ""
    version: int = 0
    approval: str = "PendingManualApproval"
    approval_description: str | None = None
    properties: dict[str, str] = field(default_factory=dict)
    changed: bool = False


class ModelPackages:
    """Create, Describe, List, Update and Delete of model package groups and their versions."""

    def __init__(self, tables: Tables, clock: LocalClock) -> None:
        prefix = f"arn:aws:sagemaker:{tables.region}:{tables.account}"
        self._clock = clock
        self._groups: Table[GroupRecord] = Table("model package group", f"{prefix}:model-package-group")
        self._packages: Table[PackageRecord] = Table("model package", f"{prefix}:model-package")
        tables.more["sagemaker:model-package-group"] = self._groups
        self.operations = {
            "CreateModelPackageGroup": self.create_group,
            "DescribeModelPackageGroup": self.describe_group,
            "ListModelPackageGroups": self.list_groups,
            "DeleteModelPackageGroup": self.delete_group,
            "CreateModelPackage": self.create,
            "DescribeModelPackage": self.describe,
            "ListModelPackages": self.listed,
            "UpdateModelPackage": self.update,
            "DeleteModelPackage": self.delete,
        }

    async def create_group(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """CreateModelPackageGroup."""
        request = checked("CreateModelPackageGroup", body)
        name = request["ModelPackageGroupName"]
        if "ManagedConfiguration" in request:
            raise not_local("ManagedConfiguration", "leave it out.")
        arn = self._groups.arn(name)
        if self._groups.find(name) is not None:
            raise invalid(f"Model Package Group already exists: {arn}")
        tags, now = from_list(request.pop("Tags", [])), self._clock.now()
        self._groups.add(GroupRecord(name, arn, now, now, request, tags))
        return {"ModelPackageGroupArn": arn}

    async def describe_group(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """DescribeModelPackageGroup."""
        row = self._group(checked("DescribeModelPackageGroup", body)["ModelPackageGroupName"])
        return {**_group_summary(row), "CreatedBy": {}}

    async def list_groups(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """ListModelPackageGroups."""
        rows, token = page(self._groups, checked("ListModelPackageGroups", body), _group_summary)
        return {"ModelPackageGroupSummaryList": rows, **({"NextToken": token} if token else {})}

    async def delete_group(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """DeleteModelPackageGroup: refused while it has a version."""
        row = self._group(checked("DeleteModelPackageGroup", body)["ModelPackageGroupName"])
        left = [each.name for each in self._packages if each.group == row.name]
        if left:
            raise ApiError(
                "ConflictException",
                f"Model Package Group {row.arn} cannot be deleted: it has {len(left)} model packages.",
            )
        self._groups.remove(row.name)
        return {}

    async def create(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """CreateModelPackage: the next version of a group; the same ClientToken gives the same version."""
        request = checked("CreateModelPackage", body)
        group = self._group_of(request)
        _check_package(request)
        token = request.get("ClientToken")
        for known in self._packages:
            if token is not None and known.group == group.name and known.body.get("ClientToken") == token:
                return {"ModelPackageArn": known.arn}
        group.last_version += 1
        name, now = f"{group.name}/{group.last_version}", self._clock.now()
        row = PackageRecord(name, self._packages.arn(name), now, now, request, {})
        row.group, row.version = group.name, group.last_version
        row.approval = request.get("ModelApprovalStatus", row.approval)
        row.properties = dict(request.get("CustomerMetadataProperties", {}))
        self._packages.add(row)
        return {"ModelPackageArn": row.arn}

    async def describe(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """DescribeModelPackage."""
        row = self._package(checked("DescribeModelPackage", body)["ModelPackageName"])
        repeated = ("InferenceSpecification", "MetadataProperties", "ModelMetrics", "Domain", "Task")
        answer = {
            **_summary(row),
            "ModelPackageName": row.group,
            "ModelPackageStatusDetails": {"ValidationStatuses": [], "ImageScanStatuses": []},
            **{member: row.body[member] for member in repeated if member in row.body},
        }
        if row.properties:
            answer["CustomerMetadataProperties"] = row.properties
        if row.approval_description is not None:
            answer["ApprovalDescription"] = row.approval_description
        if row.changed:
            answer["LastModifiedTime"] = row.modified.timestamp()
        return answer

    async def listed(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """ListModelPackages: of a group; without one the unversioned, unless versions are asked for."""
        request = checked("ListModelPackages", body)
        group_name = request.get("ModelPackageGroupName")
        group = None if group_name is None else self._group(group_name).name
        kind = request.get("ModelPackageType", "Unversioned" if group_name is None else "Versioned")
        status = request.get("ModelApprovalStatus")
        wanted = (
            row
            for row in self._packages
            if kind != "Unversioned" and group in (None, row.group) and status in (None, row.approval)
        )
        rows, token = page(wanted, request, _summary)
        return {"ModelPackageSummaryList": rows, **({"NextToken": token} if token else {})}

    async def update(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """UpdateModelPackage: approval status and metadata properties."""
        request = checked("UpdateModelPackage", body)
        row = self._package(request["ModelPackageArn"])
        known = {"ModelPackageArn", "ModelApprovalStatus", "ApprovalDescription", "ClientToken"}
        known |= {"CustomerMetadataProperties", "CustomerMetadataPropertiesToRemove"}
        for member in request.keys() - known:
            raise not_local(f"UpdateModelPackage with {member}", "register another version.")
        removed = request.get("CustomerMetadataPropertiesToRemove", [])
        properties = {key: value for key, value in row.properties.items() if key not in removed}
        properties |= request.get("CustomerMetadataProperties", {})
        if len(properties) > MOST_PROPERTIES:
            raise invalid(
                f"{row.arn} would have {len(properties)} customer metadata properties; at most "
                f"{MOST_PROPERTIES} are allowed."
            )
        row.properties = properties
        row.approval = request.get("ModelApprovalStatus", row.approval)
        row.approval_description = request.get("ApprovalDescription", row.approval_description)
        row.modified, row.changed = self._clock.now(), True
        return {"ModelPackageArn": row.arn}

    async def delete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """DeleteModelPackage."""
        self._packages.remove(self._package(checked("DeleteModelPackage", body)["ModelPackageName"]).name)
        return {}

    def _group_of(self, request: Mapping[str, Any]) -> GroupRecord:
        if "ModelPackageName" in request and "ModelPackageGroupName" in request:
            raise invalid(
                "Both ModelPackageName and ModelPackageGroupName are provided in the input. Cannot determine "
                "which one to use."
            )
        if "ModelPackageName" in request:
            raise not_local("An unversioned model package (ModelPackageName)", "give ModelPackageGroupName.")
        if "ModelPackageGroupName" not in request:
            raise invalid("Missing ARN.")
        return self._group(request["ModelPackageGroupName"])

    def _group(self, named: str) -> GroupRecord:
        """Find a group by its name or ARN."""
        arn = _GROUP_ARN.fullmatch(named)
        name = arn[1] if arn else named
        row = self._groups.find(name)
        if row is None or (arn is not None and row.arn != named.lower()):
            raise invalid(f"ModelPackageGroup {named if arn else self._groups.arn(name)} does not exist.")
        return row

    def _package(self, named: str) -> PackageRecord:
        """Find a version by its ARN."""
        arn = _PACKAGE_ARN.fullmatch(named)
        row = self._packages.find(arn[1]) if arn else None
        if row is None or row.arn != named.lower():
            raise invalid(f"ModelPackage {named} does not exist.")
        return row


def _check_package(request: Mapping[str, Any]) -> None:
    """Check a version that is to be created; raises ApiError."""
    if "Tags" in request:
        raise invalid("Tags cannot be given with ModelPackageGroupName: a version has those of its group.")
    for member, instead in _NOT_LOCAL.items():
        if member in request:
            raise not_local(f"CreateModelPackage with {member}", instead)
    if "InferenceSpecification" not in request:
        raise invalid("A model package needs an InferenceSpecification: found none.")
    for container in request["InferenceSpecification"]["Containers"]:
        if "Image" not in container:
            raise invalid("ModelPackageContainerDefinition.Image is required: found none.")
        check_image(container["Image"], "Platform")
        if "ModelDataUrl" in container and "ModelDataSource" in container:
            raise invalid("Specify either ModelDataUrl or ModelDataSource, not both.")
        entries = len(container.get("Environment", {}))
        if entries > MOST_ENVIRONMENT_ENTRIES:
            raise invalid(
                f"Environment of a model package has {entries} entries; at most "
                f"{MOST_ENVIRONMENT_ENTRIES} are allowed."
            )


def _group_summary(row: GroupRecord) -> dict[str, Any]:
    described = row.body.get("ModelPackageGroupDescription")
    return {
        "ModelPackageGroupName": row.name,
        "ModelPackageGroupArn": row.arn,
        "CreationTime": row.created.timestamp(),
        "ModelPackageGroupStatus": "Completed",
        **({} if described is None else {"ModelPackageGroupDescription": described}),
    }


def _summary(row: PackageRecord) -> dict[str, Any]:
    described = row.body.get("ModelPackageDescription")
    return {
        "ModelPackageGroupName": row.group,
        "ModelPackageVersion": row.version,
        "ModelPackageArn": row.arn,
        "CreationTime": row.created.timestamp(),
        "ModelPackageStatus": "Completed",
        "ModelApprovalStatus": row.approval,
        **({} if described is None else {"ModelPackageDescription": described}),
    }
