"""The records of a results file as JSON values, and back with every type checked. Pure."""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

Decoder = Callable[[Any], Any]


def encode(value: Any) -> Any:
    """``value`` as dicts, lists and scalars; fields that hold their default are left out.

    A request has two dozen fields, of which most requests fill half: leaving the rest out halves the file.
    """
    if is_dataclass(value):
        return {
            field.name: encode(content)
            for field in fields(value)
            if (content := getattr(value, field.name)) != _default(field)
        }
    if isinstance(value, tuple | list):
        if value and isinstance(value[0], float):
            return list(value)  # the gaps of a request are hundreds, and need no look each
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {key: encode(item) for key, item in value.items()}
    return value


def decode(record_type: type[Any], value: Any) -> Any:
    """The record that ``value`` describes; fields that this version does not know are ignored.

    Raises:
        ValueError: a field is missing or holds what it must not; the message names the field.
    """
    hint: Any = record_type
    return _decoder(hint)(value)


def _default(field: Any) -> Any:
    if field.default is not MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not MISSING else MISSING


@cache
def _decoder(hint: Any) -> Decoder:
    """What turns a JSON value into ``hint``: the few kinds of annotation that records.py uses."""
    if is_dataclass(hint):
        return _record(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _optional(arguments)
    if origin is Literal:
        return _literal(arguments)
    if origin is tuple:
        return _tuple(arguments)
    if origin is dict:
        return _dict(arguments[1])
    return _any if hint is Any else _scalar(hint)


def _any(value: Any) -> Any:
    return value


def _record(record_type: Any) -> Decoder:
    hints = get_type_hints(record_type)
    known = [(field.name, _decoder(hints[field.name]), _default(field)) for field in fields(record_type)]

    def decoder(value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError(f"expected an object, found {_show(value)}")
        found: dict[str, Any] = {}
        for name, inner, default in known:
            if name not in value:
                if default is MISSING:
                    raise ValueError(f"the field {name!r} is missing")
                continue
            try:
                found[name] = inner(value[name])
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        return record_type(**found)

    return decoder


def _optional(arguments: tuple[Any, ...]) -> Decoder:
    (some,) = (_decoder(argument) for argument in arguments if argument is not types.NoneType)
    return lambda value: None if value is None else some(value)


def _literal(allowed: tuple[Any, ...]) -> Decoder:
    def decoder(value: Any) -> Any:
        if value not in allowed:
            raise ValueError(f"expected one of {', '.join(map(repr, allowed))}, found {_show(value)}")
        return value

    return decoder


def _tuple(arguments: tuple[Any, ...]) -> Decoder:
    inner = _decoder(arguments[0])

    def decoder(value: Any) -> Any:
        if not isinstance(value, list):
            raise ValueError(f"expected a list, found {_show(value)}")
        return tuple(map(inner, value))

    return decoder


def _dict(item: Any) -> Decoder:
    inner = _decoder(item)

    def decoder(value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError(f"expected an object, found {_show(value)}")
        return {key: inner(content) for key, content in value.items()}

    return decoder


def _scalar(wanted: type[Any]) -> Decoder:
    allowed: tuple[type[Any], ...] = (int, float) if wanted is float else (wanted,)

    def decoder(value: Any) -> Any:
        if type(value) not in allowed:
            raise ValueError(f"expected {wanted.__name__}, found {_show(value)}")
        return wanted(value)

    return decoder


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
