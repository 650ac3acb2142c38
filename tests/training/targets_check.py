"""Run by the trainer's Python: ``targets_check.py JOBS OUT``; a line of JOBS is a name and a plan's file.

For each plan it goes as far as the weights: the library's loader reads the recipe, its gates and
its distributed settings for 8 GPUs judge it, its registry chooses the head, and its own classes build that on
the meta device, with the sizes of the real target. Nothing is downloaded, and nothing of a target's size is
allocated. Prints one JSON object per plan; OUT gets each head's ``config.json`` as a job would write it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

WORLD = 8
POSITIONS = (0, 1, 17, 4095, 4096, 20_000, 100_000)


def fake_world() -> None:
    """A process group that says it has 8 processes and sends nothing."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=WORLD)


def rotations(head: Any, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    """Cosines and sines of the head's rotary embedding at some positions, as its attention gets them."""
    rope = head.model.layers[0].self_attn.rotary_emb
    positions = torch.tensor([POSITIONS])
    cos, sin = rope(torch.zeros(1, len(POSITIONS), 1, dtype=dtype), positions)
    return {"cos": cos[0].tolist(), "sin": sin[0].tolist()}


def check(file: Path, out: Path) -> dict[str, Any]:
    from nemo_automodel.components.speculative.eagle.registry import resolve_eagle3_draft_spec
    from nemo_automodel.recipes._dist_utils import create_distributed_setup_from_config
    from nemo_automodel.recipes.llm import train_eagle3 as library
    from transformers import AutoConfig

    from peagle_train import heads
    from peagle_train.plan import read_plan
    from peagle_train.recipe import CountingTrainer, HeadRecipe

    plan = read_plan(file)
    recipe = HeadRecipe(plan, stop=lambda: False, say=lambda line: None)
    arguments = recipe.cfg.recipe_args
    library._validate_peagle_gates(
        backend=arguments.get("target_model_backend", "colocated"),
        cached_target_path=arguments.get("cached_target_path", None),
        packed_sequence_size=arguments.get("packed_sequence_size", 0),
    )
    library._validate_cp_gates(
        int(recipe.cfg.get("distributed.cp_size", 1) or 1),
        "colocated",
        arguments.get("packed_sequence_size", 0),
    )
    library._validate_tp_gates(int(recipe.cfg.get("distributed.tp_size", 1) or 1), "colocated", 1)
    target = AutoConfig.from_pretrained(plan.target.folder)
    base = getattr(target, "text_config", None) or target
    spec = resolve_eagle3_draft_spec(target.architectures)
    found: dict[str, Any] = {"draft": spec.draft_cls.__name__, "target": type(base).__name__}
    if recipe.cfg.get("distributed", None) is not None:
        made = create_distributed_setup_from_config(recipe.cfg, world_size=WORLD)
        mesh = made.mesh_context
        found["strategy"] = type(made.strategy_config).__name__
        found["mesh"] = {name: mesh.device_mesh[name].size() for name in mesh.device_mesh.mesh_dim_names}
        found["moe_mesh"] = {name: mesh.moe_mesh[name].size() for name in mesh.moe_mesh.mesh_dim_names}

    config = base.to_dict()
    config |= {"draft_vocab_size": base.vocab_size, "target_hidden_size": base.hidden_size}
    config |= {"architectures": ["LlamaEagle3DraftModel"], "tie_word_embeddings": False}
    config |= {
        "attn_implementation": "eager",
        "parallel_drafting": True,
        "fc_norm": False,
        "norm_output": False,
    }
    mask = recipe._configure_peagle_draft_config(arguments, config, base)
    with torch.device("meta"):
        head = spec.draft_cls(type(base).from_dict(config)).to(torch.bfloat16)
    narrow = {"vocab_size": 8, "draft_vocab_size": 8, "intermediate_size": 8, "pad_token_id": None}
    small = type(base).from_dict({**config, **narrow})
    found |= rotations(spec.draft_cls(small).float())
    made_config = heads.vllm_config(head.config.to_dict(), plan.settings.aux_layer_ids, mask)
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(made_config, indent=1))
    state = {heads.vllm_name(name): tensor for name, tensor in head.state_dict().items()}
    found["tensors"] = {name: [str(each.dtype), list(each.shape)] for name, each in state.items()}
    found["parameters"] = sum(each.numel() for each in head.parameters())
    found["aux"] = list(arguments.aux_layer_ids)

    settings = plan.settings
    trainer = CountingTrainer(
        head,
        selected_token_ids=torch.arange(base.vocab_size),
        selected_token_mask=torch.ones(base.vocab_size, dtype=torch.bool),
        num_depths=settings.num_depths,
        mask_token_id=mask,
        down_sample_ratio=settings.down_sample_ratio,
        down_sample_ratio_min=settings.down_sample_ratio_min,
        sequence_partitions=settings.sequence_partitions,
    )
    torch.manual_seed(0)
    found["rows"] = rows(trainer, settings.sequence_length)
    return found


def rows(trainer: Any, length: int) -> list[int]:
    """Rows of each partition of a document of the full length, by the library's own plan."""
    cut = trainer.build_peagle_plan(torch.ones(1, length, dtype=torch.long))
    return [len(each) if hasattr(each, "__len__") else int(each) for each in cut.units]


def main(jobs: Path, out: Path) -> None:
    fake_world()
    for line in jobs.read_text().splitlines():
        name, file = line.split("\t")
        print(json.dumps({"name": name, **check(Path(file), out / name)}), flush=True)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
