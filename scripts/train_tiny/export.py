"""A `speculators` checkpoint as the plain EAGLE-3 layout that vLLM loads (``midlayer.*``)."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from scripts.train_tiny.heads import last_checkpoint

_LAYER_KEYS = (
    *("attention_bias", "head_dim", "hidden_act", "hidden_size", "initializer_range"),
    *("intermediate_size", "max_position_embeddings", "mlp_bias", "num_attention_heads"),
    *("num_hidden_layers", "num_key_value_heads", "rms_norm_eps", "vocab_size", "rope_parameters"),
)


def tensors(head: dict[str, torch.Tensor], target: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The head's tensors under vLLM's names, less those it shares with the target.

    vLLM takes a missing embedding or output matrix from the target, which halves the head's size.
    """
    shared = {"embed_tokens.weight": "model.embed_tokens.weight", "lm_head.weight": "lm_head.weight"}
    kept = {}
    for name, tensor in head.items():
        if name.startswith("verifier_"):
            continue
        twin = shared.get(name)
        if twin and torch.equal(tensor.to(torch.bfloat16), target[twin].to(torch.bfloat16)):
            continue
        plain = name.replace("layers.0.", "midlayer.", 1) if name.startswith("layers.0.") else name
        value = tensor.view(1, 1, -1) if name == "mask_hidden" else tensor
        kept[plain] = (value.to(torch.bfloat16) if value.is_floating_point() else value).contiguous()
    if "d2t" in kept and kept["t2d"].all():
        # Equal vocabularies: vLLM has no parameter to load the identity map into.
        del kept["d2t"], kept["t2d"]
    return kept


def config(checkpoint: dict[str, Any], parallel: bool) -> dict[str, Any]:
    """vLLM's ``config.json`` of the head."""
    layer = checkpoint["transformer_layer_config"]
    ids = checkpoint["eagle_aux_hidden_state_layer_ids"]
    document = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "dtype": "bfloat16",
        "bos_token_id": 0,
        "eos_token_id": 0,
        "pad_token_id": 2,
        "tie_word_embeddings": False,
        **{key: layer[key] for key in _LAYER_KEYS},
        "rope_theta": layer["rope_parameters"]["rope_theta"],
        "draft_vocab_size": checkpoint["draft_vocab_size"],
        "target_hidden_size": layer["hidden_size"],
        "norm_before_residual": checkpoint["norm_before_residual"],
        "norm_before_fc": checkpoint["norm_before_fc"],
        "norm_output": checkpoint["norm_output"],
        "eagle_aux_hidden_state_layer_ids": ids,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": ids, "use_aux_hidden_state": True},
    }
    if parallel:
        document |= {"ptd_token_id": checkpoint["mask_token_id"], "parallel_drafting": True}
    return document


def export_head(checkpoint: Path, target: Path, out: Path, *, parallel: bool) -> dict[str, int]:
    """Write one head; returns its parameter count and size in bytes."""
    out.mkdir(parents=True, exist_ok=True)
    kept = tensors(load_file(checkpoint / "model.safetensors"), load_file(target / "model.safetensors"))
    save_file(kept, out / "model.safetensors", metadata={"format": "pt"})
    document = config(json.loads((checkpoint / "config.json").read_text()), parallel)
    (out / "config.json").write_text(json.dumps(document, indent=1) + "\n")
    return {
        "parameters": sum(tensor.numel() for tensor in kept.values()),
        "bytes": (out / "model.safetensors").stat().st_size,
    }


def main() -> None:
    """Put target and both heads under ``--out`` as the wheel ships them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    target = options.work / "target"
    shutil.copytree(target, options.out / "target", dirs_exist_ok=True)
    for head in ("eagle3", "p-eagle"):
        checkpoint = last_checkpoint(options.work / "checkpoints" / head)
        facts = export_head(checkpoint, target, options.out / head, parallel=head == "p-eagle")
        print(head, facts)


if __name__ == "__main__":
    main()
