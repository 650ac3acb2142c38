"""Use cases over the adapters: plan, deploy, list, status, wait, logs, invoke, keep, pause, update, delete.

Each name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from peagle_sm.aws.control.logs import LogLine
    from peagle_sm.service.endpoint import Endpoint, connect
    from peagle_sm.service.events import Event, Pacing, Phase
    from peagle_sm.service.guard.keeping import Lease, keep
    from peagle_sm.service.inventory.inspection import EndpointStatus, status
    from peagle_sm.service.inventory.listing import EndpointSummary, list_endpoints
    from peagle_sm.service.inventory.log_lines import logs
    from peagle_sm.service.lifecycle.deletion import Deletable, DeleteReport, delete, leftovers
    from peagle_sm.service.lifecycle.deployment import deploy
    from peagle_sm.service.lifecycle.pausing import PauseReport, pause
    from peagle_sm.service.lifecycle.resuming import ResumeOffer, resume
    from peagle_sm.service.lifecycle.update_offer import UpdateOffer
    from peagle_sm.service.lifecycle.updating import update
    from peagle_sm.service.lifecycle.waiting import wait
    from peagle_sm.service.planning.planning import plan_for

_HOME = {
    "Deletable": "lifecycle.deletion",
    "DeleteReport": "lifecycle.deletion",
    "Endpoint": "endpoint",
    "EndpointStatus": "inventory.inspection",
    "EndpointSummary": "inventory.listing",
    "Event": "events",
    "Lease": "guard.keeping",
    "LogLine": "inventory.log_lines",
    "Pacing": "events",
    "PauseReport": "lifecycle.pausing",
    "Phase": "events",
    "ResumeOffer": "lifecycle.resuming",
    "UpdateOffer": "lifecycle.update_offer",
    "connect": "endpoint",
    "delete": "lifecycle.deletion",
    "deploy": "lifecycle.deployment",
    "keep": "guard.keeping",
    "leftovers": "lifecycle.deletion",
    "list_endpoints": "inventory.listing",
    "logs": "inventory.log_lines",
    "pause": "lifecycle.pausing",
    "plan_for": "planning.planning",
    "resume": "lifecycle.resuming",
    "status": "inventory.inspection",
    "update": "lifecycle.updating",
    "wait": "lifecycle.waiting",
}

__all__ = [
    "Deletable",
    "DeleteReport",
    "Endpoint",
    "EndpointStatus",
    "EndpointSummary",
    "Event",
    "Lease",
    "LogLine",
    "Pacing",
    "PauseReport",
    "Phase",
    "ResumeOffer",
    "UpdateOffer",
    "connect",
    "delete",
    "deploy",
    "keep",
    "leftovers",
    "list_endpoints",
    "logs",
    "pause",
    "plan_for",
    "resume",
    "status",
    "update",
    "wait",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
