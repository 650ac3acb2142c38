"""Complete tuning: deployment, measurement, choice, validation, deletion, and actual cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from peagle_bench.benchmark.endpoint_arm import describe_endpoint
from peagle_bench.benchmark.progress import Spending
from peagle_bench.compare.alternating import TurnContext
from peagle_bench.compare.deployments import Fleet
from peagle_bench.compare.run import Watch
from peagle_bench.load import Timeouts, WorkItem, make_target
from peagle_bench.results.records import Mode as RecordMode
from peagle_bench.results.records import Record, TableCheck, TableRecord, ValidationRecord
from peagle_bench.tune.arms import HostPlan, arm_spec, hosted, label, parse_label, table_spec
from peagle_bench.tune.estimate import Settings
from peagle_bench.tune.loads import LoadResult, conclude_loads, record_of
from peagle_bench.tune.outcome import ModeResult, conclude, fit_records
from peagle_bench.tune.strategy import Tell, by_deployments, in_one_engine, side_by_side
from peagle_bench.tune.validate import Validation, validated_loads
from peagle_bench.tune.windows import (
    EndpointReader,
    Measured,
    NotMeasured,
    Resumed,
    WindowProgress,
    WindowReader,
    demand_prompts,
)
from peagle_sm.aws.session.session import Session
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, Mode
from peagle_sm.service import Endpoint
from peagle_sm.service.progress import Progress


@dataclass
class Bill:
    """Sum of the costs of the endpoints."""

    usd: float = 0.0
    unknown: bool = False
    seconds: float = 0.0

    def add(self, seconds: float, usd_per_hour: float | None) -> None:
        """Add an endpoint that existed for ``seconds``, from CreateEndpoint to its deletion."""
        self.seconds += seconds
        if usd_per_hour is None:
            self.unknown = True
        else:
            self.usd += seconds / 3600 * usd_per_hour

    @property
    def total(self) -> float | None:
        """USD; None if a price is unknown."""
        return None if self.unknown else round(self.usd, 4)


@dataclass(frozen=True)
class Tuned:
    """Result of a tuning; ``usd`` is None if a price is unknown.

    ``tables`` has one element for each mode if K was tuned by load, else none.
    """

    results: tuple[ModeResult, ...]
    usd: float | None
    minutes: float
    untrusted: tuple[str, ...]
    tables: tuple[TableRecord, ...] = ()


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
    host: HostPlan | None = None  #: set if the arms are inference components of one endpoint
    monotonic: Callable[[], float] = time.monotonic
    every_s: float = 0.5  #: seconds between two progress events
    measured: Measured = field(default_factory=Measured)  #: windows of an earlier run
    validated: Sequence[ValidationRecord] = ()  #: loads that an earlier run has validated
    _window_progress: WindowProgress = field(default_factory=lambda: WindowProgress(None, 0))
    _bill: Bill = field(default_factory=Bill)
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
        windows = self.settings.windows(
            local=self.session.is_local, components=len(self.host.arms) if self.host is not None else 0
        )
        usual = windows.usual * len(self.settings.concurrencies)
        self._window_progress = WindowProgress(
            self.progress, usual, every_s=self.every_s, monotonic=self.monotonic
        )
        began = self.monotonic()
        tables: list[TableRecord] = []
        with ExitStack() as stack:
            if self.settings.by_load:
                results, tables = self._by_load()
            elif self.host is not None:
                results = self._side_by_side(stack, self.host)
            elif self.settings.runtime:
                results = self._in_engines(stack)
            else:
                results = self._by_deployments(stack)
        # After the deletion, since its minutes are billed too.
        for result in results:
            for record in fit_records(result, self._bill.total):
                self.sink(record)
        for table in tables:
            self.sink(table)
        minutes = (self.monotonic() - began) / 60
        return Tuned(tuple(results), self._bill.total, minutes, tuple(self._untrusted), tuple(tables))

    def _runtime_specs(self) -> dict[str, EndpointSpec]:
        settings = self.settings
        specs = {"none": arm_spec(self.base, "none", None)}
        for mode in settings.modes:
            specs[mode] = arm_spec(
                self.base, mode, settings.max_k, runtime=True, head=settings.heads.get(mode)
            )
        return specs

    def _by_load(self) -> tuple[list[ModeResult], list[TableRecord]]:
        """Measure each mode at each load in one engine; then validate each table on its own endpoint."""
        found = self._loads_of_earlier_run()
        if found is None:
            with self._up(self._runtime_specs(), runtime=True) as sides:
                for mode in self.settings.modes:
                    sides[mode].demand_runtime_k(self.settings.max_k)
                found = [
                    self._load_result(
                        mode, self._resumed(mode, sides[mode]), self._resumed("none", sides["none"])
                    )
                    for mode in self.settings.modes
                ]
        checks = [() if result.table.is_constant else self._validate(result) for result in found]
        tables = [
            record_of(result, checked, [other for other in found if other is not result])
            for result, checked in zip(found, checks, strict=True)
        ]
        return [result.fixed for result in found], tables

    def _loads_of_earlier_run(self) -> list[LoadResult] | None:
        """Return the results of an earlier run; None if a window is missing, so that engines are needed."""
        if not self.measured:
            return None
        again, untrusted = self.measured.again(), list[str]()

        def reader(mode: str) -> Resumed:
            return Resumed(_record_mode(mode), again, None, WindowProgress(None, 0), untrusted)

        try:
            found = [self._load_result(mode, reader(mode), reader("none")) for mode in self.settings.modes]
        except NotMeasured:
            return None
        self._untrusted += untrusted
        return found

    def _load_result(self, mode: Mode, engine: WindowReader, plain: WindowReader) -> LoadResult:
        settings = self.settings
        self.tell(f"{mode}: K 0 to {settings.max_k} in one engine, at each load")
        readings = in_one_engine(
            engine,
            plain,
            settings.concurrencies,
            settings.max_k,
            self.tell,
            rounds=settings.rounds,
            drafts_off=True,
        )
        return conclude_loads(mode, *readings)

    def _validate(self, result: LoadResult) -> tuple[TableCheck, ...]:
        """Deploy the table and the best fixed K as they would be written, and alternate between them."""
        mode, head = result.spec_mode, self.settings.heads.get(result.mode)
        k, rows = result.fixed.common.k, result.table.rows
        known = [
            one.check for one in self.validated if (one.mode, one.rows, one.fixed_k) == (result.mode, rows, k)
        ]
        loads = validated_loads(self.settings.concurrencies)
        if len(known) == len(loads) or any(check.verdict != "as fast" for check in known):
            self.tell(f"{mode}: the table is already validated")
            return tuple(known)
        self.tell(f"{mode}: validation of the table ({result.table.words}) against K={k}")
        specs = {
            f"{mode} table": table_spec(self.base, mode, rows, head=head),
            label(mode, k): arm_spec(self.base, mode, k, head=head),
        }
        with self._up(specs, runtime=False) as sides:
            table, fixed = (replace(side.arm, name=name) for name, side in sides.items())
            prices = [side.arm.usd_per_hour or 0.0 for side in sides.values()]
            watch = Watch(
                self.progress or (lambda event: None),
                Spending(sum(prices), self.monotonic),
                every_s=self.every_s,
            )
            began = time.perf_counter()
            validation = Validation(
                table=table,
                fixed=fixed,
                target_of=lambda arm: replace(make_target(self.session, arm), arm=arm.name),
                items=self.items,
                requests=self.settings.size.requests,
                sink=self.sink,
                salt=self.salt,
                context_of=lambda on_run: TurnContext(Timeouts(), began, watch, on_run),
                on_load=watch.begin,
                on_end=watch.end,
                on_check=lambda check: self.sink(ValidationRecord(result.mode, rows, k, check)),
            )
            checks = validation.checks(loads, known)
        self._untrusted += validation.untrusted
        return checks

    def _in_engines(self, stack: ExitStack) -> list[ModeResult]:
        settings = self.settings
        sides = stack.enter_context(self._up(self._runtime_specs(), runtime=True))
        results = []
        for mode in settings.modes:
            sides[mode].demand_runtime_k(settings.max_k)
            self.tell(f"{mode}: K 1 to {settings.max_k} in one engine")
            engine, plain = in_one_engine(
                self._resumed(mode, sides[mode]),
                self._resumed("none", sides["none"]),
                settings.concurrencies,
                settings.max_k,
                self.tell,
                rounds=settings.rounds,
            )
            results.append(conclude(mode, [*engine, *plain], deployments=1))
        return results

    def _by_deployments(self, stack: ExitStack) -> list[ModeResult]:
        settings = self.settings
        plain = stack.enter_context(self._up({"none": arm_spec(self.base, "none", None)}, runtime=False))
        found = []
        for mode in settings.modes:
            self.tell(f"{mode}: at most {settings.most_deployments} deployments")
            readings, deployed = by_deployments(
                lambda k, mode=mode: self._one(mode, k),  # type: ignore[misc]
                self._resumed("none", plain["none"]),
                settings.concurrencies,
                settings.max_k,
                self.tell,
                most=settings.most_deployments,
                beside=self.session.is_local,
            )
            found.append(conclude(mode, readings, deployments=deployed, levelled=self.session.is_local))
        return found

    def _side_by_side(self, stack: ExitStack, plan: HostPlan) -> list[ModeResult]:
        settings = self.settings
        host = stack.enter_context(self._hosted(plan))
        sides = {}
        for name, arm in plan.arms.items():
            mode, k = parse_label(name)
            sides[mode, k] = self._side(mode, host, False, component=arm.name, k=k)
        resumed = {(mode, k): self._resumed(mode, side) for (mode, k), side in sides.items()}
        readings = side_by_side(resumed, settings.concurrencies, settings.rounds, self.tell)
        return [
            conclude(
                mode,
                [*readings[mode], *readings["none"]],
                deployments=sum(1 for one, _ in sides if one == mode),
            )
            for mode in settings.modes
        ]

    @contextmanager
    def _hosted(self, plan: HostPlan) -> Iterator[Endpoint]:
        began = self.monotonic()
        try:
            with hosted(
                plan, self.session, unguarded=self.settings.unguarded, progress=self.progress
            ) as endpoint:
                yield endpoint
        finally:
            self._bill.add(self.monotonic() - began, plan.usd_per_hour)

    @contextmanager
    def _one(self, mode: Mode, k: int) -> Iterator[WindowReader]:
        if self.measured.has_all(mode, k, self.settings.concurrencies):
            self.tell(f"{label(mode, k)}: already measured")
            yield self._resumed(mode, None)
            return
        spec = arm_spec(self.base, mode, k, head=self.settings.heads.get(mode))
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
            for _ in specs:
                self._bill.add(self.monotonic() - began, price)

    def _side(
        self, key: str, endpoint: Endpoint, runtime: bool, *, component: str | None = None, k: int = 0
    ) -> EndpointReader:
        mode = _record_mode(key)
        arm = describe_endpoint(self.session, endpoint.name, component=component).arm
        if component is not None:  # the endpoint's tags do not give the mode: it runs all components
            arm = replace(arm, mode=mode, num_speculative_tokens=k or None)
        return EndpointReader(
            endpoint,
            mode,
            arm,
            self.items,
            self.settings.size,
            self.sink,
            runtime=runtime and mode != "none",
            rotate=runtime,
            salt=self.salt,
            window_progress=self._window_progress,
            untrusted=self._untrusted,
        )

    def _resumed(self, mode: str, side: WindowReader | None) -> Resumed:
        return Resumed(_record_mode(mode), self.measured, side, self._window_progress, self._untrusted)


def _record_mode(mode: str) -> RecordMode:
    return "none" if mode == "none" else "eagle3" if mode == "eagle3" else "p-eagle"
