"""The page of the spec's fields, from its JSON schema, and the schema itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from peagle_sm.core.spec.endpoint_spec import json_schema

_INTRO = """\
# The spec: every field of peagle.yaml

`scripts/reference` writes this page from the spec's JSON schema ([spec.schema.json](spec.schema.json);
`peagle-sm init` writes it beside the spec). A field that is not listed here is an error.
`peagle-sm init MODEL` writes a spec with comments; `docs/examples` has a full one for each model.

```yaml
name: demo
model: smollm2-135m-instruct
speculation:
  mode: p-eagle
lifecycle:
  max_lifetime_hours: 2
```
"""
_BOUNDS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "maxLength": "at most {} characters",
    "maxItems": "at most {} entries",
}


def schema_text() -> str:
    """Return the text of spec.schema.json."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def spec_page() -> str:
    """Return the page: the fields at the top of a spec, then each section's."""
    schema = json_schema()
    sections = schema["$defs"]
    parts = [_INTRO, "## Top level\n", *_table(schema, sections)]
    parts += _sections(schema, sections)
    return "\n".join(parts).rstrip() + "\n"


def _sections(section: Mapping[str, Any], sections: Mapping[str, Any]) -> list[str]:
    """Return the part of each section that the fields hold, and of the sections inside it."""
    parts = []
    for name, field in section["properties"].items():
        inner = sections.get(_reference(field))
        if inner is not None:
            parts += [f"## {name}\n", inner.get("description", "") + "\n", *_table(inner, sections)]
            parts += _sections(inner, sections)
    return parts


def _table(section: Mapping[str, Any], sections: Mapping[str, Any]) -> list[str]:
    required = section.get("required", ())
    rows = []
    for name, field in section["properties"].items():
        if _reference(field) in sections:
            kind, default = f"[section](#{name.lower()})", ""
            if "oneOf" in field:
                kind, default = f"text, or a {kind}", "required" if name in required else ""
        else:
            kind = _kind(field, sections)
            default = "required" if name in required else _value(field.get("default"))
        cells = (f"`{name}`", kind, default, field.get("description", ""))
        rows.append("| " + " | ".join(each.replace("|", "\\|").replace("\n", " ") for each in cells) + " |")
    return ["| field | allowed | default | meaning |", "|---|---|---|---|", *rows, ""]


def _reference(field: Mapping[str, Any]) -> str:
    """Return the name of the section that a field holds, also where it may be left out."""
    options = [field, *field.get("anyOf", ()), *field.get("oneOf", ())]
    return next((each["$ref"].rpartition("/")[2] for each in options if "$ref" in each), "")


def _kind(field: Mapping[str, Any], sections: Mapping[str, Any]) -> str:
    if "anyOf" in field:
        return " or ".join(_kind(each, sections) for each in field["anyOf"] if each.get("type") != "null")
    if "enum" in field:
        return ", ".join(f"`{each}`" for each in field["enum"])
    if "const" in field:
        return f"`{field['const']}`"
    if field.get("type") == "array":
        words = f"list of {_kind(field.get('items', {}), sections)}"
    elif field.get("type") == "object":
        words = "mapping"
    else:
        words = {"string": "text", "integer": "whole number", "boolean": "true, false"}.get(
            field.get("type", ""), field.get("type", "any")
        )
    return ", ".join([words, *(form.format(field[key]) for key, form in _BOUNDS.items() if key in field)])


def _value(default: object) -> str:
    if default is None:
        return ""
    return f"`{json.dumps(default, ensure_ascii=False)}`" if default != [] and default != {} else "empty"
