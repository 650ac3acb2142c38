"""The head is read from its files' headers before an engine starts with it."""

import json
from pathlib import Path
from typing import Any

import pytest

from peagle_sm.core.head_check import Shape, expected_tensors
from peagle_sm.local.engine_head import refused_head, tensor_shapes

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "vocab_size": 32,
    "ptd_token_id": 1,
}
WHOLE = expected_tensors(CONFIG, parallel=True)
MOUNT = "/opt/ml/additional-model-data-sources/eagle"
ENVIRONMENT = {
    "SM_VLLM_SPECULATIVE_CONFIG": json.dumps(
        {"method": "eagle3", "model": MOUNT, "num_speculative_tokens": 3, "parallel_drafting": True}
    )
}


def write_head(root: Path, tensors: dict[str, Shape], *, cut: int = 0) -> Path:
    head = root / MOUNT.lstrip("/")
    head.mkdir(parents=True)
    (head / "config.json").write_text(json.dumps(CONFIG))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape in tensors.items():
        size = 2
        for side in shape:
            size *= side
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    data = len(text).to_bytes(8, "little") + text + bytes(offset)
    (head / "model.safetensors").write_bytes(data[: len(data) - cut])
    return head


def test_a_whole_head_is_accepted_and_its_shapes_are_read(tmp_path: Path) -> None:
    head = write_head(tmp_path, WHOLE)
    assert tensor_shapes(head) == WHOLE
    assert refused_head(ENVIRONMENT, tmp_path) is None


def test_missing_weights_are_named(tmp_path: Path) -> None:
    write_head(tmp_path, {name: shape for name, shape in WHOLE.items() if "norm" not in name})
    assert refused_head(ENVIRONMENT, tmp_path) == (
        f"the draft head at {MOUNT} is not whole: norm.weight is missing; "
        "layers.0.input_layernorm.weight is missing; layers.0.post_attention_layernorm.weight is missing; "
        "layers.0.hidden_norm.weight is missing"
    )


def test_a_head_without_any_weights_file_is_refused(tmp_path: Path) -> None:
    (write_head(tmp_path, WHOLE) / "model.safetensors").unlink()
    assert refused_head(ENVIRONMENT, tmp_path) == (
        f"the draft head at {MOUNT} has no weights: there is no .safetensors file in it"
    )


@pytest.mark.parametrize("cut", [1, 100])
def test_a_cut_download_is_refused(tmp_path: Path, cut: int) -> None:
    write_head(tmp_path, WHOLE, cut=cut)
    assert "cannot be read: model.safetensors is cut short" in (refused_head(ENVIRONMENT, tmp_path) or "")


def test_something_else_under_that_name_is_refused(tmp_path: Path) -> None:
    (write_head(tmp_path, WHOLE) / "model.safetensors").write_bytes(b"<html>not found</html>")
    assert "cannot be read" in (refused_head(ENVIRONMENT, tmp_path) or "")


def test_without_speculation_there_is_nothing_to_look_at(tmp_path: Path) -> None:
    assert refused_head({}, tmp_path) is None
    assert refused_head({"SM_VLLM_SPECULATIVE_CONFIG": "no JSON"}, tmp_path) is None
