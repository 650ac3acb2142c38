"""Where an invocation goes: endpoint and variant, or inference component -> a running engine."""

import random
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from .component_life import ComponentLife
from .engines import Engine
from .errors import ApiError, NoCapacity
from .records import EndpointRecord, Tables
from .supervisor import Supervisor

# An update keeps the old fleet serving; the other statuses have nothing that could answer.
SERVING = frozenset({"InService", "Updating", "RollingBack", "UpdateRollbackFailed"})


# Word for word from reports of users (docs/explanation/local.md names them).
_REQUIRED = (
    "Inference Component Name header is required for endpoints to which you plan to deploy inference "
    "components. Please include Inference Component Name header or consider using SageMaker models."
)
_NAME_MISSING = "INFERENCE_COMPONENT_NAME_MISSING"
_NOT_ALLOWED = (
    "Inference Component Name header is not allowed for endpoints to which you dont plan to deploy inference "
    "components. Please remove the Inference Component Name header and try again."
)


@dataclass(frozen=True)
class Route:
    """The engine that serves one invocation.

    Attributes:
        engine_url: base URL of the engine, without a slash at the end.
        engine_id: the engine's instance id, as in the names of log streams.
        component_name: the inference component, None when the endpoint runs models.
        copies: of the component.
    """

    endpoint_name: str
    endpoint_arn: str
    endpoint_status: str
    endpoint_config_name: str
    variant_name: str
    model_name: str
    engine_url: str
    engine_id: str
    _engine: Engine
    component_name: str | None = None
    copies: int = 1

    def hold(self) -> AbstractContextManager[None]:
        """Context of a running invocation: an update lets the old engine finish it."""
        return self._engine.hold()


class Router:
    """Chooses the engine of each invocation."""

    def __init__(
        self,
        tables: Tables,
        supervisors: Mapping[str, Supervisor],
        lives: Mapping[str, ComponentLife],
        chance: random.Random,
    ) -> None:
        self._tables = tables
        self._supervisors = supervisors
        self._lives = lives
        self._chance = chance

    def choose(self, endpoint_name: str, variant: str | None, component: str | None) -> Route:
        """The route of one invocation, the variant drawn by weight unless it is named.

        Raises:
            ApiError: `ValidationError`, the runtime API's code: no such endpoint, none that serves, no such
                variant or component, a component named or not named against the endpoint's kind;
                `NoCapacity` when the component has no copy; `ServiceUnavailable` when the engine has just
                died.
        """
        row = self._tables.endpoints.find(endpoint_name)
        # "The name is case-insensitive in CreateEndpoint, but the case is preserved and must be matched in
        # InvokeEndpoint."
        if row is None or row.name != endpoint_name or row.status not in SERVING:
            account = self._tables.account
            raise ApiError("ValidationError", f"Endpoint {endpoint_name} of account {account} not found.")
        if not row.hosts_components:
            if component is not None:
                raise ApiError("ValidationError", _NOT_ALLOWED)
            return self._to_variant(row, variant)
        if component is None:
            raise ApiError("ValidationError", _REQUIRED, members={"ErrorCode": _NAME_MISSING})
        return self._to_component(row, component)

    def _to_variant(self, row: EndpointRecord, variant: str | None) -> Route:
        supervisor = self._supervisors[row.arn]
        fleet = supervisor.fleet
        engines = fleet.engines if fleet is not None else {}
        name = variant if variant is not None else _drawn(row, self._chance)
        coming = supervisor.coming
        if coming is not None and name in coming.engines and self._chance.random() < supervisor.share:
            engines = coming.engines
        if name not in engines:
            raise ApiError("ValidationError", f"Variant {name} not found for Request")
        return _route(row, engines[name])

    def _to_component(self, row: EndpointRecord, name: str) -> Route:
        component = self._tables.components.find(name)
        if component is None or component.name != name or component.endpoint != row.name:
            account = self._tables.account
            raise ApiError("ValidationError", f"Inference Component {name} of account {account} not found.")
        engine = self._lives[component.arn].engine
        if engine is None or component.status in ("Creating", "Failed", "Deleting"):
            raise NoCapacity(name)
        return replace(_route(row, engine), component_name=name, copies=max(1, component.current_copies))


def _route(row: EndpointRecord, engine: Engine) -> Route:
    if not engine.alive:
        serves = engine.plan.serves.removeprefix("production ")
        raise ApiError(
            "ServiceUnavailable", f"The container of {serves} of endpoint {row.name} is down.", 503
        )
    return Route(
        endpoint_name=row.name,
        endpoint_arn=row.arn,
        endpoint_status=row.status,
        endpoint_config_name=row.config["EndpointConfigName"],
        variant_name=engine.plan.variant,
        model_name=engine.plan.model,
        engine_url=engine.process.url,
        engine_id=engine.engine_id,
        _engine=engine,
    )


def _drawn(row: EndpointRecord, chance: random.Random) -> str:
    names = list(row.capacities)
    weights = [row.capacities[name].current_weight for name in names]
    if not any(weights):
        return names[0]
    return chance.choices(names, weights)[0]
