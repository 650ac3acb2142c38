"""What a template's values refer to, and the order that follows from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from sagemaker_local.cloudformation.errors import TemplateError

PLACEHOLDER = re.compile(r"\$\{([^}]*)\}")


@dataclass(frozen=True)
class Reference:
    """A name that a value refers to; ``attribute`` is set for Fn::GetAtt, empty text for DependsOn."""

    name: str
    attribute: str | None = None

    @property
    def is_attribute(self) -> bool:
        """Whether only a resource can be meant."""
        return self.attribute is not None


def references(node: Any, holds: Callable[[str], bool] | None = None) -> Iterator[Reference]:
    """Return every Ref, Fn::GetAtt and placeholder of Fn::Sub below a node.

    ``holds`` tells a condition's value; with it, only the branch of an Fn::If that is taken is looked at.
    """
    if isinstance(node, list):
        for item in node:
            yield from references(item, holds)
    if not isinstance(node, Mapping):
        return
    if len(node) == 1:
        ((name, argument),) = node.items()
        match name:
            case "Ref" if isinstance(argument, str):
                yield Reference(argument)
                return
            case "Fn::GetAtt":
                yield from _of_attribute(argument, holds)
                return
            case "Fn::Sub":
                yield from _of_sub(argument, holds)
                return
            case "Fn::If" if holds is not None and isinstance(argument, list) and len(argument) == 3:
                yield from references(argument[1 if holds(argument[0]) else 2], holds)
                return
    for item in node.values():
        yield from references(item, holds)


def attribute_parts(argument: Any) -> tuple[str, Any]:
    """Split the argument of Fn::GetAtt, ``[id, name]`` or ``id.name``.

    Raises:
        TemplateError: it is neither.
    """
    parts = argument.split(".", 1) if isinstance(argument, str) else argument
    if not isinstance(parts, list) or len(parts) != 2 or not isinstance(parts[0], str):
        raise TemplateError("Template error: every Fn::GetAtt object requires two non-empty parameters")
    return parts[0], parts[1]


def _of_attribute(argument: Any, holds: Callable[[str], bool] | None) -> Iterator[Reference]:
    name, attribute = attribute_parts(argument)
    yield Reference(name, attribute if isinstance(attribute, str) else "")
    yield from references(attribute, holds)


def _of_sub(argument: Any, holds: Callable[[str], bool] | None) -> Iterator[Reference]:
    text, given = argument if isinstance(argument, list) and len(argument) == 2 else (argument, {})
    if not isinstance(text, str) or not isinstance(given, Mapping):
        raise TemplateError(
            "Template error: One or more Fn::Sub intrinsic functions don't specify expected arguments. "
            "Specify a string as first argument, and an optional second argument to specify a mapping of "
            "values to replace in the string"
        )
    yield from references(given, holds)
    for name in PLACEHOLDER.findall(text):
        if not name.startswith("!") and name not in given:
            logical_id, dot, attribute = name.partition(".")
            yield Reference(logical_id, attribute) if dot else Reference(name)


def in_order(dependencies: Mapping[str, frozenset[str]]) -> list[str]:
    """Return the names in order: each after its dependencies.

    Raises:
        TemplateError: some depend on each other.
    """
    try:
        return list(TopologicalSorter(dependencies).static_order())
    except CycleError as error:
        circle = ", ".join(sorted(set(error.args[1])))
        raise TemplateError(f"Circular dependency between resources: [{circle}]") from None
