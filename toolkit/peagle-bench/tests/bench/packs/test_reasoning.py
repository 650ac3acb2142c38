"""The pack reasoning-effort: when it is measured, and its judge of the cost of an answer."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from peagle_bench.packs.pack import Make, Observed, PackNotMeasured, PackWork, ServedModel
from peagle_bench.packs.reasoning import (
    EFFORTS,
    STAND_IN_TOKENS,
    UNITS,
    costs_of,
    has_efforts,
    judge,
    make,
)
from peagle_bench.results.records import ArmRecord, Load, RequestRecord
from peagle_sm.core.errors import SpecError

MODEL = ServedModel(8192, False, lambda text: [0] * len(text))
FAST = ArmRecord("fast", "p-eagle", 7, "fast", usd_per_hour=36.0)
PLAIN = ArmRecord("plain", "none", None, "plain", usd_per_hour=36.0)
TOKENS = {"low": 100, "medium": 400, "high": 1600}


def record(arm: str, unit: int, effort: str, seconds: float, length: float | None) -> RequestRecord:
    tokens = TOKENS[effort]
    drafts = None if length is None else round(tokens / length)
    accepted = None if drafts is None else tokens - drafts
    name, times = f"{unit:03}/{effort}", (0.0, 0.0, 0.1, seconds, seconds)
    alone = Load("closed", 1)
    return RequestRecord(
        arm, alone, name, "measured", *times, 90, tokens, 9, drafts=drafts, accepted=accepted
    )


def observed(
    rng: random.Random, lengths: dict[str, float], speed_ups: dict[str, float], noise: float = 0.1
) -> Observed:
    mine, plain = [], []
    for unit in range(UNITS):
        easy = math.exp(rng.gauss(0, noise))
        for effort in EFFORTS:
            seconds = TOKENS[effort] * 0.01 * math.exp(rng.gauss(0, noise))
            length = lengths[effort] * easy * math.exp(rng.gauss(0, noise / 3))
            mine.append(record("fast", unit, effort, seconds / speed_ups[effort], length))
            its = TOKENS[effort] * 0.01 * math.exp(rng.gauss(0, noise))
            plain.append(record("plain", unit, effort, its, None))
    return Observed(PackWork((), "", ""), FAST, tuple(mine), PLAIN, tuple(plain))


STEADY = dict.fromkeys(EFFORTS, 3.0)
FASTER = dict.fromkeys(EFFORTS, 1.5)


def test_each_question_is_asked_at_each_effort() -> None:
    work = make(Make(MODEL, seed=2))
    assert len(work.items) == UNITS * len(EFFORTS)
    assert [item.body["reasoning_effort"] for item in work.items[:3]] == list(EFFORTS)
    assert len({item.body["messages"][0]["content"] for item in work.items}) == UNITS
    assert make(Make(MODEL, seed=2, units=3)).items == work.items[:9]
    assert make(Make(replace(MODEL, context=1024))).items[0].body["max_tokens"] == 512


def rendered(body: Mapping[str, Any]) -> list[int]:
    """The prompt by a template that writes the effort into it."""
    return [ord(sign) for sign in body["reasoning_effort"] + body["messages"][0]["content"]]


def ignored(body: Mapping[str, Any]) -> list[int]:
    """The prompt by a template that ignores the effort."""
    return [ord(sign) for sign in body["messages"][0]["content"]]


def refused(body: Mapping[str, Any]) -> list[int]:
    raise SpecError("reasoning_effort: unknown field")


@pytest.mark.parametrize("stand_in", [True, False])
def test_the_template_decides_whether_a_model_has_efforts(stand_in: bool) -> None:
    model = replace(MODEL, stand_in=stand_in)
    assert make(Make(replace(model, render=rendered))).items == make(Make(model)).items
    with pytest.raises(PackNotMeasured, match="its chat template ignores reasoning_effort") as raised:
        make(Make(replace(model, render=ignored)))
    assert raised.value.next_step == "measure a model that has it, such as GPT-OSS"
    with pytest.raises(PackNotMeasured, match="refuses a chat with reasoning_effort"):
        make(Make(replace(model, render=refused)))
    assert not has_efforts({"low": [1]})
    assert not has_efforts({"low": [1], "medium": [2], "high": [2]})


def test_the_stand_in_answers_shortly() -> None:
    assert make(Make(replace(MODEL, stand_in=True))).items[0].body["max_tokens"] == STAND_IN_TOKENS


def test_sound_arms_pass_and_state_what_the_budget_costs() -> None:
    for seed in range(100):
        judged = judge(observed(random.Random(seed), STEADY, FASTER))
        assert {one.passed for one in judged.checks.values()} == {True}, judged
    figures = judged.checks["cost by effort"].figures
    assert figures["usd_to_low_high"] == pytest.approx(16, rel=0.3)
    # 16 s of 36 USD an hour at 1.5 times the speed.
    assert figures["usd_an_answer_high"] == pytest.approx(0.16 / 1.5, rel=0.1)
    assert figures["usd_an_answer_plain_high"] == pytest.approx(0.16, rel=0.1)
    assert judged.figure.startswith("acceptance 2.97 at low, ")


def test_a_head_that_guesses_long_reasoning_badly_is_found() -> None:
    for seed in range(50):
        judged = judge(observed(random.Random(seed), {**STEADY, "high": 1.5}, FASTER))
        verdict = judged.checks["acceptance by effort"]
        assert verdict.passed is False
        assert verdict.summary.startswith("falls; high effort: 0.")
        assert verdict.summary.endswith("of the acceptance length at low effort")


def test_an_effort_at_which_speculation_costs_money_is_found_and_named() -> None:
    slow = {**FASTER, "high": 0.7}
    for seed in range(50):
        judged = judge(observed(random.Random(seed), STEADY, slow, noise=0.04))
        verdict = judged.checks["cost by effort"]
        assert verdict.passed is False
        assert [example.split(":")[0] for example in verdict.examples] == ["high"]


def test_equal_costs_seldom_fail() -> None:
    same = dict.fromkeys(EFFORTS, 1.0)
    found = [
        judge(observed(random.Random(seed), STEADY, same)).checks["cost by effort"] for seed in range(400)
    ]
    assert sum(verdict.passed is False for verdict in found) <= 5  # 0.5% of 400 is 2


def test_a_dearer_instance_counts() -> None:
    one = observed(random.Random(1), STEADY, FASTER)
    dear = costs_of(one.requests, one.baseline_requests, 72.0, 36.0, 0.005)
    unknown = costs_of(one.requests, one.baseline_requests, None, 36.0, 0.005)
    assert all(each.dearer and each.ratio.value > 1 for each in dear)
    assert not any(each.dearer or each.usd for each in unknown)


@pytest.mark.parametrize("price", [0.0, None])
def test_no_usd_is_told_where_the_price_is_zero_or_unknown(price: float | None) -> None:
    one = observed(random.Random(1), STEADY, FASTER)
    arms = replace(FAST, usd_per_hour=price), replace(PLAIN, usd_per_hour=price)
    told = judge(replace(one, arm=arms[0], baseline=arms[1])).checks["cost by effort"]
    assert "USD" not in told.summary
    assert not any(name.startswith("usd_an_answer") for name in told.figures)


def test_a_busy_machine_is_no_fault_of_the_arm() -> None:
    one = observed(random.Random(1), STEADY, dict.fromkeys(EFFORTS, 0.5))
    assert judge(one).checks["cost by effort"].passed is False
    slowed = [
        replace(each, last_s=(each.last_s or 0.0) * (3 if at % 4 == 0 else 1))
        for at, each in enumerate(one.baseline_requests)
    ]
    verdict = judge(replace(one, baseline_requests=tuple(slowed))).checks["cost by effort"]
    assert verdict.passed is None
    assert "plain decoding was not steady, " in verdict.summary
    assert verdict.figures["usd_ratio_high"] == pytest.approx(2, rel=0.2)


def test_no_shared_answers_are_no_pass() -> None:
    one = observed(random.Random(1), STEADY, FASTER)
    assert judge(replace(one, baseline_requests=())).checks["cost by effort"].passed is None
    assert judge(replace(one, requests=())).checks["acceptance by effort"].passed is None
