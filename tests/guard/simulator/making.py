"""Worlds made by hand: one plain endpoint, and what a test wants to be different."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.guard.simulator.guard_run import GuardRun, run_guard
from tests.guard.simulator.judging.judge import Tally, judge
from tests.guard.simulator.worlds.traffic import HOUR, Traffic
from tests.guard.simulator.worlds.world import Plan, World

BEGIN = 1_780_272_000
"""2026-06-01 00:00 UTC, a Monday; sweeps of seed 0 fall on whole five minutes."""

MINUTE = 60


def plan(*requests: tuple[int, int], **changes: Any) -> Plan:
    """An endpoint of ours, in service five minutes after BEGIN; requests are (start, end) after BEGIN."""
    traffic = Traffic.of([(BEGIN + start, BEGIN + end) for start, end in requests])
    plain = Plan(
        name="code",
        owner="direct",
        created_at=BEGIN,
        creating_s=5 * MINUTE,
        traffic=(("AllTraffic", traffic),),
        idle_minutes=15,
        grace_minutes=10,
        lifetime_hours=8.0,
    )
    return replace(plain, **changes)


def world(*plans: Plan, **changes: Any) -> World:
    """A world of one day in which nothing goes wrong."""
    return replace(World(seed=0, begin=BEGIN, end=BEGIN + 24 * HOUR, plans=plans), **changes)


def run(given: World) -> tuple[GuardRun, Tally]:
    """Run the shipped guard through a world, and judge it; the guard's own code must not fail."""
    guard = run_guard(given)
    assert not guard.crashes
    return guard, judge(given, guard.ended())


def off_after(guard: GuardRun, number: int = 0) -> float:
    """Return the minutes from BEGIN to the end of a life."""
    off = guard.account.sagemaker.lives[number].deleting_at
    assert off is not None
    return (off - BEGIN) / MINUTE
