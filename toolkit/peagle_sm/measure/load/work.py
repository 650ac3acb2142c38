"""What is to be sent, and how: the words that every part of the load client shares. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from peagle_sm.core.errors import ServiceFault, SpecError
from peagle_sm.measure.results.records import Load, Phase, RequestRecord

Clock = Callable[[], float]
"""Seconds that only go forward; ``time.perf_counter`` unless a test says otherwise."""


@dataclass(frozen=True)
class WorkItem:
    """One request: an OpenAI completion body (``prompt``) or chat body (``messages``).

    ``stream`` and ``stream_options.include_usage`` are set when it is sent. ``then`` makes the next turn of a
    conversation from the text of this answer (None: it ends here); the same place sends it at once, and it
    counts neither as a request of its own in ``LoadOptions.requests`` nor as an arrival.
    """

    prompt_id: str
    body: Mapping[str, Any]
    category: str | None = None
    turn: int = 0
    then: Callable[[str], WorkItem | None] | None = None


@dataclass(frozen=True)
class Timeouts:
    """Seconds; a request that overstays one of them becomes an error in its record."""

    connect_s: float = 10.0
    read_s: float = 120.0  #: without any byte, the wait for the first one included
    total_s: float = 490.0  #: SageMaker ends a stream after 8 minutes

    def __post_init__(self) -> None:
        for name in ("connect_s", "read_s", "total_s"):
            if not getattr(self, name) > 0:
                raise SpecError(
                    f"timeouts.{name}: found {getattr(self, name)}; allowed: a number of seconds above 0.",
                    next_step="Give how long to wait, in seconds.",
                )


@dataclass(frozen=True)
class LoadOptions:
    """How long to measure, and what is left out of it.

    Exactly one of ``requests`` (how many are measured) and ``seconds`` (how long) is given. The warm-up comes
    before: ``warm_up_requests`` (None: as many as the closed loop's concurrency, none in an open loop), or
    ``warm_up_s`` seconds from the start. ``ramp_s`` spreads the start: a closed loop opens its places one
    after the other, an open loop's rate grows from 0; the warm-up never ends before the ramp.

    ``drain``: what happens after the window: ``finish`` lets what is in flight end, ``keep`` sends on (phase
    "drain") so that the measured requests end under full load, which takes more prompts.

    ``max_connections`` None: the concurrency, or 1,000 in an open loop. So many failures in a row as
    ``give_up_after`` end the load (None: 20 or twice the concurrency, whichever is more). ``began``: the
    run's beginning by the clock, to which all times of the records refer; None: the load's own start.
    """

    requests: int | None = None
    seconds: float | None = None
    warm_up_requests: int | None = None
    warm_up_s: float = 0.0
    ramp_s: float = 0.0
    drain: Literal["finish", "keep"] = "finish"
    timeouts: Timeouts = field(default_factory=Timeouts)
    seed: int = 0
    keep_text: bool = False
    max_connections: int | None = None
    give_up_after: int | None = None
    pause_after_error_s: float = 0.5  #: of a place of the closed loop; a refusing endpoint is not hammered
    began: float | None = None
    block: int = 0

    def __post_init__(self) -> None:
        if (self.requests is None) == (self.seconds is None):
            raise _refused("requests, seconds", (self.requests, self.seconds), "exactly one of the two")
        if self.requests is not None and self.requests < 1:
            raise _refused("requests", self.requests, "a whole number from 1")
        if self.seconds is not None and not self.seconds > 0:
            raise _refused("seconds", self.seconds, "a number above 0")
        for name in ("warm_up_s", "ramp_s", "pause_after_error_s"):
            if not getattr(self, name) >= 0:
                raise _refused(name, getattr(self, name), "0 or more seconds")
        for name, least in (("warm_up_requests", 0), ("max_connections", 1), ("give_up_after", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise _refused(name, value, f"a whole number from {least}")


def check_load(load: Load) -> None:
    """Refuse a load that cannot be run.

    Raises:
        SpecError: a concurrency outside 1 to 1,024 or a rate that is not above 0.
    """
    if load.kind == "closed":
        if load.concurrency is None or not 1 <= load.concurrency <= MAX_CONCURRENCY:
            raise _refused("concurrency", load.concurrency, f"1 to {MAX_CONCURRENCY:,}")
    elif load.rate_per_s is None or not 0 < load.rate_per_s < float("inf"):
        raise _refused("rate", load.rate_per_s, "requests a second, above 0")


MAX_CONCURRENCY = 1024


def _refused(name: str, found: object, allowed: str) -> SpecError:
    return SpecError(f"{name}: found {found}; allowed: {allowed}.", next_step=f"Correct {name}.")


class Observer(Protocol):
    """Told what happens while it happens, from the event loop: be quick."""

    def phase(self, phase: Phase) -> None:
        """A phase begins; "measured" begins the window, "drain" ends it."""

    def request(self, record: RequestRecord) -> None:
        """A request has ended, well or not, in whatever phase."""


class Silent:
    """The observer that nobody listens to."""

    def phase(self, phase: Phase) -> None:
        """Ignore it."""

    def request(self, record: RequestRecord) -> None:
        """Ignore it."""


@dataclass(frozen=True)
class Window:
    """The measured stretch, in seconds since the run began; ``seconds`` is less where arms share it."""

    start_s: float
    end_s: float
    seconds: float


@dataclass(frozen=True)
class ClientUsage:
    """What the client itself took over the window.

    ``lags_ms``: how late its event loop came to a clock signal, sampled every 50 ms; ``cpu_s``: CPU time of
    the process; ``connections_full``: a request had to wait for one of the client's own connections.
    """

    lags_ms: tuple[float, ...]
    cpu_s: float
    connections_full: bool = False


@dataclass(frozen=True)
class LoadRun:
    """What one load gave: all its requests in the order in which they ended, and the window."""

    arm: str
    load: Load
    block: int
    records: tuple[RequestRecord, ...]
    window: Window
    usage: ClientUsage


class LoadStopped(ServiceFault):
    """The endpoint failed every request of late, so the load was given up; ``records`` are what there is."""

    def __init__(self, message: str, records: tuple[RequestRecord, ...], *, next_step: str) -> None:
        """Keep what was measured before it."""
        super().__init__(message, operation="load", code="LoadStopped", next_step=next_step)
        self.records = records
