"""Was the timetable kept? Judged where everything works, from open times that the guard did not work out."""

from __future__ import annotations

from tests.guard.simulator.fake_services.cloudformation import UPDATE_S
from tests.guard.simulator.fake_services.sagemaker import Life
from tests.guard.simulator.worlds.world import Hours, World

SWEEP_S = 300
WAKES = frozenset({"idle", "hours", "lifetime", "schedule"})
"""Turned off by one of these, the next opening turns it on again."""


def missed_hours(world: World, lives: list[tuple[Life, str]]) -> list[str]:
    """Return what was missed, in words; ``lives`` are those of one name, oldest first, with their causes."""
    plan = lives[0][0].plan
    if plan.hours is None or any(life.plan is not plan for life, _ in lives):
        return []
    return [*_late_closings(world, plan.hours, lives), *_late_openings(world, plan.hours, lives)]


def _late_closings(world: World, hours: Hours, lives: list[tuple[Life, str]]) -> list[str]:
    rows = []
    for _, closes in hours.open:
        for life, _ in lives:
            last = closes + life.plan.grace_s + 2 * SWEEP_S
            off = life.turning_off_at
            if (
                life.in_service_at < closes
                and (off is None or off > last)
                and last < min(_end(life), world.end)
            ):
                rows.append(f"{life.plan.name} still on at {last}, closed at {closes}")
    return rows


def _end(life: Life) -> int:
    return life.gone_at if life.gone_at is not None else 1 << 40


def _late_openings(world: World, hours: Hours, lives: list[tuple[Life, str]]) -> list[str]:
    rows = []
    for opens, _ in hours.open:
        due = opens + 2 * SWEEP_S + UPDATE_S
        before = [(life, cause) for life, cause in lives if life.created_at < opens]
        if not before or due > world.end:
            continue
        life, cause = before[-1]
        if cause not in WAKES or life.gone_at is None or life.gone_at > opens - 2 * SWEEP_S:
            continue
        if not any(opens <= each.created_at <= due for each, _ in lives):
            rows.append(f"{life.plan.name} not on by {due}, open since {opens}")
    return rows
