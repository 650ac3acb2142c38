"""Blocking calls where an event loop runs already."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time

import pytest

from peagle_bench.load.run import run_quietly
from peagle_bench.notebook.endpoints import blocking, interrupt

_cell = contextvars.ContextVar("cell", default="none")


async def answer() -> int:
    await asyncio.sleep(0)
    return 42


def test_without_a_loop_it_runs_here() -> None:
    assert blocking(threading.get_ident) == threading.get_ident()


async def test_inside_a_loop_work_may_have_a_loop_of_its_own() -> None:
    assert blocking(lambda: run_quietly(answer)) == 42


async def test_inside_a_loop_it_keeps_what_the_cell_has_set() -> None:
    _cell.set("cell 7")
    assert blocking(_cell.get) == "cell 7"


async def test_an_error_comes_out_as_it_is() -> None:
    def fail() -> None:
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        blocking(fail)


def test_an_interrupt_ends_the_work_with_its_clean_up() -> None:
    began, told = threading.Event(), []

    async def forever() -> None:
        try:
            while True:
                began.set()
                await asyncio.sleep(0.01)
        finally:
            told.append("connections closed")

    def work() -> None:
        try:
            run_quietly(forever)
        except KeyboardInterrupt:
            told.append("interrupted")

    thread = threading.Thread(target=work)
    thread.start()
    assert began.wait(20)
    interrupt(thread)
    thread.join(20)
    assert told == ["connections closed", "interrupted"]
    with pytest.raises(ValueError, match="has ended"):
        interrupt(thread)


def test_an_interrupt_of_the_caller_reaches_the_work() -> None:
    """As a kernel does it: its main thread is waiting inside a loop when the signal comes."""
    began, caught = threading.Event(), []

    def work() -> None:
        began.set()
        try:
            while True:
                time.sleep(0.01)
        except KeyboardInterrupt:
            caught.append("in the work")
            raise

    async def cell() -> None:
        try:
            blocking(work)
        except KeyboardInterrupt:
            caught.append("in the cell")

    waiting = threading.Thread(target=lambda: asyncio.run(cell()))
    waiting.start()
    assert began.wait(20)
    interrupt(waiting)
    waiting.join(20)
    assert caught == ["in the work", "in the cell"]
