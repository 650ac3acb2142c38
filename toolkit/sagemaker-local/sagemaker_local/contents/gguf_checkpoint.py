"""A Llama model in a GGUF file becomes the folder that vLLM and transformers serve, in bfloat16.

Runs as a program in the environment of ``smollm2.lock``, which has numpy and gguf::

    python -I gguf_checkpoint.py PACKAGE FOLDER

PACKAGE is an installed Python package with one GGUF file. The folder gets the weights, the config, the
tokenizer and the chat template, all from that file.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGUFReader, dequantize

_PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_SPECIAL = 3  # a control token, in tokenizer.ggml.token_type
Fields = Mapping[str, Any]


def main(package: str, folder: Path) -> None:
    """Write the folder of the one GGUF file in an installed package."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    [place] = list(spec.submodule_search_locations or [])
    [file] = Path(place).glob("*.gguf")
    reader = GGUFReader(file)
    fields = {key: field.contents() for key, field in reader.fields.items()}
    folder.mkdir(parents=True, exist_ok=True)
    _write_safetensors(folder / "model.safetensors", _tensors(reader, fields))
    documents = {
        "config.json": _config(fields),
        "generation_config.json": _special_ids(fields),
        "tokenizer.json": _tokenizer(fields),
        "tokenizer_config.json": _tokenizer_config(fields),
    }
    for name, document in documents.items():
        text = json.dumps(document, indent=1, ensure_ascii=False)
        (folder / name).write_text(text + "\n", encoding="utf-8")


def _tensors(reader: Any, fields: Fields) -> Iterator[tuple[str, npt.NDArray[np.uint16]]]:
    """Yield name and bfloat16 bits of each tensor."""
    heads, key_value_heads = fields["llama.attention.head_count"], fields["llama.attention.head_count_kv"]
    rotated = {"attn_q": heads, "attn_k": key_value_heads}
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if tensor.name == "token_embd.weight":
            name = "model.embed_tokens.weight"
        elif tensor.name == "output_norm.weight":
            name = "model.norm.weight"
        else:
            _, layer, part, _ = tensor.name.split(".")
            name = f"model.layers.{layer}.{_PARTS[part]}.weight"
            if part in rotated:
                values = _as_halves(values, rotated[part])
        yield name, _bfloat16(values)


def _write_safetensors(path: Path, tensors: Iterable[tuple[str, npt.NDArray[np.uint16]]]) -> None:
    """Write bfloat16 tensors: the header's length, the header as JSON, and the bytes."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    with path.with_suffix(".bytes").open("w+b") as data:
        for name, bits in tensors:
            header[name] = {"dtype": "BF16", "shape": bits.shape, "data_offsets": [end, end + bits.nbytes]}
            end += bits.nbytes
            data.write(bits.tobytes())
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        data.seek(0)
        with path.open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            shutil.copyfileobj(data, file)
    path.with_suffix(".bytes").unlink()


def _as_halves(weight: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """Undo llama.cpp's order of the rotary dimensions, which has pairs where transformers has halves."""
    pairs = weight.shape[0] // heads // 2
    return weight.reshape(heads, pairs, 2, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def _bfloat16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Round to the nearest bfloat16, ties to even, as torch does; the values are finite."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded: npt.NDArray[np.uint16] = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return rounded


def _config(fields: Fields) -> dict[str, Any]:
    theta = fields["llama.rope.freq_base"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": fields["llama.embedding_length"],
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": fields["llama.attention.head_count"],
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "head_dim": fields["llama.rope.dimension_count"],
        "vocab_size": fields["llama.vocab_size"],
        "max_position_embeddings": fields["llama.context_length"],
        "rope_theta": theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        # The file has it as a float32: 9.999999747e-06.
        "rms_norm_eps": float(f"{fields['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "dtype": "bfloat16",
        **_special_ids(fields),
    }


def _special_ids(fields: Fields) -> dict[str, int]:
    names = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}
    return {key: fields[f"tokenizer.ggml.{name}_token_id"] for key, name in names.items()}


def _tokenizer(fields: Fields) -> dict[str, Any]:
    """Return tokenizer.json: byte-level BPE, each digit by itself (llama.cpp's pre-tokenizer smollm)."""
    tokens = fields["tokenizer.ggml.tokens"]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    digits = {"type": "Digits", "individual_digits": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": number, "content": token, **flags}
            for number, (token, kind) in enumerate(
                zip(tokens, fields["tokenizer.ggml.token_type"], strict=True)
            )
            if kind == _SPECIAL
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, byte_level]},
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in fields["tokenizer.ggml.merges"]],
        },
    }


def _tokenizer_config(fields: Fields) -> dict[str, Any]:
    tokens = fields["tokenizer.ggml.tokens"]
    names = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    special = {key: tokens[fields[f"tokenizer.ggml.{name}_token_id"]] for key, name in names.items()}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **special,
        "model_max_length": fields["llama.context_length"],
        "clean_up_tokenization_spaces": False,
        "chat_template": fields["tokenizer.chat_template"],
    }


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
