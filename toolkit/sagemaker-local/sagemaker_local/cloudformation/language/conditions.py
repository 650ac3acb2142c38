"""The Conditions section, and the assertions of the Rules section."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sagemaker_local.cloudformation.errors import TemplateError

Value = Callable[[Any], Any]


def truths(section: Mapping[str, Any], value: Value) -> dict[str, bool]:
    """Return every condition's value; ``value`` evaluates the expressions inside.

    Raises:
        TemplateError: a condition is malformed, unknown, or depends on itself.
    """
    values: dict[str, bool] = {}
    busy: list[str] = []

    def named(name: Any) -> bool:
        if name in busy:
            circle = ", ".join(sorted(busy[busy.index(name) :]))
            raise TemplateError(f"Template error: Circular dependency between conditions: [{circle}]")
        if name not in section:
            raise TemplateError(f"Template format error: Unresolved condition dependency {name}")
        if name not in values:
            busy.append(name)
            values[name] = is_true(section[name], value, named)
            busy.pop()
        return values[name]

    for name in section:
        named(name)
    return values


def is_true(node: Any, value: Value, named: Callable[[str], bool]) -> bool:
    """Return the value of one condition function."""
    if not isinstance(node, Mapping) or len(node) != 1:
        raise TemplateError("Template format error: Every Conditions member must be a condition function.")
    ((name, argument),) = node.items()
    match name, argument:
        case "Condition", str():
            return named(argument)
        case "Fn::Not", [one]:
            return not is_true(one, value, named)
        case "Fn::And", [_, _, *_]:
            return all([is_true(each, value, named) for each in argument])
        case "Fn::Or", [_, _, *_]:
            return any([is_true(each, value, named) for each in argument])
        case "Fn::Equals", [left, right]:
            return bool(_comparable(value(left)) == _comparable(value(right)))
        case "Fn::Contains", [items, item]:
            return _comparable(value(item)) in _comparable_list(value(items))
    raise TemplateError(f"Template format error: {name} is no condition function, or has wrong arguments")


def _comparable(value: Any) -> Any:
    """Compare as CloudFormation does: scalars by their text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _comparable_list(value: Any) -> list[Any]:
    return [_comparable(item) for item in (value if isinstance(value, list) else [value])]


def check_rules(section: Mapping[str, Any], value: Value) -> None:
    """Check the Rules section against the parameters.

    Raises:
        TemplateError: an assertion does not hold.
    """

    def no_condition(name: str) -> bool:
        raise TemplateError(f"Template format error: a rule cannot refer to the condition {name}")

    for name, rule in section.items():
        applies = rule.get("RuleCondition")
        if applies is not None and not is_true(applies, value, no_condition):
            continue
        for each in rule.get("Assertions", []):
            if not is_true(each["Assert"], value, no_condition):
                description = each.get("AssertDescription", name)
                raise TemplateError(f"Rule Violation: {name}, Assertion: {description}")
