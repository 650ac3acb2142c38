"""A P-EAGLE head to start training from: EAGLE-3's layer, and planted attention that finds and copies.

From scratch, 1,470 steps of 768 tokens did not teach a P-EAGLE head where its anchor is. Two things are
planted instead, both plain attention that any checkpoint could hold: ``planting.anchoring`` and ``.copying``.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from speculators.models.peagle.core import PEagleDraftModel

from scripts.train_tiny.heads import PEAGLE_HEADS as HEADS
from scripts.train_tiny.heads import PEAGLE_KEY_VALUE_HEADS as KEY_VALUE_HEADS
from scripts.train_tiny.planting.anchoring import plant_anchor
from scripts.train_tiny.planting.copying import WIDTH, Planter, check_shape
from scripts.train_tiny.planting.slots import Rollout, entering, read_rollouts, real_and_mask

SAMPLED_ROLLOUTS = 60
ANCHOR_GROUP = 7  #: of layer 0; EAGLE-3's two come first, the offset heads of `copying` between them
RIDGE = 1e-2


def grown_config(fresh: Path) -> dict[str, object]:
    """The checkpoint's configuration with as many heads as planting needs."""
    document: dict[str, dict[str, object]] = json.loads((fresh / "config.json").read_text())
    shape = document["transformer_layer_config"]
    shape["num_attention_heads"], shape["num_key_value_heads"] = HEADS, KEY_VALUE_HEADS
    return document  # type: ignore[return-value]


def take_over(model: PEagleDraftModel, trained: dict[str, torch.Tensor]) -> None:
    """Copy EAGLE-3's weights into layer 0: its heads come first, those behind them write nothing yet."""
    own = model.state_dict()
    for name, tensor in trained.items():
        if name not in own:
            continue
        target = own[name]
        if target.shape == tensor.shape:
            target.copy_(tensor)
        elif name.endswith("o_proj.weight"):
            target.zero_()
            target[:, : tensor.shape[1]] = tensor
        else:
            target[: tensor.shape[0]] = tensor


@torch.no_grad()
def warm(model: PEagleDraftModel, rollouts: list[Rollout], generator: torch.Generator) -> None:
    """Plant everything; EAGLE-3's own weights must be in layer 0 already."""
    first, second = model.layers
    planter = Planter(model, rollouts, generator)
    planter.mark_mask_slots()
    states = torch.cat([r.states for r in rollouts])
    tokens = torch.cat([r.tokens for r in rollouts])
    mask_id = torch.tensor([model.mask_token_id])
    residual, mask_residual = model.fc(states), model.fc(model.mask_hidden.view(1, -1))
    inputs = entering(first, model.embed_tokens(tokens), residual)
    mask_input = entering(first, model.embed_tokens(mask_id), mask_residual)
    real, mask = real_and_mask(inputs, mask_input.expand(len(inputs) // 2, -1), RIDGE)
    plant_anchor(first.self_attn, WIDTH, ANCHOR_GROUP, real, mask)
    anchored = first.self_attn.o_proj.weight[:, 2 * ANCHOR_GROUP * WIDTH :]
    anchored.copy_(0.02 * torch.randn(anchored.shape, generator=generator))

    def leaving(state: torch.Tensor) -> torch.Tensor:
        # Attention stands in by the anchor's own value: the directions need no more.
        shared = HEADS // KEY_VALUE_HEADS
        values = first.self_attn.v_proj(inputs).view(-1, KEY_VALUE_HEADS, WIDTH)
        mixed = state + first.self_attn.o_proj(values.repeat_interleave(shared, 1).flatten(1))
        return second.input_layernorm(mixed + first.mlp(first.post_attention_layernorm(mixed)))

    for norm in (second.input_layernorm, second.post_attention_layernorm):
        torch.nn.init.ones_(norm.weight)
    real, mask = real_and_mask(leaving(residual), leaving(mask_residual.expand(len(inputs), -1)), RIDGE)
    for group in (0, 1):
        plant_anchor(second.self_attn, WIDTH, group, real, mask)
    # What is not planted adds nothing yet, so the first position starts as good as EAGLE-3's.
    torch.nn.init.zeros_(second.self_attn.o_proj.weight)
    torch.nn.init.zeros_(second.mlp.down_proj.weight)
    planter.plant()


def main() -> None:
    """Write ``--out``, a checkpoint for ``speculators train --from-pretrained``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--eagle3", type=Path, required=True, help="checkpoint of the trained EAGLE-3 head")
    parser.add_argument("--fresh", type=Path, required=True, help="checkpoint of an untrained P-EAGLE head")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    generator = torch.Generator().manual_seed(options.seed)
    shutil.copytree(
        options.fresh, options.out, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.pt", "*.safetensors")
    )
    (options.out / "config.json").write_text(json.dumps(grown_config(options.fresh), indent=1))
    model = PEagleDraftModel(PEagleDraftModel.config_class.from_pretrained(options.out)).float().eval()
    model.config.transformer_layer_config._attn_implementation = "sdpa"
    check_shape(model)
    fresh = load_file(options.fresh / "model.safetensors")
    with torch.no_grad():
        take_over(
            model, {name: fresh[name] for name in ("embed_tokens.weight", "lm_head.weight", "mask_hidden")}
        )
        take_over(model, load_file(options.eagle3 / "model.safetensors"))
    warm(model, read_rollouts(options.work, SAMPLED_ROLLOUTS), generator)
    state = model.state_dict()
    kept = {name: state[name].to(tensor.dtype).contiguous() for name, tensor in fresh.items()}
    save_file(kept, options.out / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
