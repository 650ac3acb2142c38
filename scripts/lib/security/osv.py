"""Advisories in OSV's schema (https://ossf.github.io/osv-schema/), and what one touches. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from packaging.version import InvalidVersion, Version

from scripts.lib.locks import normal

ECOSYSTEM = "PyPI"


@dataclass(frozen=True)
class Span:
    """Versions from ``introduced`` to before ``fixed``, or up to ``last`` and with it; None: no end."""

    introduced: Version
    fixed: Version | None = None
    last: Version | None = None

    def __contains__(self, version: Version) -> bool:
        """Whether the version lies in it."""
        return (
            version >= self.introduced
            and (self.fixed is None or version < self.fixed)
            and (self.last is None or version <= self.last)
        )


@dataclass(frozen=True)
class Advisory:
    """One advisory, with the spans and single versions that it names for each package."""

    id: str
    summary: str
    severity: str
    aliases: tuple[str, ...]
    url: str
    spans: Mapping[str, tuple[Span, ...]]
    versions: Mapping[str, frozenset[Version]]

    def touches(self, package: str, version: str) -> bool:
        """Whether it names this version of a package; a local part such as +cpu is not looked at."""
        public = Version(Version(version).public)
        return public in self.versions.get(package, ()) or any(
            public in span for span in self.spans.get(package, ())
        )


def parse(record: Mapping[str, Any]) -> Advisory:
    """Return the advisory of an OSV record.

    Ranges over commits are left out: what is pinned are versions. A withdrawn record touches nothing.

    Raises:
        ValueError: it has no id, or an event names a version that is none.
    """
    if not isinstance(record.get("id"), str):
        raise ValueError("an OSV record without an id")
    spans: dict[str, list[Span]] = {}
    versions: dict[str, set[Version]] = {}
    for affected in () if record.get("withdrawn") else record.get("affected", ()):
        package = affected.get("package", {})
        if package.get("ecosystem") != ECOSYSTEM:
            continue
        name = normal(package["name"])
        for given in affected.get("ranges", ()):
            if given.get("type") in ("ECOSYSTEM", "SEMVER"):
                spans.setdefault(name, []).extend(_spans(record["id"], given.get("events", ())))
        versions.setdefault(name, set()).update(_publics(affected.get("versions", ())))
    return Advisory(
        record["id"],
        record.get("summary", ""),
        record.get("database_specific", {}).get("severity", ""),
        tuple(record.get("aliases", ())),
        next((each["url"] for each in record.get("references", ())), ""),
        {name: tuple(found) for name, found in spans.items()},
        {name: frozenset(found) for name, found in versions.items()},
    )


def _publics(versions: list[str]) -> Iterator[Version]:
    for version in versions:
        try:
            yield Version(Version(version).public)
        except InvalidVersion:
            continue


def _spans(advisory: str, events: list[Mapping[str, str]]) -> Iterator[Span]:
    """The spans of a range's events, in the order of their versions, as OSV's own evaluation takes them."""
    dated = sorted(
        (
            (_version(advisory, text), kind)
            for event in events
            for kind, text in event.items()
            if kind != "limit"
        ),
        key=lambda pair: (pair[0], pair[1] != "introduced"),
    )
    begun: Version | None = None
    for version, kind in dated:
        if kind == "introduced":
            begun = version if begun is None else begun
        elif begun is not None:
            yield Span(begun, version) if kind == "fixed" else Span(begun, last=version)
            begun = None
    if begun is not None:
        yield Span(begun)


def _version(advisory: str, text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion as error:
        raise ValueError(f"{advisory}: {text!r} is no version") from error
