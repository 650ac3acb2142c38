"""Load client: streams many answers at once, times every chunk, and checks its own health.

`work` holds the shared types, `driver` schedules the requests, `http_client` sends them to a SageMaker
endpoint or a bare vLLM, `arrival_times` records when bytes arrive, `answer` reads them, `run` runs one load,
and `points` turns its requests into rates and percentiles. `peagle_bench.compare` measures several
arms in turns. Importing this package imports neither aiohttp nor uvloop.
"""

from __future__ import annotations

from peagle_bench.load.http_client import HttpTarget, SageMakerTarget, Target, make_target
from peagle_bench.load.run import drive_load, measure_point, run_quietly
from peagle_bench.load.work import (
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
    "drive_load",
    "make_target",
    "measure_point",
    "run_quietly",
]
