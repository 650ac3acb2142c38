"""Complete tuning: deployment, measurement, choice, deletion, and actual cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from peagle_bench.benchmark.endpoint_arm import describe_endpoint
from peagle_bench.compare.deployments import Fleet
from peagle_bench.load import WorkItem
from peagle_bench.results.records import Record
from peagle_bench.tune.arms import arm_spec, label
from peagle_bench.tune.choice import MOST_DEPLOYED
from peagle_bench.tune.estimate import Settings
from peagle_bench.tune.outcome import ModeResult, conclude, fit_records
from peagle_bench.tune.strategy import Tell, by_deployments, in_one_engine
from peagle_bench.tune.windows import (
    EndpointReader,
    Measured,
    Resumed,
    WindowProgress,
    WindowReader,
    demand_prompts,
)
from peagle_sm.aws.session.session import Session
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.core.spec.modes import Mode
from peagle_sm.service import Endpoint
from peagle_sm.service.progress import Progress


@dataclass(frozen=True)
class Tuned:
    """Result of a tuning; ``usd`` is None if a price is unknown."""

    results: tuple[ModeResult, ...]
    usd: float | None
    minutes: float
    untrusted: tuple[str, ...]


@dataclass
class Tuning:
    """One tuning run. ``sink`` gets the records, ``tell`` a sentence for each step."""

    base: EndpointSpec
    settings: Settings
    items: Sequence[WorkItem]
    session: Session
    salt: str
    sink: Callable[[Record], None]
    tell: Tell
    progress: Progress | None = None
    monotonic: Callable[[], float] = time.monotonic
    every_s: float = 0.5  #: seconds between two progress events
    measured: Measured = field(default_factory=Measured)  #: windows of an earlier run
    _window_progress: WindowProgress = field(default_factory=lambda: WindowProgress(None, 0))
    _costs: list[float | None] = field(default_factory=list)  #: USD of each endpoint; None: price unknown
    _untrusted: list[str] = field(default_factory=list)

    def run(self) -> Tuned:
        """Deploy, measure, choose, and delete, also after an error.

        Raises:
            PlanRefused: an endpoint cannot be deployed, or its name is in use.
            SpecError: the image does not support K per request.
            Interrupted, BillableLeft: Ctrl-C; remaining resources, if any, are named.
            LoadStopped, ServiceFault: an endpoint stopped answering; the sink has the records so far.
        """
        demand_prompts(self.items)
        usual, _ = self.settings.windows(local=self.session.is_local)
        self._window_progress = WindowProgress(
            self.progress,
            usual * len(self.settings.concurrencies),
            every_s=self.every_s,
            monotonic=self.monotonic,
        )
        began = self.monotonic()
        results = self._in_engines() if self.settings.runtime else self._by_deployments()
        # After the deletion, since its minutes are billed too.
        for result in results:
            for record in fit_records(result, total(self._costs)):
                self.sink(record)
        minutes = (self.monotonic() - began) / 60
        return Tuned(tuple(results), total(self._costs), minutes, tuple(self._untrusted))

    def _in_engines(self) -> list[ModeResult]:
        settings = self.settings
        specs = {"none": arm_spec(self.base, "none", None)}
        for mode in settings.modes:
            specs[mode] = arm_spec(self.base, mode, settings.max_k, runtime=True)
        results = []
        with self._up(specs, runtime=True) as sides:
            for mode in settings.modes:
                sides[mode].demand_runtime_k(settings.max_k)
                self.tell(f"{mode}: K 1 to {settings.max_k} in one engine")
                readings = in_one_engine(
                    self._resumed(mode, sides[mode]),
                    self._resumed("none", sides["none"]),
                    settings.concurrencies,
                    settings.max_k,
                    self.tell,
                )
                results.append(conclude(mode, readings, deployments=1))
        return results

    def _by_deployments(self) -> list[ModeResult]:
        settings, local = self.settings, self.session.is_local
        results = []
        with self._up({"none": arm_spec(self.base, "none", None)}, runtime=False) as plain:
            for mode in settings.modes:
                self.tell(f"{mode}: at most {MOST_DEPLOYED} deployments")
                readings, deployed = by_deployments(
                    lambda k, mode=mode: self._one(mode, k),  # type: ignore[misc]
                    self._resumed("none", plain["none"]),
                    settings.concurrencies,
                    settings.max_k,
                    self.tell,
                    beside=local,
                )
                results.append(conclude(mode, readings, deployments=deployed, levelled=local))
        return results

    @contextmanager
    def _one(self, mode: Mode, k: int) -> Iterator[WindowReader]:
        if self.measured.has_all(mode, k, self.settings.concurrencies):
            self.tell(f"{label(mode, k)}: already measured")
            yield self._resumed(mode, None)
            return
        spec = arm_spec(self.base, mode, k)
        with self._up({mode: spec}, runtime=False) as sides:
            yield self._resumed(mode, sides[mode])

    @contextmanager
    def _up(self, specs: Mapping[str, EndpointSpec], *, runtime: bool) -> Iterator[dict[str, EndpointReader]]:
        began = self.monotonic()
        price: float | None = 0.0 if self.session.is_local else None
        try:
            with Fleet(
                specs, self.session, unguarded=self.settings.unguarded, progress=self.progress
            ) as fleet:
                sides = {
                    key: self._side(specs[key].speculation.mode, endpoint, runtime)
                    for key, endpoint in fleet.endpoints.items()
                }
                price = next(iter(sides.values())).arm.usd_per_hour
                yield sides
        finally:
            hours = (self.monotonic() - began) / 3600  # from CreateEndpoint to the deletion
            self._costs += [None if price is None else hours * price] * len(specs)

    def _side(self, mode: Mode, endpoint: Endpoint, runtime: bool) -> EndpointReader:
        return EndpointReader(
            endpoint,
            mode,
            describe_endpoint(self.session, endpoint.name).arm,
            self.items,
            self.settings.requests,
            self.sink,
            runtime=runtime and mode != "none",
            rotate=runtime,
            salt=self.salt,
            window_progress=self._window_progress,
            untrusted=self._untrusted,
        )

    def _resumed(self, mode: Mode, side: WindowReader | None) -> Resumed:
        return Resumed(mode, self.measured, side, self.sink, self._window_progress, self._untrusted)


def total(costs: Sequence[float | None]) -> float | None:
    """Sum costs in USD; None if one is unknown."""
    known = [cost for cost in costs if cost is not None]
    return round(sum(known), 4) if len(known) == len(costs) else None
