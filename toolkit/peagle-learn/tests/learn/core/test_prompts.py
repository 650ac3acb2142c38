"""Prompts that were made for another model are refused before anything is sent."""

from __future__ import annotations

import json

import pytest

from peagle_learn.core.conversations import LearnPrompt
from peagle_learn.core.prompts import TargetTexts, read_target, refuse_unfit
from peagle_sm.core.errors import SpecError

TARGET = TargetTexts(True, frozenset({"<|endoftext|>", "<|mask|>"}), 2048)


def chats(count: int, text: str = "hello there") -> list[LearnPrompt]:
    return [
        LearnPrompt(f"c{number}", {"messages": [{"role": "user", "content": f"{text} {number}"}]})
        for number in range(count)
    ]


def texts(prompt: object) -> list[LearnPrompt]:
    return [LearnPrompt("p", {"prompt": prompt})]


@pytest.mark.parametrize(
    ("prompts", "target", "facts"),
    [
        ([], TARGET, ["traffic has no prompts"]),
        (chats(3), TargetTexts(False, None, None), ["3 of 3 prompts are chats", "no chat template", "c0"]),
        (
            texts("<|im_start|>user\nhi<|im_end|>"),
            TARGET,
            ["1 of 1 prompts", "<|im_start|>, <|im_end|>"],
        ),
        (texts("[INST] hi [/INST]"), TARGET, ["1 of 1 prompts", "[INST], [/INST]"]),
        (texts([1, 2, 151_645]), TARGET, ["p has token id 151,645", "vocabulary has 2,048"]),
    ],
)
def test_unfit_prompts_are_refused_with_the_reason(
    prompts: list[LearnPrompt], target: TargetTexts, facts: list[str]
) -> None:
    with pytest.raises(SpecError) as caught:
        refuse_unfit(prompts, target, "traffic")
    assert [fact for fact in facts if fact not in caught.value.message] == []
    assert caught.value.next_step


def test_a_few_quotes_of_another_template_are_no_fault() -> None:
    refuse_unfit([*chats(100), *chats(1, "what does <|im_start|> mean?")], TARGET, "traffic")
    refuse_unfit([LearnPrompt("p", {"prompt": "a<|endoftext|>b"})], TARGET, "traffic")
    refuse_unfit(chats(2), TargetTexts(), "traffic")


def test_the_target_is_read_from_its_files() -> None:
    target = read_target(
        {
            "config.json": json.dumps({"text_config": {"vocab_size": 9}}).encode(),
            "tokenizer_config.json": b'{"added_tokens_decoder": {"5": {"content": "<|a|>"}}}',
            "tokenizer.json": b'{"added_tokens": [{"id": 6, "content": "<|b|>"}]}',
            "chat_template.jinja": None,
        }
    )
    assert target == TargetTexts(False, frozenset({"<|a|>", "<|b|>"}), 9)
    assert read_target({"config.json": b"no json"}) == TargetTexts(None, None, None)
