"""Conversations of {"turns": [...]}: nothing that is asked in a held-out one is nearly asked in training."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from peagle_bench.load.work import WorkItem
from peagle_learn.core.conversations import (
    NEAR,
    PromptGroup,
    Split,
    shingles,
    similarity,
    split,
    user_text,
)
from peagle_learn.core.prompts import TargetTexts
from peagle_learn.prompts import Read, read_prompts
from peagle_learn.sampling import WantedAnswer
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import SpecError
from tests.learn.core.test_conversations import words
from tests.traffic.planted import planted


def jsonl(lines: Sequence[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def said(role: str, text: str) -> dict[str, str]:
    return {"role": role, "content": text}


def lines_of(seed: int, count: int) -> list[dict[str, Any]]:
    """Conversations, chats with and without answers, and texts about few subjects; half have another word."""
    rng = random.Random(seed)
    subjects = [words(rng, rng.randint(20, 60)) for _ in range(12)]
    lines: list[dict[str, Any]] = []
    for _ in range(count):
        parts = rng.choice(subjects).split()
        if rng.random() < 0.5:
            parts[rng.randrange(len(parts))] = "changed"
        text, greeting = " ".join(parts), f"hello {words(rng, 3)}"
        answered = [said("user", greeting), said("assistant", words(rng, 40)), said("user", text)]
        lines.append(
            rng.choice(
                [
                    {"turns": [greeting, text]},
                    {"turns": [text, words(rng, 9)]},
                    {"turns": [greeting, text, words(rng, 30)]},
                    {"messages": [said("user", text)]},
                    {"messages": answered},
                    {"prompt": text},
                ]
            )
        )
    return lines


def _no_session() -> Session:
    raise AssertionError("files need no session")


def read_lines(folder: Path, lines: Sequence[dict[str, Any]], name: str = "p", files: int = 1) -> Read:
    paths = [folder / f"{name}{number}.jsonl" for number in range(files)]
    for number, path in enumerate(paths):
        path.write_bytes(jsonl(lines[number::files]))
    target = TargetTexts(True, frozenset(), 2048)
    return read_prompts(
        list(map(str, paths)),
        _no_session,
        target,
        max_tokens=32,
        what="data.prompts",
        prefix=f"{name}/",
    )


def asked(item: WorkItem | None) -> list[str]:
    """Return what the user has written by each request that is sent, and all of the first one."""
    matches: list[str] = []
    while item is not None:
        own = [each["content"] for each in item.body.get("messages", ()) if each["role"] == "user"]
        matches += ["\n".join(own) if own else item.body["prompt"]]
        if item.turn == 0:
            matches.append(user_text(item.body))
        item = item.then("an answer") if item.then else None
    return matches


def rows(read: Read, groups: Sequence[PromptGroup]) -> list[frozenset[int]]:
    texts = {text for each in groups for prompt in each.prompts for text in asked(read.items[prompt.id])}
    return [shingles(text) for text in sorted(texts)]


def nearest(some: Sequence[frozenset[int]], others: Sequence[frozenset[int]]) -> float:
    return max((similarity(one, other) for one in some for other in others), default=0.0)


@given(st.integers(0, 10**6), st.integers(20, 50), st.floats(0.1, 0.9))
def test_no_turn_of_a_held_out_conversation_is_nearly_in_training(
    seed: int, count: int, share: float
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        read = read_lines(Path(folder), lines_of(seed, count))
        general = read_lines(Path(folder), [*lines_of(seed, 6), *lines_of(seed + 1, 20)], "g")
    try:
        lines = split(read.prompts, share, 7, general.prompts, 0.5)
    except SpecError:  # too few conversations
        return
    learned = [*rows(read, lines.train), *rows(general, lines.general_train)]
    measured = [*rows(read, lines.held_out), *rows(general, [PromptGroup("", lines.general)])]
    assert learned
    assert nearest(learned, measured) < NEAR


def pairs(other: str) -> list[dict[str, Any]]:
    """Twenty texts, each twice: after a greeting, and in another form."""
    rng, found = random.Random(0), list[dict[str, Any]]()
    vocabulary = [f"w{number}" for number in range(5000)]
    for number in range(20):
        text = " ".join(rng.choices(vocabulary, k=200))
        found.append({"turns": [f"hi there number {number}", text]})
        others: dict[str, dict[str, Any]] = {
            "greeting": {"turns": [f"good morning friend {number}", text]},
            "message": {"messages": [said("user", text)]},
            "text": {"prompt": text},
            "longer": {"turns": [f"good morning friend {number}", text, "and what follows from it?"]},
        }
        found.append(others[other])
    return found


def halves(split: Split) -> tuple[int, int]:
    train, held_out = (sum(len(each.prompts) for each in one) for one in (split.train, split.held_out))
    return train, held_out


def test_the_same_text_in_a_later_turn_is_a_near_duplicate(tmp_path: Path) -> None:
    for other in ("greeting", "message", "text", "longer"):
        read = read_lines(tmp_path, pairs(other))
        lines = split(read.prompts, 0.3, 7)
        assert nearest(rows(read, lines.train), rows(read, lines.held_out)) < NEAR, other
        assert (sum(halves(lines)), lines.near_repeats) == (20, 20), other


def test_conversations_that_begin_alike_are_no_repeats_and_have_answers_of_their_own(tmp_path: Path) -> None:
    rng = random.Random(2)
    lines = [{"turns": ["hello", words(rng, 30)]} for _ in range(6)]
    lines += [{"turns": [words(rng, 30), "and then?"]} for _ in range(6)]
    read = read_lines(tmp_path, [*lines, lines[0]])
    result = split(read.prompts, 0.3, 7)
    assert (sum(halves(result)), result.repeats, result.near_repeats) == (12, 1, 0)
    kept = [prompt for each in (*result.train, *result.held_out) for prompt in each.prompts]
    assert len({WantedAnswer(read.items[each.id], "c", each.turns).key for each in kept}) == 12
    one = {
        prompt.id
        for each in (*result.train, *result.held_out)
        if len(each.prompts) == 6
        for prompt in each.prompts
    }
    assert {read.items[each].body["messages"][0]["content"] for each in one} == {"hello"}


def test_an_id_named_like_a_redacted_one_takes_no_other_prompts_place(tmp_path: Path) -> None:
    secret = next(each.text for each in planted())
    named = [{"id": secret, "prompt": "the first"}, {"id": "redacted/00001", "prompt": "the second"}]
    read = read_lines(tmp_path, named)
    assert len({each.id for each in read.prompts}) == 2
    assert [read.items[each.id].body["prompt"] for each in read.prompts] == ["the first", "the second"]
    assert secret not in {each.id for each in read.prompts}


def test_a_conversation_gets_the_spec_s_length_and_keeps_its_system_message(tmp_path: Path) -> None:
    messages = [
        {"from": "system", "value": "be brief"},
        {"from": "human", "value": "one"},
        {"from": "gpt", "value": "no"},
        {"from": "human", "value": "two"},
    ]
    path = tmp_path / "p.jsonl"
    path.write_bytes(jsonl([{"turns": ["a", "b"]}, {"conversations": messages}, {"prompt": "c"}]))
    target = TargetTexts(True, frozenset(), 2048)
    read = read_prompts([str(path)], _no_session, target, max_tokens=700, what="data.prompts")
    assert {each.body["max_tokens"] for each in read.prompts} == {700}
    assert read.notes == ()
    shared = next(each for each in read.prompts if each.turns == ("one", "two"))
    assert shared.body["messages"] == [said("system", "be brief"), said("user", "one")]
    second = read.items[shared.id].then
    assert second is not None
    following = second("its own")
    assert following is not None
    assert [each["content"] for each in following.body["messages"]] == ["be brief", "one", "its own", "two"]
