"""Run by the engine's Python: ``vllm_head_check.py HEADS``, a JSON file of what `targets_check.py` found.

For each head vLLM's own configuration classes read it beside its target's config, and its own class of the
architecture is built on the meta device and loads tensors of the names and shapes that a job exports. Prints
one JSON object per head: which parameters stayed empty, and the rotary embedding at the asked positions.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.update(
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    VLLM_HOST_IP="127.0.0.1",
    VLLM_LOGGING_LEVEL="ERROR",
    VLLM_NO_USAGE_STATS="1",
    HF_HUB_OFFLINE="1",
    OMP_NUM_THREADS="1",
)

import torch
from vllm.config import set_current_vllm_config
from vllm.distributed import init_distributed_environment, initialize_model_parallel
from vllm.engine.arg_utils import EngineArgs


def configured(target: str, head: str, k: int) -> Any:
    speculation = {"method": "eagle3", "model": head, "num_speculative_tokens": k, "parallel_drafting": True}
    return EngineArgs(
        model=target,
        dtype="bfloat16",
        load_format="dummy",
        skip_tokenizer_init=True,
        enforce_eager=True,
        max_model_len=20_480,
        speculative_config=speculation,
    ).create_engine_config()


def check(one: dict[str, Any], positions: list[int]) -> dict[str, Any]:
    from vllm.model_executor.models.registry import ModelRegistry

    config = configured(one["target"], one["head"], one["k"])
    draft = config.speculative_config.draft_model_config
    made, name = ModelRegistry.resolve_model_cls(draft.hf_config.architectures, draft)
    with set_current_vllm_config(config), torch.device("meta"):
        model = made(vllm_config=config)
    tensors = {
        each: torch.empty(shape, dtype=getattr(torch, kind.removeprefix("torch.")), device="meta")
        for each, (kind, shape) in one["tensors"].items()
    }
    model.load_weights(tensors.items())  # raises for a name or a shape that it does not know
    inner = [
        (each, tensor) for each, tensor in tensors.items() if not each.startswith(("lm_head", "mask_hidden"))
    ]
    loaded = {f"model.{each}" for each in model.model.load_weights(inner)}
    loaded |= {each for each in tensors if each.startswith("lm_head")}
    attention = model.model.layers[0].self_attn
    with set_current_vllm_config(config):
        attention._init_rotary_emb(draft.hf_config, None)
    half = attention.rotary_emb.cos_sin_cache[positions].float().chunk(2, dim=-1)
    window = [layer.self_attn.attn.sliding_window for layer in model.model.layers]
    return {
        "class": name,
        "empty": sorted(set(dict(model.named_parameters())) - loaded),
        "aux": list(draft.hf_config.eagle_aux_hidden_state_layer_ids),
        "parallel": config.speculative_config.parallel_drafting,
        "windows": [None if each in (None, (-1, -1)) else str(each) for each in window],
        "cos": half[0].tolist(),
        "sin": half[1].tolist(),
    }


def main(file: Path) -> None:
    asked = json.loads(file.read_text())
    started = False
    for one in asked["heads"]:
        config = configured(one["target"], one["head"], one["k"])
        if not started:
            with set_current_vllm_config(config):
                init_distributed_environment(1, 0, f"file://{file}.store", 0, "gloo")
                initialize_model_parallel(1)
            started = True
        print(json.dumps({"name": one["name"], **check(one, asked["positions"])}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
