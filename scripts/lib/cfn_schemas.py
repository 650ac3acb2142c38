"""Write the properties in AWS's resource schemas, for the local CloudFormation and for the stacks.

The schemas are those that cfn-lint ships, so run it with the environment that has it:

    .venv/bin/python scripts/lib/cfn_schemas.py

The local CloudFormation has the types of its handlers; below AWS::SageMaker::* nested properties are kept
too. The stacks have the types of an endpoint's resources, with all nested properties: a field that
CloudFormation lacks must stop the synthesis.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from cfnlint.schema import PROVIDER_SCHEMA_MANAGER

import stacks.schemas
from sagemaker_local.cloudformation.resources import schemas
from sagemaker_local.cloudformation.resources.types import HANDLERS

_REGION = "us-east-1"
_NESTED = "AWS::SageMaker::"
_OF_AN_ENDPOINT = (
    "AWS::ApplicationAutoScaling::ScalableTarget",
    "AWS::ApplicationAutoScaling::ScalingPolicy",
    "AWS::CloudWatch::Alarm",
    "AWS::Logs::LogGroup",
    "AWS::SageMaker::Endpoint",
    "AWS::SageMaker::EndpointConfig",
    "AWS::SageMaker::InferenceComponent",
    "AWS::SageMaker::Model",
)


def generate() -> dict[str, Any]:
    """Return the contents of the shipped file."""
    return {
        "source": f"cfn-lint {version('cfn-lint')}, {_REGION}",
        "types": {name: _described(name) for name in sorted(HANDLERS)},
    }


def text() -> str:
    """Give the shipped file: one line a type, so that a change of a schema shows as one."""
    schemas = generate()
    lines = [
        f"{json.dumps(name)}: {json.dumps(row, sort_keys=True)}" for name, row in schemas["types"].items()
    ]
    return f'{{"source": {json.dumps(schemas["source"])}, "types": {{\n' + ",\n".join(lines) + "\n}}\n"


def text_for_the_stacks() -> str:
    """Give the stacks' file: for each type the tree of its properties; null where anything goes."""
    rows = []
    for name in _OF_AN_ENDPOINT:
        schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema(_REGION, name).schema
        tree = _tree(schema, schema, _read_only(schema), (), deep=True)
        rows.append(f"{json.dumps(name)}: {json.dumps(tree, sort_keys=True)}")
    source = json.dumps(f"cfn-lint {version('cfn-lint')}, {_REGION}")
    return f'{{"source": {source}, "types": {{\n' + ",\n".join(rows) + "\n}}\n"


def _read_only(schema: Mapping[str, Any]) -> frozenset[tuple[str, ...]]:
    return frozenset(_path(pointer) for pointer in schema.get("readOnlyProperties", []))


def _described(name: str) -> dict[str, Any]:
    schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema(_REGION, name).schema
    fixed = [*schema.get("createOnlyProperties", []), *schema.get("conditionalCreateOnlyProperties", [])]
    tree = _tree(schema, schema, _read_only(schema), (), deep=name.startswith(_NESTED))
    return {
        "properties": tree if tree is not None else {},
        "immutable": sorted(pointer.split("/")[2] for pointer in fixed if pointer.count("/") == 2),
        "required": sorted(schema.get("required", [])),
    }


def _tree(
    node: Mapping[str, Any],
    schema: Mapping[str, Any],
    read_only: frozenset[tuple[str, ...]],
    at: tuple[str, ...],
    *,
    deep: bool,
) -> dict[str, Any] | None:
    """Give the allowed members of an object, or of each of a list's; None where anything goes."""
    node = _resolved(node, schema)
    if "items" in node:
        return _tree(node["items"], schema, read_only, (*at, "*"), deep=deep)
    if "properties" not in node:
        return None
    properties: dict[str, Any] = {}
    for name, member in sorted(node["properties"].items()):
        here = (*at, name)
        if here not in read_only:
            properties[name] = _tree(member, schema, read_only, here, deep=deep) if deep else None
    return properties


def _resolved(node: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    while "$ref" in node:
        target: Any = schema
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        node = target
    return node


def _path(pointer: str) -> tuple[str, ...]:
    return tuple(part for part in pointer.split("/")[2:])


if __name__ == "__main__":
    for path, content in ((schemas.PATH, text()), (stacks.schemas.PATH, text_for_the_stacks())):
        path.write_text(content)
        print(f"wrote {path}")
