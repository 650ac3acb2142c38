"""The load client: streams many answers at once from an endpoint, times every chunk, and watches itself.

Pure: `work`, `points`, `events`, `answer`, `arrivals`, `schedule`, `health`; AWS's framing and signature are
`aws.frames` and `aws.sigv4`. Where to: `targets`. At the edge: `sender` (aiohttp), `meter` (the client's own
lag and CPU), `drive` and `run` (the loops), `front` (uvloop, Ctrl-C). Several arms in turns:
`measure.compare`. Importing this package imports neither aiohttp nor uvloop: the extra `measure` is asked for
as a load starts.
"""

from __future__ import annotations

from peagle_sm.measure.load.front import measure_point, run_quietly
from peagle_sm.measure.load.health import Limits
from peagle_sm.measure.load.run import drive_load
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
    "Limits",
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
    "drive_load",
    "make_target",
    "measure_point",
    "run_quietly",
]
