"""Hyperparameters: what is read, what is refused and how, and what the library is given."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_train import Mistake
from peagle_train.settings import OF_THE_HEAD, Settings, as_json, joined, read_settings, recipe

HEAD = {
    "num_draft_layers": 2,
    "aux_layer_ids": (1, 3, 5),
    "mask_token_id": 1,
    "draft_num_attention_heads": 16,
    "draft_num_key_value_heads": 8,
    "draft_intermediate_size": 768,
    "draft_vocab_size": 2048,
}


def refused(given: dict[str, Any]) -> str:
    with pytest.raises(Mistake) as caught:
        read_settings(given)
    return str(caught.value)


def test_values_come_as_strings_also_in_the_quotes_of_the_sdk() -> None:
    read = read_settings({"num_depths": "7", "learning_rate": '"1e-3"', "freeze_embeddings": "True"})
    assert (read.num_depths, read.learning_rate, read.freeze_embeddings) == (7, 1e-3, True)
    assert read_settings({"aux_layer_ids": "[2, 12, 21]"}).aux_layer_ids == (2, 12, 21)
    assert read_settings({}) == Settings()


def test_an_unknown_name_is_told_with_the_allowed_ones() -> None:
    message = refused({"num_depth": "8"})
    assert message.startswith("unknown hyperparameter num_depth; allowed: num_depths, num_draft_layers,")
    assert all(name in message for name in vars(Settings()))


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("num_depths", "0", "a whole number from 1 to 32"),
        ("num_depths", "8.5", "a whole number from 1 to 32"),
        ("learning_rate", "nan", "a number from 1e-08 to 1"),
        ("learning_rate", "-1", "a number from 1e-08 to 1"),
        ("freeze_embeddings", "perhaps", "true or false"),
        ("aux_layer_ids", "[1, 1, 2]", "three different layers"),
        ("aux_layer_ids", "[0, 1, 2]", "counted from 1 as vLLM counts them"),
        ("aux_layer_ids", "1,2,3", "three different layers"),
        ("aux_layer_ids", "[" * 100_000, "three different layers"),
        ("max_steps", "", "a whole number"),
        ("seed", "1e3", "a whole number"),
    ],
)
def test_a_value_that_is_not_allowed(name: str, value: str, allowed: str) -> None:
    message = refused({name: value})
    assert message.startswith(f"hyperparameter {name}: found {value[:80]!r}; allowed: ")
    assert allowed in message
    assert len(message) < 300


def test_values_that_contradict_each_other() -> None:
    assert "shorter than 16 tokens" in refused({"sequence_length": "64", "sequence_partitions": "8"})
    assert "down_sample_ratio_min is larger" in refused({"down_sample_ratio_min": "0.9"})


@given(st.dictionaries(st.sampled_from(sorted(vars(Settings()))), st.text(max_size=20)))
def test_any_text_is_read_or_refused_in_one_line(values: dict[str, str]) -> None:
    text = ""
    try:
        read = read_settings(values)
    except Mistake as error:
        text = str(error)
    else:
        assert json.loads(json.dumps(as_json(read))) == as_json(read)
    assert "\n" not in text


def test_the_head_to_start_from_gives_what_was_not_given() -> None:
    result = joined(read_settings({"num_depths": "5"}), HEAD)
    assert {name: getattr(result, name) for name in OF_THE_HEAD} == HEAD
    assert result.num_depths == 5
    assert joined(read_settings({"mask_token_id": "1"}), HEAD) == joined(Settings(), HEAD)


@pytest.mark.parametrize("name", OF_THE_HEAD)
def test_what_contradicts_the_head_is_refused(name: str) -> None:
    value = {"aux_layer_ids": "[1, 2, 3]", "draft_vocab_size": "99"}.get(name, "9")
    with pytest.raises(Mistake, match=rf"{name}: found .*, but the head to start from has .*leave it out"):
        joined(read_settings({name: value}), HEAD)


def test_without_a_head_two_values_must_be_given() -> None:
    with pytest.raises(Mistake, match="mask_token_id is missing"):
        joined(Settings(), None)
    with pytest.raises(Mistake, match="aux_layer_ids is missing"):
        joined(read_settings({"mask_token_id": "1"}), None)
    result = joined(read_settings({"mask_token_id": "1", "aux_layer_ids": "[1, 2, 3]"}), None)
    assert result.num_draft_layers == 4


def made(**others: str) -> dict[str, Any]:
    return recipe(
        joined(read_settings(others), HEAD),
        target="t",
        attention="sdpa",
        work="w",
        warm_start="h",
        draft_vocab=None,
        token_map=None,
        on_gpu=False,
        world=16,
    )


def test_the_library_counts_layers_from_0() -> None:
    assert made()["recipe_args"]["aux_layer_ids"] == [0, 2, 4]


def test_the_library_gets_what_was_asked_for() -> None:
    document = made(num_depths="5", sequence_partitions="2", learning_rate="0.001", epochs="3")
    arguments = document["recipe_args"]
    assert (arguments["num_depths"], arguments["sequence_partitions"]) == (5, 2)
    assert document["optimizer"]["lr"] == 0.001
    assert arguments["num_epochs"] == 1, "the library restores no position: one pass is the whole run"
    assert document["checkpoint"]["enabled"] is False, "those of peagle_train.checkpoint are written"
    assert "distributed" not in document


def test_experts_are_spread_only_on_request() -> None:
    document = made(expert_parallel_size="8")
    assert document["distributed"] == {"strategy": "fsdp2", "tp_size": 1, "ep_size": 8}
    assert document["recipe_args"]["target_force_hf"] is False


def test_a_dense_target_is_sharded_only_on_request_within_groups() -> None:
    document = made(target_shards="8")
    assert document["distributed"] == {"strategy": "fsdp2", "tp_size": 1, "dp_replicate_size": 2}
    assert document["recipe_args"]["target_force_hf"] is True
