"""A template evaluated with parameters: its resources, their order and their properties."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from sagemaker_local.cloudformation.errors import TemplateError
from sagemaker_local.cloudformation.language.conditions import check_rules, truths
from sagemaker_local.cloudformation.language.intrinsics import NO_VALUE, evaluate
from sagemaker_local.cloudformation.language.parameters import Bound
from sagemaker_local.cloudformation.language.references import in_order, references
from sagemaker_local.cloudformation.language.template import Definition, Template

_ZONES = "abc"


@dataclass(frozen=True)
class Place:
    """Values of the pseudo parameters."""

    account: str
    region: str
    stack_name: str
    stack_id: str
    partition: str = "aws"
    notification_arns: tuple[str, ...] = ()

    def pseudo(self) -> dict[str, Any]:
        """Return the pseudo parameters."""
        return {
            "AWS::AccountId": self.account,
            "AWS::NoValue": NO_VALUE,
            "AWS::NotificationARNs": list(self.notification_arns),
            "AWS::Partition": self.partition,
            "AWS::Region": self.region,
            "AWS::StackId": self.stack_id,
            "AWS::StackName": self.stack_name,
            "AWS::URLSuffix": "amazonaws.com",
        }


class Standing(Protocol):
    """What is known of resources while a template is evaluated."""

    def physical_id(self, logical_id: str) -> Any:
        """Return what Ref returns, or UNKNOWN."""

    def attribute(self, logical_id: str, attribute: str) -> Any:
        """Return what Fn::GetAtt returns, or UNKNOWN."""


class Nothing:
    """No resources: conditions and rules depend only on parameters."""

    def physical_id(self, logical_id: str) -> Any:
        """Refuse."""
        raise TemplateError(
            f"Template format error: {logical_id} is a resource; only parameters can stand here"
        )

    def attribute(self, logical_id: str, attribute: str) -> Any:
        """Refuse."""
        return self.physical_id(logical_id)


@dataclass(frozen=True)
class Output:
    """One evaluated output."""

    key: str
    value: str
    description: str | None = None
    export: str | None = None


class Evaluation:
    """A template under given parameters. Cheap to keep: resources' values are evaluated when asked for."""

    def __init__(
        self, template: Template, bound: Bound, place: Place, exports: Callable[[], Mapping[str, str]]
    ) -> None:
        """Evaluate conditions and rules; ``exports`` gives every exported value of the region.

        Raises:
            TemplateError: a rule is broken, a condition is malformed, or resources depend on each other.
        """
        self.template = template
        self.bound = bound
        self.place = place
        self.imports: set[str] = set()
        self._exports = exports
        constants = _Scope(self, Nothing())
        check_rules(template.section("Rules"), lambda node: evaluate(node, constants))
        self.conditions = truths(template.section("Conditions"), lambda node: evaluate(node, constants))
        self.order = in_order(self.dependencies)

    @cached_property
    def active(self) -> dict[str, Definition]:
        """Desired resources."""
        return {
            name: each
            for name, each in self.template.resources.items()
            if each.condition is None or self.conditions[each.condition]
        }

    @cached_property
    def dependencies(self) -> dict[str, frozenset[str]]:
        """Dependencies of each resource."""
        dependencies = {}
        for name, each in self.active.items():
            needs = {ref.name for ref in references(each.properties, self.holds)} | set(each.depends_on)
            dependencies[name] = frozenset(needs & self.active.keys())
        return dependencies

    def holds(self, condition: str) -> bool:
        """Return a condition's value."""
        if condition not in self.conditions:
            raise TemplateError(f"Template error: unresolved condition dependency: {condition}")
        return self.conditions[condition]

    def properties(self, logical_id: str, standing: Standing) -> dict[str, Any]:
        """Evaluate a resource's properties.

        Raises:
            TemplateError: a function or a name is wrong.
        """
        return dict(evaluate(self.active[logical_id].properties, _Scope(self, standing)))

    def outputs(self, standing: Standing) -> list[Output]:
        """Evaluate the outputs whose condition holds.

        Raises:
            TemplateError: a function or a name is wrong.
        """
        scope = _Scope(self, standing)
        evaluated = []
        for key, raw in self.template.section("Outputs").items():
            if raw.get("Condition") is not None and not self.holds(raw["Condition"]):
                continue
            value = evaluate(raw.get("Value"), scope)
            name = evaluate((raw.get("Export") or {}).get("Name"), scope)
            evaluated.append(Output(key, _output_text(key, value), raw.get("Description"), name))
        return evaluated

    def imported(self, export: str) -> str:
        """Return another stack's exported value and record that this stack imports it."""
        every = self._exports()
        if export not in every:
            raise TemplateError(f"No export named {export} found")
        self.imports.add(export)
        return every[export]


class _Scope:
    """What names mean in one evaluation."""

    def __init__(self, evaluation: Evaluation, standing: Standing) -> None:
        self._evaluation = evaluation
        self._standing = standing
        self._pseudo = evaluation.place.pseudo()

    def ref(self, name: str) -> Any:
        if name in self._pseudo:
            return self._pseudo[name]
        if name in self._evaluation.bound.values:
            return self._evaluation.bound.values[name]
        return self._standing.physical_id(self._there(name))

    def attribute(self, logical_id: str, attribute: str) -> Any:
        return self._standing.attribute(self._there(logical_id), attribute)

    def holds(self, condition: str) -> bool:
        return self._evaluation.holds(condition)

    def mapped(self, mapping: str, first: str, second: str) -> Any:
        table = self._evaluation.template.section("Mappings").get(mapping)
        if table is None:
            raise TemplateError(f"Template error: Mapping named '{mapping}' is not present in the template")
        if first not in table or second not in table[first]:
            raise TemplateError(f"Template error: Unable to get mapping for {mapping}::{first}::{second}")
        return table[first][second]

    def imported(self, export: str) -> Any:
        return self._evaluation.imported(export)

    def zones(self, region: str) -> list[str]:
        return [f"{region or self._evaluation.place.region}{letter}" for letter in _ZONES]

    def _there(self, logical_id: str) -> str:
        if isinstance(self._standing, Nothing) or logical_id in self._evaluation.active:
            return logical_id
        raise TemplateError(
            f"Template format error: Unresolved resource dependencies [{logical_id}] in the Resources block "
            "of the template"
        )


def _output_text(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping | list) or value is None or value is NO_VALUE:
        raise TemplateError(
            f"Template format error: The Value field of every Outputs member must evaluate to a String, "
            f"found {value!r} for {key}."
        )
    return str(value)
