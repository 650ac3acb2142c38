"""This program's folders on this machine, by the XDG rules: a relative value there is ignored."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def cache_dir(environ: Mapping[str, str]) -> Path:
    """Return the folder of what can be fetched or built again."""
    return _xdg(environ, "XDG_CACHE_HOME", ".cache") / "peagle-sm"


def _xdg(environ: Mapping[str, str], name: str, default: str) -> Path:
    value = environ.get(name, "")
    return Path(value) if os.path.isabs(value) else Path(environ.get("HOME") or Path.home()) / default
