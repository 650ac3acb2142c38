"""Types that all parts of the load client share: work items, options, windows, results. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from peagle_bench.results.records import Load, Phase, RequestRecord
from peagle_sm.core.errors import ServiceFault, SpecError

Clock = Callable[[], float]
"""Monotonic seconds; ``time.perf_counter`` except in tests."""


@dataclass(frozen=True)
class WorkItem:
    """One request: an OpenAI completion body (``prompt``) or chat body (``messages``).

    ``stream`` and ``stream_options.include_usage`` are set on sending. ``then`` makes the next turn of a
    conversation from the text of this answer (None: it ends here). The same slot sends that turn at once, and
    it counts neither in ``LoadOptions.requests`` nor as an arrival. ``labels`` are the user's own slices.
    ``share``: requests with the same text share prefixes in the cache, others do not. ``conversation``: id
    of the conversation of which this is one turn among several requests; empty if it is alone.
    """

    prompt_id: str
    body: Mapping[str, Any]
    category: str | None = None
    turn: int = 0
    then: Callable[[str], WorkItem | None] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    share: str = ""
    conversation: str = ""


@dataclass(frozen=True)
class Timeouts:
    """Timeouts in seconds; a request that exceeds one is recorded as an error."""

    connect_s: float = 10.0
    read_s: float = 120.0  #: longest time without any byte, also before the first
    total_s: float = 490.0  #: SageMaker ends a stream after 8 minutes


@dataclass(frozen=True)
class LoadOptions:
    """Length of a measurement, its warm-up, and the limits of the client.

    Exactly one of ``requests`` (the number measured) and ``seconds`` (the length) is given. The warm-up of
    ``warm_up_requests`` comes before (None: the closed loop's concurrency, none in an open loop).

    ``drain``: what happens after the window. ``finish`` lets the requests in flight end; ``keep`` continues
    to send (phase "drain"), so that the measured requests end under full load; this needs more prompts.

    ``max_connections`` None: the concurrency, or 1,000 in an open loop. ``give_up_after`` failures in a row
    end the load (None: 20 or twice the concurrency, whichever is more). ``began``: the run's start on the
    clock, the zero of all times in the records; None: the load's own start.
    """

    requests: int | None = None
    seconds: float | None = None
    warm_up_requests: int | None = None
    drain: Literal["finish", "keep"] = "finish"
    timeouts: Timeouts = field(default_factory=Timeouts)
    seed: int = 0
    keep_text: bool = False
    max_connections: int | None = None
    give_up_after: int | None = None
    pause_after_error_s: float = 0.5  #: in a slot of a closed loop, to spare an endpoint that refuses
    began: float | None = None
    block: int = 0


def check_load(load: Load) -> None:
    """Check the values of a load.

    Raises:
        SpecError: a concurrency outside 1 to 1,024, or a rate that is not above 0.
    """
    if load.kind == "closed":
        if load.concurrency is None or not 1 <= load.concurrency <= MAX_CONCURRENCY:
            raise _refused("concurrency", load.concurrency, f"1 to {MAX_CONCURRENCY:,}")
    elif load.rate_per_s is None or not 0 < load.rate_per_s < float("inf"):
        raise _refused("rate", load.rate_per_s, "requests per second, above 0")


MAX_CONCURRENCY = 1024


def _refused(name: str, value: object, allowed: str) -> SpecError:
    return SpecError(f"{name}: found {value}; allowed: {allowed}.", next_step=f"Correct {name}.")


class Observer(Protocol):
    """Callbacks during a load; they run in the event loop, so they must be fast."""

    def phase(self, phase: Phase) -> None:
        """Note that a phase begins; "measured" begins the window, "drain" ends it."""

    def request(self, record: RequestRecord) -> None:
        """Note that a request has ended, successfully or not, in any phase."""


class Silent:
    """Observer that does nothing."""

    def phase(self, phase: Phase) -> None:
        """Do nothing."""

    def request(self, record: RequestRecord) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class Window:
    """Measured time, in seconds since the run began; ``seconds`` is less when arms share it."""

    start_s: float
    end_s: float
    seconds: float


@dataclass(frozen=True)
class ClientUsage:
    """Resources that the client used during the window.

    ``lags_ms``: delays of its event loop after a clock signal, sampled every 50 ms; ``cpu_s``: CPU time of
    the process; ``connections_full``: a request had to wait for a free connection of the client.
    """

    lags_ms: tuple[float, ...]
    cpu_s: float
    connections_full: bool = False


@dataclass(frozen=True)
class LoadRun:
    """Result of one load: all its requests in the order of their ends, and the window."""

    arm: str
    load: Load
    block: int
    records: tuple[RequestRecord, ...]
    window: Window
    usage: ClientUsage


class LoadStopped(ServiceFault):
    """Error that ends a load: many requests in a row failed. ``records`` are the requests so far."""

    def __init__(self, message: str, records: tuple[RequestRecord, ...], *, next_step: str) -> None:
        """Keep the records so far."""
        super().__init__(message, operation="load", code="LoadStopped", next_step=next_step)
        self.records = records
