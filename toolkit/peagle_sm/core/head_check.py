"""What a draft head must hold, in the EAGLE-3 layout that vLLM loads.

vLLM itself loads a head without ``d2t``, or without some layer's weights, and drafts nonsense with it:
acceptance falls to 1, the outputs stay right, and nobody is told. So the head is looked at before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ARCHITECTURE = "LlamaForCausalLMEagle3"
Shape = tuple[int, ...]


def expected_tensors(config: Mapping[str, Any], *, parallel: bool) -> dict[str, Shape]:
    """Every tensor that the head's ``config.json`` calls for, with its shape.

    The embedding, and ``lm_head`` where the vocabularies are equal, may be missing: vLLM takes the target's.

    Raises:
        KeyError: the config lacks a size.
    """
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    heads, inner = config["num_attention_heads"], config["intermediate_size"]
    width = config.get("head_dim") or hidden // heads
    keys = (config.get("num_key_value_heads") or heads) * width
    target = config.get("target_hidden_size") or hidden
    made: dict[str, Shape] = {"fc.weight": (hidden, 3 * target), "norm.weight": (hidden,)}
    for index in range(layers):
        name, taken = f"layers.{index}.", 2 * hidden if index == 0 else hidden
        made |= {
            f"{name}self_attn.q_proj.weight": (heads * width, taken),
            f"{name}self_attn.k_proj.weight": (keys, taken),
            f"{name}self_attn.v_proj.weight": (keys, taken),
            f"{name}self_attn.o_proj.weight": (hidden, heads * width),
            f"{name}mlp.gate_proj.weight": (inner, hidden),
            f"{name}mlp.up_proj.weight": (inner, hidden),
            f"{name}mlp.down_proj.weight": (hidden, inner),
            f"{name}input_layernorm.weight": (hidden,),
            f"{name}post_attention_layernorm.weight": (hidden,),
        }
        if index == 0:
            made[f"{name}hidden_norm.weight"] = (hidden,)
    drafted = config.get("draft_vocab_size") or config["vocab_size"]
    if drafted != config["vocab_size"]:
        made |= {"d2t": (drafted,), "lm_head.weight": (drafted, hidden)}
    if parallel:
        made["mask_hidden"] = (1, 1, 3 * target)
    return made


def head_faults(config: Mapping[str, Any], tensors: Mapping[str, Shape], *, parallel: bool) -> list[str]:
    """What is wrong with a head, a sentence each; nothing for a layout that is not known here.

    Args:
        config: the head's ``config.json``.
        tensors: name -> shape of everything in its safetensors files.
        parallel: whether it is to draft in one pass (P-EAGLE).
    """
    if config.get("architectures") != [ARCHITECTURE]:
        return []
    try:
        expected = expected_tensors(config, parallel=parallel)
    except KeyError as error:
        return [f"config.json lacks {error.args[0]}"]
    found = {name.replace("midlayer.", "layers.0.", 1): shape for name, shape in tensors.items()}
    faults = [
        f"{name} is missing" if name not in found else f"{name} is {_text(found[name])}, not {_text(shape)}"
        for name, shape in expected.items()
        if found.get(name) != shape
    ]
    if parallel and not any(key in config for key in ("ptd_token_id", "pard_token", "mask_token_id")):
        faults.append("config.json names no mask token (ptd_token_id)")
    return faults


def _text(shape: Shape) -> str:
    return "x".join(map(str, shape))
