"""The shared judges: they find their fault, and fail clean arms no more often than they say."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_bench.packs.agents import judge_cache
from peagle_bench.packs.identity import compared
from peagle_bench.packs.judges import EXCLUDED, FALLEN, falls, judge_answered
from tests.bench.packs.making import drawn, request

PARTS = ("1", "2", "3", "4")
RUNS = 200


def results(chance_at: dict[str, float], *, units: int = 12, runs: int = RUNS) -> list[bool | None]:
    return [
        falls(
            drawn(random.Random(f"{seed}"), PARTS, chance_at.__getitem__, units=units),
            PARTS,
            alpha=0.01,
            by="part {}",
        ).passed
        for seed in range(runs)
    ]


def length(rate: float, k: int = 7) -> float:
    """The acceptance length of a constant chance."""
    return sum(rate**n for n in range(k + 1))


def test_acceptance_that_holds_passes_every_time() -> None:
    assert results(dict.fromkeys(PARTS, 0.65)) == [True] * RUNS


def test_acceptance_that_falls_to_a_third_never_passes_and_is_found() -> None:
    chances = {"1": 0.75, "2": 0.7, "3": 0.6, "4": 0.1}
    assert length(0.1) / length(0.75) < EXCLUDED
    result = results(chances)
    assert True not in result
    assert result.count(False) >= RUNS - 2


def test_a_fall_to_the_tolerated_share_fails_in_at_most_one_percent_of_runs() -> None:
    """At the edge of what is tolerated the interval decides, and it is wide enough for three looks."""
    edge = next(rate / 1000 for rate in range(650, 0, -1) if length(rate / 1000) / length(0.65) < FALLEN)
    chances = {"1": 0.65, "2": edge, "3": edge, "4": edge}
    draws = (drawn(random.Random(f"{seed}"), PARTS, chances.__getitem__, spread=0.0) for seed in range(400))
    failed = sum(falls(draw, PARTS, alpha=0.01, by="{}").passed is False for draw in draws)
    assert failed <= 11  # 400 x 1%: 11 or more happen in 0.3% of cases


def test_two_units_decide_nothing() -> None:
    """Too few units are not a pass."""
    assert set(results(dict.fromkeys(PARTS, 0.65), units=5, runs=5)) == {None}


def test_answers_without_drafts_decide_nothing() -> None:
    named = [f"{unit}/{part}" for unit in range(9) for part in PARTS]
    silent = [request(name, output_tokens=9) for name in named]
    silent = [replace(record, drafts=None, accepted=None) for record in silent]
    result = falls(silent, PARTS, alpha=0.01, by="part {}")
    assert result.passed is None
    assert "do not report drafts" in result.summary


@given(st.integers(0, 40), st.integers(1, 40))
def test_only_what_the_arm_alone_fails_counts(failed: int, sent: int) -> None:
    failed = min(failed, sent)
    records = [request(f"{n}/1", error="ModelError" if n < failed else None) for n in range(sent)]
    theirs = [replace(record, arm="plain") for record in records]
    assert judge_answered(records, theirs).passed is (None if 2 * failed > sent else True)
    plain = [replace(record, arm="plain", error=None) for record in records]
    alone = failed > max(1, 0.05 * sent)
    assert judge_answered(records, plain).passed is (False if alone else None if 2 * failed > sent else True)


@pytest.mark.parametrize(("cached", "passed"), [(256, True), (0, False), (None, None)])
def test_the_prefix_cache_is_judged_by_its_hits(cached: int | None, passed: bool | None) -> None:
    turns = [
        request(f"{unit}/conversation", turn=turn, input_tokens=400 * (turn + 1), cached_tokens=cached)
        for unit in range(4)
        for turn in range(4)
    ]
    assert judge_cache(turns).passed is passed


def test_short_turns_say_nothing_about_the_cache() -> None:
    turns = [request("0/conversation", turn=turn, input_tokens=90, cached_tokens=0) for turn in range(4)]
    assert judge_cache(turns).passed is None


def test_a_conversation_is_compared_up_to_its_first_different_turn() -> None:
    mine = [request("0/conversation", turn=turn, output_sha256=f"{turn}") for turn in range(4)]
    theirs = [
        replace(record, output_sha256="other" if record.turn in (1, 3) else record.output_sha256)
        for record in mine
    ]
    both, differing = compared(mine, theirs)
    assert both == [("0/conversation", 0), ("0/conversation", 1)]
    assert differing == [("0/conversation", 1)]
