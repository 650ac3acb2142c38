"""What differs between two locks, field by field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from peagle_sm.core.jumpstart.lock import Lock

Kind = Literal["added", "removed", "changed"]
_Facts = Mapping[tuple[str, ...], Any]


@dataclass(frozen=True)
class Change:
    """One field that differs; ``before`` is None where it was added, ``after`` where it was removed."""

    field: str
    kind: Kind
    before: str | None
    after: str | None


def changes(before: Lock | None, after: Lock) -> tuple[Change, ...]:
    """Return what differs, in the order of the file; who wrote the locks and when does not count."""
    old = dict(_flat((), before.facts())) if before else {}
    new = dict(_flat((), after.facts()))
    paths = [*new, *(path for path in old if path not in new)]
    return tuple(
        Change(".".join(path), _kind(path, old, new), old.get(path), new.get(path))
        for path in paths
        if (path in old) != (path in new) or old.get(path) != new.get(path)
    )


def _kind(path: tuple[str, ...], old: _Facts, new: _Facts) -> Kind:
    if path not in old:
        return "added"
    return "changed" if path in new else "removed"


def _flat(path: tuple[str, ...], value: Any) -> Iterator[tuple[tuple[str, ...], str]]:
    """Leaves by their path: mappings are entered, lists are one text, and None is as if it were not there."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _flat((*path, str(key)), part)
    elif isinstance(value, list):
        yield path, ", ".join(map(str, value))
    elif isinstance(value, bool):
        yield path, str(value).lower()
    elif value is not None:
        yield path, str(value)
