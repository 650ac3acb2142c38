"""Use cases: plan, deploy, list, status, invoke, keep, pause, update, delete.

Each name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from peagle_sm.aws.control.cloudwatch import LogLine as LogLine
    from peagle_sm.service.guard.keep import Lease as Lease
    from peagle_sm.service.guard.keep import keep as keep
    from peagle_sm.service.inventory.endpoint_status import EndpointStatus as EndpointStatus
    from peagle_sm.service.inventory.inspection import logs as logs
    from peagle_sm.service.inventory.inspection import status as status
    from peagle_sm.service.inventory.inspection import wait as wait
    from peagle_sm.service.inventory.listing import EndpointSummary as EndpointSummary
    from peagle_sm.service.inventory.listing import list_endpoints as list_endpoints
    from peagle_sm.service.lifecycle.deletion import Deletable as Deletable
    from peagle_sm.service.lifecycle.deletion import DeleteReport as DeleteReport
    from peagle_sm.service.lifecycle.deletion import deletable as deletable
    from peagle_sm.service.lifecycle.deletion import delete as delete
    from peagle_sm.service.lifecycle.deletion import leftovers as leftovers
    from peagle_sm.service.lifecycle.deployment import deploy as deploy
    from peagle_sm.service.lifecycle.endpoint import Endpoint as Endpoint
    from peagle_sm.service.lifecycle.endpoint import connect as connect
    from peagle_sm.service.lifecycle.existing import UpdateOffer as UpdateOffer
    from peagle_sm.service.lifecycle.pausing import PauseReport as PauseReport
    from peagle_sm.service.lifecycle.pausing import pause as pause
    from peagle_sm.service.lifecycle.resuming import ResumeOffer as ResumeOffer
    from peagle_sm.service.lifecycle.resuming import resume as resume
    from peagle_sm.service.lifecycle.updating import update as update
    from peagle_sm.service.progress import Event as Event
    from peagle_sm.service.progress import Pacing as Pacing
    from peagle_sm.service.progress import Phase as Phase
    from peagle_sm.service.spec_to_plan import plan_for as plan_for

_NAMES = {
    "guard.keep": ("Lease", "keep"),
    "inventory.endpoint_status": ("EndpointStatus",),
    "inventory.inspection": ("LogLine", "logs", "status", "wait"),
    "inventory.listing": ("EndpointSummary", "list_endpoints"),
    "lifecycle.deletion": ("Deletable", "DeleteReport", "deletable", "delete", "leftovers"),
    "lifecycle.deployment": ("deploy",),
    "lifecycle.endpoint": ("Endpoint", "connect"),
    "lifecycle.existing": ("UpdateOffer",),
    "lifecycle.pausing": ("PauseReport", "pause"),
    "lifecycle.resuming": ("ResumeOffer", "resume"),
    "lifecycle.updating": ("update",),
    "progress": ("Event", "Pacing", "Phase"),
    "spec_to_plan": ("plan_for",),
}
_HOME = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)
