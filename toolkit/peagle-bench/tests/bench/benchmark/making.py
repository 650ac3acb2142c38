"""A load client without a network: it answers, stops or is interrupted as it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from peagle_bench.benchmark.endpoint_arm import Described
from peagle_bench.benchmark.run import BenchDependencies
from peagle_bench.load import HttpTarget, LoadOptions, LoadStopped, Observer, Target, WorkItem
from peagle_bench.load.points import Objective
from peagle_bench.results.records import (
    Acceptance,
    ArmRecord,
    ClientHealth,
    Load,
    Percentiles,
    PointRecord,
    RequestRecord,
)
from peagle_bench.workloads import Workload
from peagle_sm.core.served_target import ServedTarget
from peagle_sm.service.progress import Event

TARGET = HttpTarget("http://engine:8000", arm="demo")
HEALTHY = ClientHealth(True, None, 0.1, 0.2, 10.0)
TIMES = Percentiles(1.0, 2.0, 3.0, 1.5, 4)


def arm(**changed: Any) -> ArmRecord:
    return replace(ArmRecord("demo", "p-eagle", 2, "demo", deployment="d1", usd_per_hour=36.0), **changed)


def described(**changed: Any) -> Described:
    return Described(arm(**changed), target=ServedTarget(stand_in=True), origin={"image": "vllm"})


def workload(prompts: int = 6, *, turns: bool = False) -> Workload:
    def follow(number: int) -> Callable[[str], WorkItem]:
        return lambda text: WorkItem(f"p/{number}", {"prompt": text, "max_tokens": 4}, turn=1)

    items = tuple(
        WorkItem(
            f"p/{number}",
            {"prompt": "x" * (number + 1), "max_tokens": 4, "temperature": 0.0},
            then=follow(number) if turns else None,
        )
        for number in range(prompts)
    )
    return Workload("made", items, "none", "abc", "made up", prompts, temperature=0.0)


@dataclass
class FakeClient:
    """Answers every request in one second; the fields say what happens otherwise.

    ``stop_after`` / ``interrupt_after``: so many requests of a load; ``errors`` is by prompt id, and spares
    the first request where ``probe_works``.
    """

    histogram: tuple[int, ...] = (1, 1, 2)
    errors: dict[str, tuple[str, str]] = field(default_factory=dict)
    probe_works: bool = False
    stop_after: int | None = None
    interrupt_after: int | None = None
    client: ClientHealth = HEALTHY
    sent: list[tuple[str, WorkItem]] = field(default_factory=list)
    options: list[LoadOptions] = field(default_factory=list)
    now_s: float = 0.0

    def clock(self) -> float:
        return self.now_s

    def __call__(
        self,
        target: Target,
        load: Load,
        items: Iterable[WorkItem],
        options: LoadOptions,
        *,
        observer: Observer | None = None,
        temperature: float | None = None,
        objective: Objective | None = None,
        acceptance: Callable[[Sequence[RequestRecord]], Acceptance | None] | None = None,
        usd_per_hour: float | None = None,
    ) -> tuple[list[RequestRecord], PointRecord]:
        self.options.append(options)
        warm_up, measured = options.warm_up_requests or 0, options.requests or 5
        records: list[RequestRecord] = []
        for number, item in enumerate(islice(items, warm_up + measured)):
            if observer is not None and number in (0, warm_up):
                observer.phase("warm-up" if number < warm_up else "measured")
            if number == self.interrupt_after:
                raise KeyboardInterrupt
            if number == self.stop_after and observer is not None:
                raise LoadStopped("the last 20 requests failed", tuple(records), next_step="look")
            records.append(self._record(load, item, "warm-up" if number < warm_up else "measured", options))
            if observer is not None:
                observer.request(records[-1])
        if observer is not None:
            observer.phase("drain")
        done = [record for record in records if record.phase == "measured"]
        return records, self._point(load, done, temperature, acceptance)

    def _record(self, load: Load, item: WorkItem, phase: Any, options: LoadOptions) -> RequestRecord:
        self.sent.append((load.label, item))
        began = self.now_s - (options.began or 0.0)
        self.now_s += 1.0
        spared = self.probe_works and len(self.sent) == 1
        error, message = (None, None) if spared else self.errors.get(item.prompt_id, (None, None))
        failed = error is not None
        return RequestRecord(
            "demo", load, item.prompt_id, phase, began, began, began + 0.1, began + 0.9, began + 1.0, 3,
            None if failed else 4, 0 if failed else 2, error=error, error_message=message,
            drafts=sum(self.histogram) or None,
            accepted=sum(j * n for j, n in enumerate(self.histogram)) if self.histogram else None,
            histogram=self.histogram,
        )  # fmt: skip

    def _point(
        self,
        load: Load,
        done: list[RequestRecord],
        temperature: float | None,
        acceptance: Callable[[Sequence[RequestRecord]], Acceptance | None] | None,
    ) -> PointRecord:
        errors: dict[str, int] = {}
        for record in done:
            if record.error is not None:
                errors[record.error] = errors.get(record.error, 0) + 1
        return PointRecord(
            "demo", load, float(len(done)), len(done), errors, 3 * len(done), 4 * len(done), 4.0, 4.0, 1.0,
            TIMES, TIMES, TIMES, TIMES, None if acceptance is None else acceptance(done), self.client,
            temperature,
        )  # fmt: skip


@dataclass
class World:
    """The outside of a run, and what was told to it."""

    client: FakeClient = field(default_factory=FakeClient)
    events: list[Event] = field(default_factory=list)
    looks: str | None = "the endpoint is Failed: out of memory"
    source: Any = None
    tokens: int = 0
    provenance: Callable[[], dict[str, Any]] = lambda: {"seed": 0}

    def around(self) -> BenchDependencies:
        return BenchDependencies(
            progress=self.events.append,
            look=lambda: self.looks,
            provenance=self.provenance,
            source=self.source,
            measure=self.client,
            clock=self.client.clock,
            now=lambda: datetime(2026, 11, 20, 13, 0, tzinfo=UTC),
            token=self._token,
            every_s=0.0,
        )

    def _token(self) -> str:
        self.tokens += 1
        return f"t{self.tokens}"
