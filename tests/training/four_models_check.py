"""Run by the trainer's Python: ``four_models_check.py MODEL FOLDER GPUS``; FOLDER has a job's ``/opt/ml``.

It adds the target's public config.json and lets `HeadRecipe` set everything up on torch's meta device, where
tensors have shapes and no values. It prints a JSON object with what was built.
"""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from nemo_automodel.components.distributed.parallelizer import fsdp2_strategy_parallelize
from nemo_automodel.components.speculative.eagle import HFEagle3TargetModel
from nemo_automodel.recipes._dist_utils import create_distributed_setup_from_config
from nemo_automodel.recipes.llm import train_eagle3
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoConfig, AutoModelForCausalLM

from peagle_train import heads
from peagle_train.plan import Folders, make_plan
from peagle_train.recipe import HeadRecipe

META = torch.device("meta")


# huggingface.co/openai/gpt-oss-20b; -120b differs in layers and experts.
GPT_OSS: dict[str, Any] = json.loads("""{
  "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "attention_bias": true, "head_dim": 64,
  "hidden_size": 2880, "initial_context_length": 4096, "intermediate_size": 2880,
  "max_position_embeddings": 131072, "num_attention_heads": 64, "num_experts_per_tok": 4,
  "num_hidden_layers": 24, "num_key_value_heads": 8, "num_local_experts": 32, "pad_token_id": 199999,
  "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
  "rms_norm_eps": 1e-05, "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0,
    "beta_slow": 1.0, "original_max_position_embeddings": 4096, "truncate": false},
  "rope_theta": 150000, "sliding_window": 128, "tie_word_embeddings": false, "vocab_size": 201088
}""")
# huggingface.co/Qwen/Qwen3-Coder-30B-A3B-Instruct
QWEN: dict[str, Any] = json.loads("""{
  "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "decoder_sparse_step": 1,
  "head_dim": 128, "hidden_size": 2048, "intermediate_size": 5472, "max_position_embeddings": 262144,
  "mlp_only_layers": [], "moe_intermediate_size": 768, "num_attention_heads": 32, "num_experts": 128,
  "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
  "rope_theta": 10000000, "tie_word_embeddings": false, "vocab_size": 151936
}""")
# huggingface.co/google/gemma-4-31B-it: every sixth layer has full attention, as the class has by itself.
GEMMA: dict[str, Any] = json.loads("""{
  "architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4", "audio_config": null,
  "text_config": {"model_type": "gemma4_text", "attention_k_eq_v": true, "final_logit_softcapping": 30.0,
    "global_head_dim": 512, "head_dim": 256, "hidden_size": 5376, "hidden_size_per_layer_input": 0,
    "intermediate_size": 21504, "max_position_embeddings": 262144, "num_attention_heads": 32,
    "num_global_key_value_heads": 4, "num_hidden_layers": 60, "num_key_value_heads": 16,
    "sliding_window": 1024, "use_bidirectional_attention": "vision", "vocab_size": 262144},
  "vision_config": {"model_type": "gemma4_vision", "head_dim": 72, "hidden_size": 1152,
    "intermediate_size": 4304, "num_attention_heads": 16, "num_hidden_layers": 27,
    "num_key_value_heads": 16, "standardize": true}
}""")
CONFIGS = {
    "gpt-oss-20b": GPT_OSS,
    "gpt-oss-120b": {**GPT_OSS, "num_hidden_layers": 36, "num_local_experts": 128},
    "qwen3-coder-30b-a3b-instruct": QWEN,
    "gemma-4-31b-it": GEMMA,
}


class OnMeta(HeadRecipe):
    """The product's recipe, with a target that is built and not loaded."""

    device = property(lambda self: META, lambda self, given: None)

    def _setup_colocated_target(self, recipe_cfg: Any, target_path: Any, draft_base_config: Any) -> None:
        self.target_model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(target_path))
        self.target_wrapper = HFEagle3TargetModel(self.target_model, aux_layer_ids=recipe_cfg.aux_layer_ids)


def count(model: Any) -> int:
    return sum(each.numel() for each in model.parameters())


def check(model: str, root: Path, gpus: int) -> dict[str, Any]:
    target = root / "input" / "data" / "target"
    (target / "config.json").write_text(json.dumps(CONFIGS[model]))
    (target / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")
    plan = make_plan(Folders(root), root / "work", gpus)
    recipe = OnMeta(plan, lambda: False)
    train_eagle3.print_trainable_parameters = lambda model, name: None  # it adds up the values
    with META:
        recipe.setup()
    assert plan.settings.aux_layer_ids is not None
    trainer, draft = recipe.trainer_module, recipe.draft_model
    tokens = plan.settings.sequence_length
    units = trainer.build_peagle_plan(torch.ones(1, tokens, dtype=torch.long)).units
    config = recipe.target_model.config
    text, last = config.get_text_config(), draft.model.layers[-1]
    attention = last.self_attn
    served = heads.vllm_config(draft.config.to_dict(), plan.settings.aux_layer_ids, trainer.mask_token_id)
    by_name = {
        "classes": [type(each).__name__ for each in (config, recipe.target_model, draft)],
        "target": count(recipe.target_model),
        "sizes": [text.hidden_size, text.num_hidden_layers, text.vocab_size],
        "head": count(draft),
        "layers": len(draft.model.layers),
        "shape": [each.out_features for each in (attention.q_proj, attention.k_proj, last.mlp.up_proj)],
        "served": [served["num_attention_heads"], served["num_key_value_heads"], served["head_dim"]],
        "depths": [trainer.num_depths, draft.config.num_depths],
        "mask_token": [trainer.mask_token_id, draft.config.mask_token_id],
        "read": [each + 1 for each in recipe.target_wrapper.aux_layer_ids],
        "parts": trainer.sequence_partitions,
        "rows": max(len(anchors) for _, anchors, *_ in units),
        "charged": max(int(charged.sum()) for *_, charged in units),
        "expert_parallel": 1,
        "target_shards": 1,
    }
    if recipe.cfg.get("distributed", None) is not None:
        dist.destroy_process_group()
        dist.init_process_group("fake", rank=0, world_size=gpus, store=FakeStore())
        meshes = create_distributed_setup_from_config(recipe.cfg, world_size=gpus).mesh_context
        if plan.settings.target_shards > 1:
            fsdp2_strategy_parallelize(recipe.target_model, meshes.device_mesh)
            by_name["target_shards"] = meshes.device_mesh["dp_shard"].size()
            by_name["of_one_gpu"] = sum(each.to_local().numel() for each in recipe.target_model.parameters())
        else:
            by_name["expert_parallel"] = meshes.moe_mesh["ep"].size()
    return by_name


if __name__ == "__main__":
    print(json.dumps(check(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))))
