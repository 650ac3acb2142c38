"""A commented peagle.yaml, written from the fields of EndpointSpec, so that it never lags behind them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from peagle_sm.core.spec.endpoint_spec import EndpointSpec

_HEAD = """\
# yaml-language-server: $schema={schema}
# One endpoint: `peagle-sm plan {file}` shows what it would create and cost, `peagle-sm deploy {file}`
# creates it.
# A line that begins with `# name:` is a field at its default: remove the `# ` to set it.
"""


def render_spec(chosen: Mapping[str, Any], *, file: str, schema: str) -> str:
    """YAML with every field of the spec: those in `chosen` set, the others commented out at their default."""
    lines = _block(EndpointSpec, chosen, "", show_all=False)
    return "\n".join([_HEAD.format(schema=schema, file=file), *lines, ""])


def _block(model: type[BaseModel], chosen: Mapping[str, Any], indent: str, *, show_all: bool) -> list[str]:
    lines: list[str] = []
    for name, field in model.model_fields.items():
        part = _part_of(field)
        if part is not None:
            lines += _part_block(name, part, chosen.get(name), indent)
        else:
            lines += _field_lines(name, field, chosen, indent, show_all)
        if not indent and (part is not None or name == "source"):
            lines.append("")
    return lines


def _part_block(name: str, part: type[BaseModel], chosen: Any, indent: str) -> list[str]:
    lines = [f"{indent}# {(part.__doc__ or name).strip()}"]
    if chosen:
        return [*lines, f"{indent}{name}:", *_block(part, chosen, indent + "  ", show_all=False)]
    # YAML reads a mapping of comments alone as null, which the spec refuses: so the key is a comment too.
    return [*lines, f"{indent}# {name}:", *_commented(_block(part, {}, indent + "  ", show_all=True), indent)]


def _commented(lines: list[str], indent: str) -> list[str]:
    return [line if not line else f"{indent}# {line.removeprefix(indent)}" for line in lines]


def _part_of(field: FieldInfo) -> type[BaseModel] | None:
    for kind in (field.annotation, *getattr(field.annotation, "__args__", ())):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None


def _field_lines(
    name: str, field: FieldInfo, chosen: Mapping[str, Any], indent: str, show_all: bool
) -> list[str]:
    lines = [f"{indent}# {field.description}"] if field.description else []
    if name in chosen:
        return [*lines, f"{indent}{name}: {_value(chosen[name])}"]
    # A field without a default stands in a part that is off as a whole (vpc): an empty list says its shape.
    default = [] if field.is_required() else field.get_default(call_default_factory=True)
    return [*lines, f"{indent}{'' if show_all else '# '}{name}: {_value(default)}"]


def _value(value: Any) -> str:
    # One line, whatever the value: {"a": 1} and [x] in YAML's flow style, a scalar without its document end.
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True)
    return text.strip().removesuffix("...").strip()
