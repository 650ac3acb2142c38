"""Rules on files: weights that ship, the catalogue's heads, and secrets in any text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from peagle_sm.core.catalog import HeadEntry
from peagle_sm.core.checks.environment import SECRET_VALUE
from peagle_sm.core.heads.reading import code_faults, file_faults


def unsafe_weights(folder: Path) -> list[str]:
    """What can run code in a folder of weights: anything but safetensors, an auto_map in a config.

    The rules are those of `peagle-sm heads check`.
    """
    sizes = {
        path.relative_to(folder).as_posix(): path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file()
    }
    faults = list(file_faults(sizes))
    for path in folder.glob("*.json"):
        faults += code_faults(path.name, json.loads(path.read_text(encoding="utf-8")))
    return [fault.message for fault in faults if fault.severity == "error"]


def unpinned_heads(heads: Mapping[str, HeadEntry]) -> list[str]:
    """A head of the catalogue that is fetched from the hub without a commit."""
    return [name for name, head in heads.items() if head.hub_id and not head.revision]


def secrets(texts: Iterable[tuple[Path, str]]) -> list[str]:
    """A text that holds what looks like an access key, a hub's token or a private key."""
    return [f"{path}: {hit[0][:4]}…" for path, text in texts for hit in SECRET_VALUE.finditer(text)]
