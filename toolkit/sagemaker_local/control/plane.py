"""The SageMaker control plane of one account in one region, in one asyncio loop."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from sagemaker_local.clock import LocalClock
from sagemaker_local.engine.launch import EngineLauncherProtocol

from .ai_benchmarks import AIBenchmarks
from .ai_benchmarks_records import BenchmarkRunner
from .component_life import ComponentLife
from .components import Components
from .configs import Configs
from .describe import description
from .endpoints import Endpoints
from .engines import Engine, Tell
from .errors import ApiError
from .events import Event, OnEvent
from .launching import EnginePlan, ModelDataExists
from .models import Models
from .records import ComponentRecord, EndpointRecord, Tables
from .routing import Route, Router
from .settings import Timing
from .status import engine_rows
from .stock import Stock
from .supervisor import Supervisor
from .tags import Tags

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
        benchmarks: runs AI benchmark jobs; None refuses them.
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
        benchmarks: BenchmarkRunner | None = None,
        timing: Timing | None = None,
        seed: int | None = None,
    ) -> None:
        self._clock = clock
        self._launcher = launcher
        self._root = root
        self._on_event = on_event
        self._timing = timing or Timing()
        self._tables = Tables(account, region)
        self.stock = Stock()
        self._endpoints = Endpoints(self._tables, clock, self._supervisor)
        models = Models(self._tables, clock, model_data_exists, assumable)
        configs = Configs(self._tables, clock, assumable)
        self._components = Components(self._tables, clock, self._component, model_data_exists)
        self._benchmarks = AIBenchmarks(self._tables, clock, benchmarks, root / "ai-benchmark-jobs")
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
            **self._benchmarks.operations,
        }
        self._router = Router(
            self._tables, self._endpoints.supervisors, self._components.lives, random.Random(seed)
        )

    @property
    def operations(self) -> tuple[str, ...]:
        """The operations that `handle` answers."""
        return tuple(self._operations)

    async def handle(self, operation: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answers one request of the JSON protocol: decoded body in, decoded body out.

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

    def pretend(self, endpoint_name: str, status: str, reason: str | None = None) -> None:
        """Shows a status that only AWS's own doings lead to, until InService is asked for; for tests.

        Raises:
            ApiError: no such endpoint, not such a status, or the endpoint is being created or deleted.
        """
        self._endpoints.pretend(endpoint_name, status, reason)

    def endpoint_now(self, name: str) -> dict[str, Any] | None:
        """What DescribeEndpoint answers at this moment; None when there is no such endpoint."""
        row = next((row for row in self._tables.endpoints if row.name == name), None)
        return None if row is None else description(row)

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
        """Ends every job and engine, whatever their status; answers nothing useful afterwards."""
        await self._benchmarks.close()
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
