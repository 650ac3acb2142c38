"""Editing of spec files that keeps comments, order and layout. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from peagle_sm.core.errors import SpecError
from peagle_sm.core.spec.endpoint_spec import parse_spec
from peagle_sm.core.spec.validation import to_yaml


def edit_spec(text: str, fields: Mapping[str, Any], origin: str = "spec") -> str:
    """Return a spec's text with each dotted field set, validated.

    Raises:
        SpecError: the text is not a spec, a field's place is not found, or the result is invalid.
    """
    parse_spec(text, origin)
    written = write_fields(text, fields, origin)
    parse_spec(written, origin)
    return written


def write_fields(text: str, fields: Mapping[str, Any], origin: str = "spec") -> str:
    """Return the text with each dotted field set, such as ``{"serving.env.A": "x"}``.

    A name must not have a dot; names in specs and environments have none.

    Raises:
        SpecError: a field's place is not found; the next step is the text to write by hand.
    """
    for dotted, value in fields.items():
        text = _write(text, dotted.split("."), value, origin)
    return text


def _write(text: str, path: Sequence[str], value: Any, origin: str) -> str:
    wanted = _with(yaml.safe_load(text), path, value)
    try:
        written = _edit(text, path, value)
        content = yaml.safe_load(written)
    except (yaml.YAMLError, IndexError):
        written, content = text, None
    if content != wanted:
        dotted = ".".join(path)
        raise SpecError(
            f"{origin}: no place found for {dotted} in its text",
            next_step=f"Write it into the file yourself: {dotted}: {_flow(value)}",
        )
    return written


def _with(content: Any, path: Sequence[str], value: Any) -> dict[str, Any]:
    base = dict(content) if isinstance(content, dict) else {}
    inner = value if len(path) == 1 else _with(base.get(path[0]), path[1:], value)
    return {**base, path[0]: inner}


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(each)}" for key, each in value.items()) + "}"
    if not isinstance(value, str):
        return json.dumps(value)
    # A plain scalar if YAML reads it back unchanged, also in braces, else a quoted one.
    text = to_yaml([value], width=10_000, allow_unicode=True, default_flow_style=True)
    return text.rstrip("\n").removeprefix("[").removesuffix("]")


def _edit(text: str, path: Sequence[str], value: Any) -> str:
    lines = text.split("\n")
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    rest = list(path)
    while isinstance(node, yaml.MappingNode):
        child = next((child_node for name, child_node in node.value if name.value == rest[0]), None)
        if child is None:
            return _insert(lines, node, rest, value)
        node, rest = child, rest[1:]
        if not rest:
            break
    for key in reversed(rest):  # a field without a value, such as `serving:`
        value = {key: value}
    assert node is not None  # a spec is a mapping
    return _replace(lines, node, _flow(value))


def _replace(lines: list[str], node: yaml.Node, new: str) -> str:
    start, end = node.start_mark, node.end_mark
    head, tail = lines[start.line][: start.column], lines[end.line][end.column :]
    blank = "" if not head or head.endswith((" ", "\t")) else " "
    return "\n".join([*lines[: start.line], f"{head}{blank}{new}{tail}", *lines[end.line + 1 :]])


def _insert(lines: list[str], node: yaml.MappingNode, path: Sequence[str], value: Any) -> str:
    if node.flow_style:
        end = node.end_mark
        inside, tail = lines[end.line][: end.column - 1].rstrip(), lines[end.line][end.column - 1 :]
        for key in reversed(path[1:]):
            value = {key: value}
        comma = " " if inside.endswith(",") else "" if inside.endswith("{") else ", "
        new = f"{inside}{comma}{path[0]}: {_flow(value)}{tail}"
        return "\n".join([*lines[: end.line], new, *lines[end.line + 1 :]])
    first, row = node.value[0][0].start_mark.column, _last_row(node)
    new_lines = [f"{' ' * (first + 2 * depth)}{key}:" for depth, key in enumerate(path)]
    new_lines[-1] += f" {_flow(value)}"
    return "\n".join([*lines[: row + 1], *new_lines, *lines[row + 1 :]])


def _last_row(node: yaml.Node) -> int:
    if isinstance(node, yaml.ScalarNode):
        return int(node.end_mark.line) - (1 if node.style in ("|", ">") else 0)
    assert isinstance(node, yaml.CollectionNode)
    if node.flow_style or not node.value:
        return int(node.end_mark.line)
    last = node.value[-1]
    return _last_row(last[1] if isinstance(node, yaml.MappingNode) else last)
