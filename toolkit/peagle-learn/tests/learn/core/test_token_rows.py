"""Rows of training data, as the trainer reads them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_learn.core.token_rows import Sampled, answer_text, checked, prompt_ids_of, row
from peagle_sm.core.errors import ServiceFault

IDS = st.lists(st.integers(0, 2047), min_size=1, max_size=40).map(tuple)


@given(IDS, IDS)
def test_a_row_has_the_mask_on_the_answer_alone(prompt: tuple[int, ...], answer: tuple[int, ...]) -> None:
    line = row(Sampled("p", "c", prompt, answer, "stop"))
    document = json.loads(line)
    assert document["input_ids"] == [*prompt, *answer]
    assert [
        each for each, mask in zip(document["input_ids"], document["loss_mask"], strict=True) if mask
    ] == [*answer]
    assert document["conversation"] == "c"
    assert "\n" not in line


def test_ids_and_texts_are_read_from_both_apis() -> None:
    chat: list[dict[str, Any]] = [
        {"prompt_token_ids": [5, 6], "choices": [{"delta": {"role": "assistant"}}]},
        {"choices": [{"delta": {"reasoning": "so "}}]},
        {
            "choices": [
                {"delta": {"content": "hi", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}}
            ]
        },
    ]
    assert prompt_ids_of(chat) == (5, 6)
    assert answer_text(chat) == "so hif{}"
    assert prompt_ids_of([{"choices": [{"prompt_token_ids": [7], "text": "a"}]}]) == (7,)
    assert prompt_ids_of([{"choices": []}]) == ()


def test_an_engine_without_token_ids_or_of_another_model_is_refused() -> None:
    with pytest.raises(ServiceFault, match="sends no token ids of the prompt"):
        checked(Sampled("p", "c", (), (1,), "stop"), None)
    with pytest.raises(ServiceFault, match="sends no token ids of the answer"):
        checked(Sampled("p", "c", (1,), (), "stop"), None)
    with pytest.raises(ServiceFault, match="it serves another model"):
        checked(Sampled("p", "c", (1,), (4096,), "stop"), 2048)
    assert json.loads(row(checked(Sampled("p", "c", (1,), (2,), None), 2048)))["input_ids"] == [1, 2]
