"""Heads of a few kilobytes that a test may break: configs and tensors in both formats, written as files."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

from peagle_sm.core.heads.layout import read_layout
from peagle_sm.core.heads.reading import Folder
from peagle_sm.core.heads.weights import BITS, Shape, expected_tensors
from peagle_sm.service.heads.checking import local_folder

VOCAB, DRAFT, HIDDEN, LAYERS = 64, 16, 16, 8
Data = Mapping[str, tuple[str, Shape, bytes]]

TARGETS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama"},
    "gpt_oss": {"model_type": "gpt_oss", "num_local_experts": 4},
    "qwen3_moe": {"model_type": "qwen3_moe", "num_experts": 4},
    "gemma4": {"model_type": "gemma4"},
}
"""The four families that the catalogue's targets belong to, in small."""
_SIZES = {
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "vocab_size": VOCAB,
    "max_position_embeddings": 128,
}


def target_config(family: str = "llama", **more: Any) -> dict[str, Any]:
    """A target's config; Gemma's text part stands apart, as in the real one."""
    shape, sizes = TARGETS[family], {**_SIZES, **more}
    return {**shape, "text_config": sizes} if family == "gemma4" else {**shape, **sizes}


def head_config(*, parallel: bool = True, **more: Any) -> dict[str, Any]:
    """An EAGLE-3 head's config in the layout that vLLM names LlamaForCausalLMEagle3."""
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "intermediate_size": 24,
        "vocab_size": VOCAB,
        "draft_vocab_size": DRAFT,
        "target_hidden_size": HIDDEN,
        "eagle_aux_hidden_state_layer_ids": [1, 4, 6],
        "dtype": "bfloat16",
    }
    return {**config, **({"ptd_token_id": 3} if parallel else {}), **more}


def speculators_config(
    *, parallel: bool = True, layer: Mapping[str, Any] = {}, **more: Any
) -> dict[str, Any]:
    """The same head as the `speculators` library writes it."""
    plain = head_config(parallel=False)
    own = ("architectures", "draft_vocab_size", "target_hidden_size", "eagle_aux_hidden_state_layer_ids")
    kind = "peagle" if parallel else "eagle3"
    method = {"proposal_type": "greedy", "speculative_tokens": 8}
    config = {
        "architectures": ["PEagleSpeculator" if parallel else "Eagle3Speculator"],
        "speculators_model_type": kind,
        "speculators_config": {
            "algorithm": kind,
            "default_proposal_method": "greedy",
            "proposal_methods": [method],
            "verifier": {"name_or_path": "owner/target", "architectures": ["LlamaForCausalLM"]},
        },
        "transformer_layer_config": {**{k: v for k, v in plain.items() if k not in own}, **layer},
        **{key: plain[key] for key in own[1:]},
    }
    return {**config, **({"mask_token_id": 3} if parallel else {}), **more}


def tensors_for(config: Mapping[str, Any], *, parallel: bool = True) -> dict[str, tuple[str, Shape, bytes]]:
    """Everything that a config calls for, and the map back: (dtype, shape, bytes) by name."""
    layout, faults = read_layout(config)
    assert layout is not None, faults
    by_name = {name: filled(shape) for name, shape in expected_tensors(layout, parallel=parallel).items()}
    if "d2t" in by_name:
        covered = list(range(5, 5 + layout.draft_vocab))
        by_name["d2t"] = integers([target - index for index, target in enumerate(covered)])
        by_name["t2d"] = flags([index in covered for index in range(layout.vocab)])
    return by_name


def filled(shape: Shape, dtype: str = "BF16", byte: int = 0x3C) -> tuple[str, Shape, bytes]:
    """A tensor whose bytes are all the same: of 0x3C every float type is finite and not zero."""
    return dtype, shape, bytes([byte]) * (prod(shape) * BITS[dtype] // 8)


def integers(values: Sequence[int]) -> tuple[str, Shape, bytes]:
    """A tensor of int64."""
    return "I64", (len(values),), array("q", values).tobytes()


def flags(values: Sequence[bool]) -> tuple[str, Shape, bytes]:
    """A tensor of booleans."""
    return "BOOL", (len(values),), bytes(values)


def safetensors(tensors: Data) -> bytes:
    """The bytes of a safetensors file."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    return with_header(header, b"".join(data for _, _, data in tensors.values()))


def with_header(header: Any, data: bytes) -> bytes:
    """A file with a header of the test's own."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def write_head(
    directory: Path,
    config: Mapping[str, Any] | None = None,
    tensors: Data | None = None,
    *,
    parallel: bool = True,
    files: Mapping[str, bytes | str] = {},
) -> Path:
    """Write a head, whole unless a test takes something away; ``files`` are added, or replace."""
    config = head_config(parallel=parallel) if config is None else config
    tensors = tensors_for(config, parallel=parallel) if tensors is None else tensors
    content: dict[str, bytes | str] = {
        "config.json": json.dumps(config),
        "model.safetensors": safetensors(tensors),
        "README.md": "---\nlicense: apache-2.0\n---\n\n# A head\n",
        **files,
    }
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in content.items():
        (directory / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return directory


def folder_of(directory: Path, **more: Any) -> Folder:
    """A head, written and opened."""
    return local_folder(write_head(directory, **more))
