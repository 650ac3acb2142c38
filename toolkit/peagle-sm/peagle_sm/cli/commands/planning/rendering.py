"""Rendering of specs and locks: commented YAML, text and JSON.

`init` and `lock` use it. The YAML is generated from the fields of EndpointSpec, so that it
always matches them. This module imports pydantic and yaml: commands import it inside functions, so that
--help stays fast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from peagle_sm.cli.terminal import render_fields
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, SpeculationSpec
from peagle_sm.core.spec.modes import Mode, facts_of
from peagle_sm.core.spec.validation import to_yaml

if TYPE_CHECKING:
    from peagle_sm.core.changes import Change
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
        if model is SpeculationSpec and not _concerns(name, chosen):
            continue
        part = _part_of(field)
        if part is not None:
            lines += _part_block(name, part, chosen.get(name), indent)
        else:
            lines += _field_lines(name, field, chosen, indent, show_all)
        if not indent and (part is not None or name == "source"):
            lines.append("")
    return lines


def _concerns(name: str, speculation: Mapping[str, Any]) -> bool:
    """Return whether a field is of the chosen mode, or of every mode."""
    mode: Mode = speculation.get("mode", "p-eagle")
    return name == "mode" or name in facts_of(mode if mode != "none" else "p-eagle").fields


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
    text = to_yaml(value, default_flow_style=True, width=10_000, allow_unicode=True)
    return text.strip().removesuffix("...").strip()


def render_lock(locking: Locking, *, written: bool) -> str:
    """Render the lock, and the changes since the previous one."""
    blocks = [_lock_heading(locking, written), render_fields(_lock_facts(locking), "  ")]
    if locking.before is not None and locking.changes:
        blocks.append(f"Changes\n{render_changes(locking.changes)}")
    return "\n\n".join(blocks)


def render_changes(changes: Sequence[Change]) -> str:
    """Render each changed field, with the old and the new value below it."""
    lines = []
    for change in changes:
        sign = "+" if change.before is None else "-" if change.after is None else "~"
        lines.append(f"  {sign} {change.field}")
        if change.before is not None:
            lines.append(f"      was  {change.before}")
        if change.after is not None:
            lines.append(f"      now  {change.after}")
    return "\n".join(lines)


def lock_data(locking: Locking, *, written: bool) -> dict[str, Any]:
    """Return the lock and its changes for --format json."""
    return {
        "path": str(locking.path),
        "written": written,
        "stale": locking.stale and not written,
        "newest_version": locking.newest,
        "changes": [asdict(change) for change in locking.changes] if locking.before is not None else [],
        "lock": locking.lock.model_dump(mode="json"),
    }


def _lock_heading(locking: Locking, written: bool) -> str:
    if not locking.stale:
        return f"{locking.path} is up to date"
    if written:
        return f"{locking.path} written"
    return (
        f"{locking.path} would change" if locking.before is not None else f"{locking.path} would be written"
    )


def _lock_facts(locking: Locking) -> list[tuple[str, str]]:
    lock = locking.lock
    model, source = lock.jumpstart, lock.source
    others = [name for name in model.ranking if name != model.config]
    newer = f" (newest: {locking.newest}; --upgrade changes to it)" * (locking.newest != model.version)
    facts = [
        ("model", f"{model.model_id} {model.version}{newer}"),
        ("config", model.config + (f" (also: {', '.join(others)})" if others else "")),
        ("read from", f"s3://{source.bucket}/{source.spec_key}\nsha256 {source.sha256}"),
    ]
    for name, instance in lock.instances.items():
        facts.append((name, f"{instance.image}\n{instance.target_uri}"))
    facts.append(("draft head", f"{lock.head.uri}\nchannel {lock.head.channel}" if lock.head else "none"))
    licence = lock.licence
    terms = ", ".join(["must be accepted", *licence.eula_uris]) if licence.gated else "nothing to accept"
    if licence.gated and licence.accepted:
        terms = "accepted in the spec"
    facts.append(("licence", f"{licence.name or 'unknown'}: {terms}"))
    return facts
