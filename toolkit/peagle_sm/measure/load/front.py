"""The synchronous front: an event loop for one load (or several), Ctrl-C, and the point that comes of it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from peagle_sm.core.errors import NotFound
from peagle_sm.core.extras import install_command
from peagle_sm.measure.load.health import Limits
from peagle_sm.measure.load.points import Objective, make_point
from peagle_sm.measure.load.run import drive_load
from peagle_sm.measure.load.targets import Target
from peagle_sm.measure.load.work import LoadOptions, Observer, WorkItem
from peagle_sm.measure.records import Acceptance, Load, PointRecord, RequestRecord

T = TypeVar("T")
#: New objects between two collections: an answer leaves a few hundred, and a full collection stops the loop.
_COLLECT_EVERY = 50_000


def measure_point(
    target: Target,
    load: Load,
    items: Iterable[WorkItem],
    options: LoadOptions,
    *,
    observer: Observer | None = None,
    temperature: float | None = None,
    objective: Objective | None = None,
    acceptance: Callable[[Sequence[RequestRecord]], Acceptance | None] | None = None,
    usd_per_hour: float | None = None,
    limits: Limits | None = None,
) -> tuple[list[RequestRecord], PointRecord]:
    """Run one load and sum it up; ``acceptance`` finds the acceptance of its measured requests.

    Ctrl-C closes every connection before KeyboardInterrupt goes on; the observer has the records so far.
    Whether the figures may be published says ``PointRecord.client.trusted``.

    Raises:
        SpecError: the load or the workload does not fit.
        NotFound: the extra ``measure`` is not installed.
        LoadStopped: the endpoint fails every request; it carries the records so far.
    """
    run = run_quietly(lambda: drive_load(target, load, items, options=options, observer=observer))
    measured = [record for record in run.records if record.phase == "measured"]
    point = make_point(
        run,
        temperature=temperature,
        objective=objective,
        acceptance=None if acceptance is None else acceptance(measured),
        usd_per_hour=usd_per_hour,
        machine_load=os.getloadavg()[0],
        limits=limits,
    )
    return list(run.records), point


def run_quietly(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in a loop made for measuring: uvloop, and garbage collected seldom.

    Raises:
        NotFound: uvloop is not installed.
    """
    with _seldom_collected(), asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(main())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if os.name == "nt":
        return None  # uvloop does not exist there; the client's own lag tells whether it matters
    try:
        import uvloop
    except ImportError as error:
        raise NotFound(
            "the load client needs uvloop, which is not installed",
            next_step=install_command("measure"),
        ) from error
    return uvloop.new_event_loop


@contextlib.contextmanager
def _seldom_collected() -> Iterator[None]:
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()  # what is there stays; looking through it again at each collection takes milliseconds
    gc.set_threshold(_COLLECT_EVERY, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
