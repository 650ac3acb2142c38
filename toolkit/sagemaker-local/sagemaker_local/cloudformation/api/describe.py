"""The calls that only read."""

from __future__ import annotations

from typing import Any

from sagemaker_local.cloudformation.api.change_sets import tag_rows
from sagemaker_local.cloudformation.api.drafts import Request
from sagemaker_local.cloudformation.errors import invalid
from sagemaker_local.cloudformation.stack import ChangeSet, Event, Resource, Stack
from sagemaker_local.cloudformation.store import Store
from sagemaker_local.control.errors import ApiError

_NOT_CHECKED = {"StackDriftStatus": "NOT_CHECKED"}
_RESOURCE_NOT_CHECKED = {"StackResourceDriftStatus": "NOT_CHECKED"}


class Descriptions:
    """Describe and list. Methods raise ApiError or TemplateError."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def describe_stacks(self, request: Request) -> dict[str, Any]:
        """Answer DescribeStacks."""
        name = request.get("StackName")
        stacks = [self._store.get(name)] if name else [each for each in self._store.all() if not each.deleted]
        return {"Stacks": [_stack(each) for each in stacks]}

    def list_stacks(self, request: Request) -> dict[str, Any]:
        """Answer ListStacks; deleted stacks are listed too."""
        wanted = set(request.get("StackStatusFilter", ()))
        stacks = [each for each in self._store.all() if not wanted or each.status in wanted]
        return {"StackSummaries": [_stack_summary(each) for each in stacks]}

    def describe_stack_events(self, request: Request) -> dict[str, Any]:
        """Answer DescribeStackEvents, newest first."""
        stack = self._store.get(request["StackName"])
        return {"StackEvents": [_event(stack, each) for each in reversed(stack.events)]}

    def describe_events(self, request: Request) -> dict[str, Any]:
        """Answer DescribeEvents of a change set: what early validation found in it."""
        named = request.get("ChangeSetName")
        if "StackName" not in request or named is None:
            raise invalid(
                "the local CloudFormation has DescribeEvents of change sets only: give StackName and "
                "ChangeSetName, or use DescribeStackEvents"
            )
        stack = self._store.get(request["StackName"])
        rows = [
            row
            for change_set in stack.change_sets
            if named in (change_set.name, change_set.change_set_id)
            for row in _findings(stack, change_set)
        ]
        return {"OperationEvents": rows}

    def describe_stack_resources(self, request: Request) -> dict[str, Any]:
        """Answer DescribeStackResources of a stack."""
        if "StackName" not in request:
            raise invalid("the local CloudFormation needs StackName; a physical id alone is not enough")
        stack, logical = self._store.get(request["StackName"]), request.get("LogicalResourceId")
        rows = [
            _resource(stack, each, "Timestamp")
            for each in list(stack.resources.values())
            if logical in (None, each.logical_id)
        ]
        return {"StackResources": rows}

    def list_stack_resources(self, request: Request) -> dict[str, Any]:
        """Answer ListStackResources."""
        stack = self._store.get(request["StackName"])
        resources = [
            _resource(stack, each, "LastUpdatedTimestamp") for each in list(stack.resources.values())
        ]
        return {"StackResourceSummaries": resources}

    def get_template(self, request: Request) -> dict[str, Any]:
        """Answer GetTemplate: the text that was sent, of a stack or of one of its change sets."""
        stack = self._store.get(request.get("StackName", ""))
        desired = stack.desired
        named = request.get("ChangeSetName")
        if named is not None:
            sets = [each for each in stack.change_sets if named in (each.name, each.change_set_id)]
            if not sets:
                raise ApiError("ChangeSetNotFound", f"ChangeSet [{named}] does not exist", 404)
            desired = sets[0].desired
        # A stack that has only a change set yet is asked for its template by the CDK, too.
        text = "" if desired is None else desired.template.text
        return {"TemplateBody": text, "StagesAvailable": ["Original", "Processed"]}

    def list_exports(self, request: Request) -> dict[str, Any]:
        """Answer ListExports."""
        rows = [
            {"ExportingStackId": each.stack.stack_id, "Name": each.name, "Value": each.value}
            for each in sorted(self._store.exports(), key=lambda each: each.name)
        ]
        return {"Exports": rows}

    def list_imports(self, request: Request) -> dict[str, Any]:
        """Answer ListImports."""
        name = request["ExportName"]
        users = self._store.importers(name)
        if not users:
            raise invalid(f"Export '{name}' is not imported by any stack.")
        return {"Imports": users}


def _stack(stack: Stack) -> dict[str, Any]:
    desired = stack.desired
    return {
        "StackId": stack.stack_id,
        "StackName": stack.name,
        "ChangeSetId": stack.change_set_id,
        "Description": desired.template.description if desired else None,
        "Parameters": desired.bound.described() if desired else [],
        "CreationTime": stack.created_at,
        "DeletionTime": stack.deleted_at,
        "LastUpdatedTime": stack.updated_at,
        "RollbackConfiguration": {},
        "StackStatus": stack.status,
        "StackStatusReason": stack.reason,
        "DisableRollback": False,
        "Capabilities": list(desired.capabilities) if desired else [],
        "Outputs": [
            {
                "OutputKey": each.key,
                "OutputValue": each.value,
                "Description": each.description,
                "ExportName": each.export,
            }
            for each in stack.outputs
        ],
        "RoleARN": stack.role_arn,
        "Tags": tag_rows(desired.tags) if desired else [],
        "DriftInformation": _NOT_CHECKED,
    }


def _stack_summary(stack: Stack) -> dict[str, Any]:
    row = _stack(stack)
    row["TemplateDescription"] = row.pop("Description")
    return row


def _event(stack: Stack, event: Event) -> dict[str, Any]:
    return {
        "StackId": stack.stack_id,
        "EventId": event.event_id,
        "StackName": stack.name,
        "LogicalResourceId": event.logical_id,
        "PhysicalResourceId": event.physical_id or "",
        "ResourceType": event.type_name,
        "Timestamp": event.timestamp,
        "ResourceStatus": event.status,
        "ResourceStatusReason": event.reason,
        "ResourceProperties": event.properties,
        "ClientRequestToken": event.token,
    }


def _findings(stack: Stack, change_set: ChangeSet) -> list[dict[str, Any]]:
    return [
        {
            "EventId": f"{change_set.change_set_id}/{number}",
            "StackId": stack.stack_id,
            "OperationType": "CREATE_CHANGESET",
            "OperationStatus": "FAILED",
            "EventType": "VALIDATION_ERROR",
            "LogicalResourceId": each.logical_id,
            "ResourceType": each.type_name,
            "Timestamp": change_set.created_at,
            "ValidationFailureMode": "FAIL",
            "ValidationName": "PROPERTY_VALIDATION",
            "ValidationStatus": "FAILED",
            "ValidationStatusReason": each.reason,
            "ValidationPath": each.path,
        }
        for number, each in enumerate(change_set.findings)
    ]


def _resource(stack: Stack, resource: Resource, when: str) -> dict[str, Any]:
    return {
        "StackName": stack.name,
        "StackId": stack.stack_id,
        "LogicalResourceId": resource.logical_id,
        "PhysicalResourceId": resource.physical_id,
        "ResourceType": resource.type_name,
        when: resource.updated_at,
        "ResourceStatus": resource.status,
        "ResourceStatusReason": resource.reason,
        "DriftInformation": _RESOURCE_NOT_CHECKED,
    }
