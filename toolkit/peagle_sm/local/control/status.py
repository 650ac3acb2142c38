"""What runs behind the endpoints, for people: more than AWS would tell."""

from collections.abc import Iterable, Iterator
from typing import Any

from .engines import Engine
from .supervisor import Supervisor


def engine_rows(supervisors: Iterable[Supervisor]) -> list[dict[str, Any]]:
    """One row an engine, and one for an endpoint that has none."""
    return [row for supervisor in supervisors for row in _rows(supervisor)]


def _rows(supervisor: Supervisor) -> Iterator[dict[str, Any]]:
    record = supervisor.record
    shared: dict[str, Any] = {
        "endpoint": record.name,
        "status": record.status,
        "failure_reason": record.failure_reason,
        "last_update_failure": record.last_update_failure,
    }
    engines = [
        (engine, role)
        for fleet, role in ((supervisor.fleet, "serving"), (supervisor.coming, "starting"))
        if fleet is not None
        for engine in fleet.engines.values()
    ]
    for engine, role in engines:
        yield shared | {"role": role, "variant": engine.plan.variant} | _engine(engine, supervisor)
    if not engines:
        yield shared | {"role": "none"}


def _engine(engine: Engine, supervisor: Supervisor) -> dict[str, Any]:
    row: dict[str, Any] = {
        "engine_id": engine.engine_id,
        "model": engine.plan.model,
        "image": engine.plan.image,
        "running": engine.alive,
        "notes": _notes(engine, supervisor),
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


def _notes(engine: Engine, supervisor: Supervisor) -> list[str]:
    capacity = supervisor.record.capacities.get(engine.plan.variant)
    if capacity is not None and capacity.desired_count > 1:
        return [f"{capacity.desired_count} instances asked for, one engine serves"]
    return []
