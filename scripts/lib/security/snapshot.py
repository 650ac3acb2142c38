"""Snapshot of known advisories, so that CI and tests need no network; and the pinned versions."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from peagle_sm.core.catalog import Catalog, load_catalog
from scripts.lib.hash_locks import ROOT, lock_files
from scripts.lib.locks import Pin, read_pins
from scripts.lib.security.gate import Waiver, read_waivers
from scripts.lib.security.osv import Advisory, parse

SNAPSHOT = ROOT / "requirements" / "advisories.json"
WAIVERS = ROOT / "requirements" / "advisory-waivers.yaml"


@dataclass(frozen=True)
class Snapshot:
    """Advisories known on a date; ``how`` describes their source and gaps."""

    made: dt.date
    how: str
    advisories: tuple[Advisory, ...]


def read_snapshot(path: Path = SNAPSHOT) -> Snapshot:
    """Return a snapshot.

    Raises:
        ValueError: it is not one.
    """
    document = json.loads(path.read_text(encoding="utf-8"))
    return Snapshot(
        dt.date.fromisoformat(document["made"]),
        document["how"],
        tuple(parse(record) for record in document["advisories"]),
    )


def waivers(path: Path = WAIVERS) -> list[Waiver]:
    """Return the waivers in force and expired.

    Raises:
        ValueError: a row is not whole.
    """
    return read_waivers(yaml.safe_load(path.read_text(encoding="utf-8")) or [])


def pinned(root: Path = ROOT) -> dict[str, list[Pin]]:
    """Return the pins of each lock file, and of the engines in AWS's images that plans use."""
    locks = {
        lock.relative_to(root).as_posix(): read_pins(lock.read_text(encoding="utf-8"))
        for lock in lock_files()
    }
    return {**locks, **_engines(load_catalog())}


def _engines(catalog: Catalog) -> dict[str, list[Pin]]:
    engines = {"AWS's image, by default": [Pin("vllm", catalog.images.default_version)]}
    for model, entry in catalog.jumpstart.items():
        image = catalog.images.describe(entry.image)
        if image.version:
            engines[f"AWS's image, JumpStart's {model}"] = [Pin("vllm", image.version_text)]
    return engines


def written(made: dt.date, how: str, records: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of a snapshot, one advisory per line for readable diffs."""
    rows = [
        json.dumps(_lean(record), sort_keys=True) for record in sorted(records, key=lambda each: each["id"])
    ]
    head = json.dumps({"made": made.isoformat(), "how": how}, indent=2)[:-2]
    return f'{head},\n  "advisories": [\n    ' + ",\n    ".join(rows) + "\n  ]\n}\n"


def _lean(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of an OSV record that the check reads."""
    kept = {
        key: record[key] for key in ("id", "aliases", "summary", "published", "withdrawn") if record.get(key)
    }
    kept["affected"] = [
        {key: each[key] for key in ("package", "ranges", "versions") if each.get(key)}
        for each in record.get("affected", [])
        if each.get("package", {}).get("ecosystem") == "PyPI"
    ]
    kept["references"] = record.get("references", [])[:1]
    severity = record.get("database_specific", {}).get("severity")
    return {**kept, "database_specific": {"severity": severity}} if severity else kept
