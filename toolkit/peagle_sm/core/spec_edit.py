"""Writes fields into a spec as text: nothing else of the file changes, comments least of all. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import yaml

from peagle_sm.core.errors import SpecError
from peagle_sm.core.spec import parse_spec


def set_fields(text: str, fields: Mapping[str, str], origin: str = "spec") -> str:
    """Return the file's text with fields set, by their dotted names (two levels at most).

    Raises:
        SpecError: the text is no spec, a field's place cannot be found, or the result is not acceptable.
    """
    parse_spec(text, origin)
    for name, value in fields.items():
        text = _set(text, name.split("."), _scalar(value))
    data = yaml.safe_load(text)
    for name, value in fields.items():
        if _get(data, name.split(".")) != value:
            raise SpecError(
                f"{origin}: the place of {name} could not be found in its text",
                next_step=f"write it there yourself: {name}: {value}",
            )
    parse_spec(text, origin)
    return text


def _get(data: object, path: list[str]) -> object:
    for key in path:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _scalar(value: str) -> str:
    """A plain scalar where YAML reads it back as it is, within braces too, else a quoted one."""
    text = yaml.safe_dump([value], width=10_000, allow_unicode=True, default_flow_style=True)
    return text.rstrip("\n").removeprefix("[").removesuffix("]")


def _set(text: str, path: list[str], value: str) -> str:
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)  # it was read as a spec
    lines = text.split("\n")
    found = _child(root, path[0])
    if len(path) == 1:
        return _replace(lines, found[1], value) if found else _append(lines, [f"{path[0]}: {value}"])
    if found is None:
        return _append(lines, [f"{path[0]}:", f"  {path[1]}: {value}"])
    assert isinstance(found[1], yaml.MappingNode)  # a spec's part has fields
    inner = _child(found[1], path[1])
    if inner is not None:
        return _replace(lines, inner[1], value)
    return _into(lines, found[1], path[1], value)


def _child(node: yaml.MappingNode, key: str) -> tuple[yaml.Node, yaml.Node] | None:
    return next(((name, value) for name, value in node.value if name.value == key), None)


def _replace(lines: list[str], node: yaml.Node, value: str) -> str:
    start, end = node.start_mark, node.end_mark
    if start.line == end.line:
        row = lines[start.line]
        blank = " " if start.column and row[: start.column].endswith(":") else ""
        lines[start.line] = row[: start.column] + blank + value + row[end.column :]
    return "\n".join(lines)


def _append(lines: list[str], new: list[str]) -> str:
    while lines and not lines[-1].strip():
        lines.pop()
    return "\n".join([*lines, *new, ""])


def _into(lines: list[str], node: yaml.MappingNode, key: str, value: str) -> str:
    if node.flow_style:
        end = node.end_mark
        row = lines[end.line]
        inside = row[: end.column - 1].rstrip()
        comma = "" if inside.endswith(("{", ",")) else ","
        lines[end.line] = f"{inside}{comma} {key}: {value}{row[end.column - 1 :]}"
        return "\n".join(lines)
    first, last = node.value[0][0].start_mark, node.value[-1][1]
    line = last.end_mark.line if isinstance(last, yaml.ScalarNode) else last.end_mark.line - 1
    return "\n".join([*lines[: line + 1], " " * first.column + f"{key}: {value}", *lines[line + 1 :]])
