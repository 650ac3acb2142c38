"""What the measuring calls share: endpoints in any form, their session, the workload, and blocking work.

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

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import Interrupted, SpecError
from peagle_sm.measure.benchmark.endpoint_arm import is_url
from peagle_sm.measure.workloads import Workload, load_workload
from peagle_sm.service.endpoint import Endpoint
from peagle_sm.service.notebook import Local, session_at

EndpointLike = Endpoint | str


@dataclass(frozen=True)
class Place:
    """Where the endpoints are: a session, or what one is made from once it is needed."""

    session: Session | None
    local: Local | None
    profile: str | None
    region: str | None
    spec_region: str | None = None

    def open(self, *endpoints: EndpointLike) -> Session | None:
        """The session for these endpoints; None where all of them are addresses of a bare vLLM.

        Raises:
            SpecError: they are in different places.
        """
        brought = [each.session for each in endpoints if isinstance(each, Endpoint)]
        if self.session is None and brought:
            first = brought[0]
            if any((each.region, each.local_url) != (first.region, first.local_url) for each in brought):
                raise SpecError(
                    "the endpoints are in different regions; allowed: one region",
                    next_step="deploy them into one, so that the client is as far from each",
                )
            return first
        if endpoints and all(isinstance(each, str) and is_url(each) for each in endpoints):
            return None
        return self.session or session_at(self.profile, self.region, self.local, self.spec_region)


def demanded(session: Session | None) -> Session:
    """The session, where there must be one: some endpoint is no address of a bare vLLM."""
    assert session is not None, "only addresses of bare servers are asked without a session"
    return session


def name_of(endpoint: EndpointLike) -> str:
    """Its name or address."""
    return endpoint.name if isinstance(endpoint, Endpoint) else endpoint


def chosen(
    workload: Workload | str, prompts: int | None, seed: int, max_tokens: int | None, **more: Any
) -> Workload:
    """The workload: one that was loaded, or by its name or file; errors as `load_workload`."""
    if isinstance(workload, Workload):
        return workload
    return load_workload(workload, seed=seed, count=prompts, max_tokens=max_tokens, **more)


T = TypeVar("T")
_LOOK_S = 0.5


def blocking(work: Callable[[], T]) -> T:
    """Run ``work``, which may start event loops of its own, and return what it returns.

    Where a loop runs in this thread, the work is done in another one, and Ctrl-C (a notebook's "interrupt")
    is handed on to it: it ends there as it would here, with what was measured saved.
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
        except BaseException as error:  # handed to the caller's thread, Ctrl-C included
            errors.append(error)
        finally:
            done.set()

    # The context says which cell an output belongs to.
    context = contextvars.copy_context()
    thread = threading.Thread(target=lambda: context.run(run), name="peagle-sm measuring", daemon=True)
    asked = started = False
    while not done.is_set():
        try:
            if not started:
                started = True
                thread.start()
            if asked and begun.wait(_LOOK_S):
                asked = False
                with contextlib.suppress(ValueError):  # it has just ended
                    interrupt(thread)
            elif asked:
                raise Interrupted("Interrupted: nothing was begun.")
            done.wait(_LOOK_S)
        except KeyboardInterrupt:  # anywhere above: the work is told in the next round
            asked = True
    if errors:
        raise errors[0]
    return results[0]


def interrupt(thread: threading.Thread) -> None:
    """Raise KeyboardInterrupt in ``thread`` as soon as it runs Python code again.

    Raises:
        ValueError: it has ended.
    """
    found = ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident or 0), ctypes.py_object(KeyboardInterrupt)
    )
    if not found:
        raise ValueError(f"{thread.name} has ended")
