"""A head that vLLM would load in silence, and draft nonsense with, is found out by its names and shapes."""

import pytest

from peagle_sm.core.head_check import Shape, expected_tensors, head_faults

CONFIG = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "intermediate_size": 128,
    "vocab_size": 512,
    "draft_vocab_size": 512,
    "target_hidden_size": 96,
    "ptd_token_id": 1,
}
WHOLE = expected_tensors(CONFIG, parallel=True)


def without(name: str) -> dict[str, Shape]:
    return {key: shape for key, shape in WHOLE.items() if key != name}


def test_a_whole_head_has_no_fault_under_either_name_of_its_first_layer() -> None:
    renamed = {name.replace("layers.0.", "midlayer."): shape for name, shape in WHOLE.items()}
    assert head_faults(CONFIG, WHOLE, parallel=True) == []
    assert head_faults(CONFIG, renamed, parallel=True) == []


def test_extra_tensors_and_the_shared_embedding_are_allowed() -> None:
    extra: dict[str, Shape] = {**WHOLE, "embed_tokens.weight": (512, 64), "lm_head.weight": (512, 64)}
    assert head_faults(CONFIG, extra, parallel=True) == []


@pytest.mark.parametrize("name", sorted(WHOLE))
def test_each_missing_tensor_is_named(name: str) -> None:
    assert head_faults(CONFIG, without(name), parallel=True) == [f"{name} is missing"]


def test_a_wrong_shape_is_told_with_both_sizes() -> None:
    wrong: dict[str, Shape] = {**WHOLE, "fc.weight": (64, 192)}
    assert head_faults(CONFIG, wrong, parallel=True) == ["fc.weight is 64x192, not 64x288"]


def test_a_smaller_draft_vocabulary_needs_its_map_and_its_own_output_matrix() -> None:
    smaller = {**CONFIG, "draft_vocab_size": 128}
    assert head_faults(smaller, WHOLE, parallel=True) == ["d2t is missing", "lm_head.weight is missing"]


def test_an_eagle3_head_cannot_draft_in_parallel() -> None:
    eagle3 = {key: value for key, value in CONFIG.items() if key != "ptd_token_id"}
    assert head_faults(eagle3, without("mask_hidden"), parallel=False) == []
    assert head_faults(eagle3, without("mask_hidden"), parallel=True) == [
        "mask_hidden is missing",
        "config.json names no mask token (ptd_token_id)",
    ]


def test_a_config_without_a_size_is_told() -> None:
    broken = {key: value for key, value in CONFIG.items() if key != "hidden_size"}
    assert head_faults(broken, WHOLE, parallel=True) == ["config.json lacks hidden_size"]


def test_another_layout_is_left_to_vllm() -> None:
    assert head_faults({"architectures": ["PEagleDraftModel"]}, {}, parallel=True) == []
