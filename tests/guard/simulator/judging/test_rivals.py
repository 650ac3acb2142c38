"""What the published rules do, and that each fails in the way that is told of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.guard.simulator.judging.judge import Verdict, judge
from tests.guard.simulator.judging.rivals import RIVALS, Look, Rival
from tests.guard.simulator.making import BEGIN, MINUTE, plan, world
from tests.guard.simulator.rival_run import run_rival
from tests.guard.simulator.worlds.traffic import HOUR
from tests.guard.simulator.worlds.world import CloudWatch, World

NAMES = [rival.name for rival in RIVALS]
BUSY = tuple((start, start + 5) for start in range(360, 20 * HOUR, 60))


def _rival(name: str) -> Rival:
    return RIVALS[NAMES.index(name)]


def _judged(name: str, given: World) -> Verdict:
    return judge(given, run_rival(given, _rival(name)))


@pytest.mark.parametrize(
    ("name", "first", "lanes", "deletes"),
    [
        ("a missing metric is idle", None, (None,), True),
        ("a missing metric is idle", 0.0, (0.0, 7.0), True),
        ("a missing metric is idle", 3.0, (3.0,), False),
        ("Invocations by EndpointName alone", 3.0, (3.0,), True),
        ("one look, no grace", 0.0, (0.0,), True),
        ("one look, no grace", None, (None,), False),
        ("one look, no grace", 0.0, (0.0, 2.0), False),
        ("expiry tag alone", 3.0, (3.0,), False),
        ("no guard", None, (None,), False),
    ],
)
def test_a_rule(name: str, first: float | None, lanes: tuple[float | None, ...], deletes: bool) -> None:
    assert _rival(name).rule(Look(BEGIN, BEGIN + 60, first, lanes)) is deletes


def test_without_a_guard_it_runs_on_for_ever() -> None:
    verdict = _judged("no guard", world(plan()))
    assert verdict.survivors == 1
    assert verdict.wasted_usd == pytest.approx(100 * (24 * 60 - 5) / 60)


def test_busy_traffic_dies_where_the_dimension_is_wrong() -> None:
    given = world(plan(*BUSY, lifetime_hours=23))
    assert _judged("Invocations by EndpointName alone", given).before_return == 1


def test_a_lost_metric_kills_where_missing_is_idle() -> None:
    gap = CloudWatch(gaps=((BEGIN + 2 * HOUR, BEGIN + 3 * HOUR),))
    given = world(plan(*BUSY, lifetime_hours=23, traffic=plan(*BUSY).traffic), cloudwatch=gap)
    assert _judged("a missing metric is idle", given).before_return == 1


def test_where_nothing_is_written_when_idle_one_look_never_ends_it() -> None:
    given = world(plan((400, 410)), cloudwatch=CloudWatch(zeros=False))
    assert _judged("one look, no grace", given).survivors == 1


def test_one_look_kills_what_comes_back_a_little_later() -> None:
    back = (400 + 20 * MINUTE, 430 + 20 * MINUTE)
    verdict = _judged("one look, no grace", world(plan((400, 410), back)))
    assert verdict.before_return == 1


def test_the_expiry_tag_ends_it_and_nothing_before() -> None:
    given = world(replace(plan((400, 410)), lifetime_hours=2.0))
    assert _judged("expiry tag alone", given).tails == [pytest.approx(120 + 5 - 410 / 60, abs=6)]
