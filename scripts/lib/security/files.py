"""Security rules on files: shipped weights, the catalogue's heads, and secrets in any text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from peagle_sm.core.catalog import HeadEntry
from peagle_sm.core.checks.environment import SECRET_VALUE
from peagle_sm.core.heads.reading import code_faults, file_faults


def unsafe_weights(folder: Path) -> list[str]:
    """Find what can run code in a folder of weights: other files than safetensors, an auto_map.

    The rules are those of `peagle-sm heads check`.
    """
    sizes = {
        path.relative_to(folder).as_posix(): path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file()
    }
    faults = list(file_faults(sizes))
    for path in folder.glob("*.json"):
        faults += code_faults(path.name, json.loads(path.read_text(encoding="utf-8")), sizes)
    return [fault.message for fault in faults if fault.severity == "error"]


def unpinned_heads(heads: Mapping[str, HeadEntry]) -> list[str]:
    """Find heads of the catalogue that are fetched from the hub without a commit."""
    return [name for name, head in heads.items() if head.hub_id and not head.revision]


def secrets(texts: Iterable[tuple[Path, str]]) -> list[str]:
    """Find texts with a possible access key, hub token or private key."""
    return [f"{path}: {hit[0][:4]}…" for path, text in texts for hit in SECRET_VALUE.finditer(text)]
