"""The calls about change sets, and how an answer describes a change."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

from sagemaker_local.cloudformation.api.drafts import Drafts, Request
from sagemaker_local.cloudformation.api.stacks import Stacks, check_name, refuse_without_rollback
from sagemaker_local.cloudformation.errors import TemplateError, invalid
from sagemaker_local.cloudformation.language.intrinsics import UNKNOWN
from sagemaker_local.cloudformation.stack import Change, ChangeSet, Finding, PropertyChange, Stack
from sagemaker_local.cloudformation.store import Store
from sagemaker_local.cloudformation.tools import Tools
from sagemaker_local.control.errors import ApiError

NO_CHANGES = (
    "The submitted information didn't contain changes. Submit different information to create a change set."
)


def described(change: Change, *, values: bool) -> dict[str, Any]:
    """Return a change as DescribeChangeSet shows it; ``values`` adds old and new values."""
    row: dict[str, Any] = {
        "Action": change.action,
        "LogicalResourceId": change.logical_id,
        "PhysicalResourceId": change.physical_id,
        "ResourceType": change.type_name,
        "Replacement": change.replacement,
        "PolicyAction": _policy_action(change),
        "Scope": list(change.scope),
        "Details": _details(change, values=values),
    }
    if values and change.before is not None:
        row["BeforeContext"] = _json({"Properties": change.before})
    if values and change.after is not None:
        row["AfterContext"] = _json({"Properties": change.after})
    return {"Type": "Resource", "ResourceChange": row}


def _policy_action(change: Change) -> str | None:
    kept = change.policy == "Retain"
    if change.action == "Remove":
        return "Retain" if kept else "Delete"
    if change.action == "Modify" and change.replacement == "True":
        return "ReplaceAndRetain" if kept else "ReplaceAndDelete"
    return None


def _details(change: Change, *, values: bool) -> list[dict[str, Any]]:
    properties = [_property(each, values=values) for each in change.details]
    others = [
        {
            "Target": {"Attribute": scope, "RequiresRecreation": "Never"},
            "Evaluation": "Static",
            "ChangeSource": "DirectModification",
        }
        for scope in change.scope
        if scope != "Properties"
    ]
    return properties + others


def _property(each: PropertyChange, *, values: bool) -> dict[str, Any]:
    target: dict[str, Any] = {
        "Attribute": "Properties",
        "Name": each.name,
        "RequiresRecreation": each.recreation,
    }
    if values:
        kind = "Add" if each.before is None else "Remove" if each.after is None else "Modify"
        target |= {"Path": f"/Properties/{each.name}", "AttributeChangeType": kind}
        target |= {"BeforeValue": _text(each.before), "AfterValue": _text(each.after)}
    return {
        "Target": target,
        "Evaluation": "Dynamic" if each.dynamic else "Static",
        "ChangeSource": "ResourceReference" if each.dynamic else "DirectModification",
    }


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, default=lambda marker: repr(UNKNOWN), sort_keys=True)


_REFUSED = (
    "The following hook(s)/validation failed: [AWS::EarlyValidation::PropertyValidation]. To troubleshoot "
    "Early Validation errors, use the DescribeEvents API for detailed failure information."
)
_NOT_HERE = (("ResourcesToImport", "imports"), ("DeploymentMode", "reverting drift"))


class ChangeSets:
    """Create, describe, execute, delete, list. Methods raise ApiError or TemplateError."""

    def __init__(self, tools: Tools, store: Store, stacks: Stacks, drafts: Drafts) -> None:
        self._tools = tools
        self._store = store
        self._stacks = stacks
        self._drafts = drafts

    def create_change_set(self, request: Request) -> dict[str, Any]:
        """Answer CreateChangeSet. The plan is made at once: it is ready when the answer is."""
        kind = request.get("ChangeSetType", "UPDATE")
        for member, what in _NOT_HERE:
            if kind == "IMPORT" or request.get(member):
                raise invalid(
                    f"the local CloudFormation has no {what}; use change sets of type CREATE and UPDATE"
                )
        refuse_without_rollback(request)
        self._drafts.check_role(request.get("RoleARN"))
        with self._tools.lock:
            stack, is_new = self._stack_for(kind, request)
            try:
                change_set = self._planned(stack, kind, request)
            except (ApiError, TemplateError):
                if is_new:
                    self._store.forget(stack)
                raise
            if is_new:
                stack.move("REVIEW_IN_PROGRESS", "User Initiated", request.get("ClientToken"))
            stack.change_sets.append(change_set)
        return {"Id": change_set.change_set_id, "StackId": stack.stack_id}

    def _stack_for(self, kind: str, request: Request) -> tuple[Stack, bool]:
        name, change_set = request["StackName"], request["ChangeSetName"]
        stack = self._store.named(name)
        if kind == "CREATE":
            if stack is None:
                check_name(name)
                return self._store.add(name, "REVIEW_IN_PROGRESS"), True
            if stack.status != "REVIEW_IN_PROGRESS":
                raise invalid(
                    f"Stack [{stack.name}] already exists and cannot be created again with the changeSet "
                    f"[{change_set}]."
                )
        if stack is None or stack.deleted:
            raise invalid(f"Stack [{name}] does not exist")
        if kind == "UPDATE":
            self._stacks.check_updatable(stack)
        if any(each.name == change_set for each in stack.change_sets):
            raise ApiError(
                "AlreadyExistsException",
                f"ChangeSet {change_set} cannot be created due to a mismatch with existing attribute Name",
            )
        return stack, False

    def _planned(self, stack: Stack, kind: str, request: Request) -> ChangeSet:
        tools, name = self._tools, request["ChangeSetName"]
        desired = self._drafts.desired(request, stack)
        arn = f"arn:{tools.partition}:cloudformation:{tools.region}:{tools.account}"
        change_set = ChangeSet(
            name,
            f"{arn}:changeSet/{name}/{uuid.uuid4()}",
            kind,
            tools.now(),
            "FAILED",
            desired=desired,
            description=request.get("Description"),
            role_arn=request.get("RoleARN"),
        )
        try:
            evaluation = self._drafts.evaluation(desired, stack)
            changes, differs = self._stacks.planned(stack, desired, evaluation)
        except TemplateError as error:
            change_set.reason = str(error)
            return change_set
        change_set.changes = tuple(changes)
        change_set.findings = tuple(self._findings(change_set))
        if change_set.findings:
            change_set.reason = _REFUSED
        elif kind == "UPDATE" and not differs:
            change_set.reason = NO_CHANGES
        else:
            change_set.status, change_set.execution_status = "CREATE_COMPLETE", "AVAILABLE"
        return change_set

    def _findings(self, change_set: ChangeSet) -> list[Finding]:
        findings = []
        for each in change_set.changes:
            if each.after is not None:
                wrong = self._tools.types.wrong_property(each.type_name, each.after)
                if wrong is not None:
                    path = f"/Resources/{each.logical_id}/Properties"
                    findings.append(Finding(each.logical_id, each.type_name, wrong, path))
        return findings

    def find(self, request: Request) -> tuple[Stack, ChangeSet]:
        """Find a change set by its id, or by its name and its stack.

        Raises:
            ApiError: there is none.
        """
        name, stack_name = request["ChangeSetName"], request.get("StackName")
        if not name.startswith("arn:") and stack_name is None:
            raise invalid("StackName must be specified if ChangeSetName is not specified as an ARN.")
        stacks = self._store.all() if stack_name is None else [self._store.get(stack_name)]
        for stack in stacks:
            for each in stack.change_sets:
                if name in (each.name, each.change_set_id):
                    return stack, each
        raise ApiError("ChangeSetNotFound", f"ChangeSet [{name}] does not exist", 404)

    def describe_change_set(self, request: Request) -> dict[str, Any]:
        """Answer DescribeChangeSet."""
        stack, change_set = self.find(request)
        values = request.get("IncludePropertyValues", False)
        desired = change_set.desired
        return {
            **_summary(stack, change_set),
            "Parameters": desired.bound.described() if desired else [],
            "Capabilities": list(desired.capabilities) if desired else [],
            "Tags": tag_rows(desired.tags) if desired else [],
            "RollbackConfiguration": {},
            "Changes": [described(each, values=values) for each in change_set.changes],
        }

    def delete_change_set(self, request: Request) -> dict[str, Any]:
        """Answer DeleteChangeSet; it succeeds for a missing one whose stack exists."""
        try:
            stack, change_set = self.find(request)
        except ApiError as error:
            if error.code == "ChangeSetNotFound":
                return {}
            raise
        with self._tools.lock:
            stack.change_sets.remove(change_set)
        return {}

    def execute_change_set(self, request: Request) -> dict[str, Any]:
        """Answer ExecuteChangeSet. It deletes every change set of the stack."""
        refuse_without_rollback(request)
        stack, change_set = self.find(request)
        token = request.get("ClientRequestToken")
        with self._tools.lock:
            desired = change_set.desired
            if change_set.execution_status != "AVAILABLE" or desired is None:
                raise ApiError(
                    "InvalidChangeSetStatus",
                    f"ChangeSet [{change_set.change_set_id}] cannot be executed in its current status of "
                    f"[{change_set.status}]",
                )
            if change_set.kind == "UPDATE":
                self._stacks.check_updatable(stack)
            evaluation = self._drafts.evaluation(desired, stack)
            stack.role_arn = change_set.role_arn or stack.role_arn
            stack.change_set_id = change_set.change_set_id
            stack.change_sets.clear()
            if change_set.kind == "CREATE":
                self._stacks.begin_creation(stack, desired, evaluation, token)
            else:
                self._stacks.begin_update(stack, desired, evaluation, token)
        return {}


def tag_rows(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Return tags in the API's form."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def _summary(stack: Stack, change_set: ChangeSet) -> dict[str, Any]:
    return {
        "ChangeSetName": change_set.name,
        "ChangeSetId": change_set.change_set_id,
        "StackId": stack.stack_id,
        "StackName": stack.name,
        "Description": change_set.description,
        "CreationTime": change_set.created_at,
        "ExecutionStatus": change_set.execution_status,
        "Status": change_set.status,
        "StatusReason": change_set.reason,
    }
