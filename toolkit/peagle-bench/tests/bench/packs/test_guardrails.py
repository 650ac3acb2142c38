"""The safety filter and the judges of the pack guardrails: what they decide, how often they are wrong."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_bench.packs.guardrails import (
    Cancelled,
    Cancelling,
    Filtered,
    GuardCase,
    filter_stream,
    judge_cancelled,
    judge_cuts,
    judge_verified,
    policy_for,
    read_counts,
)
from peagle_bench.packs.judges import judge_failed
from peagle_bench.packs.pack import PackNotMeasured
from peagle_bench.packs.streaming_guard import (
    Policy,
    Rule,
    StreamGuard,
    guarded,
    pieces_of,
)
from peagle_bench.verify.engines import SideFailed, failing
from peagle_bench.verify.statistics import NoiseFloor
from peagle_sm.core.errors import SpecError, StreamCut

EXACT = NoiseFloor(16, 0, 900, 0.0, 0.0, 0.01, True, 0.0)
NOISY = replace(EXACT, noise=0.05, tie=0.1, delta=0.1, exact=False, near=0.02)
PIECES = st.lists(st.sampled_from(["a", "b", "ab", " ", "cab", "é", ""]), max_size=24)


def policy(hold_back: int | None, pattern: str = "abc", action: Any = "cut") -> Policy:
    return Policy((Rule("forbidden", pattern, action),), hold_back)


@given(PIECES, st.sampled_from([None, 0, 1, 3, 50]), st.sampled_from(["abc", "b+a", "é", "a.*b c"]))
def test_what_is_delivered_is_the_text_before_the_cut(
    pieces: list[str], hold_back: int | None, pattern: str
) -> None:
    outcome = guarded(pieces, policy(hold_back, pattern))
    text = "".join(pieces)
    match = re.search(pattern, text)
    assert (outcome.rule is None) == (match is None)
    if match is None:
        assert (outcome.delivered, outcome.read, outcome.leaked) == (text, len(pieces), "")
        return
    # It decides at the first token after which the rule matches, and reads no further.
    assert outcome.cut_token == outcome.read
    read = pieces[: outcome.read]
    assert re.search(pattern, "".join(read))
    assert not re.search(pattern, "".join(read[:-1]))
    assert outcome.delivered == text[: outcome.cut_at] + outcome.leaked
    assert len(outcome.leaked) <= len("".join(read[: max(0, len(read) - 1 - (hold_back or 0))]))


@given(PIECES, st.integers(0, 8))
def test_the_last_tokens_are_held_back(pieces: list[str], hold_back: int) -> None:
    guard, released = StreamGuard(policy(hold_back, "never")), ""
    for number, piece in enumerate(pieces, start=1):
        released += guard.feed(piece)
        assert released == "".join(pieces[: max(0, number - hold_back)])
    assert released + guard.finish() == "".join(pieces)


def chunks_of(pieces: list[str], cuts: random.Random) -> list[dict[str, Any]]:
    """The events of a stream whose chunks hold one token or more, as with speculation."""
    events, at = [], 0
    while at < len(pieces):
        size = cuts.randint(1, 12)
        part = pieces[at : at + size]
        choice = {"text": "".join(part), "token_ids": list(range(at, at + len(part)))}
        events.append({"choices": [{**choice, "logprobs": {"tokens": part}}]})
        at += size
    return [*events, {"choices": [], "usage": {}}]


class Streams:
    """An engine that streams the same events to everybody, and says how many were read."""

    name, log_hint = "streams", ""

    def __init__(self, events: list[dict[str, Any]], broken: bool = False) -> None:
        self.events, self.broken, self.read = events, broken, 0

    def ask(self, body: Any) -> Any:
        raise AssertionError("nothing asks for this here")

    def stream(self, body: Any, until: Any = None) -> Any:
        for event in self.events:
            self.read += 1
            if until(event):
                break
        if self.broken:
            raise StreamCut("the stream broke")
        return []


@given(PIECES, st.sampled_from([None, 0, 2, 9]), st.integers(0, 10_000), st.integers(0, 10_000))
def test_chunks_of_several_tokens_change_nothing(
    pieces: list[str], hold_back: int | None, one: int, other: int
) -> None:
    rules = policy(hold_back)
    rows = [filter_stream(Streams(chunks_of(pieces, random.Random(n))), {}, rules) for n in (one, other)]
    assert rows[0].outcome == rows[1].outcome == guarded(pieces, rules)
    if guarded(pieces, rules).rule is not None:
        assert rows[0].ids == rows[1].ids


def test_a_cut_closes_the_stream() -> None:
    engine = Streams(chunks_of(list("xxabcyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy"), random.Random(0)))
    filter_stream(engine, {}, policy(0))
    assert engine.read < len(engine.events)


def test_a_character_of_several_tokens_belongs_to_the_token_that_completes_it() -> None:
    alone = [
        {"text": "", "token_ids": [5], "logprobs": {"tokens": [""]}},
        {"text": "漢!", "token_ids": [6], "logprobs": {"tokens": ["!"]}},
    ]
    together = {"text": "漢!", "token_ids": [5, 6], "logprobs": {"tokens": ["", "!"]}}
    assert (
        [pair for choice in alone for pair in pieces_of(choice)]
        == pieces_of(together)
        == [(5, ""), (6, "漢!")]
    )


def test_a_stream_without_tokens_is_not_measured() -> None:
    engine = Streams([{"choices": [{"text": "abc"}]}])
    with pytest.raises(PackNotMeasured, match="sends text without its tokens"):
        filter_stream(engine, {}, policy(0))


def case(
    number: int, rng: random.Random, *, candidate: list[str] | None = None, gap: float = 0.0
) -> GuardCase:
    pieces = [rng.choice(["def ", "x", " = ", "1", "\n", "(", ")"]) for _ in range(60)]
    rules = policy_for("".join(pieces), number, 0)
    own = guarded(pieces, rules)
    mine = guarded(candidate or pieces, rules)
    ids = tuple(range(mine.read))
    return GuardCase(
        f"{number:03}/task",
        rules,
        own,
        Filtered(own, tuple(range(own.read))),
        Filtered(mine, ids if mine == own else (*ids[:-1], 99)),
        (0.0,) * (mine.read - 1) + (gap,),
    )


def test_clean_answers_pass_whatever_the_policies() -> None:
    for seed in range(40):
        rng = random.Random(seed)
        cases = [case(number, rng) for number in range(16)]
        for floor in (EXACT, NOISY):
            assert judge_cuts(cases, floor, 0.01).passed
            assert judge_verified(cases, floor).passed
        assert sum(each.expected.rule is not None for each in cases) >= 8


def test_harmless_differences_of_a_noisy_floor_seldom_fail() -> None:
    """Each side differs from itself now and then; as often on both, so it is not speculation's fault."""
    alarms, rng = 0, random.Random(0)
    known = [case(number, rng) for number in range(16)]
    for _ in range(1000):
        cases = []
        for clean in known:
            other = replace(clean.expected, delivered="other", read=7)
            whole, own, mine = (other if rng.random() < 0.2 else clean.expected for _ in range(3))
            streams = [Filtered(one, (1, 2) if one is other else clean.candidate.ids) for one in (own, mine)]
            cases.append(replace(clean, expected=whole, baseline=streams[0], candidate=streams[1]))
        alarms += judge_cuts(cases, NOISY, 0.01).passed is False
    assert alarms <= 10


@pytest.mark.parametrize("floor", [EXACT, NOISY])
def test_unverified_tokens_are_found(floor: NoiseFloor) -> None:
    rng = random.Random(3)
    cases = [case(number, rng) for number in range(16)]
    cases[5] = case(5, rng, gap=2.5)
    verdict = judge_verified(cases, floor)
    assert verdict.passed is False
    assert verdict.examples == [
        f"005/task: token {len(cases[5].gaps)} of {len(cases[5].gaps)} reached the filter, "
        "2.50 nats below the target's own"
    ]


def test_the_same_tokens_with_another_cut_are_a_fault_on_any_floor() -> None:
    rng = random.Random(4)
    cases = [case(number, rng) for number in range(16)]
    outcome = cases[0].expected
    assert outcome.cut_token is not None
    moved = replace(outcome, cut_token=outcome.cut_token + 1)
    cases[0] = replace(cases[0], candidate=replace(cases[0].candidate, outcome=moved))
    for floor in (EXACT, NOISY):
        verdict = judge_cuts(cases, floor, 0.01)
        assert (verdict.passed, len(verdict.examples)) == (False, 1)


def test_a_broken_stream_is_a_fault() -> None:
    rng = random.Random(5)
    cases = [case(number, rng) for number in range(4)]
    cases[1] = replace(cases[1], candidate=Filtered(None, (1,), "the connection broke"))
    verdict = judge_cuts(cases, NOISY, 0.01)
    assert verdict.examples == ["001/task: the stream broke: the connection broke"]


def test_nothing_that_can_be_judged_is_no_pass() -> None:
    assert judge_cuts([], EXACT, 0.01).passed is None
    assert judge_verified([], EXACT).passed is None
    assert judge_cancelled([]).passed is None
    assert judge_cancelled([Cancelled(8, 4000, 4000, False, alone=False)]).passed is None


class Cancellable:
    """An engine with a metrics page, that stops some readings after its client left, or goes on."""

    name, log_hint = "engine", ""

    def __init__(self, goes_on: bool, step: int = 12) -> None:
        self.goes_on, self.step = goes_on, step
        self.running, self.generated, self.left, self.asked, self.now = 0, 500, False, 0, 0.0

    def ask(self, body: Any) -> Any:
        raise AssertionError("nothing asks for this here")

    def stream(self, body: Any, until: Any = None) -> Any:
        self.running, self.asked, self.left, begun = 1, body["max_tokens"], False, self.generated
        self.end = begun + self.asked
        while not until({"choices": [{"token_ids": [1] * self.step}]}):
            self.generated += self.step
        self.generated += self.step
        self.left = True
        return []

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.running and self.left and (not self.goes_on or self.generated >= self.end):
            self.running = 0
        elif self.running:
            self.generated = min(self.end, self.generated + int(200 * seconds))

    def page(self) -> str:
        return (
            f'vllm:num_requests_running{{engine="0"}} {self.running}.0\n'
            'vllm:num_requests_waiting{engine="0"} 0.0\nvllm:num_requests_waiting_by_reason{engine="0"} 3.0\n'
            f'vllm:generation_tokens_total{{engine="0"}} {self.generated}.0\n'
        )

    def cancelling(self) -> Cancelling:
        return Cancelling(self, self.page, monotonic=lambda: self.now, sleep=self.sleep)


@pytest.mark.parametrize("asked", [1500, 4000, 100_000])
def test_a_request_that_goes_on_is_found_and_one_that_stops_is_not(asked: int) -> None:
    stops, goes_on = Cancellable(False), Cancellable(True)
    rows = [each.cancelling().cancel({"max_tokens": asked}, asked) for each in (stops, goes_on)]
    assert judge_cancelled(rows[:1]).passed is True
    verdict = judge_cancelled(rows)
    assert (verdict.passed, verdict.figures["went_on"]) == (False, 1)


def test_a_metrics_page_of_another_engine_is_not_measured() -> None:
    with pytest.raises(PackNotMeasured, match="no vllm:num_requests_running"):
        read_counts("sglang:num_running_reqs 1\n")


class Refuses(Streams):
    """An engine that refuses every request, as one without log-probabilities would."""

    def ask(self, body: Any) -> Any:
        raise SpecError("logprobs are not supported")

    def stream(self, body: Any, until: Any = None) -> Any:
        return self.ask(body)


def test_an_arm_that_refuses_what_the_baseline_answers_is_named() -> None:
    with pytest.raises(SideFailed, match="logprobs are not supported") as caught, failing("candidate"):
        filter_stream(Refuses([]), {}, policy(0))
    assert (caught.value.side, caught.value.refused) == ("candidate", True)
    verdict = judge_failed(True, str(caught.value))
    assert (verdict.passed, verdict.examples) == (False, ["logprobs are not supported"])
    assert judge_failed(False, "no").passed is None
