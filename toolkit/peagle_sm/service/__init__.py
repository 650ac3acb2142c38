"""Use cases over the adapters: plan, deploy, list, status, wait, logs, invoke, keep, pause, update, delete.

Each name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from peagle_sm.aws.logs import LogLine
    from peagle_sm.service.deletion import Deletable, DeleteReport, delete, leftovers
    from peagle_sm.service.deployment import deploy
    from peagle_sm.service.endpoint import Endpoint, connect
    from peagle_sm.service.events import Event, Pacing, Phase
    from peagle_sm.service.inspection import EndpointStatus, status
    from peagle_sm.service.inventory import EndpointSummary, list_endpoints
    from peagle_sm.service.keeping import Lease, keep
    from peagle_sm.service.log_lines import logs
    from peagle_sm.service.pausing import PauseReport, pause
    from peagle_sm.service.planning import plan_for
    from peagle_sm.service.resuming import ResumeOffer, resume
    from peagle_sm.service.update_offer import UpdateOffer
    from peagle_sm.service.updating import update
    from peagle_sm.service.waiting import wait

_HOME = {
    "Deletable": "deletion",
    "DeleteReport": "deletion",
    "Endpoint": "endpoint",
    "EndpointStatus": "inspection",
    "EndpointSummary": "inventory",
    "Event": "events",
    "Lease": "keeping",
    "LogLine": "log_lines",
    "Pacing": "events",
    "PauseReport": "pausing",
    "Phase": "events",
    "ResumeOffer": "resuming",
    "UpdateOffer": "update_offer",
    "connect": "endpoint",
    "delete": "deletion",
    "deploy": "deployment",
    "keep": "keeping",
    "leftovers": "deletion",
    "list_endpoints": "inventory",
    "logs": "log_lines",
    "pause": "pausing",
    "plan_for": "planning",
    "resume": "resuming",
    "status": "inspection",
    "update": "updating",
    "wait": "waiting",
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
