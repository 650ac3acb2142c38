"""Blocking work where an event loop runs already: a notebook's kernel has one in its main thread."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ctypes
import threading
from collections.abc import Callable
from typing import TypeVar

from peagle_sm.core.errors import Interrupted

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
