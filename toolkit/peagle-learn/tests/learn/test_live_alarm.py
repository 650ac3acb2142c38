"""How often the alarm of a promotion rolls back an equal head, and misses one at 60% of the acceptance.

The traffic knows nothing of the toolkit: Poisson arrivals with a day's rhythm, a mix of greedy code, chats at
temperature 0.7 and at 1 that drifts, answers with a long tail. A script
printed the table of docs/how-to/prove-a-head.md from it (last in: edae080c).
"""

from __future__ import annotations

import numpy
import pytest
from numpy.typing import NDArray

from peagle_learn.promote import FEWEST_MINUTES, least_live
from peagle_sm.core.resources.alarm import update_alarms

Minutes = NDArray[numpy.float64]
LENGTHS = numpy.array([3.8, 2.4, 1.5])  #: greedy code, temperature 0.7, temperature 1
MIX = numpy.log([0.3, 0.5, 0.2])
HOUR, CANARY, AFTER = 60, 10, 5  #: minutes: before the promotion, of its canary, of the alarm after it


def minutes_of(draws: numpy.random.Generator, rate: float, head: float, *, canary: bool) -> Minutes:
    """Return the acceptance length of each minute, NaN without a request; ``head`` is the new one's share.

    A canary of one of two instances serves half of the requests, then the new head serves all.
    """
    after = CANARY + AFTER if canary else AFTER + 3
    began, drift = draws.integers(1440), numpy.zeros(3)
    lengths = numpy.full(HOUR + after, numpy.nan)
    for minute in range(len(lengths)):
        time = 2 * numpy.pi * (minute + began) / 1440
        drift = 0.995 * drift + draws.normal(0, 0.1, 3)
        weights = numpy.exp(MIX + drift + numpy.array([0.4, 0, -0.4]) * numpy.sin(time))
        count = draws.poisson(rate * (1 + 0.6 * numpy.sin(time)))
        if not count:
            continue
        kind = draws.choice(3, count, p=weights / weights.sum())
        length = 1 + (LENGTHS[kind] - 1) * numpy.exp(draws.normal(0, 0.25, count))
        share = 0.0 if minute < HOUR else 0.5 if canary and minute < HOUR + CANARY else 1.0
        new = draws.random(count) < share
        length = numpy.where(new, numpy.maximum(1, head * length), length)
        tokens = numpy.clip(numpy.exp(draws.normal(5, 1, count)), 8, 2048)
        lengths[minute] = tokens.sum() / (tokens / length).sum()
    return lengths


def rolls_back(minutes: Minutes) -> bool:
    """Evaluate the alarm as CloudWatch does: successive minutes below the threshold; none is not below."""
    live = minutes[:HOUR][~numpy.isnan(minutes[:HOUR])]
    if len(live) < FEWEST_MINUTES:
        return False
    alarm = update_alarms("demo", least_live(live.tolist(), 0.9))[1].parameters or {}
    below = minutes[HOUR:] < alarm["Threshold"]
    needed = alarm["DatapointsToAlarm"]
    assert needed == alarm["EvaluationPeriods"]
    return any(below[at : at + needed].all() for at in range(len(below) - needed + 1))


def share_rolled_back(rate: float, head: float, *, canary: bool, trials: int) -> float:
    draws = numpy.random.default_rng([round(10 * rate), round(100 * head), canary])
    return sum(rolls_back(minutes_of(draws, rate, head, canary=canary)) for _ in range(trials)) / trials


@pytest.mark.parametrize("canary", [False, True], ids=["all at once", "canary"])
@pytest.mark.parametrize("rate", [1.0, 10.0])
def test_an_equal_head_is_hardly_ever_rolled_back(rate: float, canary: bool) -> None:
    assert share_rolled_back(rate, 1.0, canary=canary, trials=100) <= 0.03


@pytest.mark.parametrize("canary", [False, True], ids=["all at once", "canary"])
def test_a_head_at_60_percent_is_rolled_back_if_there_is_traffic(canary: bool) -> None:
    assert share_rolled_back(20.0, 0.6, canary=canary, trials=60) >= 0.9


def test_with_little_traffic_it_is_missed_so_the_promotion_must_say_that() -> None:
    assert share_rolled_back(0.3, 0.6, canary=True, trials=100) <= 0.2
