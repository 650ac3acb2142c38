"""`data.self_written`: the target writes prompts itself, and `learn data` goes on with them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from peagle_learn.commands.data import data_question, render_data_offer
from peagle_learn.core.spec import LearnSpec
from peagle_learn.data import DataResult, make_data, plan_data
from peagle_learn.self_written import LONGEST, user_turn
from peagle_learn.stored_data import HELD_OUT, TRAINING, VALIDATION
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import PlanRefused, ServiceFault, SpecError, StreamCut
from tests.learn.byte_engine import ByteEngine, text_of_ids
from tests.learn.core.test_conversations import words

Write = Callable[[int], tuple[str, str]]  #: the text of the n-th prompt, and why it ended


def some_words(number: int) -> tuple[str, str]:
    return words(random.Random(number), 12), "stop"


class WritingEngine(ByteEngine):
    """Answers as a `ByteEngine`; a prompt of token ids begins a user's turn, which ``write`` continues."""

    def __init__(self, write: Write = some_words) -> None:
        super().__init__()
        self.write = write
        self.begins: list[str] = []
        self.numbers: dict[int, int] = {}  #: of each seed, in the order of the requests

    def stream(self, body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        if not isinstance(body.get("prompt"), list):
            return super().stream(body)
        assert body["stop_token_ids"] == [ord('"')]
        assert body["max_tokens"] == LONGEST
        self.begins.append(text_of_ids(body["prompt"]))
        number = self.numbers.setdefault(body["seed"], len(self.numbers) + 1)
        text, reason = self.write(number)
        return [
            {
                "prompt_token_ids": body["prompt"],
                "choices": [{"text": text, "token_ids": [1], "finish_reason": reason}],
            }
        ]


@pytest.fixture
def spec(bucket: str, endpoint: str) -> LearnSpec:
    return spec_with(bucket, endpoint, {"count": 12}, {"count": 6, "category": "code", "system": "Python."})


def spec_with(bucket: str, endpoint: str, *groups: dict[str, Any], **data: Any) -> LearnSpec:
    return LearnSpec(
        name="team",
        target={"model": "tiny-code"},
        endpoint=endpoint,
        bucket=f"s3://{bucket}/x",
        data={"self_written": groups, "max_tokens": 32, **data},
    )


def made(spec: LearnSpec, session: Session, work: Path, engine: ByteEngine, **more: Any) -> DataResult:
    plan = plan_data(spec, session, work)
    more = {"confirm": lambda offer: True, "progress": lambda event: None} | more
    return make_data(plan, session, work, engine=engine, **more)


def test_prompts_are_written_split_and_answered_and_a_second_run_sends_nothing(
    spec: LearnSpec, session: Session, tmp_path: Path
) -> None:
    offer = plan_data(spec, session, tmp_path).offer
    assert (offer.to_write, offer.to_ask) == (18, 18)
    assert offer.most_tokens == 18 * (LONGEST + 32)
    assert "18 prompts" in data_question(offer)
    assert "18 the target writes first" in render_data_offer(offer)
    engine = WritingEngine()
    result = made(spec, session, tmp_path, engine)
    assert set(engine.begins) == {
        '[{"role": "user", "content": "',
        '[{"role": "system", "content": "Python."}, {"role": "user", "content": "',
    }
    assert result.rows[TRAINING] + result.rows[VALIDATION] == 18
    held_out = [json.loads(line) for line in (result.folder / HELD_OUT).read_text().splitlines()]
    assert all([message["role"] for message in each["messages"]] == ["user"] for each in held_out)
    asked = "".join(engine.prompts)
    assert all(some_words(number)[0] in asked for number in range(1, 19))
    again = WritingEngine()
    assert made(spec, session, tmp_path, again).data == result.data
    assert (again.begins, again.prompts) == ([], [])


def test_they_join_the_prompts_of_files_with_their_category(
    bucket: str, endpoint: str, session: Session, tmp_path: Path
) -> None:
    (tmp_path / "p.jsonl").write_text(
        "".join(json.dumps({"prompt": words(random.Random(seed), 30)}) + "\n" for seed in range(90, 98))
    )
    spec = spec_with(
        bucket, endpoint, {"count": 8, "category": "code"}, prompts=str(tmp_path / "p.jsonl"), held_out=0.5
    )
    offer = plan_data(spec, session, tmp_path).offer
    assert (offer.to_write, offer.to_ask, [facts.name for facts in offer.sets]) == (
        8,
        16,
        ["before the split"],
    )
    result = made(spec, session, tmp_path, WritingEngine())
    assert sum(result.rows.values()) == 16
    held_out = [json.loads(line) for line in (result.folder / HELD_OUT).read_text().splitlines()]
    assert {each.get("category") for each in held_out if "messages" in each} == {"code"}


def test_unfit_prompts_are_written_anew(bucket: str, endpoint: str, session: Session, tmp_path: Path) -> None:
    unfit = {1: ("", "stop"), 2: ("half a", "length"), 3: ("my key is AKIA" + "IOSFODNN7EXAMPLQ", "stop")}
    engine = WritingEngine(lambda number: unfit.get(number) or some_words(number))
    result = made(spec_with(bucket, endpoint, {"count": 8}), session, tmp_path, engine)
    assert sum(result.rows.values()) == 8
    assert len(engine.begins) == 11
    assert "half a" not in "".join(engine.prompts)


def test_a_target_that_writes_too_few_says_so_and_goes_on(
    bucket: str, endpoint: str, session: Session, tmp_path: Path
) -> None:
    lines: list[str] = []
    engine = WritingEngine(lambda number: some_words(number) if number < 6 else ("", "stop"))
    spec = spec_with(bucket, endpoint, {"count": 8})
    result = made(spec, session, tmp_path, engine, progress=lambda event: lines.append(str(event)))
    assert sum(result.rows.values()) == 5
    assert any("3 prompts were not written" in line for line in lines)


def test_a_break_keeps_what_was_written(spec: LearnSpec, session: Session, tmp_path: Path) -> None:
    def write(number: int) -> tuple[str, str]:
        if number > 4:
            raise ServiceFault("the endpoint is gone")
        return some_words(number)

    with pytest.raises(ServiceFault, match="gone"):
        made(spec, session, tmp_path, WritingEngine(write))
    written = 18 - plan_data(spec, session, tmp_path).offer.to_write
    assert written <= 4
    engine = WritingEngine(lambda number: some_words(number + 50))
    result = made(spec, session, tmp_path, engine)
    assert len(engine.begins) == 18 - written
    assert sum(result.rows.values()) == 18


def test_broken_streams_are_tried_again(bucket: str, endpoint: str, session: Session, tmp_path: Path) -> None:
    tries: dict[int, int] = {}

    def write(number: int) -> tuple[str, str]:
        tries[number] = tries.get(number, 0) + 1
        if tries[number] < 3:
            raise StreamCut("the stream broke")
        return some_words(number)

    result = made(spec_with(bucket, endpoint, {"count": 8}), session, tmp_path, WritingEngine(write))
    assert sum(result.rows.values()) == 8


def test_the_budget_ends_the_writing(bucket: str, endpoint: str, session: Session, tmp_path: Path) -> None:
    ticks = iter(range(0, 10**9, 3600))
    plan = plan_data(spec_with(bucket, endpoint, {"count": 8}), session, tmp_path)
    plan = replace(plan, offer=replace(plan.offer, usd_per_hour=1.0, budget_usd=0.5))
    with pytest.raises(PlanRefused, match="no prompt before the budget"):
        make_data(
            plan,
            session,
            tmp_path,
            confirm=lambda offer: True,
            progress=lambda event: None,
            engine=WritingEngine(),
            clock=lambda: float(next(ticks)),
        )


def test_a_template_that_shows_no_end_of_the_turn_is_refused() -> None:
    class Flat(ByteEngine):
        def stream(self, body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
            text = "user: " + body["messages"][-1]["content"]
            return [{"prompt_token_ids": list(text.encode()), "choices": []}]

    with pytest.raises(ServiceFault) as raised:
        user_turn(Flat(), None)
    assert "data.self_written" in str(raised.value.next_step)


def test_two_equal_entries_are_refused(bucket: str, endpoint: str) -> None:
    with pytest.raises(SpecError, match="self_written"):
        spec_with(bucket, endpoint, {"count": 8}, {"count": 9})
