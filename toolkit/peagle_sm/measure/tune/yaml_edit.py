"""Writes the K into a spec file as text: nothing else of the file changes, comments least of all. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from peagle_sm.core.errors import SpecError
from peagle_sm.core.spec import parse_spec

_MARK = "# tuned: "
_KEY = "num_speculative_tokens"


def write_k(text: str, k: int, evidence: Sequence[str], origin: str = "spec") -> str:
    """Return the file's text with ``speculation.num_speculative_tokens: k`` and the evidence above it.

    The evidence of an earlier tuning (comment lines that begin with ``# tuned:``) is replaced.

    Raises:
        SpecError: the text is no spec, or the result would not say what was wanted.
    """
    before = parse_spec(text, origin)
    written = _edit(text, k, [_MARK + line for line in evidence])
    after = parse_spec(written, origin)
    wanted = before.speculation.model_copy(update={_KEY: k})
    if after != before.model_copy(update={"speculation": wanted}):
        raise SpecError(
            f"{origin}: the place of speculation.{_KEY} could not be found in its text",
            next_step=f"write it there yourself: {_KEY}: {k}",
        )
    return written


def _edit(text: str, k: int, comments: list[str]) -> str:
    lines = [line for line in text.split("\n") if not line.strip().startswith(_MARK)]
    root = yaml.compose("\n".join(lines), Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)  # it was read as a spec
    part = _child(root, "speculation")
    if part is None or not isinstance(part[1], yaml.MappingNode):
        return _append_part(lines, part, k, comments)
    found = _child(part[1], _KEY)
    if part[1].flow_style:
        return _edit_flow(lines, part, found, k, comments)
    if found is not None:
        return _replace_value(lines, found[0], found[1], k, comments)
    first = part[1].value[0][0].start_mark
    last = part[1].value[-1][1]
    line = last.end_mark.line if isinstance(last, yaml.ScalarNode) else last.end_mark.line - 1
    indent = " " * first.column
    new = [f"{indent}{comment}" for comment in comments] + [f"{indent}{_KEY}: {k}"]
    return "\n".join([*lines[: line + 1], *new, *lines[line + 1 :]])


def _child(node: yaml.MappingNode, key: str) -> tuple[yaml.Node, yaml.Node] | None:
    return next(((name, value) for name, value in node.value if name.value == key), None)


def _replace_value(lines: list[str], key: yaml.Node, value: yaml.Node, k: int, comments: list[str]) -> str:
    at = key.start_mark.line
    start, end = value.start_mark, value.end_mark
    row = lines[start.line]
    lines[start.line] = row[: start.column] + str(k) + row[end.column :]
    indent = " " * key.start_mark.column
    return "\n".join([*lines[:at], *[f"{indent}{comment}" for comment in comments], *lines[at:]])


def _edit_flow(
    lines: list[str],
    part: tuple[yaml.Node, yaml.Node],
    found: tuple[yaml.Node, yaml.Node] | None,
    k: int,
    comments: list[str],
) -> str:
    if found is not None:
        start, end = found[1].start_mark, found[1].end_mark
        row = lines[start.line]
        lines[start.line] = row[: start.column] + str(k) + row[end.column :]
    else:
        end = part[1].end_mark
        row = lines[end.line]
        inside = row[: end.column - 1].rstrip()
        comma = "" if inside.endswith(("{", ",")) else ","
        lines[end.line] = f"{inside}{comma} {_KEY}: {k}{row[end.column - 1 :]}"
    at = part[0].start_mark.line
    indent = " " * part[0].start_mark.column
    return "\n".join([*lines[:at], *[f"{indent}{comment}" for comment in comments], *lines[at:]])


def _append_part(
    lines: list[str], part: tuple[yaml.Node, yaml.Node] | None, k: int, comments: list[str]
) -> str:
    new = [f"  {comment}" for comment in comments] + [f"  {_KEY}: {k}"]
    if part is not None:  # `speculation:` with nothing below it
        line = part[0].start_mark.line
        return "\n".join([*lines[: line + 1], *new, *lines[line + 1 :]])
    while lines and not lines[-1].strip():
        lines.pop()
    return "\n".join([*lines, "speculation:", *new, ""])
