"""The load client: streams many answers at once from an endpoint, times every chunk, and watches itself.

Pure: `work`, `sigv4`, `frames`, `answer`, `arrivals`, `health`. Targets: `targets`. At the edge: `sender`
(aiohttp), `meter` (the client's own lag and CPU), `run` (loops), `front` (uvloop, Ctrl-C), `alternate`.
Importing this package imports neither aiohttp nor uvloop: the extra `measure` is asked for when a load starts.
"""

from __future__ import annotations

from peagle_sm.measure.load.targets import HttpTarget, SageMakerTarget, Target, make_target
from peagle_sm.measure.load.work import (
    ClientUsage,
    Clock,
    LoadOptions,
    LoadRun,
    LoadStopped,
    Observer,
    Silent,
    Timeouts,
    Window,
    WorkItem,
)

__all__ = [
    "ClientUsage",
    "Clock",
    "HttpTarget",
    "LoadOptions",
    "LoadRun",
    "LoadStopped",
    "Observer",
    "SageMakerTarget",
    "Silent",
    "Target",
    "Timeouts",
    "Window",
    "WorkItem",
    "make_target",
]
