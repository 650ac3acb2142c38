"""Worlds are seeded, and hold what the report says they hold."""

from __future__ import annotations

from random import Random

import pytest

from tests.guard.simulator.making import BEGIN
from tests.guard.simulator.worlds.faults import FAULTS
from tests.guard.simulator.worlds.generate import make_world
from tests.guard.simulator.worlds.timetables import timetable
from tests.guard.simulator.worlds.traffic import DAY, HOUR, SHAPES, STREAM_LIMIT_S, Span, Traffic


def test_every_fault_and_special_comes_up() -> None:
    names = {fault for seed in range(150) for fault in make_world(seed).faults}
    special = {"250 endpoints", "timetable", "reused names", "foreign endpoints"}
    assert names == set(FAULTS) | special


@pytest.mark.parametrize("shape", SHAPES)
def test_no_request_lasts_longer_than_sagemaker_allows(shape: str) -> None:
    span = Span(BEGIN, BEGIN + DAY, 1800, 600)
    for seed in range(20):
        requests = SHAPES[shape](Random(seed), span)
        assert all(0 < end - start <= STREAM_LIMIT_S and start >= BEGIN for start, end in requests)


def test_traffic_is_sorted_and_can_be_cut() -> None:
    traffic = Traffic.of([(100, 200), (0, 480), (150, 160)])
    assert traffic.until(150) == Traffic((0, 100), (480, 200))


def test_a_timetable_keeps_local_time_over_the_change_of_clocks() -> None:
    begin = 1_792_713_600  # 2026-10-23 00:00 UTC, two days before Berlin's clocks change
    for seed in range(40):
        hours = timetable(Random(seed), begin, begin + 4 * DAY)
        if hours.text.endswith("Europe/Berlin") and hours.text.startswith("Mon-Sun"):
            opens = [start % DAY for start, _ in hours.open]
            assert max(opens) - min(opens) == HOUR
            return
    raise AssertionError("no seed drew Berlin's every day")
