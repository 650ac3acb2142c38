"""Use cases: plan, deploy, list, status, invoke, keep, pause, update, delete.

Each name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from peagle_sm.aws.control.cloudwatch import LogLine
    from peagle_sm.service.guard.keep import Lease, keep
    from peagle_sm.service.inventory.endpoint_status import EndpointStatus
    from peagle_sm.service.inventory.inspection import logs, status, wait
    from peagle_sm.service.inventory.listing import EndpointSummary, list_endpoints
    from peagle_sm.service.lifecycle.deletion import Deletable, DeleteReport, delete, leftovers
    from peagle_sm.service.lifecycle.deployment import deploy
    from peagle_sm.service.lifecycle.endpoint import Endpoint, connect
    from peagle_sm.service.lifecycle.existing import UpdateOffer
    from peagle_sm.service.lifecycle.pausing import PauseReport, pause
    from peagle_sm.service.lifecycle.resuming import ResumeOffer, resume
    from peagle_sm.service.lifecycle.updating import update
    from peagle_sm.service.progress import Event, Pacing, Phase
    from peagle_sm.service.spec_to_plan import plan_for

_HOME = {
    "Deletable": "peagle_sm.service.lifecycle.deletion",
    "DeleteReport": "peagle_sm.service.lifecycle.deletion",
    "Endpoint": "peagle_sm.service.lifecycle.endpoint",
    "EndpointStatus": "peagle_sm.service.inventory.endpoint_status",
    "EndpointSummary": "peagle_sm.service.inventory.listing",
    "Event": "peagle_sm.service.progress",
    "Lease": "peagle_sm.service.guard.keep",
    "LogLine": "peagle_sm.service.inventory.inspection",
    "Pacing": "peagle_sm.service.progress",
    "PauseReport": "peagle_sm.service.lifecycle.pausing",
    "Phase": "peagle_sm.service.progress",
    "ResumeOffer": "peagle_sm.service.lifecycle.resuming",
    "UpdateOffer": "peagle_sm.service.lifecycle.existing",
    "connect": "peagle_sm.service.lifecycle.endpoint",
    "delete": "peagle_sm.service.lifecycle.deletion",
    "deploy": "peagle_sm.service.lifecycle.deployment",
    "keep": "peagle_sm.service.guard.keep",
    "leftovers": "peagle_sm.service.lifecycle.deletion",
    "list_endpoints": "peagle_sm.service.inventory.listing",
    "logs": "peagle_sm.service.inventory.inspection",
    "pause": "peagle_sm.service.lifecycle.pausing",
    "plan_for": "peagle_sm.service.spec_to_plan",
    "resume": "peagle_sm.service.lifecycle.resuming",
    "status": "peagle_sm.service.inventory.inspection",
    "update": "peagle_sm.service.lifecycle.updating",
    "wait": "peagle_sm.service.inventory.inspection",
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

    return getattr(import_module(_HOME[name]), name)
