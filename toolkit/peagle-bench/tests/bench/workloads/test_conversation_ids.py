"""Which prompts of a workload are turns of one conversation, and what a verdict needs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from peagle_bench.load.points import separate_withheld
from peagle_bench.report.verdict import outcome_of
from peagle_bench.results.records import ComparisonRecord, Interval, Load
from peagle_bench.workloads import conversations_in, load_workload
from peagle_sm.core.errors import SpecError

ALONE = Load("closed", concurrency=1)


def chat(*texts: str, system: str = "s") -> dict[str, Any]:
    roles = ("user", "assistant")
    turns = [{"role": roles[number % 2], "content": text} for number, text in enumerate(texts)]
    return {"messages": [{"role": "system", "content": system}, *turns]}


def units(folder: Path, *lines: dict[str, Any]) -> list[str]:
    path = folder / "own.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    items = sorted(load_workload(str(path)).items, key=lambda item: item.prompt_id)
    return [item.conversation for item in items]


def test_a_chat_that_begins_another_is_of_the_same_conversation(tmp_path: Path) -> None:
    first, later, other = units(tmp_path, chat("a"), chat("a", "b", "c", system="another day"), chat("z"))
    assert first == later != ""
    assert other == ""


def test_a_text_that_begins_another_is_of_the_same_conversation(tmp_path: Path) -> None:
    long = "word " * 20
    first, later, other = units(tmp_path, {"prompt": long}, {"prompt": long + "more"}, {"prompt": "w"})
    assert first == later != ""
    assert other == ""


def test_the_users_own_ids_decide_and_are_not_sent(tmp_path: Path) -> None:
    lines = [{**chat("a"), "conversation": "x"}, {**chat("b"), "conversation": "x"}, chat("d", "e", "f")]
    assert units(tmp_path, *lines) == ["x", "x", ""]
    items = load_workload(str(tmp_path / "own.jsonl")).items
    assert conversations_in(items) == 2
    assert all("conversation" not in item.body for item in items)
    with pytest.raises(SpecError, match="conversation is an id"):
        units(tmp_path, {**chat("a"), "conversation": ["x"]})


def test_a_request_without_an_id_is_of_the_conversation_that_it_continues(tmp_path: Path) -> None:
    """Ids that only a part of the lines has made a conversation out of the rest."""
    given = [{**chat(text), "conversation": f"id {text}"} for text in "ab"]
    later = [chat("a", "-", "c"), chat("a", "-", "c", "-", "d"), chat("z")]
    assert units(tmp_path, *given, *later) == ["id a", "id b", "id a", "id a", ""]


def test_conversations_of_a_file_that_was_read_twice_count_once(tmp_path: Path) -> None:
    """Else 4 conversations, eight times with new ids, are 32 units whose interval is far too narrow."""
    dialogues = [[chat(text), chat(text, "-", text)] for text in "abcd"]
    lines = [
        {**each, "id": f"{copy}/{number}/{turn}", "conversation": f"{copy}/{number}"}
        for copy in range(8)
        for number, turns in enumerate(dialogues)
        for turn, each in enumerate(turns)
    ]
    assert len(set(units(tmp_path, *lines))) == 4


def test_ids_of_conversations_that_only_begin_alike_stay_apart(tmp_path: Path) -> None:
    """People greet alike; what follows is their own."""
    lines = [
        {**each, "conversation": name} for name in "xyz" for each in (chat("hello"), chat("hello", "-", name))
    ]
    assert set(units(tmp_path, *lines, chat("hello"))) == {"x", "y", "z"}


def row(**changes: Any) -> ComparisonRecord:
    ratio = Interval(1.3, 1.2, 1.4)
    comparison_record = ComparisonRecord(
        "p-eagle", "none", ALONE, ratio, "conversations", 8, 1, None, None, conversations=8
    )
    return replace(comparison_record, **changes)


def test_a_verdict_is_never_stronger_than_its_note() -> None:
    (sure,) = separate_withheld((), [row()]).comparisons
    (few,) = separate_withheld((), [row(units=7, conversations=7)]).comparisons
    control = row(faster="none (A/A)", control=True)
    beside, _ = separate_withheld((), [row(), control]).comparisons
    assert (sure.significant, few.significant, beside.significant) == (True, False, False)
    assert outcome_of(sure) == "p-eagle is faster in this deployment"
    assert outcome_of(few).startswith("no verdict: 7 conversations")
    assert outcome_of(beside).startswith("no verdict: the A/A control failed")
