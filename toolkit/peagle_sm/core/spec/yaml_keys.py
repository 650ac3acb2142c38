"""YAML loader that rejects duplicate keys, and the line of a field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml


class UniqueKeys(yaml.SafeLoader):
    """YAML lets the last of two equal keys win in silence; a spec says each thing once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Read a mapping; raises ConstructorError at a key that is there already."""
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue  # the base class refuses it, and says where
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key.value!r} is given twice", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def line_of(text: str, field: str) -> int | None:
    """Return the line of a dotted field in YAML, or of the nearest mapping above it that the text has.

    None where the text does not name even the first part, as for a missing top-level field.
    """
    node, rest, line = yaml.compose(text, Loader=yaml.SafeLoader), field, None
    while rest and node is not None:
        found = max(_steps(node, rest), key=lambda step: len(step[0]), default=None)
        if found is None:
            break
        name, mark, node = found
        line, rest = mark.line + 1, rest[len(name) + 1 :]
    return line


def _steps(node: yaml.Node, rest: str) -> Iterator[tuple[str, yaml.Mark, yaml.Node]]:
    """Yield the children that ``rest`` may begin with: several, since names may hold dots (tags)."""
    children: list[tuple[str, yaml.Mark, yaml.Node]] = []
    if isinstance(node, yaml.MappingNode):
        children = [
            (key.value, key.start_mark, value)
            for key, value in node.value
            if isinstance(key, yaml.ScalarNode)
        ]
    elif isinstance(node, yaml.SequenceNode):
        children = [(str(index), item.start_mark, item) for index, item in enumerate(node.value)]
    return (step for step in children if rest == step[0] or rest.startswith(f"{step[0]}."))
