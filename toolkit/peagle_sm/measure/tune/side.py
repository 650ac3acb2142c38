"""One endpoint under load: a window at one K and one concurrency becomes a reading."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from peagle_sm.core.errors import PeagleError, SpecError
from peagle_sm.measure.load import LoadOptions, WorkItem, make_target
from peagle_sm.measure.load.front import measure_point
from peagle_sm.measure.records import ArmRecord, Load, Mode, Record
from peagle_sm.measure.tune.arms import label
from peagle_sm.measure.tune.pace import Pace
from peagle_sm.measure.tune.reading import Reading, window_record
from peagle_sm.measure.tune.window import Scrape, read_scrape, reading_of
from peagle_sm.measure.withholding import is_withheld
from peagle_sm.measure.workloads import salted
from peagle_sm.service import Endpoint

FIELD = "num_speculative_tokens"


class Side(Protocol):
    """What a strategy measures."""

    def read(self, k: int, concurrency: int, block: int) -> Reading:
        """Measure one window."""


@dataclass(frozen=True)
class WindowSize:
    """How much is measured in a window: requests, at least three for each place of the closed loop."""

    requests: int = 24

    def of(self, concurrency: int) -> int:
        """The measured requests at this concurrency."""
        return max(self.requests, 3 * concurrency)


@dataclass
class EndpointSide:
    """An endpoint of one mode. ``runtime``: its K changes by request; else it runs the K that it has.

    ``arm`` is what a results file says of it; ``sink`` takes every record; ``untrusted`` collects windows in
    which the client itself was the bottleneck. ``rotate``: other prompts in each round, the same for each K.
    """

    endpoint: Endpoint
    mode: Mode
    arm: ArmRecord
    items: Sequence[WorkItem]
    size: WindowSize
    sink: Callable[[Record], None]
    runtime: bool = False
    rotate: bool = True
    salt: str = ""
    pace: Pace = field(default_factory=lambda: Pace(None, 0))
    untrusted: list[str] = field(default_factory=list)
    _known: set[str] = field(default_factory=set)

    def read(self, k: int, concurrency: int, block: int) -> Reading:
        """Measure one window; its records go to the sink.

        Raises:
            SpecError: too few prompts.
            LoadStopped, ServiceFault: the endpoint does not answer.
        """
        arm = replace(self.arm, name=label(self.mode, k), num_speculative_tokens=k or None)
        if arm.name not in self._known:
            self.sink(arm)
            self._known.add(arm.name)
        target = replace(make_target(self.endpoint.session, arm), arm=arm.name)
        wanted = self.size.of(concurrency)
        load = Load("closed", concurrency=concurrency)
        options = LoadOptions(requests=wanted, drain="keep", seed=block, block=block)
        before = self._scrape()
        # Endless, since the load goes on until its last measured request has ended.
        records, point = measure_point(
            target,
            load,
            self._work(k, concurrency, block, wanted + concurrency),
            options,
            observer=self.pace.window(arm.name, load, wanted),
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
        # The engine's own histogram does not care how late the client was.
        untrusted = None
        if is_withheld(point.client) and reading.step_source != "metrics":
            untrusted = f"{arm.name} c={concurrency}: {point.client.reason}"
            self.untrusted.append(untrusted)
        self.sink(window_record(self.mode, reading, untrusted))
        return reading

    def demand_runtime_k(self, most: int) -> None:
        """Ask for one draft too many: an engine with the plugin refuses it, any other ignores the field.

        Raises:
            SpecError: the engine ignored it, so every K would measure the same.
        """
        body = {"prompt": "1", "max_tokens": 1, "vllm_xargs": {FIELD: most + 1}}
        try:
            for _ in self.endpoint.stream(body):
                pass
        except PeagleError as error:
            if FIELD in f"{error.message} {error.details}":
                return
            raise
        raise SpecError(
            f"endpoint {self.endpoint.name} does not take {FIELD} by request: its image has no runtime K.",
            next_step="Use --by deployments, or an image built from this project's container/.",
        )

    def _work(self, k: int, concurrency: int, block: int, at_least: int) -> list[WorkItem]:
        extra = {"vllm_xargs": {FIELD: k}} if self.runtime and k else {}
        start = block * at_least if self.rotate else 0
        chosen = []
        # Twice what is measured: what keeps the load up at the end is of the same kind.
        for index in range(2 * at_least):
            item = self.items[(start + index) % len(self.items)]
            turn = index // len(self.items)
            mark = f"{self.salt}-{self.mode}-{k}-{concurrency}-{block}-{turn}"
            body = {**item.body, **extra}
            chosen.append(salted(replace(item, body=body, then=None), mark))
        return chosen

    def _scrape(self) -> Scrape | None:
        if not self.endpoint.session.is_local:
            return None  # SageMaker passes on /invocations alone
        try:
            return read_scrape(self.endpoint.metrics(self.arm.component))
        except PeagleError:
            return None


def demand_prompts(items: Sequence[WorkItem]) -> None:
    """Refuse an empty workload.

    Raises:
        SpecError: there is none.
    """
    if not items:
        raise SpecError("the workload is empty: no prompt to send.", next_step="Give one with prompts.")
