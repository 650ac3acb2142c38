"""Which files of a target an engine needs. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

_WANTED = re.compile(
    r"[^/]+\.(safetensors|json|jinja|txt|model|tiktoken|md)|(LICENSE|NOTICE|USAGE_POLICY)[^/]*"
)


def selected(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Split a target's files into those that an engine needs, and those left out.

    Left out: folders (other formats of the same weights), weights that are no safetensors, code, pictures.
    """
    every = sorted(names)
    kept = [name for name in every if _WANTED.fullmatch(name) and not name.startswith(".")]
    return kept, [name for name in every if name not in kept]
