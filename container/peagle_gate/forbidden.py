"""Arguments and variables that the engine may not have, and which of their values are meant. Pure.

The gate refuses them at the start, the toolkit before a deployment (check `forbidden-flags`), from one list,
``forbidden.json``. It is one file, since the image has no toolkit: ``peagle_sm.core.forbidden`` is a link to
it. Standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MODEL_FOLDER = "/opt/ml/"
_ARGUMENT = "SM_VLLM_"
_OFF = ("", "0", "false")
#: Arguments of vLLM that are a prefix of a forbidden one, so that argparse does not complete them.
WHOLE_NAMES = frozenset({"model", "reasoning_parser"})


@dataclass(frozen=True)
class Forbidden:
    """Forbidden argument or variable: the reason, its source, and which values are meant.

    Attributes:
        why: what it does.
        source: a public page.
        keys: of a JSON value; only these are forbidden, at any depth. Empty: every value is.
        dotted: only a value with a dot is forbidden: the name of a Python object, not of a built-in choice.
        model_folder: only a value that names a path in the model's folder is forbidden.
        gate_only: an image without the gate may have it.
    """

    why: str
    source: str
    keys: tuple[str, ...] = ()
    dotted: bool = False
    model_folder: bool = False
    gate_only: bool = False

    def covers(self, value: str) -> bool:
        """Return whether a value is forbidden."""
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


@dataclass(frozen=True)
class ForbiddenSettings:
    """Forbidden arguments, by vLLM's name with _ for -, and variables of the container."""

    arguments: Mapping[str, Forbidden]
    variables: Mapping[str, Forbidden]

    def meant_by(self, name: str) -> dict[str, Forbidden]:
        """Return the arguments that argparse may read ``name`` as: itself, or each with that prefix."""
        if not name or name in WHOLE_NAMES:
            return {}
        if name in self.arguments:
            return {name: self.arguments[name]}
        return {full: entry for full, entry in self.arguments.items() if full.startswith(name)}

    def setting(self, variable: str, value: str) -> Forbidden | None:
        """Return the entry that forbids a variable of the container; None if it is allowed or turned off.

        ``SM_VLLM_X`` is the argument ``x``, as AWS's image reads it.
        """
        value = value.strip()
        if value.lower() in _OFF:
            return None
        if variable.startswith(_ARGUMENT):
            entries = list(self.meant_by(variable.removeprefix(_ARGUMENT).lower()).values())
        else:
            entries = [entry for name, entry in self.variables.items() if name == variable]
        return next((entry for entry in entries if entry.covers(value)), None)


def parse_forbidden(text: str) -> ForbiddenSettings:
    """Read the text of ``forbidden.json``."""
    document = json.loads(text)
    return ForbiddenSettings(_entries(document["arguments"]), _entries(document["variables"]))


def _entries(written: Mapping[str, dict[str, Any]]) -> dict[str, Forbidden]:
    return {
        name: Forbidden(**{**fields, "keys": tuple(fields.get("keys", ()))})
        for name, fields in written.items()
    }
