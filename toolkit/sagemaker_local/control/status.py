"""What runs behind the endpoints, for people: more than AWS would tell."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .component_life import ComponentLife
from .engines import Engine
from .records import ComponentRecord, EndpointRecord
from .supervisor import Supervisor


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
        for fleet, role in ((supervisor.fleet, "serving"), (supervisor.coming, "starting"))
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
