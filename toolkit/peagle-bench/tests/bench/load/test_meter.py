"""The client's own lag, in virtual time and by the kernel's clock."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator

import pytest

from peagle_bench.load import run_quietly
from peagle_bench.load.http_client import TurnQueue
from peagle_bench.load.run import EVERY_S, Meter
from peagle_bench.load.work import Clock
from tests.bench.load.virtual import in_virtual_time


def test_a_loop_that_is_free_has_no_lag() -> None:
    async def main(clock: Clock) -> Meter:
        meter = Meter(clock, cpu=lambda: 7.0)
        meter.start()
        await asyncio.sleep(100.5 * EVERY_S)
        meter.stop()
        await asyncio.sleep(1.0)
        return meter

    meter = in_virtual_time(main)
    assert len(meter.samples) == 100
    assert max(lag for _, lag in meter.samples) < 1e-6
    assert len(meter.lags_between(0.0, 10.5 * EVERY_S)) == 10
    assert meter.cpu_s() == 7.0


def test_a_loop_that_is_held_is_as_late_as_it_was_held() -> None:
    async def main() -> Meter:
        meter = Meter()
        meter.start()
        await asyncio.sleep(0.01)
        until = time.perf_counter() + 6 * EVERY_S
        while time.perf_counter() < until:
            pass
        await asyncio.sleep(0.01)
        meter.stop()
        return meter

    lags = [lag for _, lag in run_quietly(main).samples]
    # Every signal that fell into the stall counts: the first waited longest.
    assert len(lags) >= 5
    assert max(lags) >= 4 * EVERY_S * 1000
    assert sum(lag >= EVERY_S * 1000 / 2 for lag in lags) >= 4


@pytest.fixture
def thawed() -> Iterator[None]:
    """Without the freeze of the test run itself."""
    gc.unfreeze()
    yield
    gc.freeze()


async def _freeze_count() -> int:
    return gc.get_freeze_count()


def test_objects_are_frozen_during_a_run_only(thawed: None) -> None:
    assert run_quietly(_freeze_count) > 10_000
    assert gc.get_freeze_count() == 0


def test_what_the_caller_has_frozen_stays_frozen(thawed: None) -> None:
    gc.freeze()
    frozen = gc.get_freeze_count()
    assert run_quietly(_freeze_count) == pytest.approx(frozen, rel=0.01)
    assert gc.get_freeze_count() == pytest.approx(frozen, rel=0.01)


def test_the_desk_lets_one_through_between_two_looks_at_the_sockets() -> None:
    async def main() -> list[str]:
        desk, order = TurnQueue(), []

        async def work(name: str) -> None:
            await desk.turn()
            order.append(name)
            asyncio.get_running_loop().call_soon(order.append, "socket")

        tasks = [asyncio.create_task(work(name)) for name in "abc"]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return order

    order = run_quietly(main)
    assert [name for name in order if name != "socket"] == ["a", "c"]
