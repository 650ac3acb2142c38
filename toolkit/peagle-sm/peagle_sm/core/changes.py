"""Changes between two documents, field by field. Pure.

Of a resource and its request (`core.plan.changes`), and of two locks (`core.spec.lock`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Change:
    """One changed field; None means absent before, or afterwards."""

    field: str
    before: str | None
    after: str | None


def leaves(value: Any, path: str = "", skip: Collection[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield each leaf's dotted path and its text, without the keys in ``skip``.

    JSON within a text, such as a config in an environment variable, has leaves of its own.
    """
    if isinstance(value, Mapping):
        for key, part in value.items():
            if key not in skip:
                yield from leaves(part, f"{path}.{key}" if path else str(key), skip)
    elif isinstance(value, list | tuple):
        for number, part in enumerate(value):
            yield from leaves(part, f"{path}.{number}", skip)
    elif (document := _object(value)) is not None:
        yield from leaves(document, path, skip)
    else:
        yield path, value if isinstance(value, str) else json.dumps(value, default=str)


def _object(value: Any) -> dict[str, Any] | None:
    if not isinstance(value, str) or not value.startswith("{"):
        return None
    try:
        document = json.loads(value)
    except ValueError:
        return None
    return document if isinstance(document, dict) and document else None
