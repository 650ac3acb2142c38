"""Rendering of specs and locks: commented YAML, text and JSON.

`init` and `lock` use it. The YAML is generated from the fields of EndpointSpec, so that it
always matches them. This module imports pydantic and yaml: commands import it inside functions, so that
--help stays fast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from peagle_sm.cli.terminal import render_fields
from peagle_sm.core.planning import finding_rows
from peagle_sm.core.spec.endpoint_spec import EndpointSpec

if TYPE_CHECKING:
    from peagle_sm.core.spec.lock import LockChange
    from peagle_sm.service.jumpstart_lock import Locking


_HEAD = """\
# yaml-language-server: $schema={schema}
# One endpoint. `peagle-sm plan {file}` shows what it would create and cost; `peagle-sm deploy {file}`
# creates it.
# A line that begins with `# name:` is a field with its default value: remove the `# ` to set it.
"""


def render_spec(chosen: Mapping[str, Any], *, file: str, schema: str) -> str:
    """Render every field of the spec as YAML; those not `chosen` as comments."""
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
    # YAML reads a mapping that has only comments as null, which the spec refuses: comment out the key too.
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
    # A field without a default is in a part that is commented out (vpc): an empty list shows its type.
    default = [] if field.is_required() else field.get_default(call_default_factory=True)
    return [*lines, f"{indent}{'' if show_all else '# '}{name}: {_value(default)}"]


def _value(value: Any) -> str:
    # Always one line: {"a": 1} and [x] in YAML's flow style, a scalar without the document end marker.
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True)
    return text.strip().removesuffix("...").strip()


_SIGNS = {"added": "+", "removed": "-", "changed": "~"}


def render_lock(made: Locking, *, written: bool) -> str:
    """Render the lock, the changes since the previous one, and the findings."""
    blocks = [_lock_heading(made, written), render_fields(_lock_facts(made), "  ")]
    if made.before is not None and made.changes:
        blocks.append(f"Changes\n{render_changes(made.changes)}")
    if made.findings:
        blocks.append("Findings\n" + render_fields(finding_rows(made.findings), "  "))
    return "\n\n".join(blocks)


def render_changes(changes: Sequence[LockChange]) -> str:
    """Render each changed field, with the old and the new value below it."""
    lines = []
    for one in changes:
        lines.append(f"  {_SIGNS[one.kind]} {one.field}")
        if one.before is not None:
            lines.append(f"      was  {one.before}")
        if one.after is not None:
            lines.append(f"      now  {one.after}")
    return "\n".join(lines)


def lock_data(made: Locking, *, written: bool) -> dict[str, Any]:
    """Return the lock, its changes and the findings for --format json."""
    return {
        "path": str(made.path),
        "written": written,
        "stale": made.stale and not written,
        "newest_version": made.newest,
        "changes": [asdict(one) for one in made.changes] if made.before is not None else [],
        "findings": [finding.to_dict() for finding in made.findings],
        "lock": made.lock.model_dump(mode="json"),
    }


def _lock_heading(made: Locking, written: bool) -> str:
    if not made.stale:
        return f"{made.path} is up to date"
    if written:
        return f"{made.path} written"
    return f"{made.path} would change" if made.before is not None else f"{made.path} would be written"


def _lock_facts(made: Locking) -> list[tuple[str, str]]:
    lock = made.lock
    model, source = lock.jumpstart, lock.source
    others = [name for name in model.ranking if name != model.config]
    facts = [
        ("model", f"{model.model_id} {model.version}"),
        ("config", model.config + (f" (also: {', '.join(others)})" if others else "")),
        ("read from", f"s3://{source.bucket}/{source.spec_key}\nsha256 {source.sha256}"),
    ]
    for name, one in lock.instances.items():
        facts.append((name, f"{one.image}\n{one.target_uri}"))
    facts.append(("draft head", f"{lock.head.uri}\nchannel {lock.head.channel}" if lock.head else "none"))
    licence = lock.licence
    terms = "must be accepted" if licence.gated else "nothing to accept"
    if licence.gated and licence.accepted:
        terms = "accepted in the spec"
    facts.append(("licence", f"{licence.name or 'unknown'}: {terms}"))
    return facts
