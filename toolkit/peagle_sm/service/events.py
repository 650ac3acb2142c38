"""What a use case tells while it works, and how fast it may go."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from peagle_sm.aws.session.session import Session

Phase = Literal[
    "check",
    "lifetime",
    "model",
    "config",
    "endpoint",
    "waiting",
    "verify",
    "ready",
    "failed",
    "cleanup",
    "interrupted",
    "delete",
    "pause",
    "resume",
    "stack",
    "done",
]


@dataclass(frozen=True)
class Event:
    """One thing that happened.

    ``waiting`` comes at every look at the endpoint, with its ``status``. ``elapsed_s`` counts from the
    start of the use case; ``spent_usd`` is what the endpoint has cost so far at the plan's price, or None
    where no price is known.
    """

    phase: Phase
    message: str
    status: str | None = None
    elapsed_s: float = 0.0
    spent_usd: float | None = None
    resource: str | None = None
    done: int | None = None  #: of a measurement: requests so far, of ``total``
    total: int | None = None  #: None where the time decides
    left_s: float | None = None  #: about how long the measurement still takes; None where it is not known


Progress = Callable[[Event], None]


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Pacing:
    """The clocks, the sleep and the patience of a use case.

    ``clock`` is the time by which schedules fire; ``poll_s`` lies between two looks at a resource;
    ``delete_timeout_s`` bounds the wait for an endpoint to be gone (Creating refuses deletion, and may
    last as long as both start-up timeouts together); ``capacity_wait_s`` lies between two attempts to get
    instances that AWS has none of (five minutes: see `service.capacity`).
    """

    clock: Callable[[], datetime] = _utc_now
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    poll_s: float = 15.0
    delete_timeout_s: float = 9000.0
    capacity_wait_s: float = 300.0

    @classmethod
    def for_session(cls, session: Session) -> Pacing:
        """Return what suits the place: five looks a second locally, one every 15 s on AWS."""
        if session.is_local:
            return cls(clock=session.now, poll_s=0.2, capacity_wait_s=1.0)
        return cls(clock=session.now)


@dataclass
class Reporter:
    """Stamps events with elapsed time and spend before they go to the caller.

    ``quiet`` swallows what the caller's function raises (Ctrl-C excepted): a broken pipe must not stop a
    clean-up.
    """

    progress: Progress | None
    pacing: Pacing
    usd_per_hour: float | None = None
    started: float = field(init=False)
    billed_from: float | None = None
    quiet: bool = False

    def __post_init__(self) -> None:
        """Start the clock."""
        self.started = self.pacing.monotonic()

    def start_billing(self, seconds_ago: float = 0.0) -> None:
        """Count spend from now, or from some seconds ago."""
        if self.billed_from is None:
            self.billed_from = self.pacing.monotonic() - max(0.0, seconds_ago)

    def spent_usd(self) -> float | None:
        """Return the spend so far: price times the time since the endpoint was asked for."""
        if self.usd_per_hour is None:
            return None
        if self.billed_from is None:
            return 0.0
        return self.usd_per_hour * (self.pacing.monotonic() - self.billed_from) / 3600

    def __call__(
        self, phase: Phase, message: str, *, status: str | None = None, resource: str | None = None
    ) -> None:
        """Send one event."""
        if self.progress is None:
            return
        elapsed = self.pacing.monotonic() - self.started
        event = Event(phase, message, status, elapsed, self.spent_usd(), resource)
        try:
            self.progress(event)
        except Exception:
            if not self.quiet:
                raise
