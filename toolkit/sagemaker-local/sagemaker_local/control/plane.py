"""The SageMaker control plane of one account in one region, in one asyncio loop."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sagemaker_local.clock import LocalClock
from sagemaker_local.engine.launch import EngineLauncherProtocol

from .capacity import Stock
from .component_life import ComponentLife
from .components import Components
from .endpoints import Endpoints, Scalable
from .engines import Engine, EnginePlan, ModelDataExists, Tell, Timing
from .errors import ApiError
from .jobs.training import JobLife, Permitted, PrefixExists, TrainingJobs
from .models import Configs, Models, Tags
from .records import ComponentRecord, EndpointRecord, Event, OnEvent, Tables
from .routing import Route, Router
from .supervisor import Supervisor, Tripped


def engine_rows(
    supervisors: Iterable[Supervisor], lives: Iterable[ComponentLife] = ()
) -> list[dict[str, Any]]:
    """One row an engine, and one for an endpoint or a component that has none."""
    hosted: dict[str, list[ComponentLife]] = {}
    for life in lives:
        hosted.setdefault(life.record.endpoint, []).append(life)
    return [row for supervisor in supervisors for row in _rows(supervisor, hosted)]


def _rows(supervisor: Supervisor, hosted: dict[str, list[ComponentLife]]) -> Iterator[dict[str, Any]]:
    record = supervisor.record
    shared = _shared(record)
    engines = [
        (engine, role)
        for fleet, role in (
            (supervisor.fleet, "serving"),
            (supervisor.coming, "serving" if supervisor.share else "starting"),
        )
        if fleet is not None
        for engine in fleet.engines.values()
    ]
    for engine, role in engines:
        notes = _notes(supervisor, engine.plan.variant)
        yield shared | {"role": role, "variant": engine.plan.variant, "notes": notes} | _engine(engine)
    components = hosted.get(record.name, [])
    for life in components:
        yield from _component_rows(record.name, life)
    if not engines and not components:
        yield shared | {"role": "none"}


def _component_rows(endpoint: str, life: ComponentLife) -> Iterator[dict[str, Any]]:
    record = life.record
    shared = _shared(record) | {
        "endpoint": endpoint,
        "variant": record.variant,
        "component": record.name,
        "copies": record.current_copies,
        "reserved": _reserved(record.specification["ComputeResourceRequirements"]),
    }
    copies = record.current_copies
    notes = [f"{copies} copies asked for, one engine serves"] if copies > 1 else []
    engines = [(life.engine, "serving"), (life.coming, "starting")]
    shown = [(engine, role) for engine, role in engines if engine is not None]
    for engine, role in shown:
        yield shared | {"role": role, "notes": notes} | _engine(engine)
    if not shown:
        yield shared | {"role": "none"}


def _reserved(needs: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "cpu_cores": needs.get("NumberOfCpuCoresRequired"),
        "memory_mb": needs["MinMemoryRequiredInMb"],
        "accelerators": needs.get("NumberOfAcceleratorDevicesRequired"),
    }


def _shared(record: EndpointRecord | ComponentRecord) -> dict[str, Any]:
    return {
        "endpoint": record.name,
        "status": record.status,
        "failure_reason": record.failure_reason,
        "last_update_failure": record.last_update_failure,
    }


def _engine(engine: Engine) -> dict[str, Any]:
    row: dict[str, Any] = {
        "engine_id": engine.engine_id,
        "model": engine.plan.model,
        "image": engine.plan.image,
        "running": engine.alive,
    }
    if not engine.launched:
        return row
    process = engine.process
    return row | {
        "url": process.url,
        "pid": process.pid,
        "started_at": process.started_at.isoformat(),
        "exited": process.exited,
        "engine_version": process.engine_version,
        "overrides": list(process.overrides),
    }


def _notes(supervisor: Supervisor, variant: str) -> list[str]:
    capacity = supervisor.record.capacities.get(variant)
    if capacity is not None and capacity.desired_count > 1:
        return [f"{capacity.desired_count} instances asked for, one engine serves"]
    return []


Operation = Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]


def _ignore(_: Event) -> None:
    return


class ControlPlane:
    """Answers the control-plane operations of SageMaker and runs the engines behind the endpoints.

    Args:
        clock: stamps every record and counts the start-up limits.
        launcher: starts engines.
        account: 12 digits.
        region: AWS region, for ARNs.
        root: directory below which each engine gets one of its own.
        on_event: told of every change of status, of every engine, and of each line that an engine prints.
        model_data_exists: asked for each S3 URI by CreateModel, as AWS does; None leaves it to the launcher.
        assumable: whether SageMaker may assume a role (CreateModel, CreateEndpointConfig); None believes it.
        trainings: runs training jobs; None refuses them.
        permitted: whether a role's policies allow an action (CreateTrainingJob); None believes it.
        prefix_exists: whether a key begins with an S3 URI's (CreateTrainingJob); None believes it.
        tripped: whether an alarm of UpdateEndpoint is in state ALARM; None: no alarm ever is.
        scalable: whether a resource is a target of Application Auto Scaling; None: none ever is.
        timing: polling intervals and limits.
        seed: of the draw between variants.
    """

    def __init__(
        self,
        *,
        clock: LocalClock,
        launcher: EngineLauncherProtocol,
        account: str,
        region: str,
        root: Path,
        on_event: OnEvent = _ignore,
        model_data_exists: ModelDataExists | None = None,
        assumable: Callable[[str], bool] | None = None,
        trainings: JobLife | None = None,
        permitted: Permitted | None = None,
        prefix_exists: PrefixExists | None = None,
        tripped: Tripped | None = None,
        scalable: Scalable | None = None,
        timing: Timing | None = None,
        seed: int | None = None,
    ) -> None:
        self._clock = clock
        self._launcher = launcher
        self._root = root
        self._on_event = on_event
        self._timing = timing or Timing()
        self._tripped = tripped
        self._tables = Tables(account, region)
        self.stock = Stock()
        self._endpoints = Endpoints(self._tables, clock, self._supervisor, scalable)
        models = Models(self._tables, clock, model_data_exists, assumable)
        configs = Configs(self._tables, clock, assumable)
        self._components = Components(self._tables, clock, self._component, model_data_exists)
        self._trainings = TrainingJobs(
            self._tables,
            clock,
            trainings,
            assumable=assumable,
            permitted=permitted,
            prefix_exists=prefix_exists,
        )
        tags = Tags(self._tables)
        self._operations: dict[str, Operation] = {
            "CreateModel": models.create,
            "DescribeModel": models.describe,
            "ListModels": models.listed,
            "DeleteModel": models.delete,
            "CreateEndpointConfig": configs.create,
            "DescribeEndpointConfig": configs.describe,
            "ListEndpointConfigs": configs.listed,
            "DeleteEndpointConfig": configs.delete,
            "CreateEndpoint": self._endpoints.create,
            "DescribeEndpoint": self._endpoints.describe,
            "ListEndpoints": self._endpoints.listed,
            "UpdateEndpoint": self._endpoints.update,
            "UpdateEndpointWeightsAndCapacities": self._endpoints.reweigh,
            "DeleteEndpoint": self._endpoints.delete,
            "CreateInferenceComponent": self._components.create,
            "DescribeInferenceComponent": self._components.describe,
            "ListInferenceComponents": self._components.listed,
            "UpdateInferenceComponent": self._components.update,
            "UpdateInferenceComponentRuntimeConfig": self._components.update_runtime,
            "DeleteInferenceComponent": self._components.delete,
            "AddTags": tags.add,
            "ListTags": tags.listed,
            "DeleteTags": tags.delete,
            **self._trainings.operations,
        }
        self._router = Router(
            self._tables, self._endpoints.supervisors, self._components.lives, random.Random(seed)
        )

    @property
    def operations(self) -> tuple[str, ...]:
        """The operations that `handle` answers."""
        return tuple(self._operations)

    async def handle(self, operation: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answer one request of the JSON protocol: decoded body in, decoded body out.

        Raises:
            ApiError: the request is refused; also `UnknownOperationException` for an operation that the
                local SageMaker does not have.
        """
        answer = self._operations.get(operation)
        if answer is None:
            known = ", ".join(self._operations)
            raise ApiError(
                "UnknownOperationException",
                f"{operation} is not implemented by the local SageMaker; it has {known}.",
            )
        return await answer(body)

    def route(self, endpoint_name: str, variant: str | None = None, component: str | None = None) -> Route:
        """The engine that serves an invocation; raises ApiError as the runtime API does."""
        return self._router.choose(endpoint_name, variant, component)

    def interrupt(self, training_job: str) -> None:
        """Take a training job's Spot instances away; for tests.

        Raises:
            ApiError: no such job, it is not on Spot instances, or it has none now.
        """
        self._trainings.interrupt(training_job)

    def execution_role(self, endpoint: str, component: str | None = None) -> str | None:
        """The role that an endpoint's containers, or a component's, run under; None when it is gone."""
        row = self._tables.endpoints.find(endpoint)
        if row is None:
            return None
        hosted = self._tables.components.find(component) if component is not None else None
        names = [variant.get("ModelName") for variant in row.config["ProductionVariants"]]
        if hosted is not None:
            names = [hosted.specification.get("ModelName")]
        models = (self._tables.models.find(name) for name in names if name)
        roles = (model.body.get("ExecutionRoleArn") for model in models if model is not None)
        return row.config.get("ExecutionRoleArn") or next((role for role in roles if role), None)

    def has_target(self, resource_id: str) -> bool:
        """Whether a scalable target's resource exists: `endpoint/E/variant/V` or `inference-component/C`."""
        kind, _, name = resource_id.partition("/")
        if kind == "inference-component":
            return any(row.name == name for row in self._tables.components)
        endpoint, _, variant = name.partition("/variant/")
        known = (row for row in self._tables.endpoints if row.name == endpoint)
        return any(v["VariantName"] == variant for row in known for v in row.config["ProductionVariants"])

    def tagged(self) -> list[tuple[str, str, dict[str, str]]]:
        """(ARN, resource type of the tagging API, tags) of every resource that has tags."""
        return list(self._tables.tagged())

    def describe_engines(self) -> list[dict[str, Any]]:
        """One row an engine, for `peagle-sm local status`; JSON-serialisable."""
        return engine_rows(self._endpoints.supervisors.values(), self._components.lives.values())

    async def close(self) -> None:
        """End every job and engine, in any status; use nothing of it afterwards."""
        await self._trainings.close()
        await asyncio.gather(
            *(life.close() for life in self._components.lives.values()),
            *(supervisor.close() for supervisor in self._endpoints.supervisors.values()),
        )

    def _supervisor(self, row: EndpointRecord) -> Supervisor:
        return Supervisor(
            row,
            make_engine=self._engine_maker(row.name),
            clock=self._clock,
            timing=self._timing,
            on_event=self._on_event,
            stock=self.stock,
            tripped=self._tripped,
        )

    def _component(
        self, row: ComponentRecord, plan: EnginePlan, changed: Callable[[], None]
    ) -> ComponentLife:
        return ComponentLife(
            row,
            plan,
            make_engine=self._engine_maker(row.endpoint),
            clock=self._clock,
            timing=self._timing,
            on_event=self._on_event,
            changed=changed,
        )

    def _engine_maker(self, endpoint: str) -> Callable[[EnginePlan, Tell], Engine]:
        def make_engine(plan: EnginePlan, tell: Tell) -> Engine:
            return Engine(
                plan,
                endpoint=endpoint,
                root=self._root / endpoint,
                launcher=self._launcher,
                clock=self._clock,
                timing=self._timing,
                tell=tell,
            )

        return make_engine
