"""Changes of an update: compares desired with current resources, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sagemaker_local.cloudformation.errors import TemplateError
from sagemaker_local.cloudformation.language.evaluation import Evaluation
from sagemaker_local.cloudformation.language.intrinsics import UNKNOWN, holds_unknown
from sagemaker_local.cloudformation.language.template import Definition
from sagemaker_local.cloudformation.stack import Change, PropertyChange, Resource, is_custom

# Top-level properties of a type whose change replaces the resource.
Immutable = Callable[[str], frozenset[str]]


def changed_properties(
    old: Mapping[str, Any], new: Mapping[str, Any], immutable: frozenset[str]
) -> tuple[PropertyChange, ...]:
    """Compare properties; the recreation of each is Always or Never."""
    changed = []
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        dynamic = holds_unknown(after)
        if dynamic or before != after or (name in old) != (name in new):
            recreation = "Always" if name in immutable else "Never"
            changed.append(PropertyChange(name, before, after, recreation, dynamic))
    return tuple(changed)


def replaces(changes: tuple[PropertyChange, ...]) -> bool:
    """Return whether changed properties require replacement, if all values are known."""
    return any(change.recreation == "Always" for change in changes)


def other_scopes(
    resource: Resource, wanted: Definition, tags: Mapping[str, str], taggable: bool
) -> list[str]:
    """Return the changed members other than Properties."""
    scopes = []
    if resource.metadata != wanted.metadata:
        scopes.append("Metadata")
    if resource.deletion_policy != wanted.deletion_policy:
        scopes.append("DeletionPolicy")
    if resource.update_replace_policy != wanted.update_replace_policy:
        scopes.append("UpdateReplacePolicy")
    if taggable and dict(resource.tags) != dict(tags):
        scopes.append("Tags")
    return scopes


@dataclass
class _Forecast:
    """Resources after the update, as far as they are known before it."""

    standing: Mapping[str, Resource]
    changed: dict[str, Change] = field(default_factory=dict)

    def physical_id(self, logical_id: str) -> Any:
        resource = self.standing.get(logical_id)
        change = self.changed.get(logical_id)
        if resource is None or resource.physical_id is None:
            return UNKNOWN
        moves = change is not None and (change.replacement != "False" or is_custom(resource.type_name))
        return UNKNOWN if moves else resource.physical_id

    def attribute(self, logical_id: str, attribute: str) -> Any:
        resource = self.standing.get(logical_id)
        if resource is None or self.physical_id(logical_id) is UNKNOWN:
            return UNKNOWN
        change = self.changed.get(logical_id)
        moves = change is not None and "Properties" in change.scope and not attribute.endswith("Arn")
        return UNKNOWN if moves else resource.attribute(attribute)


def changes(
    evaluation: Evaluation,
    standing: Mapping[str, Resource],
    *,
    tags: Mapping[str, str],
    immutable: Immutable,
    taggable: Callable[[str], bool],
) -> list[Change]:
    """Return each resource's change; additions and modifications are in execution order.

    Raises:
        TemplateError: a value cannot be evaluated, or a resource would change its type.
    """
    _refuse_other_types(evaluation, standing)
    forecast = _Forecast(standing)
    for name in evaluation.order:
        wanted, resource = evaluation.active[name], standing.get(name)
        new = evaluation.properties(name, forecast)
        if resource is None or resource.physical_id is None:
            forecast.changed[name] = Change("Add", name, wanted.type_name, after=new)
            continue
        details = changed_properties(resource.properties, new, immutable(resource.type_name))
        scopes = (["Properties"] if details else []) + other_scopes(
            resource, wanted, tags, taggable(resource.type_name)
        )
        if scopes:
            forecast.changed[name] = _modified(resource, details, tuple(scopes), new)
    removed = [
        Change(
            "Remove",
            name,
            each.type_name,
            each.physical_id,
            before=each.properties,
            policy=each.deletion_policy,
        )
        for name, each in standing.items()
        if name not in evaluation.active and each.physical_id is not None
    ]
    return [*forecast.changed.values(), *removed]


def outputs_after(
    evaluation: Evaluation, standing: Mapping[str, Resource], planned: list[Change]
) -> tuple[Any, ...]:
    """Return the outputs, as far as they are known before the deployment.

    Raises:
        TemplateError: one cannot be evaluated.
    """
    return tuple(evaluation.outputs(_Forecast(standing, {each.logical_id: each for each in planned})))


def _modified(
    resource: Resource, details: tuple[PropertyChange, ...], scopes: tuple[str, ...], new: Mapping[str, Any]
) -> Change:
    always = [each for each in details if each.recreation == "Always"]
    replacement = "False" if not always else "Conditional" if all(each.dynamic for each in always) else "True"
    return Change(
        "Modify",
        resource.logical_id,
        resource.type_name,
        resource.physical_id,
        replacement,
        scopes,
        details,
        before=resource.properties,
        after=new,
        policy=resource.update_replace_policy,
    )


def _refuse_other_types(evaluation: Evaluation, standing: Mapping[str, Resource]) -> None:
    moved = sorted(
        name
        for name, wanted in evaluation.active.items()
        if name in standing and standing[name].type_name != wanted.type_name
    )
    if moved:
        raise TemplateError(
            "Update of resource type is not permitted. The new template modifies resource type of the "
            f"following resources: [{', '.join(moved)}]"
        )
