"""Names of everything that one deploy creates."""

from __future__ import annotations

from dataclasses import dataclass

from peagle_sm.core.plan.tags_and_schedules import schedule_name, shortened


@dataclass(frozen=True)
class Names:
    """Names of everything that one deploy creates; ``component`` may be None.

    The component has the endpoint's name, so that a caller need not know the hash.
    """

    endpoint: str
    config: str
    model: str
    schedule: str
    component: str | None = None


def hashed_prefix(endpoint: str) -> str:
    """Return the name prefix of an endpoint's configs and models, before the hash."""
    return f"{shortened(endpoint, 54)}-"


def names_for(endpoint: str, digest: str, *, component: bool = False) -> Names:
    """Return the names of everything that a deploy with this hash creates."""
    hashed = hashed_prefix(endpoint) + digest[:8]
    return Names(
        endpoint=endpoint,
        config=hashed,
        model=hashed,
        schedule=schedule_name(endpoint),
        component=endpoint if component else None,
    )
