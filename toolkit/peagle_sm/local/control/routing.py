"""Where an invocation goes: endpoint and variant -> a running engine."""

import random
from contextlib import AbstractContextManager
from dataclasses import dataclass

from .engines import Engine
from .errors import ApiError
from .records import EndpointRecord, Tables
from .supervisor import Supervisor

# An update keeps the old fleet serving; the other statuses have nothing that could answer.
SERVING = frozenset({"InService", "Updating", "SystemUpdating", "RollingBack", "UpdateRollbackFailed"})


@dataclass(frozen=True)
class Route:
    """The engine that serves one invocation.

    Attributes:
        engine_url: base URL of the engine, without a slash at the end.
        engine_id: the engine's instance id, as in the names of log streams.
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

    def hold(self) -> AbstractContextManager[None]:
        """Keep this open while the invocation runs: an update then lets the old engine finish it."""
        return self._engine.hold()


def choose(
    tables: Tables,
    supervisors: dict[str, Supervisor],
    chance: random.Random,
    endpoint_name: str,
    variant: str | None,
) -> Route:
    """The route of one invocation, the variant drawn by weight unless it is named.

    Raises:
        ApiError: `ValidationError`, the runtime API's code: no such endpoint, none that serves, no such
            variant; `ServiceUnavailable` when the engine has just died.
    """
    row = tables.endpoints.find(endpoint_name)
    # "The name is case-insensitive in CreateEndpoint, but the case is preserved and must be matched in
    # InvokeEndpoint."
    if row is None or row.name != endpoint_name or row.status not in SERVING:
        raise ApiError("ValidationError", f"Endpoint {endpoint_name} of account {tables.account} not found.")
    fleet = supervisors[row.arn].fleet
    engines = fleet.engines if fleet is not None else {}
    name = variant if variant is not None else _drawn(row, chance)
    if name not in engines:
        raise ApiError("ValidationError", f"Variant {name} not found for Request")
    engine = engines[name]
    if not engine.alive:
        raise ApiError(
            "ServiceUnavailable", f"The container of variant {name} of endpoint {row.name} is down.", 503
        )
    return Route(
        endpoint_name=row.name,
        endpoint_arn=row.arn,
        endpoint_status=row.status,
        endpoint_config_name=row.config["EndpointConfigName"],
        variant_name=name,
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
