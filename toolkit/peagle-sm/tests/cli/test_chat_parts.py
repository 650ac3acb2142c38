"""The parts of a chat by themselves: lines, commands, conversation, figures, spend."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_sm.aws.streams.runtime import Chunk
from peagle_sm.cli.commands.chat.conversation import Conversation
from peagle_sm.cli.commands.chat.loop import NAMES, SlashCommand, UnknownCommand, parse, texts
from peagle_sm.cli.commands.chat.screen import Spend, TokenMeter

WORDS = st.text(st.characters(exclude_characters='\\"/\n\r', exclude_categories=["C", "Z"]), min_size=1)


def reader(lines: list[str]) -> Callable[[str], str]:
    left = iter(lines)

    def read(prompt: str) -> str:
        for line in left:
            return line
        raise EOFError

    return read


@given(st.lists(WORDS))
def test_plain_lines_are_texts(lines: list[str]) -> None:
    assert list(texts(reader(lines))) == lines


@given(st.lists(st.one_of(WORDS, st.just("")), min_size=1))
def test_a_fenced_text_has_the_lines_between_its_fences(lines: list[str]) -> None:
    text = "\n".join(lines).strip("\n")
    assert list(texts(reader(['"""', *lines, '"""', "after"]))) == ([text] if text else []) + ["after"]


@given(st.lists(WORDS, min_size=2))
def test_a_backslash_joins_lines(lines: list[str]) -> None:
    typed = [f"{line}\\" for line in lines[:-1]] + lines[-1:]
    assert list(texts(reader(typed))) == ["\n".join(lines)]


def test_a_text_that_the_end_cuts_is_dropped() -> None:
    assert list(texts(reader(["one", '"""', "half"]))) == ["one"]
    assert list(texts(reader(['"""all in one line"""']))) == ["all in one line"]


@pytest.mark.parametrize("name", NAMES)
def test_every_command_is_known(name: str) -> None:
    assert parse(f"{name}  a b ") == SlashCommand(name, "a b")


def test_a_command_that_does_not_exist() -> None:
    with pytest.raises(UnknownCommand, match="unknown command /rety; did you mean /retry"):
        parse("/rety")
    with pytest.raises(UnknownCommand, match=r"unknown command /xyzzy\. /help lists commands"):
        parse("/xyzzy")
    assert parse("//etc/hosts") == "/etc/hosts"
    assert parse("a / b") == "a / b"


@given(st.lists(st.tuples(WORDS, WORDS)), st.integers(0, 9))
def test_the_turns_that_are_left_out_are_the_oldest(said: list[tuple[str, str]], drops: int) -> None:
    conversation = Conversation("be brief")
    for user, assistant in said:
        conversation.keep(user, assistant)
    done = sum(conversation.leave_out_oldest() for _ in range(drops))
    assert done == min(drops, len(said))
    sent = conversation.messages("now")
    assert sent[0] == {"role": "system", "content": "be brief"}
    assert [each["content"] for each in sent[1:-1]] == [word for turn in said[done:] for word in turn]
    assert sent[-1] == {"role": "user", "content": "now"}
    assert len(conversation.transcript()) == 1 + 2 * len(said)


def test_an_answer_without_a_word_is_not_remembered() -> None:
    conversation = Conversation()
    conversation.keep("one", "")
    assert conversation.messages("two") == [{"role": "user", "content": "two"}]
    assert conversation.take_back() is None


def test_the_rate_counts_from_the_first_chunk() -> None:
    times = iter([10.0, 12.0])
    meter = TokenMeter(lambda: next(times))
    assert meter.text() == "waiting for the first token"
    for count in (3, 4, 5):
        meter.chunk(Chunk("x", count, None, 0.0))
    assert meter.text() == "12 tokens · 4.5 tokens/s · about 4.00 per step"
    assert meter.tokens == 12  # what a stopped answer adds to the chat's sum


def test_without_counts_only_chunks_are_told() -> None:
    meter = TokenMeter(lambda: 1.0)
    meter.chunk(Chunk("x", None, None, 0.0))
    assert meter.text() == "1 chunk"


def test_a_chat_costs_its_time() -> None:
    assert Spend(0.0).text(3600) == "no cost"
    assert Spend(None).text(3600) == "price unknown"
    assert Spend(None).usd(3600) is None
    assert Spend(4.2).text(600) == "0.70 USD so far"
