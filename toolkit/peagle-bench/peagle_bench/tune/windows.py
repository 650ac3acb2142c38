"""Measurement of windows: a reading of one endpoint at one K and one concurrency under load.

An interrupted tuning continues from the complete windows of its results file. Progress shows the number of
the window and the estimated time left.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from peagle_bench.benchmark.progress import LoadWatch, Spending
from peagle_bench.load import LoadOptions, WorkItem, make_target
from peagle_bench.load.points import is_withheld, too_many
from peagle_bench.load.run import measure_point
from peagle_bench.results.records import ArmRecord, Load, Mode, Reading, Record, RequestRecord
from peagle_bench.tune.arms import label
from peagle_bench.tune.readings import Scrape, read_scrape, reading_of
from peagle_bench.workloads import salted
from peagle_sm.core.errors import PeagleError, SpecError
from peagle_sm.service import Endpoint
from peagle_sm.service.progress import Progress

STATUS = "window"  #: the same for all windows, so that a log gets a line every 30 s, not one per window


class WindowProgress:
    """Progress over the windows of a tuning; ``most`` is their estimated number."""

    def __init__(
        self,
        progress: Progress | None,
        most: int,
        *,
        every_s: float = 0.5,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._progress = progress or (lambda event: None)
        self._most = most
        self._every_s = every_s
        self._spending = Spending(None, monotonic)
        self._begun = 0

    def skip(self) -> None:
        """Count a window that an earlier run has measured."""
        self._begun += 1

    def window(self, arm: str, load: Load, total: int) -> LoadWatch:
        """Begin the next window and return its observer."""
        self._begun += 1
        most = max(self._most, self._begun)
        return LoadWatch(
            load,
            lambda record: None,  # a window's records are written together when it is complete
            self._progress,
            self._spending,
            total=total,
            every_s=self._every_s,
            status=STATUS,
            title=f"{STATUS} {self._begun} of about {most}: {arm} {load.label}",
            windows_after=most - self._begun,
        )


FIELD = "num_speculative_tokens"


def with_k(body: Mapping[str, Any], k: int | None) -> dict[str, Any]:
    """Return the body of a request that names its K (an engine with the plugin reads it); None names none."""
    return dict(body) if k is None else {**body, "vllm_xargs": {FIELD: k}}


class WindowReader(Protocol):
    """Source of readings for a strategy: measures windows, or returns those of an earlier run."""

    def read(self, k: int, concurrency: int, block: int) -> Reading:
        """Measure one window."""


def requests_of(requests: int, concurrency: int) -> int:
    """Return the number of measured requests of a window: at least three times the concurrency."""
    return max(requests, 3 * concurrency)


def failures(records: Sequence[RequestRecord]) -> str | None:
    """Say that too many of the measured requests failed (`too_many`); else None.

    An engine that refuses half of the requests at once serves half of the load: what it answers looks faster.
    """
    measured = [each for each in records if each.phase == "measured"]
    failed = [each.error_message or each.error for each in measured if each.error is not None]
    if not too_many(len(failed), len(measured)):
        return None
    return f"{len(failed)} of {len(measured)} requests failed, so fewer were in flight: {failed[0]}"


@dataclass
class EndpointReader:
    """Reader that measures an endpoint of one mode; ``runtime``: K is set per request.

    ``requests`` is the least number of a window (`requests_of`). ``arm`` is its record for the results file;
    ``sink`` gets every record; ``untrusted`` collects windows in which the client was the bottleneck.
    ``rotate``: other prompts in each round, the same for each K. ``by_client``: the client's own times count,
    so that a late client makes a window untrusted even if the engine has its histogram.
    """

    endpoint: Endpoint
    mode: Mode
    arm: ArmRecord
    items: Sequence[WorkItem]
    requests: int
    sink: Callable[[Record], None]
    runtime: bool = False
    rotate: bool = True
    by_client: bool = False
    salt: str = ""
    window_progress: WindowProgress = field(default_factory=lambda: WindowProgress(None, 0))
    untrusted: list[str] = field(default_factory=list)
    _known: set[str] = field(default_factory=set)

    def read(self, k: int, concurrency: int, block: int) -> Reading:
        """Measure one window and pass its records to the sink.

        Raises:
            SpecError: too few prompts.
            LoadStopped, ServiceFault: the endpoint does not answer.
        """
        arm = replace(self.arm, name=label(self.mode, k), num_speculative_tokens=k or None)
        if arm.name not in self._known:
            self.sink(arm)
            self._known.add(arm.name)
        target = replace(make_target(self.endpoint.session, arm), arm=arm.name)
        wanted = requests_of(self.requests, concurrency)
        load = Load("closed", concurrency=concurrency)
        options = LoadOptions(requests=wanted, drain="keep", seed=block, block=block)
        before = self._scrape()
        # More items than requests: the load continues until its last measured request has ended.
        records, point = measure_point(
            target,
            load,
            self._work(k, concurrency, block, wanted + concurrency),
            options,
            observer=self.window_progress.window(arm.name, load, wanted),
        )
        after = self._scrape()
        for record in records:
            self.sink(record)
        reading = reading_of(
            records,
            k=k,
            concurrency=concurrency,
            block=block,
            seconds=point.seconds,
            scrapes=(before, after) if before is not None and after is not None else None,
        )
        # The engine's own histogram is valid even if the client was late.
        engine_counts = reading.step_source == "metrics" and not self.by_client
        reading = replace(reading, mode=self.mode)
        late = point.client.reason if is_withheld(point.client) and not engine_counts else None
        if why := failures(records) or late:
            untrusted = f"{arm.name} c={concurrency}: {why}"
            self.untrusted.append(untrusted)
            reading = replace(reading, untrusted=untrusted)
        self.sink(reading)
        return reading

    def demand_runtime_k(self, most: int) -> None:
        """Check that K can be set per request: an engine with the plugin refuses a too large K.

        Raises:
            SpecError: the engine ignored the field, so every K would measure the same.
        """
        body = {"prompt": "1", "max_tokens": 1}
        try:
            for _ in self.endpoint.stream(with_k(body, most + 1)):
                pass
        except PeagleError as error:
            if FIELD in f"{error.message} {error.details}":
                return
            raise
        raise SpecError(
            f"endpoint {self.endpoint.name} ignores {FIELD} in requests: its image has no runtime K plugin.",
            next_step="Use --by deployments, or an image built from this project's container/.",
        )

    def _work(self, k: int, concurrency: int, block: int, at_least: int) -> list[WorkItem]:
        start = block * at_least if self.rotate else 0
        chosen = []
        # Twice the measured number, so that the load at the end uses the same kind of prompts.
        for index in range(2 * at_least):
            item = self.items[(start + index) % len(self.items)]
            turn = index // len(self.items)
            mark = f"{self.salt}-{self.mode}-{k}-{concurrency}-{block}-{turn}"
            body = with_k(item.body, k if self.runtime else None)
            chosen.append(salted(replace(item, body=body, then=None), mark))
        return chosen

    def _scrape(self) -> Scrape | None:
        if not self.endpoint.session.is_local:
            return None  # SageMaker forwards only /invocations
        try:
            return read_scrape(self.endpoint.metrics(self.arm.component))
        except PeagleError:
            return None


def demand_prompts(items: Sequence[WorkItem]) -> None:
    """Refuse an empty workload.

    Raises:
        SpecError: there are no prompts.
    """
    if not items:
        raise SpecError("the workload has no prompts.", next_step="Give one with prompts.")


class Measured:
    """Windows of an earlier run; each is used once, in the order of measurement.

    Strategies depend only on their readings, so a run with the same readings continues in the same way.
    """

    def __init__(self, windows: Iterable[Reading] = ()) -> None:
        self._left: dict[tuple[str, int, int, int], deque[Reading]] = defaultdict(deque)
        for window in windows:
            self._left[window.mode, window.k, window.concurrency, window.block].append(window)

    def take(self, mode: str, k: int, concurrency: int, block: int) -> Reading | None:
        """Return the next window of these settings; None if it must be measured."""
        left = self._left.get((mode, k, concurrency, block))
        return left.popleft() if left else None

    def has_all(self, mode: str, k: int, concurrencies: Collection[int]) -> bool:
        """Decide whether K was measured at every concurrency, so that it need not be deployed again."""
        loads = {c for (*arm, c, _), left in self._left.items() if arm == [mode, k] and left}
        return loads >= set(concurrencies)


@dataclass
class Resumed:
    """Reader that measures only missing windows; ``side`` is None if nothing was deployed."""

    mode: Mode
    measured: Measured
    side: WindowReader | None
    sink: Callable[[Record], None]
    window_progress: WindowProgress
    untrusted: list[str]

    def read(self, k: int, concurrency: int, block: int) -> Reading:
        """Return the window of the earlier run, or measure it.

        Raises:
            SpecError: the file has no such window, and nothing was deployed to measure it.
        """
        known = self.measured.take(self.mode, k, concurrency, block)
        if known is not None:
            self.window_progress.skip()
            self.sink(known)
            if known.untrusted is not None:
                self.untrusted.append(known.untrusted)
            return known
        if self.side is None:
            raise SpecError(
                f"the results file has no window of {label(self.mode, k)} c={concurrency} in round {block}",
                next_step="start a new run in another file (--out)",
            )
        return self.side.read(k, concurrency, block)
