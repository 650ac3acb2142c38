"""The engines' output as CloudWatch Logs: a group for each endpoint, and one for each inference component."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime

# (group, stream, [(milliseconds since 1970, message)], ARN of the role that writes)
Store = Callable[[str, str, list[tuple[int, str]], str | None], None]
# (endpoint, component) -> ARN of the role that their containers run under; None when they are gone
RoleOf = Callable[[str, str | None], str | None]

# CloudWatch cuts events at 256 KB; the newest lines kept in memory for `local logs`.
LONGEST_EVENT = 262_118
_KEPT_LINES = 5_000


def group_of(endpoint: str) -> str:
    """Name the log group of an endpoint."""
    return f"/aws/sagemaker/Endpoints/{endpoint}"


def group_of_component(component: str) -> str:
    """Name the log group of an inference component."""
    return f"/aws/sagemaker/InferenceComponents/{component}"


class EndpointLogs:
    """Writer of engines' lines to CloudWatch Logs, in batches."""

    def __init__(self, *, now: Callable[[], datetime], store: Store, role_of: RoleOf) -> None:
        self._now = now
        self._store = store
        self._role_of = role_of
        self._waiting: dict[tuple[str, str | None, str], list[tuple[int, str]]] = {}
        self._recent: dict[str, deque[str]] = {}

    def line(self, endpoint: str, stream: str, text: str, component: str | None = None) -> None:
        """Queue one line of an engine's output (callable from any thread)."""
        self._recent.setdefault(endpoint, deque(maxlen=_KEPT_LINES)).append(text)
        if text.strip():  # CloudWatch refuses empty events
            at = int(self._now().timestamp() * 1000)
            self._waiting.setdefault((endpoint, component, stream), []).append((at, text[:LONGEST_EVENT]))

    def recent(self, endpoint: str, lines: int) -> list[str]:
        """Return the last lines of an endpoint's engines, oldest first; empty when there are none."""
        kept = list(self._recent.get(endpoint, ()))
        return kept[-lines:] if lines > 0 else []

    def flush(self) -> None:
        """Flush all queued lines."""
        waiting, self._waiting = self._waiting, {}
        for (endpoint, component, stream), events in waiting.items():
            group = group_of(endpoint) if component is None else group_of_component(component)
            self._store(group, stream, events, self._role_of(endpoint, component))
