"""Operations on a whole stack. Each function blocks until the stack's status is final."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from threading import Event

from sagemaker_local.cloudformation import graph
from sagemaker_local.cloudformation.errors import TemplateError
from sagemaker_local.cloudformation.language.evaluation import Evaluation, Output
from sagemaker_local.cloudformation.planning import changes
from sagemaker_local.cloudformation.stack import Desired, Resource, Snapshot, Stack
from sagemaker_local.cloudformation.tools import Tools
from sagemaker_local.cloudformation.work import Live, Work

# CloudFormation tries so often to delete what an update left over, and then gives it up.
_CLEANUP_ATTEMPTS = 3
_CLEANUP_PAUSE_S = 0.5

# Checks a stack's new outputs against what other stacks export and import; says what is wrong, or None.
CheckExports = Callable[[Stack, Iterable[Output]], str | None]


@dataclass
class Operation:
    """One operation on one stack: its caller, and whether it was cancelled."""

    tools: Tools
    stack: Stack
    token: str | None
    check_exports: CheckExports
    cancelled: Event = field(default_factory=Event)

    def move(self, status: str, reason: str | None = None) -> None:
        """Change the stack's status."""
        with self.tools.lock:
            self.stack.move(status, reason, self.token)

    def work(self) -> Work:
        """Begin a piece of work on resources."""
        return Work(self.tools, self.stack, self.token)

    def create(self, desired: Desired, evaluation: Evaluation) -> None:
        """Create a stack's resources; if that fails, delete them again."""
        wrong = self._forward(desired, evaluation, self.work(), "create")
        if self.cancelled.is_set():
            return  # somebody deletes the stack
        if wrong is None:
            self.move("CREATE_COMPLETE")
        else:
            self.move("ROLLBACK_IN_PROGRESS", f"{wrong}. Rollback requested by user.")
            # The stack stays, empty.
            self._take_down("ROLLBACK_COMPLETE", "ROLLBACK_FAILED")

    def update(self, desired: Desired, evaluation: Evaluation) -> None:
        """Update a stack, or roll it back if that fails."""
        stack = self.stack
        before = stack.snapshot()
        work = self.work()
        wrong = self._forward(desired, evaluation, work, "update")
        if wrong is None:
            self.move("UPDATE_COMPLETE_CLEANUP_IN_PROGRESS")
            gone = [each for name, each in stack.resources.items() if name not in evaluation.active]
            with self.tools.lock:
                for each in gone:
                    del stack.resources[each.logical_id]
            self._clean_up(
                work,
                [(each, each.update_replace_policy) for each in work.leftovers]
                + [(each, each.deletion_policy) for each in gone],
            )
            self.move("UPDATE_COMPLETE")
        else:
            self.move("UPDATE_ROLLBACK_IN_PROGRESS", wrong)
            self._roll_update_back(before)

    def _roll_update_back(self, before: Snapshot) -> None:
        """Restore what an update changed."""
        stack = self.stack
        work = self.work()
        names = {**dict.fromkeys(before.resources), **dict.fromkeys(stack.resources)}
        needs = {
            name: before.resources[name].dependencies if name in before.resources else frozenset()
            for name in names
        }
        outcome = graph.run(
            needs, lambda name: work.restore(name, before.resources.get(name)), stop_at_failure=False
        )
        if not outcome.complete:
            failed = ", ".join(sorted(outcome.failed))
            self.move("UPDATE_ROLLBACK_FAILED", f"The following resource(s) failed to update: [{failed}]. ")
            return
        self.move("UPDATE_ROLLBACK_COMPLETE_CLEANUP_IN_PROGRESS")
        self._clean_up(work, [(each, "Delete") for each in work.leftovers])
        with self.tools.lock:
            stack.desired, stack.outputs, stack.imports = before.desired, before.outputs, before.imports
        self.move("UPDATE_ROLLBACK_COMPLETE")

    def delete(self) -> None:
        """Delete a stack."""
        self._take_down("DELETE_COMPLETE", "DELETE_FAILED")

    def _forward(self, desired: Desired, evaluation: Evaluation, work: Work, verb: str) -> str | None:
        """Update every resource; return the reason if that fails."""
        tools, stack = self.tools, self.stack
        try:
            changes(
                evaluation,
                stack.resources,
                tags=desired.tags,
                immutable=tools.types.immutable,
                taggable=tools.types.taggable,
            )
        except TemplateError as error:
            return str(error)
        with tools.lock:
            stack.desired = desired
            stack.imports = stack.imports | evaluation.imports
        outcome = graph.run(
            evaluation.dependencies,
            lambda name: work.bring(evaluation, name, desired.tags),
            may_begin=lambda: not self.cancelled.is_set(),
        )
        if not outcome.complete:
            failed = ", ".join(sorted(outcome.failed))
            return f"The following resource(s) failed to {verb}: [{failed}]"
        return self._settle(evaluation)

    def _settle(self, evaluation: Evaluation) -> str | None:
        """Evaluate the outputs and publish the exports; return the reason if that fails."""
        try:
            outputs = evaluation.outputs(Live(self.stack))
        except TemplateError as error:
            return str(error)
        with self.tools.lock:
            wrong = self.check_exports(self.stack, outputs)
            if wrong is None:
                self.stack.outputs = tuple(outputs)
                self.stack.imports = frozenset(evaluation.imports)
        return wrong

    def _clean_up(self, work: Work, leftovers: list[tuple[Resource, str]]) -> None:
        """Delete what the stack no longer lists; a failed deletion is skipped, as in AWS."""
        by_number = {str(number): pair for number, pair in enumerate(leftovers)}

        def remove(number: str) -> bool:
            resource, policy = by_number[number]
            for attempt in range(_CLEANUP_ATTEMPTS):
                if attempt:
                    self.tools.pause(_CLEANUP_PAUSE_S)
                if work.remove(resource, policy=policy, owned=False):
                    return True
            return False

        resources = {number: resource for number, (resource, _) in by_number.items()}
        graph.run(_taking_down(resources), remove, stop_at_failure=False)

    def _take_down(self, well: str, badly: str) -> None:
        """Delete every resource of the stack, dependent resources first."""
        stack, work = self.stack, self.work()
        resources = dict(stack.resources)

        def remove(name: str) -> bool:
            return work.remove(resources[name], policy=resources[name].deletion_policy, owned=True)

        outcome = graph.run(_taking_down(resources), remove, stop_at_failure=False)
        if not outcome.complete:
            failed = ", ".join(sorted(outcome.failed))
            self.move(badly, f"The following resource(s) failed to delete: [{failed}]. ")
            return
        with self.tools.lock:
            stack.outputs, stack.imports = (), frozenset()
            if well == "DELETE_COMPLETE":
                stack.deleted_at = self.tools.now()
        self.move(well)


def _taking_down(resources: Mapping[str, Resource]) -> dict[str, frozenset[str]]:
    """Return, for each key, the resources that must be deleted before it: those that depend on it."""
    return {
        key: frozenset(
            other
            for other, standing in resources.items()
            if other != key and resource.logical_id in standing.dependencies
        )
        for key, resource in resources.items()
    }
