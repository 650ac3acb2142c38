"""This program's cache on this machine, by the XDG rules: a relative value there is ignored."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def cache_dir(environ: Mapping[str, str]) -> Path:
    """Return the folder of what can be fetched or built again."""
    named = environ.get("XDG_CACHE_HOME", "")
    home = Path(named) if os.path.isabs(named) else Path(environ.get("HOME") or Path.home()) / ".cache"
    return home / "peagle-sm"
