"""What happens to endpoints, told to whoever keeps logs and metrics."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Kind = Literal[
    "status",
    "component-status",
    "engine-started",
    "engine-healthy",
    "engine-died",
    "engine-stopped",
    "line",
]


@dataclass(frozen=True)
class Event:
    """One thing that happened.

    Attributes:
        kind: `status` for a change of the endpoint's status, `component-status` of a component's; `line` for
            one line of an engine's output.
        endpoint: name of the endpoint.
        status: the endpoint's status after the event, or the component's.
        message: the line, or a sentence for people.
        at: local clock.
        variant: production variant, None when the event is the endpoint's.
        engine_id: tells two engines of one variant apart (an update runs both at once).
        component: inference component, None when the endpoint runs models.
    """

    kind: Kind
    endpoint: str
    status: str
    message: str
    at: datetime
    variant: str | None = None
    engine_id: str | None = None
    component: str | None = None


OnEvent = Callable[[Event], None]
