"""Arguments of vLLM's server: by name and version, and those that are forbidden.

The data is ``core/data/arguments.yaml``, which `scripts/engine-arguments` writes from vLLM's own sources and
parser, and ``core/data/forbidden.json``, which is the gate's own list (a link to ``container/peagle_gate``).
Names are those of `vllm serve --help`, with _ for -.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field

from peagle_sm.core.engines import Range, Version, version_of


class EngineArguments(BaseModel):
    """Arguments of the versions ``oldest`` to ``newest``.

    ``always`` are in all of these versions, ``sometimes`` only in those of a span. ``switches`` take no value
    and have a second name with `no_` in front, ``flags`` take no value, ``optional`` take one or none.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str
    date: str
    oldest: str
    newest: str
    always: frozenset[str]
    sometimes: Mapping[str, Range] = Field(default_factory=dict)
    switches: frozenset[str]
    flags: frozenset[str]
    optional: frozenset[str]
    integers: frozenset[str]
    numbers: frozenset[str]

    @property
    def names(self) -> frozenset[str]:
        """Return the names in any version, also the second names of switches."""
        return self.always | self.sometimes.keys() | {f"no_{name}" for name in self.switches}

    def is_bare(self, name: str) -> bool:
        """Return whether a known argument takes no value, so that only true and false make sense."""
        return name in self.flags | self.switches or not self._has(name)

    def needs_value(self, name: str) -> bool:
        """Return whether a known argument cannot be without a value."""
        return not self.is_bare(name) and name not in self.optional

    def number_needed(self, name: str, value: Any) -> str | None:
        """Return "a whole number" or "a number" if the argument needs one and the value is none."""
        if name not in self.integers | self.numbers or isinstance(value, bool):
            return None
        read, kind = (int, "a whole number") if name in self.integers else (float, "a number")
        try:
            if isinstance(value, int | str) or (read is float and isinstance(value, float)):
                read(value)
                return None
        except ValueError:
            pass
        return kind

    def _has(self, name: str) -> bool:
        return name in self.always or name in self.sometimes

    def missing_in(self, name: str, version: Version) -> Range | None:
        """Return the span of a known argument that a version lacks; None if it has it, or is not covered."""
        span = self.sometimes.get(name.removeprefix("no_") if name not in self.sometimes else name)
        if span is None or not version_of(self.oldest) <= version <= version_of(self.newest):
            return None
        return None if span.covers(version) else span


@cache
def load_arguments() -> EngineArguments:
    """Return the packaged list, which is cached and immutable."""
    text = resources.files("peagle_sm.core").joinpath("data", "arguments.yaml").read_text(encoding="utf-8")
    return EngineArguments.model_validate(
        yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    )


MODEL_FOLDER = "/opt/ml/"
_PREFIX = "SM_VLLM_"
_OFF = ("", "0", "false")


class Forbidden(BaseModel):
    """Forbidden argument or variable: the reason, its source, and which values are meant.

    ``keys`` of a JSON value are forbidden at any depth; without keys the whole value is. ``dotted``: only the
    name of a Python object, which has a dot. ``model_folder``: only a path in the model's folder.
    ``gate_only``: only an image with the gate refuses it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    why: str
    source: str
    keys: frozenset[str] = frozenset()
    dotted: bool = False
    model_folder: bool = False
    gate_only: bool = False

    def covers(self, value: str) -> bool:
        """Return whether a value is forbidden; the gate decides in the same way."""
        if self.model_folder and MODEL_FOLDER not in value:
            return False
        if not self.keys:
            return not self.dotted or "." in value
        try:
            return self._in(json.loads(value), inside=False)
        except (ValueError, RecursionError):
            return any(f'"{key}"' in value for key in self.keys)

    def _in(self, value: Any, inside: bool) -> bool:
        if isinstance(value, dict):
            return any(self._in(item, inside or key in self.keys) for key, item in value.items())
        if isinstance(value, list):
            return any(self._in(item, inside) for item in value)
        return inside and value not in (None, "") and (not self.dotted or "." in str(value))


class ForbiddenSettings(BaseModel):
    """Forbidden arguments and variables, by name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    arguments: Mapping[str, Forbidden]
    variables: Mapping[str, Forbidden]

    def argument(self, name: str) -> Forbidden | None:
        """Return the entry of an argument, also of a beginning that argparse would complete."""
        if name in self.arguments or not name or name in load_arguments().names:
            return self.arguments.get(name)
        return next((entry for full, entry in self.arguments.items() if full.startswith(name)), None)

    def setting(self, variable: str, value: str) -> Forbidden | None:
        """Return the entry that forbids a variable of the container; None if it is allowed or turned off."""
        if value.strip().lower() in _OFF:
            return None
        if variable.startswith(_PREFIX):
            entry = self.argument(variable.removeprefix(_PREFIX).lower())
        else:
            entry = self.variables.get(variable)
        return entry if entry is not None and entry.covers(value) else None


@cache
def load_forbidden() -> ForbiddenSettings:
    """Return the packaged list, which is cached and immutable."""
    text = resources.files("peagle_sm.core").joinpath("data", "forbidden.json").read_text(encoding="utf-8")
    return ForbiddenSettings.model_validate_json(text)
