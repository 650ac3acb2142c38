"""The work on single resources within one operation on a stack: make, change, replace, restore, delete."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sagemaker_local.cloudformation.errors import Interrupted, TemplateError
from sagemaker_local.cloudformation.language.evaluation import Evaluation
from sagemaker_local.cloudformation.language.template import Definition
from sagemaker_local.cloudformation.planning import changed_properties, replaces
from sagemaker_local.cloudformation.resources.base import Created, Handler, ResourceContext, ResourceFailure
from sagemaker_local.cloudformation.stack import Resource, Stack, with_status
from sagemaker_local.cloudformation.tools import Tools

log = logging.getLogger(__name__)

_REPLACING = "Requested update requires the creation of a new physical resource; hence creating one."


class Live:
    """Current resources."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack

    def physical_id(self, logical_id: str) -> str:
        """Return what Ref returns."""
        return str(self._found(logical_id).physical_id)

    def attribute(self, logical_id: str, attribute: str) -> Any:
        """Return what Fn::GetAtt returns."""
        return self._found(logical_id).attribute(attribute)

    def _found(self, logical_id: str) -> Resource:
        resource = self._stack.stand(logical_id)
        if resource is None:
            raise TemplateError(f"Template error: resource {logical_id} has not been created")
        return resource


class Work:
    """Works on a stack's resources. Each method blocks and may be called from several threads at once."""

    def __init__(self, tools: Tools, stack: Stack, token: str | None) -> None:
        self._tools = tools
        self._stack = stack
        self._token = token
        self._request_id = str(uuid.uuid4())
        self.leftovers: list[Resource] = []

    def bring(self, evaluation: Evaluation, logical_id: str, tags: Mapping[str, str]) -> bool:
        """Create or update a resource as in the template; return whether that succeeded."""
        wanted = evaluation.active[logical_id]
        current = self._stack.stand(logical_id)
        target = self._target(evaluation, wanted, tags, current)
        try:
            new = evaluation.properties(logical_id, Live(self._stack))
            wrong = self._tools.types.wrong_property(wanted.type_name, new)
        except TemplateError as error:
            wrong = str(error)
        if wrong is not None:
            self._put(target, "CREATE_FAILED" if current is None else "UPDATE_FAILED", wrong)
            return False
        target = replace(target, properties=new)
        if current is None:
            return self._make(target)
        details = changed_properties(current.properties, new, self._tools.types.immutable(current.type_name))
        if replaces(details):
            return self._replace(current, target)
        if details or current.unsure or self._tags_changed(current, target):
            return self._change(current, target)
        with self._tools.lock:
            self._stack.put(replace(target, updated_at=current.updated_at), shown=False)
        return True

    def _target(
        self, evaluation: Evaluation, wanted: Definition, tags: Mapping[str, str], current: Resource | None
    ) -> Resource:
        base = current or Resource(
            wanted.logical_id, wanted.type_name, None, "CREATE_IN_PROGRESS", self._tools.now()
        )
        return replace(
            base,
            metadata=wanted.metadata,
            deletion_policy=wanted.deletion_policy,
            update_replace_policy=wanted.update_replace_policy,
            dependencies=evaluation.dependencies[wanted.logical_id],
            tags=dict(tags),
        )

    def _tags_changed(self, current: Resource, target: Resource) -> bool:
        return self._tools.types.taggable(current.type_name) and dict(current.tags) != dict(target.tags)

    def _make(self, target: Resource) -> bool:
        self._put(target, "CREATE_IN_PROGRESS")
        try:
            created = self._handler(target).create(
                self._context(target), target.logical_id, dict(target.properties)
            )
        except Exception as error:
            physical_id = getattr(
                error, "physical_id", None
            )  # of something half made, which a rollback takes down
            self._put(replace(target, physical_id=physical_id), "CREATE_FAILED", _reason(error))
            return False
        target = _made(target, created)
        self._put(target, "CREATE_IN_PROGRESS", "Resource creation Initiated")
        self._put(target, "CREATE_COMPLETE")
        return True

    def _replace(self, current: Resource, target: Resource) -> bool:
        self._put(current, "UPDATE_IN_PROGRESS", _REPLACING)
        try:
            created = self._handler(target).create(
                self._context(target), target.logical_id, dict(target.properties)
            )
        except Exception as error:
            self._put(current, "UPDATE_FAILED", _reason(error))
            return False
        self.leftovers.append(current)
        target = _made(target, created)
        self._put(target, "UPDATE_IN_PROGRESS", "Resource creation Initiated")
        self._put(target, "UPDATE_COMPLETE")
        return True

    def _change(self, current: Resource, target: Resource) -> bool:
        self._put(current, "UPDATE_IN_PROGRESS")
        try:
            changed = self._handler(target).update(
                self._context(target),
                str(current.physical_id),
                dict(current.properties),
                dict(target.properties),
            )
        except Exception as error:
            self._put(replace(target, unsure=True), "UPDATE_FAILED", _reason(error))
            return False
        if changed.physical_id != current.physical_id:
            self.leftovers.append(current)
        self._put(_made(target, changed), "UPDATE_COMPLETE")
        return True

    def restore(self, logical_id: str, before: Resource | None) -> bool:
        """Restore a resource to its state before the update; return whether that succeeded."""
        current = self._stack.resources.get(logical_id)
        if before is None or before.physical_id is None:
            with self._tools.lock:
                self._stack.resources.pop(logical_id, None)
            if current is not None and current.physical_id is not None:
                self.leftovers.append(current)
            return True
        if current is None or current == before:
            return True
        if current.physical_id != before.physical_id:
            self.leftovers.append(current)
            self._put(before, "UPDATE_COMPLETE")
            return True
        same = current.properties == before.properties and current.tags == before.tags
        if same and not current.unsure:
            with self._tools.lock:
                self._stack.put(before, shown=False)
            return True
        return self._change(current, before)

    def remove(self, resource: Resource, *, policy: str, owned: bool) -> bool:
        """Delete a resource unless its policy keeps it; ``owned`` says that the stack still lists it."""
        if resource.physical_id is None or policy == "Retain":
            self._gone(resource, owned, None if resource.physical_id is None else "DELETE_SKIPPED")
            return True
        self._tell(resource, "DELETE_IN_PROGRESS", None, owned)
        try:
            handler = self._handler(resource)
            handler.delete(self._context(resource), resource.physical_id, dict(resource.properties))
        except Exception as error:
            self._tell(resource, "DELETE_FAILED", _reason(error), owned)
            return False
        self._gone(resource, owned, "DELETE_COMPLETE")
        return True

    def _gone(self, resource: Resource, owned: bool, status: str | None) -> None:
        with self._tools.lock:
            if status is not None:
                self._stack.tell_of(resource, status, None, self._token)
            if owned:
                self._stack.resources.pop(resource.logical_id, None)

    def _tell(self, resource: Resource, status: str, reason: str | None, owned: bool) -> None:
        with self._tools.lock:
            if owned:
                self._stack.put(with_status(resource, status, self._tools.now(), reason), self._token)
            else:
                self._stack.tell_of(resource, status, reason, self._token)

    def _put(self, resource: Resource, status: str, reason: str | None = None) -> None:
        with self._tools.lock:
            self._stack.put(with_status(resource, status, self._tools.now(), reason), self._token)

    def _handler(self, resource: Resource) -> Handler:
        handler = self._tools.types.handler(resource.type_name)
        if handler is None:
            raise ResourceFailure(f"Unrecognized resource type: {resource.type_name}")
        return handler

    def _context(self, resource: Resource) -> ResourceContext:
        return ResourceContext(
            account=self._tools.account,
            region=self._tools.region,
            stack_name=self._stack.name,
            stack_id=self._stack.stack_id,
            logical_id=resource.logical_id,
            request_id=self._request_id,
            client=self._tools.client,
            pause=self._tools.pause,
            partition=self._tools.partition,
            role_arn=self._stack.role_arn,
            tags=dict(resource.tags),
        )


def _made(target: Resource, created: Created) -> Resource:
    return replace(target, physical_id=created.physical_id, attributes=dict(created.attributes), unsure=False)


def _reason(error: Exception) -> str:
    """Return the failure's reason; re-raise the server's shutdown."""
    if isinstance(error, Interrupted):
        raise error
    if isinstance(error, ResourceFailure):
        return error.reason
    log.exception("a resource handler failed", exc_info=error)
    return f"Internal Failure: {type(error).__name__}: {error}"
