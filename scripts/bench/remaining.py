"""Check that nothing remains: no resource in the account, no process on the machine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import psutil

#: service, paginator, key of the page's list, key of the name, kind as it is shown
_LISTS = (
    ("sagemaker", "list_endpoints", "Endpoints", "EndpointName", "endpoint"),
    ("sagemaker", "list_endpoint_configs", "EndpointConfigs", "EndpointConfigName", "endpoint-config"),
    ("sagemaker", "list_models", "Models", "ModelName", "model"),
    ("scheduler", "list_schedules", "Schedules", "Name", "schedule"),
)


def list_resources(client: Callable[[str], Any]) -> list[str]:
    """``kind/name`` of every endpoint, config, model and schedule that the account holds.

    ``client`` gives a boto3 client by service name. Nothing is filtered by tag: on a local
    SageMaker of its own, whatever is there was left by the run.
    """
    return [
        f"{kind}/{item[name_key]}"
        for service, operation, list_key, name_key, kind in _LISTS
        for page in client(service).get_paginator(operation).paginate()
        for item in page[list_key]
    ]


@dataclass(frozen=True)
class ProcessRecord:
    """A process that was seen: its id, when it started (ids are used again) and its command."""

    pid: int
    created: float
    command: str


def processes_of(pid: int, engine_pids: Iterable[int] = ()) -> set[ProcessRecord]:
    """The server ``pid``, all its descendants, and every member of the engines' process groups."""
    processes: set[psutil.Process] = set()
    for root in {pid, *engine_pids}:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(root)
            processes |= {process, *process.children(recursive=True)}
    # A child whose parent died belongs to no tree any more, but it keeps its group.
    groups = {_group(process.pid) for process in processes} - {None, _group(os.getpid())}
    processes |= {process for process in psutil.process_iter() if _group(process.pid) in groups}
    return {record for process in processes if (record := _record(process)) is not None}


def survivors(records: Iterable[ProcessRecord]) -> list[str]:
    """``process/pid command`` of each recorded process that still runs (a zombie does not)."""
    alive = []
    for record in sorted(records, key=lambda record: record.pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(record.pid)
            if process.create_time() == record.created and process.status() != psutil.STATUS_ZOMBIE:
                alive.append(f"process/{record.pid} {record.command}")
    return alive


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except (ProcessLookupError, PermissionError):
        return None


def _record(process: psutil.Process) -> ProcessRecord | None:
    try:
        words = process.cmdline()
        return ProcessRecord(process.pid, process.create_time(), " ".join(words)[:120] or process.name())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None
