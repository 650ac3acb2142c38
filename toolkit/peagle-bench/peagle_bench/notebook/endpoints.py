"""Shared parts of the measuring calls: endpoint arguments, session, workload, blocking work.

A notebook's kernel has an event loop in its main thread, so blocking work runs in another thread there.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from peagle_bench.benchmark.endpoint_arm import is_url
from peagle_bench.workloads import Workload, load_workload
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import Interrupted, SpecError
from peagle_sm.service.lifecycle.endpoint import Endpoint
from peagle_sm.service.notebook import Local, session_at

EndpointLike = Endpoint | str


@dataclass(frozen=True)
class SessionSource:
    """Session of the endpoints, or the settings to create one when it is needed."""

    session: Session | None
    local: Local | None
    profile: str | None
    region: str | None
    spec_region: str | None = None

    def open(self, *endpoints: EndpointLike) -> Session | None:
        """Return the session for these endpoints; None if all of them are URLs of bare vLLMs.

        Raises:
            SpecError: the endpoints are in different regions or on different local servers.
        """
        brought = [each.session for each in endpoints if isinstance(each, Endpoint)]
        if self.session is None and brought:
            first = brought[0]
            if any((each.region, each.local_url) != (first.region, first.local_url) for each in brought):
                raise SpecError(
                    "the endpoints are in different regions; allowed: one region",
                    next_step="deploy them in one region, so that the network latency is the same for each",
                )
            return first
        if endpoints and all(isinstance(each, str) and is_url(each) for each in endpoints):
            return None
        return self.session or session_at(self.profile, self.region, self.local, self.spec_region)

    def for_workload(self, *endpoints: EndpointLike) -> Callable[[], Session]:
        """Return what opens the session of these endpoints, for a workload that needs AWS."""
        return lambda: demanded(self.open(*endpoints) or self.open())


def demanded(session: Session | None) -> Session:
    """Return the session, which exists unless all endpoints are URLs of bare vLLMs."""
    assert session is not None, "only URLs of bare servers are measured without a session"
    return session


def name_of(endpoint: EndpointLike) -> str:
    """Return the endpoint's name or URL."""
    return endpoint.name if isinstance(endpoint, Endpoint) else endpoint


def chosen(
    workload: Workload | str, prompts: int | None, seed: int, max_tokens: int | None, **more: Any
) -> Workload:
    """Return the workload, loaded by name or file if necessary; errors as `load_workload`."""
    if isinstance(workload, Workload):
        return workload
    return load_workload(workload, seed=seed, count=prompts, max_tokens=max_tokens, **more)


T = TypeVar("T")
_LOOK_S = 0.5


def blocking(work: Callable[[], T]) -> T:
    """Run ``work``, which may start its own event loops, and return its result.

    If an event loop runs in this thread, the work runs in another thread, and Ctrl-C (a notebook's
    "interrupt") is passed on to it, so that the measurements so far are saved.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    return _elsewhere(work)


def _elsewhere(work: Callable[[], T]) -> T:
    results: list[T] = []
    errors: list[BaseException] = []
    begun, done = threading.Event(), threading.Event()

    def run() -> None:
        begun.set()
        try:
            results.append(work())
        except BaseException as error:  # passed to the caller's thread, Ctrl-C included
            errors.append(error)
        finally:
            done.set()

    # The context determines the cell to which an output belongs.
    context = contextvars.copy_context()
    thread = threading.Thread(target=lambda: context.run(run), name="peagle-sm measuring", daemon=True)
    stop_requested = started = False
    while not done.is_set():
        try:
            if not started:
                started = True
                thread.start()
            if stop_requested and begun.wait(_LOOK_S):
                stop_requested = False
                with contextlib.suppress(ValueError):  # it has just ended
                    interrupt(thread)
            elif stop_requested:
                raise Interrupted("Interrupted before the start: nothing was measured.")
            done.wait(_LOOK_S)
        except KeyboardInterrupt:  # anywhere above: the work is interrupted in the next iteration
            stop_requested = True
    if errors:
        raise errors[0]
    return results[0]


def interrupt(thread: threading.Thread) -> None:
    """Raise KeyboardInterrupt in another thread as soon as it runs Python code again.

    Raises:
        ValueError: the thread has ended.
    """
    threads = ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident or 0), ctypes.py_object(KeyboardInterrupt)
    )
    if not threads:
        raise ValueError(f"{thread.name} has ended")
