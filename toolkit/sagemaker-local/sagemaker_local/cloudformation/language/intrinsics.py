"""CloudFormation's functions: a template's value becomes a plain one.

UNKNOWN is a value known only after the deployment (a generated name); a value built
from it is UNKNOWN too. A property with NO_VALUE is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from sagemaker_local.cloudformation.errors import TemplateError
from sagemaker_local.cloudformation.language.references import PLACEHOLDER, attribute_parts


class _Marker:
    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


NO_VALUE = _Marker("AWS::NoValue")
UNKNOWN = _Marker("{{changeSet:KNOWN_AFTER_APPLY}}")


class _IsUnknown(Exception):
    """A function met UNKNOWN where it needs a value."""


class Scope(Protocol):
    """What names mean. Every method may raise TemplateError."""

    def ref(self, name: str) -> Any:
        """Return what Ref returns for a parameter, a pseudo parameter or a resource."""

    def attribute(self, logical_id: str, attribute: str) -> Any:
        """Return a resource's attribute."""

    def holds(self, condition: str) -> bool:
        """Return a condition's value."""

    def mapped(self, mapping: str, first: str, second: str) -> Any:
        """Return a value of the Mappings section."""

    def imported(self, export: str) -> Any:
        """Return another stack's exported value."""


def evaluate(node: Any, scope: Scope) -> Any:
    """Evaluate a value and everything in it.

    Raises:
        TemplateError: a function has wrong arguments, or a name means nothing.
    """
    if isinstance(node, list):
        return [value for item in node if (value := evaluate(item, scope)) is not NO_VALUE]
    if not isinstance(node, Mapping):
        return node
    if len(node) == 1:
        ((name, argument),) = node.items()
        if name == "Ref" or name.startswith("Fn::"):
            return _call(name, argument, scope)
    pairs = ((name, evaluate(item, scope)) for name, item in node.items())
    return {name: value for name, value in pairs if value is not NO_VALUE}


def holds_unknown(value: Any) -> bool:
    """Return whether a value is, or contains, UNKNOWN."""
    if isinstance(value, Mapping):
        return any(holds_unknown(item) for item in value.values())
    if isinstance(value, list):
        return any(holds_unknown(item) for item in value)
    return value is UNKNOWN


def as_text(value: Any) -> str:
    """Return a value as text to be inserted into a longer text.

    Raises:
        TemplateError: it is a list or an object.
    """
    if value is UNKNOWN:
        raise _IsUnknown
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise TemplateError(f"Template error: expected a string, found {type(value).__name__}: {value!r}")


def _call(name: str, argument: Any, scope: Scope) -> Any:
    function = _FUNCTIONS.get(name)
    if function is None:
        raise TemplateError(
            f"Template format error: {name} is not a function that the local CloudFormation has; "
            f"it has {', '.join(sorted(_FUNCTIONS))}"
        )
    try:
        return function(argument, scope)
    except _IsUnknown:
        return UNKNOWN


def _arguments(name: str, argument: Any, count: int) -> list[Any]:
    if not isinstance(argument, list) or len(argument) != count:
        raise TemplateError(f"Template error: every {name} object requires a list of {count} parameters")
    return argument


def _list(name: str, value: Any) -> list[Any]:
    if value is UNKNOWN:
        raise _IsUnknown
    if not isinstance(value, list):
        raise TemplateError(f"Template error: {name} requires a list, found {value!r}")
    return value


def _ref(argument: Any, scope: Scope) -> Any:
    if not isinstance(argument, str):
        raise TemplateError("Template format error: every Ref object must have a single String value.")
    return scope.ref(argument)


def _get_att(argument: Any, scope: Scope) -> Any:
    logical_id, attribute = attribute_parts(argument)
    return scope.attribute(logical_id, as_text(evaluate(attribute, scope)))


def _sub(argument: Any, scope: Scope) -> Any:
    text, given = argument if isinstance(argument, list) else (argument, {})
    values = evaluate(given, scope)

    def put_in(name: str) -> str:
        if name.startswith("!"):
            return f"${{{name[1:]}}}"
        if name in values:
            return as_text(values[name])
        logical_id, dot, attribute = name.partition(".")
        return as_text(scope.attribute(logical_id, attribute) if dot else scope.ref(name))

    return PLACEHOLDER.sub(lambda match: put_in(match[1]), text)


def _join(argument: Any, scope: Scope) -> Any:
    between, items = _arguments("Fn::Join", argument, 2)
    return as_text(between).join(as_text(item) for item in _list("Fn::Join", evaluate(items, scope)))


def _split(argument: Any, scope: Scope) -> Any:
    at, text = _arguments("Fn::Split", argument, 2)
    return as_text(evaluate(text, scope)).split(as_text(at))


def _select(argument: Any, scope: Scope) -> Any:
    number, items = _arguments("Fn::Select", argument, 2)
    choices = _list("Fn::Select", evaluate(items, scope))
    try:
        index = int(as_text(evaluate(number, scope)))
    except ValueError as error:
        raise TemplateError(f"Template error: Fn::Select requires an index, found {number!r}") from error
    if not 0 <= index < len(choices):
        raise TemplateError(f"Template error: Fn::Select cannot select nonexistent value at index {index}")
    return choices[index]


def _if(argument: Any, scope: Scope) -> Any:
    condition, then, otherwise = _arguments("Fn::If", argument, 3)
    return evaluate(then if scope.holds(condition) else otherwise, scope)


def _find_in_map(argument: Any, scope: Scope) -> Any:
    names = [as_text(evaluate(item, scope)) for item in _arguments("Fn::FindInMap", argument, 3)]
    return scope.mapped(*names)


def _import_value(argument: Any, scope: Scope) -> Any:
    return scope.imported(as_text(evaluate(argument, scope)))


_FUNCTIONS: dict[str, Callable[[Any, Scope], Any]] = {
    "Ref": _ref,
    "Fn::FindInMap": _find_in_map,
    "Fn::GetAtt": _get_att,
    "Fn::If": _if,
    "Fn::ImportValue": _import_value,
    "Fn::Join": _join,
    "Fn::Select": _select,
    "Fn::Split": _split,
    "Fn::Sub": _sub,
}
