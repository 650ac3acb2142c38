"""Random weights in the formats that vLLM loads: a small Llama target, an EAGLE-3 and a P-EAGLE head.

They say nothing sensible and their drafts are hardly ever accepted, which is what some tests want: whether
output is right must not depend on how good a head is. Run as a script: ``python tiny_weights.py DIRECTORY``.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, FEED_FORWARD, VOCAB, CONTEXT = 256, 6, 4, 2, 64, 512, 2048, 8192
DRAFT_VOCAB, AUX_LAYERS = 1024, [1, 3, 5]
SPECIAL = ["<|bos|>", "<|eos|>", "<|user|>", "<|assistant|>", "<|system|>", "<|mask|>", "<|pad|>"]
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|eos|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
DTYPES = {"float32": "F32", "int64": "I64", "bool": "BOOL"}
Weights = dict[str, NDArray[Any]]


def write_family(root: Path, seed: int = 0) -> None:
    """Write ``target``, ``eagle3`` and ``p-eagle`` below ``root`` (about 40 MB, float32)."""
    rng = np.random.default_rng(seed)
    config: dict[str, Any] = {
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "intermediate_size": FEED_FORWARD,
        "vocab_size": VOCAB,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "torch_dtype": "float32",
    }
    target = {**config, "architectures": ["LlamaForCausalLM"], "num_hidden_layers": LAYERS}
    _write(root / "target", target, _target(rng))
    _write_tokenizer(root / "target")
    head = {
        **config,
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": DRAFT_VOCAB,
        "target_hidden_size": HIDDEN,
        "eagle_aux_hidden_state_layer_ids": AUX_LAYERS,
    }
    _write(root / "eagle3", {**head, "num_hidden_layers": 1}, _head(rng, layers=1))
    mask = {"num_hidden_layers": 2, "ptd_token_id": SPECIAL.index("<|mask|>")}
    parallel = _head(rng, layers=2)
    parallel["mask_hidden"] = _normal(rng, 1, 1, 3 * HIDDEN, std=1.0)
    _write(root / "p-eagle", {**head, **mask}, parallel)


def _normal(rng: np.random.Generator, *shape: int, std: float = 0.05) -> NDArray[Any]:
    return (rng.standard_normal(shape) * std).astype(np.float32)


def _ones() -> NDArray[Any]:
    return np.ones(HIDDEN, dtype=np.float32)


def _layer(rng: np.random.Generator, prefix: str, width: int) -> Weights:
    return {
        f"{prefix}self_attn.q_proj.weight": _normal(rng, HEADS * HEAD_DIM, width),
        f"{prefix}self_attn.k_proj.weight": _normal(rng, KV_HEADS * HEAD_DIM, width),
        f"{prefix}self_attn.v_proj.weight": _normal(rng, KV_HEADS * HEAD_DIM, width),
        f"{prefix}self_attn.o_proj.weight": _normal(rng, HIDDEN, HEADS * HEAD_DIM),
        f"{prefix}mlp.gate_proj.weight": _normal(rng, FEED_FORWARD, HIDDEN),
        f"{prefix}mlp.up_proj.weight": _normal(rng, FEED_FORWARD, HIDDEN),
        f"{prefix}mlp.down_proj.weight": _normal(rng, HIDDEN, FEED_FORWARD),
        f"{prefix}input_layernorm.weight": _ones(),
        f"{prefix}post_attention_layernorm.weight": _ones(),
    }


def _target(rng: np.random.Generator) -> Weights:
    weights = {
        "model.embed_tokens.weight": _normal(rng, VOCAB, HIDDEN, std=1.0),
        "model.norm.weight": _ones(),
        # Wide enough that one token of 2,048 often leads: a flat distribution would hide a wrong temperature.
        "lm_head.weight": _normal(rng, VOCAB, HIDDEN, std=0.2),
    }
    for index in range(LAYERS):
        weights |= _layer(rng, f"model.layers.{index}.", HIDDEN)
    return weights


def _head(rng: np.random.Generator, layers: int) -> Weights:
    covered = np.arange(len(SPECIAL), len(SPECIAL) + DRAFT_VOCAB, dtype=np.int64)
    reachable = np.zeros(VOCAB, dtype=np.bool_)
    reachable[covered] = True
    weights: Weights = {
        "fc.weight": _normal(rng, HIDDEN, 3 * HIDDEN),
        "norm.weight": _ones(),
        "lm_head.weight": _normal(rng, DRAFT_VOCAB, HIDDEN),
        "d2t": covered - np.arange(DRAFT_VOCAB, dtype=np.int64),
        "t2d": reachable,
        "layers.0.hidden_norm.weight": _ones(),
    }
    for index in range(layers):
        weights |= _layer(rng, f"layers.{index}.", 2 * HIDDEN if index == 0 else HIDDEN)
    return weights


def _write(directory: Path, config: dict[str, Any], weights: Weights) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config, indent=1))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, array in weights.items():
        end = offset + array.nbytes
        header[name] = {
            "dtype": DTYPES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with (directory / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in weights.values():
            file.write(np.ascontiguousarray(array).tobytes())


def _byte_letters() -> list[str]:
    """Return the letter that byte-level BPE writes for each byte (printable ones stand for themselves)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def _write_tokenizer(directory: Path) -> None:
    letters = _byte_letters()
    ascii_letters = [letters[byte] for byte in range(32, 127)]
    pairs = [(a, b) for a in ascii_letters for b in ascii_letters][: VOCAB - len(SPECIAL) - len(letters)]
    vocabulary = {word: index for index, word in enumerate([*SPECIAL, *letters, *(a + b for a, b in pairs)])}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [
            {
                "id": index,
                "content": word,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for index, word in enumerate(SPECIAL)
        ],
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        },
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "vocab": vocabulary,
            "merges": [list(pair) for pair in pairs],
        },
    }
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|bos|>",
        "eos_token": "<|eos|>",
        "pad_token": "<|pad|>",
        "model_max_length": CONTEXT,
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
    }
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))


if __name__ == "__main__":
    write_family(Path(sys.argv[1]))
