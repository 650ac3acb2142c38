"""The calls that start an operation: create, update, delete, cancel, roll back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sagemaker_local.cloudformation.api.drafts import Drafts, Request
from sagemaker_local.cloudformation.engine import Engine
from sagemaker_local.cloudformation.errors import CloudFormationError, TemplateError, invalid
from sagemaker_local.cloudformation.language.evaluation import Evaluation
from sagemaker_local.cloudformation.operations import Operation
from sagemaker_local.cloudformation.planning import changes, outputs_after
from sagemaker_local.cloudformation.stack import Change, Desired, Stack
from sagemaker_local.cloudformation.store import Store
from sagemaker_local.cloudformation.tools import Tools

NO_UPDATES = "No updates are to be performed."

_NAME = "[a-zA-Z][-a-zA-Z0-9]*"
_UPDATABLE = frozenset(("CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE"))
# Stacks that a failure with rollback disabled left half-way.
_PAUSED = frozenset(("CREATE_FAILED", "UPDATE_FAILED"))


def check_name(name: str) -> None:
    """Refuse a name that a stack cannot have.

    Raises:
        CloudFormationError: it is not allowed.
    """
    if not re.fullmatch(_NAME, name) or len(name) > 128:
        raise invalid(
            f"1 validation error detected: Value '{name}' at 'stackName' failed to satisfy constraint: "
            f"Member must satisfy regular expression pattern: {_NAME}"
        )


class Stacks:
    """Create, update, delete. Methods raise CloudFormationError or TemplateError."""

    def __init__(self, tools: Tools, store: Store, engine: Engine, drafts: Drafts) -> None:
        """Set up with the parts that the calls use."""
        self._tools = tools
        self._store = store
        self._engine = engine
        self._drafts = drafts

    def create_stack(self, request: Request) -> dict[str, Any]:
        """Answer CreateStack."""
        name = request["StackName"]
        check_name(name)
        if self._store.named(name) is not None:
            raise CloudFormationError("AlreadyExistsException", f"Stack [{name}] already exists")
        if "OnFailure" in request and "DisableRollback" in request:
            raise invalid("You can specify either DisableRollback or OnFailure, but not both.")
        self._drafts.check_role(request.get("RoleARN"))
        desired = self._drafts.desired(request, None)
        stack = self._store.add(name, "CREATE_IN_PROGRESS")
        try:
            evaluation = self._drafts.evaluation(desired, stack)
        except TemplateError:
            self._store.forget(stack)
            raise
        stack.role_arn = request.get("RoleARN")
        stack.termination_protection = request.get("EnableTerminationProtection", False)
        stack.timeout_minutes = request.get("TimeoutInMinutes")
        stack.deployment_mode = (request.get("DeploymentConfig") or {}).get("Mode")
        default = "DO_NOTHING" if request.get("DisableRollback") else "ROLLBACK"
        on_failure = request.get("OnFailure", default)
        self.begin_creation(stack, desired, evaluation, on_failure, request.get("ClientRequestToken"))
        return {"StackId": stack.stack_id}

    def begin_creation(
        self, stack: Stack, desired: Desired, evaluation: Evaluation, on_failure: str, token: str | None
    ) -> None:
        """Start creating a new stack's resources."""
        with self._tools.lock:
            stack.desired = desired
            stack.disable_rollback = on_failure == "DO_NOTHING"
            self._engine.start(
                stack,
                lambda operation: operation.create(desired, evaluation, on_failure),
                status="CREATE_IN_PROGRESS",
                token=token,
            )

    def update_stack(self, request: Request) -> dict[str, Any]:
        """Answer UpdateStack."""
        stack = self._store.get(request["StackName"])
        self._drafts.check_role(request.get("RoleARN"))
        with self._tools.lock:
            self.check_updatable(stack)
            desired = self._drafts.desired(request, stack)
            evaluation = self._drafts.evaluation(desired, stack)
            if not self.planned(stack, desired, evaluation)[1]:
                raise invalid(NO_UPDATES)
            stack.role_arn = request.get("RoleARN") or stack.role_arn
            stack.deployment_mode = (request.get("DeploymentConfig") or {}).get("Mode")
            self.begin_update(
                stack,
                desired,
                evaluation,
                disable_rollback=request.get("DisableRollback", False),
                token=request.get("ClientRequestToken"),
            )
        return {"StackId": stack.stack_id}

    def begin_update(
        self,
        stack: Stack,
        desired: Desired,
        evaluation: Evaluation,
        *,
        disable_rollback: bool,
        token: str | None,
    ) -> None:
        """Start updating a stack; the caller holds the lock."""
        stack.updated_at = self._tools.now()
        stack.disable_rollback = disable_rollback
        self._engine.start(
            stack,
            lambda operation: operation.update(desired, evaluation, disable_rollback=disable_rollback),
            status="UPDATE_IN_PROGRESS",
            token=token,
        )

    def planned(self, stack: Stack, desired: Desired, evaluation: Evaluation) -> tuple[list[Change], bool]:
        """Return the resource changes of an update, and whether it changes anything at all."""
        tools = self._tools
        found = changes(
            evaluation,
            stack.resources,
            tags=desired.tags,
            immutable=tools.types.immutable,
            taggable=tools.types.taggable,
        )
        outputs = outputs_after(evaluation, stack.resources, found)
        kept = stack.desired.tags if stack.desired is not None else {}
        unfinished = stack.status in _PAUSED
        return found, bool(found) or unfinished or outputs != stack.outputs or dict(kept) != dict(
            desired.tags
        )

    def check_updatable(self, stack: Stack) -> None:
        """Refuse to update a stack in a state that does not allow it."""
        paused = stack.status in _PAUSED and stack.disable_rollback
        if stack.status not in _UPDATABLE and not paused:
            raise invalid(f"Stack:{stack.stack_id} is in {stack.status} state and can not be updated.")

    def delete_stack(self, request: Request) -> dict[str, Any]:
        """Answer DeleteStack."""
        stack = self._store.named(request["StackName"])
        if stack is None or stack.deleted or stack.status == "DELETE_IN_PROGRESS":
            return {}
        self._drafts.check_role(request.get("RoleARN"))
        if stack.termination_protection:
            raise invalid(f"Stack [{stack.name}] cannot be deleted while TerminationProtection is enabled")
        retain = frozenset(request.get("RetainResources", ()))
        token = request.get("ClientRequestToken")
        with self._tools.lock:
            if retain and stack.status != "DELETE_FAILED":
                raise invalid(
                    f"Invalid operation on stack [{stack.stack_id}]. RetainResources can be specified only "
                    "for stacks in DELETE_FAILED state."
                )
            if stack.in_progress and stack.status != "CREATE_IN_PROGRESS":
                raise invalid(f"Stack [{stack.stack_id}] cannot be deleted while in status {stack.status}")
            in_use = self._exports_in_use(stack)
            if in_use is not None:
                stack.move(stack.status, in_use, token)
                return {}
            if stack.status == "REVIEW_IN_PROGRESS":
                stack.deleted_at = self._tools.now()
                stack.move("DELETE_COMPLETE", None, token)
                return {}
            stack.role_arn = request.get("RoleARN") or stack.role_arn
            creating = stack.status == "CREATE_IN_PROGRESS"
            if creating:
                self._engine.cancel(stack)
            self._engine.start(
                stack,
                lambda operation: _delete(operation, retain),
                status="DELETE_IN_PROGRESS",
                token=token,
            )
        return {}

    def _exports_in_use(self, stack: Stack) -> str | None:
        for output in stack.outputs:
            users = self._store.importers(output.export) if output.export is not None else []
            if users:
                return f"Export {output.export} cannot be deleted as it is in use by {' and '.join(users)}"
        return None

    def cancel_update_stack(self, request: Request) -> dict[str, Any]:
        """Answer CancelUpdateStack."""
        stack = self._store.get(request["StackName"])
        if stack.status != "UPDATE_IN_PROGRESS":
            raise invalid("CancelUpdateStack cannot be called from current stack status")
        self._engine.cancel(stack)
        return {}

    def continue_update_rollback(self, request: Request) -> dict[str, Any]:
        """Answer ContinueUpdateRollback."""
        stack = self._store.get(request["StackName"])
        before = stack.before
        if stack.status != "UPDATE_ROLLBACK_FAILED" or before is None:
            raise invalid(
                f"Stack:{stack.stack_id} is in {stack.status} state and can not continue its rollback."
            )
        skip = frozenset(request.get("ResourcesToSkip", ()))
        with self._tools.lock:
            stack.role_arn = request.get("RoleARN") or stack.role_arn
            self._engine.start(
                stack,
                lambda operation: operation.roll_update_back(before, skip),
                status="UPDATE_ROLLBACK_IN_PROGRESS",
                token=request.get("ClientRequestToken"),
            )
        return {}

    def rollback_stack(self, request: Request) -> dict[str, Any]:
        """Answer RollbackStack."""
        stack = self._store.get(request["StackName"])
        before = stack.before
        token = request.get("ClientRequestToken")
        with self._tools.lock:
            stack.role_arn = request.get("RoleARN") or stack.role_arn
            if stack.status == "CREATE_FAILED":
                self._engine.start(
                    stack, Operation.roll_creation_back, status="ROLLBACK_IN_PROGRESS", token=token
                )
            elif stack.status == "UPDATE_FAILED" and before is not None:
                self._engine.start(
                    stack,
                    lambda operation: operation.roll_update_back(before),
                    status="UPDATE_ROLLBACK_IN_PROGRESS",
                    token=token,
                )
            else:
                raise invalid(
                    f"Stack:{stack.stack_id} is in {stack.status} state and can not be rolled back."
                )
        return {"StackId": stack.stack_id}

    def update_termination_protection(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer UpdateTerminationProtection."""
        stack = self._store.get(request["StackName"])
        stack.termination_protection = request["EnableTerminationProtection"]
        return {"StackId": stack.stack_id}


def _delete(operation: Operation, retain: frozenset[str]) -> None:
    operation.delete(retain)
