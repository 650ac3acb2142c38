"""Every stack of the account and region, and what they export to each other."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import NamedTuple

from sagemaker_local.cloudformation.errors import no_such_stack
from sagemaker_local.cloudformation.language.evaluation import Output
from sagemaker_local.cloudformation.stack import Stack
from sagemaker_local.cloudformation.tools import Tools


class Export(NamedTuple):
    """One exported output."""

    name: str
    value: str
    stack: Stack


class Store:
    """Stacks by id. These methods take the tools' lock themselves."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._stacks: dict[str, Stack] = {}

    def add(self, name: str, status: str) -> Stack:
        """Add a new stack."""
        tools = self._tools
        arn = f"arn:{tools.partition}:cloudformation:{tools.region}:{tools.account}"
        stack_id = f"{arn}:stack/{name}/{uuid.uuid4()}"
        stack = Stack(name, stack_id, tools.now(), status, tools.now)
        with tools.lock:
            self._stacks[stack_id] = stack
        return stack

    def forget(self, stack: Stack) -> None:
        """Remove a stack that was never created."""
        with self._tools.lock:
            self._stacks.pop(stack.stack_id, None)

    def all(self) -> list[Stack]:
        """Return every stack, also deleted ones, newest first."""
        with self._tools.lock:
            return list(reversed(self._stacks.values()))

    def named(self, name: str) -> Stack | None:
        """Find a stack by its id, or a stack that is not deleted by its name."""
        with self._tools.lock:
            if name in self._stacks:
                return self._stacks[name]
            living = (each for each in self._stacks.values() if not each.deleted)
            return next((each for each in living if each.name == name), None)

    def get(self, name: str) -> Stack:
        """Find a stack by name or id.

        Raises:
            ApiError: there is none.
        """
        stack = self.named(name)
        if stack is None:
            raise no_such_stack(name)
        return stack

    def exports(self) -> list[Export]:
        """Return every export."""
        with self._tools.lock:
            return [
                Export(output.export, output.value, stack)
                for stack in self._stacks.values()
                if not stack.deleted
                for output in stack.outputs
                if output.export is not None
            ]

    def export_values(self) -> dict[str, str]:
        """Return every exported value by its name."""
        return {each.name: each.value for each in self.exports()}

    def importers(self, export: str) -> list[str]:
        """Return the names of the stacks that use an export."""
        with self._tools.lock:
            return [
                each.name for each in self._stacks.values() if not each.deleted and export in each.imports
            ]

    def wrong_exports(self, stack: Stack, outputs: Iterable[Output]) -> str | None:
        """Return why a stack cannot have these outputs, or None."""
        new = {output.export: output.value for output in outputs if output.export is not None}
        for each in self.exports():
            if each.stack is not stack:
                if each.name in new:
                    return f"Export with name {each.name} is already exported by stack {each.stack.name}"
                continue
            users = self.importers(each.name)
            if users and each.name not in new:
                return f"Export {each.name} cannot be deleted as it is in use by {' and '.join(users)}"
            if users and new[each.name] != each.value:
                return f"Export {each.name} cannot be updated as it is in use by {' and '.join(users)}"
        return None
