"""Heads that are whole, in both formats and for every family; and what is told of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from peagle_sm.core.heads.inspect import inspect_files, inspect_head
from peagle_sm.core.heads.values import value_faults
from peagle_sm.core.heads.weights import Tensor
from peagle_sm.service.heads.checking import local_folder
from sagemaker_local.paths import weights_dir
from tests.heads import (
    TARGETS,
    VOCAB,
    filled,
    folder_of,
    head_config,
    integers,
    safetensors,
    speculators_config,
    target_config,
    tensors_for,
    write_head,
)

CONFIGS: dict[str, tuple[dict[str, Any], bool]] = {
    "P-EAGLE": (head_config(), True),
    "EAGLE-3": (head_config(parallel=False), False),
    "equal vocabularies": (head_config(draft_vocab_size=VOCAB), True),
    "no draft_vocab_size": ({k: v for k, v in head_config().items() if k != "draft_vocab_size"}, True),
    "another width": (head_config(hidden_size=32, head_dim=16), True),
    "biases": (head_config(attention_bias=True, mlp_bias=True), True),
    "norms before fc": (head_config(norm_before_fc=True), True),
    "norms of each state": (head_config(fc_norm=True), True),
    "four layers, no grouping": (head_config(num_hidden_layers=4, num_key_value_heads=None), True),
    "Qwen3": (head_config(architectures=["Eagle3Qwen3ForCausalLM"]), True),
    "two states": (
        head_config(num_aux_hidden_states=2, eagle_aux_hidden_state_layer_ids=[1, 4]),
        True,
    ),
    "speculators peagle": (speculators_config(), True),
    "speculators eagle3": (speculators_config(parallel=False), False),
    "speculators, Qwen3": (speculators_config(layer={"model_type": "qwen3"}), True),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_whole_head_has_no_fault(tmp_path: Path, name: str) -> None:
    config, parallel = CONFIGS[name]
    report = inspect_head(folder_of(tmp_path, config=config, parallel=parallel), target=target_config())
    assert report.faults == ()
    assert report.ok
    assert report.method == ("p-eagle" if parallel else "eagle3")
    assert report.format == ("speculators" if "speculators" in name else "eagle3")


@pytest.mark.parametrize("family", TARGETS)
@pytest.mark.parametrize("config", [head_config(), speculators_config()], ids=["eagle", "speculators"])
def test_every_family_and_format(tmp_path: Path, family: str, config: dict[str, Any]) -> None:
    folder = folder_of(tmp_path, config=config)
    assert inspect_head(folder, target=target_config(family)).faults == ()
    narrow = target_config(family, hidden_size=8, vocab_size=32)
    codes = {fault.check for fault in inspect_head(folder, target=narrow).faults}
    assert codes == {"target-size", "target-vocabulary"}


def test_the_shipped_heads_are_whole_and_told_by_their_files() -> None:
    weights = weights_dir()
    target = (weights / "target" / "config.json").read_text()
    report = inspect_head(local_folder(weights / "p-eagle"), target=json.loads(target), trained_k=12)
    assert report.faults == ()
    assert (report.method, report.layers, report.trained_k, report.licence) == (
        "p-eagle",
        2,
        12,
        "apache-2.0",
    )
    assert (report.parameters, report.dtype, report.aux_layer_ids) == (4524288, "BF16", (1, 3, 5))
    assert inspect_head(local_folder(weights / "eagle3"), target=json.loads(target)).method == "eagle3"
    assert inspect_files(local_folder(weights / "target")).faults == ()


def test_the_first_layer_under_its_other_name(tmp_path: Path) -> None:
    renamed = {
        name.replace("layers.0.", "midlayer."): each for name, each in tensors_for(head_config()).items()
    }
    assert inspect_head(folder_of(tmp_path, tensors=renamed)).faults == ()


def test_the_first_layer_under_both_names(tmp_path: Path) -> None:
    twice = {**tensors_for(head_config()), "midlayer.hidden_norm.weight": filled((16,))}
    report = inspect_head(folder_of(tmp_path, tensors=twice))
    assert [f.message for f in report.faults] == ["layers.0.hidden_norm.weight exists under two names"]


def test_shards_and_their_index(tmp_path: Path) -> None:
    tensors = tensors_for(head_config())
    first = {name: each for name, each in tensors.items() if "mlp" in name}
    second = {name: each for name, each in tensors.items() if "mlp" not in name}
    table = {**dict.fromkeys(first, "a.safetensors"), **dict.fromkeys(second, "b.safetensors")}
    write_head(
        tmp_path,
        files={
            "a.safetensors": safetensors(first),
            "b.safetensors": safetensors(second),
            "model.safetensors.index.json": json.dumps({"weight_map": table}),
        },
    )
    (tmp_path / "model.safetensors").unlink()
    assert inspect_head(local_folder(tmp_path)).faults == ()
    (tmp_path / "model.safetensors").write_bytes(safetensors({"fc.weight": tensors["fc.weight"]}))
    rows = [fault.message for fault in inspect_head(local_folder(tmp_path)).faults]
    assert rows[0] == "fc.weight is in b.safetensors and in model.safetensors"


@pytest.mark.parametrize(
    ("heads", "kv_heads", "gpus", "said"),
    [
        (4, 2, 3, "over 3 GPUs; allowed: 1, 2, 4"),
        (6, 2, 3, "over 3 GPUs; allowed: 1, 2, 6"),
        (4, 2, 8, "over 8 GPUs; allowed: 1, 2, 4"),
        (4, 2, 4, None),
        (4, 2, 1, None),
        (4, 2, None, None),
    ],
)
def test_a_head_that_cannot_be_split_over_the_gpus(
    heads: int, kv_heads: int, gpus: int | None, said: str | None, tmp_path: Path
) -> None:
    config = head_config(num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=64)
    report = inspect_head(folder_of(tmp_path, config=config), tensor_parallel_size=gpus)
    rows = [fault.message for fault in report.faults if fault.check == "tensor-parallel"]
    text = f"its {heads} attention heads ({kv_heads} for keys and values) cannot be split {said}"
    assert rows == ([text] if said else [])


def test_what_is_only_worth_a_warning(tmp_path: Path) -> None:
    config = {k: v for k, v in head_config().items() if k != "eagle_aux_hidden_state_layer_ids"}
    report = inspect_head(
        folder_of(tmp_path, config={**config, "dtype": "float32"}, files={"README.md": "A head"})
    )
    assert report.ok
    assert [fault.check for fault in report.faults] == ["licence", "aux-layers", "dtype"]


def test_a_lost_map_without_a_map_back_is_suspected(tmp_path: Path) -> None:
    tensors = {**tensors_for(head_config()), "d2t": integers([0] * 16)}
    del tensors["t2d"]
    report = inspect_head(folder_of(tmp_path, tensors=tensors))
    assert report.ok
    assert "as if the map was lost" in report.faults[0].message


def test_an_eagle3_head_may_be_asked_for_more_than_its_depth(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, parallel=False)
    report = inspect_head(folder, num_speculative_tokens=9, trained_k=7)
    assert [(fault.check, fault.severity) for fault in report.faults] == [("trained-k", "info")]


def test_a_layout_that_is_not_known_is_said_to_be_unchecked(tmp_path: Path) -> None:
    config = head_config(architectures=["Eagle3DeepseekV2ForCausalLM"])
    report = inspect_head(folder_of(tmp_path, config=config, tensors=tensors_for(head_config())))
    assert report.ok
    assert "does not know its weights" in report.faults[0].message
    assert report.format is None


def test_hidden_files_do_not_count(tmp_path: Path) -> None:
    write_head(tmp_path)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "hook.py").write_text("")
    assert inspect_head(local_folder(tmp_path)).faults == ()


def test_an_auto_map_without_code_is_harmless(tmp_path: Path) -> None:
    auto_map = {"": "config.Eagle3SpeculatorConfig", "AutoModel": "modeling.Head"}
    assert inspect_head(folder_of(tmp_path, config=head_config(auto_map=auto_map))).faults == ()


@pytest.mark.parametrize(
    ("scaling", "context"),
    [
        ({"max_position_embeddings": 100}, 100),
        ({}, 2048),  # what Transformers assumes for Llama
        ({"max_position_embeddings": 64, "rope_parameters": {"rope_type": "linear", "factor": 4.0}}, 256),
        ({"max_position_embeddings": 64, "rope_scaling": {"type": "dynamic", "factor": 4}}, 256),
        ({"max_position_embeddings": 64, "rope_parameters": {"rope_type": "llama3", "factor": 8.0}}, 64),
        (
            {
                "max_position_embeddings": 256,
                "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
            },
            256,
        ),
    ],
)
def test_the_length_at_which_drafting_ends(tmp_path: Path, scaling: dict[str, Any], context: int) -> None:
    """The lengths are those of SpeculativeConfig of vLLM 0.32.0 for these configs."""
    folder = folder_of(tmp_path, config=head_config(**scaling))
    report = inspect_head(folder, target=target_config(max_position_embeddings=4096))
    assert report.context == context
    warning = next(fault for fault in report.faults if fault.check == "context")
    assert warning.severity == "warning"
    assert f"drafting ends at token {context}" in warning.message
    assert inspect_head(folder, target=target_config(max_position_embeddings=context)).faults == ()


@pytest.mark.parametrize(
    ("config", "version"),
    [
        (head_config(), None),
        (head_config(norm_before_fc=True), "0.18.0"),
        (head_config(norm_output=True), "0.22.0"),
        (head_config(architectures=["Eagle3Qwen3ForCausalLM"], fc_norm=True), "0.24.0"),
        (head_config(parallel=False, mask_token_id=3), "0.28.0"),
        (speculators_config(parallel=False), None),
        (speculators_config(parallel=False, norm_before_fc=True), "0.19.0"),
        (speculators_config(parallel=False, norm_output=True, fc_norm=True), "0.25.0"),
        (speculators_config(), "0.22.0"),
        (speculators_config(layer={"model_type": "qwen3"}), "0.24.0"),
    ],
)
def test_the_first_engine_that_uses_all_of_a_head(
    tmp_path: Path, config: dict[str, Any], version: str | None
) -> None:
    parallel = config.get("speculators_model_type") != "eagle3"
    report = inspect_head(folder_of(tmp_path, config=config, parallel=parallel))
    assert report.ok
    assert report.vllm == version
    assert (report.vllm_reason is None) == (version is None)


@pytest.mark.parametrize(
    ("dtype", "value", "severity"),
    [
        ("BF16", b"\x80\x7f", "error"),  # infinity
        ("BF16", b"\x7f\x7f", None),  # the largest number
        ("F16", b"\x01\x7c", "error"),
        ("F16", b"\xff\x7b", None),
        ("F32", b"\x00\x00\xc0\xff", "error"),
        ("F32", b"\xff\xff\x7f\xff", None),
        ("F32", b"\x00\x00\x00\x80", "warning"),  # minus zero
        ("BF16", b"\x00\x00", "warning"),
        ("BF16", b"\x01\x00", None),
    ],
)
def test_values_that_are_not_finite_and_weights_of_zeros(
    tmp_path: Path, dtype: str, value: bytes, severity: str | None
) -> None:
    """One tensor, larger than a piece; the value is in its last place, or in all if it is a zero."""
    count = 700_000
    rest = value if severity == "warning" else bytes(len(value))
    data = rest * (count - 1) + value
    tensor = Tensor(dtype, (count,), "model.safetensors", 10, 10 + len(data))
    rows = list(value_faults(lambda _, start, size: data[start - 10 : start - 10 + size], {"x": tensor}))
    assert [fault.severity for fault in rows] == ([severity] if severity else [])
