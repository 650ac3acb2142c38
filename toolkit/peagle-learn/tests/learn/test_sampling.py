"""Sampling: every answer is written once, and survives kills, limits and broken streams."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_bench.load.work import WorkItem
from peagle_guard.decide import next_limit
from peagle_guard.records import Endpoint, Lifecycle, OffBy, Record
from peagle_learn.sampling import Journal, Sampling, SamplingLimits, TurnOff, WantedAnswer, turn_off_of
from peagle_sm.core.errors import ServiceFault, SpecError, StreamError, StreamReportedError
from peagle_sm.core.spec.hours import parse_hours
from peagle_sm.service.inventory.listing import EndpointSummary
from peagle_sm.service.progress import Event
from tests.learn.byte_engine import ByteEngine, text_of_ids
from tests.traffic.planted import planted

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)


def wanted(*texts: str) -> list[WantedAnswer]:
    return [
        WantedAnswer(WorkItem(f"p{number}", {"prompt": text, "max_tokens": 9}), f"c{number}")
        for number, text in enumerate(texts)
    ]


def sampling(
    journal: Journal,
    engine: ByteEngine,
    limits: SamplingLimits | None = None,
    now: Callable[[], datetime] = lambda: NOW,
    clock: Callable[[], float] | None = None,
) -> Sampling:
    lines: list[Event] = []
    ticks = itertools.count()
    return Sampling(
        engine,
        journal,
        limits or SamplingLimits(),
        2,
        256,
        lines.append,
        now,
        clock or (lambda: next(ticks) * 0.01),
    )


def test_a_prompt_is_asked_once_over_all_runs(tmp_path: Path) -> None:
    engine, path = ByteEngine(), tmp_path / "answers.jsonl"
    prompts = wanted(*(f"text {number}" for number in range(12)))
    assert sampling(Journal.open(path), engine).run(prompts[:5]).answered == 5
    end = sampling(Journal.open(path), engine).run(prompts)
    assert (end.answered, end.waiting, end.stopped_by) == (12, 0, None)
    assert max(Counter(engine.prompts).values()) == 1
    (found,) = Journal.open(path).answers[prompts[3].key]
    assert text_of_ids(list(found.answer_ids)) == "done 6"
    assert found.conversation == "c3"


@given(st.data())
def test_a_journal_that_is_cut_anywhere_loses_only_what_was_cut(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("journal") / "answers.jsonl"
    prompts = wanted(*(f"text {number}" for number in range(6)))
    sampling(Journal.open(path), ByteEngine()).run(prompts)
    content = path.read_bytes()
    cut = data.draw(st.integers(0, len(content)))
    path.write_bytes(content[:cut])
    kept = content[:cut].count(b'"turns"') - (
        not content[:cut].endswith(b"\n") and b'"turns"' in content[:cut].rpartition(b"\n")[2]
    )
    engine = ByteEngine()
    journal = Journal.open(path)
    assert len(journal.answers) == kept
    assert sampling(journal, engine).run(prompts).answered == 6
    assert len(engine.prompts) == 6 - kept
    keys = [json.loads(line)["prompt"] for line in path.read_text().splitlines() if '"turns"' in line]
    assert sorted(keys) == sorted({each.key for each in prompts})


@pytest.mark.parametrize(
    "damage", [b"\0\0\0", b'{"prompt": ', b"[]", b"{}", b"\xff", b'{"prompt": "a", "turns": [{}]}']
)
def test_a_damaged_line_is_named_with_what_to_do(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "answers.jsonl"
    sampling(Journal.open(path), ByteEngine()).run(wanted("one text", "another text"))
    path.write_bytes(path.read_bytes() + damage + b"\n")
    number = len(path.read_bytes().splitlines())
    with pytest.raises(SpecError, match=f"line {number} of answers.jsonl .* is damaged") as refused:
        Journal.open(path)
    assert "Delete that line" in (refused.value.next_step or "")


def test_the_budget_and_the_lifetime_stop_it_and_the_next_run_continues(tmp_path: Path) -> None:
    prompts = wanted(*(f"text {number}" for number in range(30)))
    seconds = itertools.count()
    limits = SamplingLimits(usd_per_hour=3600.0, budget_usd=10.0)  # ten seconds
    path = tmp_path / "a.jsonl"
    end = sampling(Journal.open(path), ByteEngine(), limits, clock=lambda: next(seconds)).run(prompts)
    assert end.stopped_by == "the budget of 10.00 USD"
    assert 0 < end.answered < 30
    again = sampling(Journal.open(path), ByteEngine(), limits, clock=lambda: next(seconds)).run(prompts)
    assert again.answered == end.answered  # the budget counts over all runs
    late = sampling(
        Journal.open(path), ByteEngine(), SamplingLimits(until=NOW), lambda: NOW + timedelta(seconds=1)
    )
    assert late.run(prompts).stopped_by == "the end of the endpoint's lifetime"
    assert sampling(Journal.open(path), ByteEngine()).run(prompts).answered == 30


ENDPOINT = EndpointSummary("e", "InService", True, created_at=NOW - timedelta(hours=3))
OFFICE = "Mon-Fri 08:00-19:00 UTC"


@pytest.mark.parametrize(
    ("given", "now", "expected"),
    [
        ({}, NOW, None),
        ({"expires_at": NOW + timedelta(hours=1)}, NOW, TurnOff(NOW + timedelta(hours=1), "lifetime")),
        ({"hours": OFFICE}, NOW, TurnOff(NOW.replace(hour=19), "hours")),
        (
            {"hours": OFFICE, "expires_at": NOW + timedelta(hours=1)},
            NOW,
            TurnOff(NOW + timedelta(hours=1), "lifetime"),
        ),
        (
            {"hours": OFFICE, "expires_at": NOW + timedelta(hours=9)},
            NOW,
            TurnOff(NOW.replace(hour=19), "hours"),
        ),
        # A lease postpones the closing.
        (
            {"hours": OFFICE, "keep_until": NOW.replace(hour=21)},
            NOW,
            TurnOff(NOW.replace(hour=21), "hours"),
        ),
        # It closed, and the guard has not turned it off yet.
        ({"hours": OFFICE}, NOW.replace(hour=20), TurnOff(NOW.replace(hour=19), "hours")),
        # Turned on by hand in the evening: on until the end of the next day.
        (
            {"hours": OFFICE, "created_at": NOW.replace(hour=20)},
            NOW.replace(hour=21),
            TurnOff(NOW.replace(hour=19) + timedelta(days=1), "hours"),
        ),
        ({"hours": "Mon-Sun 00:00-24:00 UTC"}, NOW, None),
        ({"hours": "no timetable"}, NOW, None),
    ],
)
def test_the_endpoint_is_turned_off_by_what_ends_first(
    given: dict[str, Any], now: datetime, expected: TurnOff | None
) -> None:
    assert turn_off_of(replace(ENDPOINT, **given), now) == expected


@given(st.integers(0, 7 * 24 * 60), st.integers(0, 3 * 24 * 60))
def test_the_hours_end_when_the_guard_says(minutes: int, age: int) -> None:
    now = NOW + timedelta(minutes=minutes)
    created = now - timedelta(minutes=age)
    text = "Mon-Thu 08:00-12:00 13:00-19:00 Fri 22:00-02:00 UTC"
    lifecycle = Lifecycle(max_lifetime=timedelta(days=99), hours=parse_hours(text))
    endpoint = Endpoint(name="e", arn="", status="InService", created_at=created, modified_at=created)
    limit = next_limit(endpoint, lifecycle, Record(name="e", created_at=created), now)
    result = turn_off_of(replace(ENDPOINT, created_at=created, hours=text), now)
    assert result is not None
    if limit.by is OffBy.HOURS:
        assert result.at == limit.at
    else:  # turned on by hand: the guard knows the next closing once the hours begin
        assert result.at > now


def test_the_hours_stop_it_in_time_and_say_so(tmp_path: Path) -> None:
    prompts = wanted(*(f"text {number}" for number in range(30)))
    end = turn_off_of(replace(ENDPOINT, hours=OFFICE), NOW)
    assert end is not None
    limits = SamplingLimits(until=end.stops_at, ends=end.ends)
    count = itertools.count()

    def now() -> datetime:  # each look is a minute later, from ten minutes before the closing
        return NOW.replace(hour=18, minute=50) + timedelta(minutes=next(count))

    stopped = sampling(Journal.open(tmp_path / "a.jsonl"), ByteEngine(), limits, now).run(prompts)
    assert stopped.stopped_by == "the end of the endpoint's hours"
    assert 0 < stopped.answered < 30
    assert stopped.answered + stopped.waiting == 30


def test_broken_streams_are_tried_again_and_refused_prompts_left_out(tmp_path: Path) -> None:
    engine = ByteEngine()
    journal = Journal.open(tmp_path / "a.jsonl")
    end = sampling(journal, engine).run(wanted("break it", "refuse it", "fine"))
    assert (end.answered, end.left_out, end.waiting) == (2, 1, 0)
    assert list(journal.left_out.values()) == ["the engine refuses the request (400): too long"]
    with pytest.raises(SpecError, match="answered none of 1 prompts; the first: the engine refuses"):
        sampling(Journal.open(tmp_path / "b.jsonl"), engine).run(wanted("refuse all"))


class _LateEngine(ByteEngine):
    """Reports an error in the stream of each text with ``late``."""

    def __init__(self, details: dict[str, Any]) -> None:
        super().__init__()
        self.details = details

    def stream(self, body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        answer = super().stream(body)
        if "late" in body["prompt"]:
            raise StreamReportedError("The engine reported an error", details=self.details)
        return answer


MIN_P = "The min_p and logit_bias sampling parameters are not yet supported with speculative decoding."


@pytest.mark.parametrize("code", [400, "400", 413, 422])
def test_a_refusal_in_the_stream_is_a_refusal_and_is_asked_once(tmp_path: Path, code: int | str) -> None:
    engine = _LateEngine({"engine_error": {"message": MIN_P, "type": "BadRequestError", "code": code}})
    prompts = wanted("late", "fine", "break it")
    path = tmp_path / "a.jsonl"
    end = sampling(Journal.open(path), engine).run(prompts)
    assert (end.answered, end.left_out, end.waiting) == (2, 1, 0)
    assert MIN_P in Journal.open(path).left_out[prompts[0].key]
    sampling(Journal.open(path), engine).run(prompts)
    assert engine.prompts.count("late") == 1


@pytest.mark.parametrize(
    "details",
    [
        {"engine_error": {"message": "out of memory", "type": "InternalServerError", "code": 500}},
        {"engine_error": {"message": "slow down", "code": 429}},
        {"engine_error": {"message": "no code"}},
        {"finish_reason": "abort"},
    ],
)
def test_a_failure_in_the_stream_is_a_broken_stream(tmp_path: Path, details: dict[str, Any]) -> None:
    engine = _LateEngine(details)
    end = sampling(Journal.open(tmp_path / "a.jsonl"), engine).run(wanted("late", "fine"))
    assert (end.answered, end.left_out, end.waiting) == (1, 0, 1)
    assert engine.prompts.count("late") == 3


def test_a_dead_endpoint_keeps_what_was_answered(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with pytest.raises(ServiceFault, match="gone"):
        sampling(Journal.open(path), ByteEngine()).run(wanted("a", "b", "c", "d", "dead"))
    assert len(Journal.open(path).answers) >= 3


def test_an_answer_with_a_secret_is_left_out(tmp_path: Path) -> None:
    secrets = [secret.text for secret in planted()]
    chance = random.Random(0)
    engine = ByteEngine(lambda text: f"the key is {chance.choice(secrets)} here" if "key" in text else "no")
    journal = Journal.open(tmp_path / "a.jsonl")
    end = sampling(journal, engine).run(wanted(*(f"key {number}" for number in range(9)), "plain"))
    assert (end.answered, end.left_out) == (1, 9)
    assert set(journal.left_out.values()) == {"the answer contains a secret"}
    with pytest.raises(StreamError):
        sampling(Journal.open(tmp_path / "b.jsonl"), _AlwaysBroken()).run(wanted("x"))


class _AlwaysBroken(ByteEngine):
    def stream(self, body: object) -> list[object]:  # type: ignore[override]
        raise StreamError("broken")


def test_each_turn_of_a_conversation_is_answered_with_the_answers_before(tmp_path: Path) -> None:
    def second(answer: str) -> WorkItem:
        return WorkItem("p", {"prompt": f"one|{answer}|two"}, turn=1)

    item = WorkItem("p", {"prompt": "one"}, then=second)
    journal = Journal.open(tmp_path / "a.jsonl")
    sampling(journal, ByteEngine()).run([WantedAnswer(item, "c")])
    (turns,) = journal.answers.values()
    assert [text_of_ids(list(each.prompt_ids)) for each in turns] == ["one", "one|done 3|two"]
