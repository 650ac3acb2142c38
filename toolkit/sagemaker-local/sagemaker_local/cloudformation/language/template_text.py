"""A template's text, JSON or YAML with CloudFormation's short forms, as plain Python values."""

from __future__ import annotations

import json
from typing import Any

import yaml

from sagemaker_local.cloudformation.errors import TemplateError

_BARE = ("Ref", "Condition")  # short forms without "Fn::" before their long one
_TIMESTAMP = "tag:yaml.org,2002:timestamp"


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML as CloudFormation reads it: ``!Sub`` and its like, dates as text, keys as text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _short_form(loader: Any, suffix: str, node: yaml.Node) -> dict[str, Any]:
    name = suffix if suffix in _BARE else f"Fn::{suffix}"
    if isinstance(node, yaml.ScalarNode):
        value: Any = loader.construct_scalar(node)
        if suffix == "GetAtt":
            value = value.split(".", 1)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        value = loader.construct_mapping(node, deep=True)
    return {name: value}


_Loader.add_multi_constructor("!", _short_form)


def parse(text: str) -> dict[str, Any]:
    """Read a template.

    Raises:
        TemplateError: it is neither JSON nor YAML, or not an object.
    """
    try:
        body = json.loads(text) if text.lstrip().startswith("{") else _plain(yaml.load(text, Loader=_Loader))
    except ValueError as error:
        raise TemplateError(f"Template format error: JSON not well-formed. ({error})") from error
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        place = f" (line {where.line + 1}, column {where.column + 1})" if where is not None else ""
        raise TemplateError(f"Template format error: YAML not well-formed.{place}") from error
    if not isinstance(body, dict):
        raise TemplateError("Template format error: unsupported structure.")
    return body


def _plain(value: Any) -> Any:
    """Turn every key into text, also an unquoted account number."""
    if isinstance(value, dict):
        return {_key(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def _key(key: object) -> str:
    return ("true" if key else "false") if isinstance(key, bool) else str(key)
