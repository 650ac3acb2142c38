"""Where acceptance comes from when the answers do not carry it: the engine's counters, or its log lines."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from functools import reduce
from operator import add
from typing import Protocol

from peagle_sm.aws.control.logs import since
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import PeagleError
from peagle_sm.measure.acceptance import Counters, from_counters, read_counters, read_log_line
from peagle_sm.measure.bare_server import read_url
from peagle_sm.measure.records import Acceptance, ArmRecord
from peagle_sm.service import Endpoint

#: vLLM logs every 10 s, and CloudWatch shows a line some seconds later.
LOG_DELAY_S = 20.0


class EngineSource(Protocol):
    """Acceptance of everything that an engine does between two moments."""

    @property
    def drafts(self) -> bool | None:
        """Whether the engine drafts at all, as far as this source can tell without a measurement."""

    def begin(self) -> None:
        """A load is about to start."""

    def end(self) -> Acceptance | None:
        """The load has ended: its acceptance, warm-up included; None where the source says nothing."""


class Scraped:
    """Counters of ``/metrics``, read by ``read``."""

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read
        self._before: Counters | None = None

    @property
    def drafts(self) -> bool | None:
        """Counters of speculation exist only in an engine that speculates; None while they stand at 0."""
        try:
            counters = read_counters(self._read())
        except PeagleError:
            return None
        return False if counters is None else True if counters.drafts else None

    def begin(self) -> None:
        """Read the counters before the load."""
        self._before = self._counters()

    def end(self) -> Acceptance | None:
        """Read them again and subtract."""
        after = self._counters()
        if after is None or self._before is None:
            return None
        return from_counters(after - self._before, "metrics")

    def _counters(self) -> Counters | None:
        try:
            return read_counters(self._read())
        except PeagleError:  # a page that does not answer costs the figure, not the measurement
            return None


class Logged:
    """Lines that the engine has written to CloudWatch Logs; the end waits until they are there."""

    drafts: bool | None = None

    def __init__(
        self, session: Session, endpoint: str, tokens: int, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._session = session
        self._endpoint = endpoint
        self._tokens = tokens
        self._sleep = sleep
        self._began: datetime | None = None

    def begin(self) -> None:
        """Remember when the load began."""
        self._began = self._session.now()

    def end(self) -> Acceptance | None:
        """Sum the lines since then up."""
        if self._began is None:
            return None
        self._sleep(LOG_DELAY_S)
        try:
            lines = [line.message for _, line in since(self._session, self._endpoint, self._began)]
        except PeagleError:
            return None
        counts = [found for line in lines if (found := read_log_line(line, self._tokens)) is not None]
        return from_counters(reduce(add, counts), "cloudwatch") if counts else None


def engine_source(
    session: Session | None, arm: ArmRecord, sleep: Callable[[float], None] = time.sleep
) -> EngineSource | None:
    """The best source for an arm whose answers carry no acceptance; None where there is none."""
    if arm.transport == "http":
        return Scraped(lambda: read_url(f"{arm.endpoint}/metrics"))
    if session is None:
        return None
    if session.is_local:
        return Scraped(lambda: Endpoint(arm.endpoint, session).metrics(arm.component))
    if arm.mode == "none" or not arm.num_speculative_tokens or arm.component is not None:
        return None  # a component logs to a group of its own, which `since` does not read
    return Logged(session, arm.endpoint, arm.num_speculative_tokens, sleep)
