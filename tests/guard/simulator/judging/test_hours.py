"""The timetable in worlds: kept by the guard, over the change of clocks too; and a miss is seen."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.guard.simulator.guard_run import run_guard
from tests.guard.simulator.judging.judge_hours import missed_hours
from tests.guard.simulator.making import plan
from tests.guard.simulator.worlds.traffic import DAY, HOUR, Traffic
from tests.guard.simulator.worlds.world import Hours, World


def _at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


BERLIN = Hours(
    "Mon-Sun 08:00-18:00 Europe/Berlin",
    (
        (_at("2026-10-24 06:00"), _at("2026-10-24 16:00")),  # summer time
        (_at("2026-10-25 07:00"), _at("2026-10-25 17:00")),  # from this night on winter time
        (_at("2026-10-26 07:00"), _at("2026-10-26 17:00")),
    ),
)


def test_local_time_is_kept_and_a_timetable_that_nobody_keeps_is_missed() -> None:
    begin = _at("2026-10-24 06:30")
    busy = Traffic.of([(at, at + 5) for at in range(begin, begin + 3 * DAY, 400)])
    lanes = (("AllTraffic", busy),)
    endpoint = plan(created_at=begin, traffic=lanes, hours=BERLIN, lifetime_hours=200.0)
    given = World(seed=0, begin=begin, end=begin + 2 * DAY + 20 * HOUR, plans=(endpoint,))
    lives = [(each.life, each.cause) for each in run_guard(given).ended()]
    assert len(lives) == len(BERLIN.open)
    assert missed_hours(given, lives) == []
    late = Hours(BERLIN.text, tuple((opens - 2 * HOUR, closes - 2 * HOUR) for opens, closes in BERLIN.open))
    other = plan(hours=late)
    for life, _ in lives:
        life.plan = other
    assert len(missed_hours(given, lives)) >= 2
