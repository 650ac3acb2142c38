"""Connects the parts of one server."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path

from sagemaker_local.admin import Admin
from sagemaker_local.clock import LocalClock
from sagemaker_local.cloudformation.api.drafts import Sources
from sagemaker_local.cloudformation.api.service import CloudFormation
from sagemaker_local.cloudformation.clients import Clients
from sagemaker_local.cloudformation.resources.types import ResourceTypes
from sagemaker_local.contents.jumpstart import jumpstart_addresses, lay_catalogue
from sagemaker_local.contents.seed import Seeded, seed
from sagemaker_local.contents.smollm2 import Fetch as FetchSmolLm2
from sagemaker_local.contents.smollm2 import SmolLm2, fetch_smollm2
from sagemaker_local.control import ControlPlane, Event, Timing
from sagemaker_local.control.jobs.training import TrainingRecord
from sagemaker_local.engine.building import LOG_PREFIX, OnLine, build_engine, build_trainer
from sagemaker_local.engine.env import engine_locks
from sagemaker_local.engine.launch import EngineLauncher, EngineLauncherProtocol
from sagemaker_local.engine.launching import Build, Fetch, LazyLauncher, Served, StateBook, UtilisationSampler
from sagemaker_local.faults import FaultBook
from sagemaker_local.front import Front, Handler
from sagemaker_local.lambdas import InvokeApi, Lambdas
from sagemaker_local.other_services.autoscaling import lay_sagemaker_scaling
from sagemaker_local.other_services.moto import SERVICE, Moto
from sagemaker_local.other_services.pricing import PriceList
from sagemaker_local.other_services.s3 import lay_s3_rules
from sagemaker_local.other_services.stores import (
    Artifacts,
    Parameters,
    Roles,
    Schedules,
    send_to_queue,
    split_s3_uri,
)
from sagemaker_local.other_services.tagging import show_tags
from sagemaker_local.paths import weights_dir
from sagemaker_local.process import state
from sagemaker_local.process.status import ACCOUNT, REGION, LocalStatus
from sagemaker_local.runtime.dataplane import DataPlane, Dialect, Limits
from sagemaker_local.runtime.job_life import JobLives
from sagemaker_local.runtime.job_processes import JobMachine
from sagemaker_local.runtime.logs import LONGEST_EVENT, EndpointLogs
from sagemaker_local.runtime.metrics import Recorder
from sagemaker_local.runtime.openai_route import OpenAiRoute
from sagemaker_local.runtime.sagemaker_route import SageMakerRoute
from sagemaker_local.runtime.training_run import LOG_GROUP as TRAINING_LOG_GROUP
from sagemaker_local.runtime.training_run import Trainer, TrainingAttempt
from sagemaker_local.scheduler.service import Scheduler

log = logging.getLogger(__name__)

# Real seconds between two looks at what is due: log lines, minutes that ended, schedules.
_BEAT_S = 0.5

MakeLauncher = Callable[[Path, Fetch], EngineLauncherProtocol]


@dataclass(frozen=True)
class Options:
    """Options of a server; all but the port are mainly for tests."""

    port: int
    engine_python: Path | None = None
    embedded: bool = False
    weights: Path = field(default_factory=weights_dir)
    limits: Limits = field(default_factory=Limits)
    timing: Timing | None = None
    make_launcher: MakeLauncher = EngineLauncher
    build_engine: Build = build_engine
    fetch_smollm2: FetchSmolLm2 = fetch_smollm2
    trainer: Trainer | None = None


class Assembly:
    """One server without its port: the web application and its background tasks."""

    def __init__(self, options: Options, shutdown: Callable[[], None]) -> None:
        self._options = options
        self._run_id = uuid.uuid4().hex
        self._clock = LocalClock()
        self._moto = Moto(ACCOUNT, REGION, self._clock)
        self._artifacts = Artifacts(self._moto)
        self._smollm2 = SmolLm2(self._moto, self._write_down, options.fetch_smollm2)
        self._seeded: Seeded | None = None
        self._beat: asyncio.Task[None] | None = None
        self._book: StateBook | None = None
        now = self._clock.now
        self._logs = EndpointLogs(
            now=now,
            store=self._moto.put_log_events,
            role_of=lambda endpoint, component: self.control.execution_role(endpoint, component),
        )
        self._recorder = Recorder(now=now, sink=self._moto.put_metrics)
        self.control = self._control_plane()
        self._sampler = UtilisationSampler(self._running_engines)
        self._faults = FaultBook()
        self._data_plane = DataPlane(
            route=self.control.route,
            recorder=self._recorder,
            account=ACCOUNT,
            region=REGION,
            faults=self._faults,
        )
        self._lambdas = Lambdas(
            moto=self._moto,
            clock=self._clock,
            url=self._url,
            directory=state.work_dir(options.port) / "lambdas",
        )
        schedules = Schedules(self._moto, self._clock)
        self._scheduler = Scheduler(
            clock=self._clock,
            schedules=schedules.all,
            call=self.control.handle,
            remove=schedules.remove,
            dead_letter=lambda queue, body, about: send_to_queue(self._moto, queue, body, dict(about)),
            functions=self._lambdas,
            trusts=Roles(self._moto).trusts,
        )
        self._cloudformation = self._make_cloudformation()
        self._prices = PriceList()
        self.front = Front(
            region=REGION,
            control=self.control.handle,
            runtime=self._answer_in(SageMakerRoute(region=REGION, limits=options.limits)),
            openai=self._answer_in(OpenAiRoute(clock=self._clock, region=REGION, limits=options.limits)),
            admin=self._admin(shutdown).handle,
            cloudformation=self._cloudformation.handle,
            lambdas=InvokeApi(self._lambdas),
            pricing=self._prices.handle,
            moto=self._moto.handle,
            prepare_read=self._smollm2.refusal,
            trusts=Roles(self._moto).trusts,
            schedules_changed=self._scheduler.tick,
            now=self._clock.now,
        )

    async def open(self) -> None:
        """Import moto, seed it, and start; call it after the port is bound."""
        work = state.work_dir(self._options.port)
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(mode=0o700)
        await self._moto.call(self._moto.load)
        await self._moto.call(lay_s3_rules)
        await self._moto.call(show_tags, self._moto, self.control.tagged)
        await self._moto.call(lay_sagemaker_scaling, self.control.has_target)
        addresses = jumpstart_addresses(REGION)
        self._seeded = await self._moto.call(seed, self._moto, self._options.weights, addresses)
        await self._moto.call(lay_catalogue, self._artifacts, REGION)
        await self._moto.call(self._smollm2.lay_card)
        log.info("%s", self._seeded.weights)
        me = state.Process.of(os.getpid(), "server")
        if me is None:
            raise RuntimeError("cannot read this process's own start time")
        port = self._options.port
        known = state.ServerState(port, me, str(state.log_path(port)), embedded=self._options.embedded)
        self._book = StateBook(known)
        await self._data_plane.open()
        self._beat = asyncio.create_task(self._beats())

    async def close(self) -> None:
        """End every engine and stop working."""
        if self._beat is not None:
            self._beat.cancel()
            await asyncio.gather(self._beat, return_exceptions=True)
        # Stacks' operations wait for endpoints and functions: they end first.
        await self._cloudformation.close()
        await self._lambdas.close()
        await self.control.close()
        await self._launcher.close()
        await self._smollm2.close()
        await self._data_plane.close()
        self._moto.close()

    def status(self) -> LocalStatus:
        """Describe this server."""
        if self._seeded is None:
            raise RuntimeError("the server has not been opened")
        port = self._options.port
        return LocalStatus(
            endpoint_url=self._url,
            region=REGION,
            account=ACCOUNT,
            role_arn=self._seeded.role_arn,
            scheduler_role_arn=self._seeded.scheduler_role_arn,
            image_uris=self._seeded.image_uris,
            artifacts={self._smollm2.address.part: self._smollm2.address.uri, **self._seeded.artifacts},
            weights=self._seeded.weights,
            run_id=self._run_id,
            pid=os.getpid(),
            port=port,
            log_path=str(state.log_path(port)),
            clock=self._clock.now().isoformat(),
            clock_ahead_s=self._clock.ahead_seconds,
            engines=self.control.describe_engines(),
            faults=[each.to_dict() for each in self._faults.entries()],
        )

    @property
    def _url(self) -> str:
        return f"http://localhost:{self._options.port}"

    def _make_cloudformation(self) -> CloudFormation:
        return CloudFormation(
            account=ACCOUNT,
            region=REGION,
            now=self._clock.now,
            types=ResourceTypes(),
            client=Clients(self._url, REGION).client,
            sources=Sources(
                read_object=self._artifacts.read,
                stored=Parameters(self._moto).value,
                trusts=Roles(self._moto).trusts,
            ),
        )

    def _control_plane(self) -> ControlPlane:
        options = self._options
        self._launcher = LazyLauncher(
            make=lambda python: options.make_launcher(python, self._fetch),
            build=options.build_engine,
            started=self._write_down,
            prepare=self._smollm2.ensure,
            versions=tuple(engine_locks()),
            python=options.engine_python,
        )
        return ControlPlane(
            clock=self._clock,
            launcher=self._launcher,
            account=ACCOUNT,
            region=REGION,
            root=state.work_dir(options.port),
            on_event=self._on_event,
            model_data_exists=self._model_data_exists,
            assumable=lambda arn: Roles(self._moto).trusts(arn, "sagemaker.amazonaws.com"),
            trainings=self._trainings(),
            permitted=Roles(self._moto).allows,
            prefix_exists=self._prefix_exists,
            tripped=self._tripped,
            scalable=self._is_scalable,
            timing=options.timing,
        )

    def _trainings(self) -> JobLives:
        machine = JobMachine(
            moto=self._moto,
            directory=state.work_dir(self._options.port) / "training-jobs",
            now=self._clock.now,
            write_log=partial(self._log_line, TRAINING_LOG_GROUP),
            started=self._write_down,
            prepare=self._smollm2.ensure,
        )
        trainer = self._options.trainer or (lambda on_line: build_trainer(on_line, self._write_down))
        return JobLives(
            clock=self._clock,
            attempts=partial(TrainingAttempt, machine, trainer),
            has_instances=lambda name, count: self.control.stock.holds(name, count),
            on_metric=self._job_metric,
        )

    def _admin(self, shutdown: Callable[[], None]) -> Admin:
        return Admin(
            status=lambda: self.status().to_dict(),
            now=self._clock.now,
            advance=self._advance,
            shutdown=shutdown,
            route=self.control.route,
            logs=self._logs,
            interrupt=self.control.interrupt,
            stock=self.control.stock,
            prices=self._prices,
            faults=self._faults,
            prepare=self._prepare,
        )

    async def _prepare(self, uris: Sequence[str], on_line: OnLine) -> None:
        for uri in uris:
            await self._smollm2.ensure(uri, lambda line: on_line(line.removeprefix(LOG_PREFIX)))

    def _answer_in(self, dialect: Dialect) -> Handler:
        return lambda request: self._data_plane.answer(request, dialect)

    def _on_event(self, event: Event) -> None:
        if event.kind != "line":
            where = "/".join(filter(None, (event.endpoint, event.variant, event.component)))
            log.info("%s: %s (%s): %s", where, event.kind, event.status, event.message)
            if event.kind in ("status", "component-status"):
                self._logs.flush()  # whoever reads the logs next wants what led to it
        elif event.variant is not None:
            stream = f"{event.variant}/{event.engine_id}"
            self._logs.line(event.endpoint, stream, event.message, event.component)

    def _log_line(self, group: str, stream: str, line: str, role: str = SERVICE) -> None:
        at = int(self._clock.now().timestamp() * 1000)
        self._moto.put_log_events(group, stream, [(at, line[:LONGEST_EVENT])], role)

    def _job_metric(self, row: TrainingRecord, name: str, value: float) -> None:
        if Roles(self._moto).allows(row.body["RoleArn"], "cloudwatch:PutMetricData", "*", {}):
            where = [{"Name": "TrainingJobName", "Value": row.name}]
            datum = {"MetricName": name, "Value": value, "Dimensions": where, "Timestamp": self._clock.now()}
            self._moto.put_metrics(TRAINING_LOG_GROUP, [datum])

    def _write_down(self, pid: int, name: str) -> None:
        if self._book is not None:
            self._book.add(pid, name)

    def _running_engines(self) -> Mapping[int, Served]:
        rows = self.control.describe_engines()
        return {row["pid"]: Served.of(row) for row in rows if row.get("running") and row.get("pid")}

    async def _prefix_exists(self, uri: str) -> bool:
        return bool(await self._moto.call(self._artifacts.beginning_with, uri))

    async def _is_scalable(self, resource_id: str) -> bool:
        return await self._moto.call(self._moto.is_scalable, resource_id)

    async def _tripped(self, alarms: Sequence[str]) -> str | None:
        return await self._moto.call(self._moto.tripped_alarm, alarms)

    async def _model_data_exists(self, uri: str) -> bool:
        return await self._moto.call(self._artifacts.exists, uri)

    async def _fetch(self, uri: str, directory: Path) -> None:
        await self._moto.call(self._artifacts.download, uri, directory)

    async def _store(self, path: Path, uri: str) -> None:
        bucket, key = split_s3_uri(uri)
        await self._moto.call(self._artifacts.upload, [("", path)], bucket, key)

    async def _advance(self, seconds: float) -> datetime:
        now = await self._scheduler.advance(seconds)
        self._recorder.minutes_passed(self._sampler.sample)
        await self._moto.call(self._moto.evaluate_alarms)
        return now

    async def _beats(self) -> None:
        while True:
            try:
                self._logs.flush()
                self._recorder.minutes_passed(self._sampler.sample)
                await self._moto.call(self._moto.evaluate_alarms)
                await self._scheduler.tick()
            except Exception:
                log.exception("a periodic task failed; it runs again at the next interval")
            await asyncio.sleep(_BEAT_S)
