"""Every pack: its prompts fit and are seeded, it scales down, and it is described."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peagle_bench.load import WorkItem
from peagle_bench.packs import PACKS, chosen_packs, load_pack
from peagle_bench.packs.pack import Judgement, PackNotMeasured, PackWork, not_measured, pack_record
from peagle_bench.verify.statistics import CheckVerdict, not_applicable, undecided
from peagle_sm.core.errors import SpecError
from tests.bench.packs.making import FAST, PLAIN, asked, drawn, observed, request


def turns(item: WorkItem | None) -> Iterator[WorkItem]:
    while item is not None:
        yield item
        item = item.then("an answer") if item.then else None


def tokens(item: WorkItem) -> int:
    """The tokens of a prompt at four characters a token, and those of its answer."""
    body = item.body
    prompt = body.get("prompt")
    if isinstance(prompt, list):
        size = len(prompt)
    else:
        size = -(
            -len(
                prompt if prompt is not None else "".join(message["content"] for message in body["messages"])
            )
            // 4
        )
    return size + int(body["max_tokens"])


@pytest.mark.parametrize("name", PACKS)
@settings(max_examples=15, deadline=None)
@given(context=st.integers(512, 40_000), stand_in=st.booleans(), seed=st.integers(0, 5))
def test_no_request_is_longer_than_the_context(name: str, context: int, stand_in: bool, seed: int) -> None:
    try:
        work = load_pack(name).make(asked(context, stand_in=stand_in, units=2, seed=seed))
    except PackNotMeasured:
        assert stand_in or (name == "rag" and context < 768)
        return
    assert work.items
    assert max(tokens(turn) for item in work.items for turn in turns(item)) <= context
    assert all(turn.body["temperature"] == 0 for item in work.items for turn in turns(item))
    assert len({item.prompt_id for item in work.items}) == len(work.items)
    assert "cache_salt" not in str(work.items[0].body)


@pytest.mark.parametrize("name", PACKS)
def test_a_seed_makes_the_same_prompts_again_and_another_seed_others(name: str) -> None:
    def bodies(seed: int) -> list[str]:
        items = load_pack(name).make(asked(1024, units=3, seed=seed)).items
        return [json.dumps(turn.body) for item in items for turn in turns(item)]

    assert bodies(1) == bodies(1)
    assert not set(bodies(1)) & set(bodies(2))


@pytest.mark.parametrize("name", ["rag", "long-context", "agents"])
def test_a_small_context_is_scaled_down_to_and_said(name: str) -> None:
    pack = load_pack(name)
    assert any("scaled down" in note for note in pack.make(asked(1024, units=1)).notes)
    assert not any("scaled down" in note for note in pack.make(asked(32_768, units=1)).notes)


def test_the_questions_of_a_length_differ_and_share_their_documents() -> None:
    items = load_pack("rag").make(asked(8192, units=1)).items
    shared = [item for item in items if item.share == "rag 0"]
    assert len({json.dumps(item.body) for item in shared}) == len(shared)
    first, second = (str(item.body["messages"][1]["content"]) for item in shared[:2])
    assert first[:500] == second[:500]
    alone = [item for item in items if item.prompt_id.endswith("/own")]
    assert len({item.share for item in alone}) == len(alone) > 1


def test_the_passage_to_quote_is_in_the_shortest_prompt() -> None:
    work = load_pack("rag").make(asked(8192, units=2))
    for item in work.items:
        assert work.facts[item.prompt_id] in item.body["messages"][1]["content"]


def test_a_conversation_is_recorded_so_the_model_s_answers_do_not_change_it() -> None:
    (item,) = load_pack("agents").make(asked(4096, units=1)).items
    first, second = list(turns(item)), [item.then("something else") if item.then else None]
    assert first[1].body == (second[0].body if second[0] else None)
    assert [turn.turn for turn in first] == list(range(6))
    for before, after in pairwise(first):
        assert after.body["messages"][: len(before.body["messages"])] == before.body["messages"]


def test_a_turn_is_a_call_of_the_tool_or_the_answer_from_its_result() -> None:
    (item,) = load_pack("agents").make(asked(4096, units=1)).items
    call, answer, *_ = turns(item)
    assert (call.category, answer.category) == ("call", "answer")
    question, recorded, result = answer.body["messages"][1:]
    tool = json.loads(recorded["content"].removeprefix("<tool_call>").removesuffix("</tool_call>"))
    assert tool["name"] == "read"
    assert tool["arguments"]["title"] in result["content"]
    assert f"when the {tool['arguments']['title'].removeprefix('The ')} was opened" in question["content"]
    assert call.body["messages"][-1] == question


def test_the_passage_that_an_agent_is_asked_about_is_in_the_tool_s_result() -> None:
    for item in load_pack("agents").make(asked(2048, units=4)).items:
        *_, last = turns(item)
        _, *messages = last.body["messages"]
        for result, passage in zip(messages[2::4], messages[3::4], strict=False):
            assert passage["content"] in result["content"]


def test_the_positions_of_long_texts_end_alike_and_reach_the_limit() -> None:
    items = load_pack("long-context").make(asked(4096, units=1)).items
    ends = {tuple(item.body["prompt"][-16:]) for item in items}
    assert len(ends) == 1
    assert len(items[-1].body["prompt"]) + items[-1].body["max_tokens"] == 4096


def test_packs_are_chosen_once_each_in_the_order_of_the_scorecard() -> None:
    assert [pack.name for pack in chosen_packs("agents, rag,agents")] == ["rag", "agents"]
    assert [pack.name for pack in chosen_packs("all")] == list(PACKS)


@pytest.mark.parametrize("text", ["", ",", "rga", "rag,all", "all,rag"])
def test_an_unknown_pack_is_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(SpecError, match="rag, long-context") as caught:
        chosen_packs(text)
    assert caught.value.next_step


def verdict(passed: bool | None) -> CheckVerdict:
    return undecided("too few") if passed is None else CheckVerdict(passed, "found", "all", {}, ["one"])


@given(st.lists(st.sampled_from([True, False, None, "n/a"]), max_size=5))
def test_a_pack_passes_only_if_all_applicable_checks_passed(given_: list[Any]) -> None:
    checks = {
        f"{n}": not_applicable("no tools") if check == "n/a" else verdict(check)
        for n, check in enumerate(given_)
    }
    answered = observed([request("0/98/0/shared")])
    record = pack_record(load_pack("rag"), answered, Judgement(checks, "x"), seed=3)
    decided = [check for check in given_ if check != "n/a"]
    wanted = False if False in decided else None if None in decided else True
    assert record.passed is wanted
    assert len(record.checks) == len(given_) + 1  # and whether the arm answered
    assert bool(record.examples) is (wanted is False)


def test_a_pack_that_cannot_be_measured_says_why_and_what_to_do() -> None:
    row = not_measured("rag", FAST, PLAIN, PackNotMeasured("no room", next_step="deploy again"), seed=0)
    assert (row.passed, row.why) == (None, "no room; deploy again")


def test_rag_finds_a_head_that_was_trained_on_short_sequences() -> None:
    pack = load_pack("rag")
    parts = ["500", "1000", "2000", "4000"]
    work = PackWork(())

    def named(chances: list[float]) -> Judgement:
        by = dict(zip(parts, chances, strict=True))
        drawn_ = drawn(random.Random(7), parts, by.__getitem__)
        own = [
            request(f"{record.prompt_id}/0/shared", drafts=record.drafts or 0, accepted=record.accepted or 0)
            for record in drawn_
        ]
        return pack.judge(observed(own, work))

    fine, short = named([0.65] * 4), named([0.65, 0.5, 0.3, 0.1])
    assert fine.checks["acceptance by length"].passed is True
    assert short.checks["acceptance by length"].passed is False
    assert short.figure.startswith("acceptance")
