"""The calls that start an operation: create, update, delete, cancel, roll back."""

from __future__ import annotations

import re
from typing import Any

from sagemaker_local.cloudformation.api.drafts import Drafts, Request
from sagemaker_local.cloudformation.engine import Engine
from sagemaker_local.cloudformation.errors import TemplateError, invalid
from sagemaker_local.cloudformation.language.evaluation import Evaluation
from sagemaker_local.cloudformation.planning import changes, outputs_after
from sagemaker_local.cloudformation.stack import Change, Desired, Stack
from sagemaker_local.cloudformation.store import Store
from sagemaker_local.cloudformation.tools import Tools
from sagemaker_local.control.errors import ApiError

NO_UPDATES = "No updates are to be performed."

_NAME = "[a-zA-Z][-a-zA-Z0-9]*"
_UPDATABLE = frozenset(("CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE"))


def check_name(name: str) -> None:
    """Refuse a name that a stack cannot have.

    Raises:
        ApiError: it is not allowed.
    """
    if not re.fullmatch(_NAME, name) or len(name) > 128:
        raise invalid(
            f"1 validation error detected: Value '{name}' at 'stackName' failed to satisfy constraint: "
            f"Member must satisfy regular expression pattern: {_NAME}"
        )


def refuse_without_rollback(request: Request) -> None:
    """Refuse what would leave a stack half-way: here every failure is rolled back.

    Raises:
        ApiError: the request disables the rollback.
    """
    on_failure = {request.get("OnFailure"), request.get("OnStackFailure")}
    if request.get("DisableRollback") or on_failure - {None, "ROLLBACK"}:
        raise invalid("the local CloudFormation always rolls a failure back; leave DisableRollback out")


class Stacks:
    """Create, update, delete. Methods raise ApiError or TemplateError."""

    def __init__(self, tools: Tools, store: Store, engine: Engine, drafts: Drafts) -> None:
        self._tools = tools
        self._store = store
        self._engine = engine
        self._drafts = drafts

    def create_stack(self, request: Request) -> dict[str, Any]:
        """Answer CreateStack."""
        name = request["StackName"]
        check_name(name)
        if self._store.named(name) is not None:
            raise ApiError("AlreadyExistsException", f"Stack [{name}] already exists")
        refuse_without_rollback(request)
        if request.get("EnableTerminationProtection"):
            raise invalid("the local CloudFormation has no termination protection; leave it out")
        self._drafts.check_role(request.get("RoleARN"))
        desired = self._drafts.desired(request, None)
        stack = self._store.add(name, "CREATE_IN_PROGRESS")
        try:
            evaluation = self._drafts.evaluation(desired, stack)
        except TemplateError:
            self._store.forget(stack)
            raise
        stack.role_arn = request.get("RoleARN")
        self.begin_creation(stack, desired, evaluation, request.get("ClientRequestToken"))
        return {"StackId": stack.stack_id}

    def begin_creation(
        self, stack: Stack, desired: Desired, evaluation: Evaluation, token: str | None
    ) -> None:
        """Start creating a new stack's resources."""
        with self._tools.lock:
            stack.desired = desired
            self._engine.start(
                stack,
                lambda operation: operation.create(desired, evaluation),
                status="CREATE_IN_PROGRESS",
                token=token,
            )

    def update_stack(self, request: Request) -> dict[str, Any]:
        """Answer UpdateStack."""
        stack = self._store.get(request["StackName"])
        refuse_without_rollback(request)
        self._drafts.check_role(request.get("RoleARN"))
        with self._tools.lock:
            self.check_updatable(stack)
            desired = self._drafts.desired(request, stack)
            evaluation = self._drafts.evaluation(desired, stack)
            if not self.planned(stack, desired, evaluation)[1]:
                raise invalid(NO_UPDATES)
            stack.role_arn = request.get("RoleARN") or stack.role_arn
            self.begin_update(stack, desired, evaluation, request.get("ClientRequestToken"))
        return {"StackId": stack.stack_id}

    def begin_update(self, stack: Stack, desired: Desired, evaluation: Evaluation, token: str | None) -> None:
        """Start updating a stack; the caller holds the lock."""
        stack.updated_at = self._tools.now()
        self._engine.start(
            stack,
            lambda operation: operation.update(desired, evaluation),
            status="UPDATE_IN_PROGRESS",
            token=token,
        )

    def planned(self, stack: Stack, desired: Desired, evaluation: Evaluation) -> tuple[list[Change], bool]:
        """Return the resource changes of an update, and whether it changes anything at all."""
        tools = self._tools
        planned_changes = changes(
            evaluation,
            stack.resources,
            tags=desired.tags,
            immutable=tools.types.immutable,
            taggable=tools.types.taggable,
        )
        outputs = outputs_after(evaluation, stack.resources, planned_changes)
        kept = stack.desired.tags if stack.desired is not None else {}
        return planned_changes, bool(planned_changes) or outputs != stack.outputs or dict(kept) != dict(
            desired.tags
        )

    def check_updatable(self, stack: Stack) -> None:
        """Refuse to update a stack in a state that does not allow it."""
        if stack.status not in _UPDATABLE:
            raise invalid(f"Stack:{stack.stack_id} is in {stack.status} state and can not be updated.")

    def delete_stack(self, request: Request) -> dict[str, Any]:
        """Answer DeleteStack."""
        stack = self._store.named(request["StackName"])
        if stack is None or stack.deleted or stack.status == "DELETE_IN_PROGRESS":
            return {}
        self._drafts.check_role(request.get("RoleARN"))
        if request.get("RetainResources"):
            raise invalid("the local CloudFormation deletes every resource; leave RetainResources out")
        token = request.get("ClientRequestToken")
        with self._tools.lock:
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
                lambda operation: operation.delete(),
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
