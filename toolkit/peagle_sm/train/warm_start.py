"""A P-EAGLE head to start training from: EAGLE-3's layer, and attention that finds the anchor at once.

A mask slot's input is the same constant at every depth, so all that it knows comes by attention from
its anchor, the last real slot before it. Learning *where* to look took more than 1,500 steps of 768
tokens and had not come about; planted, the second position learns from the first hundred steps on.

The planted keys are 1 on real slots and 0 on mask slots (a direction found by least squares over real
inputs); the planted queries are the other way round. Rotary embedding turns their product into a sum of
cosines of the distance, which is greatest for the nearest real slot: the anchor. It is only a start:
every weight trains on.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from speculators.models.peagle.core import PEagleDraftModel

SAMPLED_ROLLOUTS = 80
RIDGE = 1e-2  #: keeps the directions small where the inputs hardly vary
KEY_SCALE, QUERY_SCALE = 4.0, 6.0
KEY_BAND = (0, 24)  #: rotary pairs that the keys use, fastest first
QUERY_BANDS = ((0, 12), (4, 20))  #: a sharp head for near anchors and a wide one for far ones


def real_and_mask(inputs: torch.Tensor, mask_inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Two directions [width]: the first reads 1 on real inputs and 0 on mask ones, the second the reverse."""
    rows = torch.cat([inputs, mask_inputs])
    is_real = torch.cat([torch.ones(len(inputs)), torch.zeros(len(mask_inputs))])
    gram = rows.T @ rows + RIDGE * len(rows) * torch.eye(rows.shape[1])
    return torch.linalg.solve(gram, rows.T @ is_real), torch.linalg.solve(gram, rows.T @ (1 - is_real))


def plant(attention: torch.nn.Module, width: int, group: int, real: torch.Tensor, mask: torch.Tensor) -> None:
    """Make key/value head ``group`` and its two query heads look at the nearest real slot.

    Args:
        attention: a Llama attention with two query heads to a key/value head.
        width: of a head.
        group: which key/value head.
        real: the first direction of :func:`real_and_mask`.
        mask: the second one.
    """

    def band(bounds: tuple[int, int]) -> torch.Tensor:
        pattern = torch.zeros(width)
        pattern[bounds[0] : bounds[1]] = 1.0  # the cosine half of the pairs (i, i + width / 2)
        return pattern

    rows = slice(group * width, (group + 1) * width)
    attention.k_proj.weight[rows] = KEY_SCALE * torch.outer(band(KEY_BAND), real)
    for offset, bounds in enumerate(QUERY_BANDS):
        head = 2 * group + offset
        planted = QUERY_SCALE * torch.outer(band(bounds), mask)
        attention.q_proj.weight[head * width : (head + 1) * width] = planted


def rollout_inputs(work: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Auxiliary states [slots, 3H] and the token of each slot [slots], as the head sees them."""
    states, tokens = [], []
    for index in range(SAMPLED_ROLLOUTS):
        stored = load_file(work / "rollouts" / "hidden_states" / f"hs_{index}.safetensors")
        hidden = stored["hidden_states"].float()
        states.append(hidden[:-1, :3].reshape(len(hidden) - 1, -1))
        tokens.append(stored["token_ids"][1:])  # slot j holds token j + 1
    return torch.cat(states), torch.cat(tokens)


@torch.no_grad()
def warm(model: PEagleDraftModel, states: torch.Tensor, tokens: torch.Tensor) -> None:
    """Plant the attention in both layers; EAGLE-3's own weights must be in layer 0 already."""
    first, second = model.layers
    width = model.config.transformer_layer_config.head_dim
    mask_id = torch.tensor([model.mask_token_id])
    residual, mask_residual = model.fc(states), model.fc(model.mask_hidden.view(1, -1))

    def entering(ids: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        return torch.cat([first.input_layernorm(model.embed_tokens(ids)), first.hidden_norm(state)], -1)

    inputs, mask_input = entering(tokens, residual), entering(mask_id, mask_residual)
    real, mask = real_and_mask(inputs, mask_input.expand(len(inputs) // 2, -1))
    # The second group only, so that the first keeps what EAGLE-3 uses it for.
    plant(first.self_attn, width, 1, real, mask)
    torch.nn.init.normal_(first.self_attn.o_proj.weight[:, 2 * width :], std=0.02)

    def leaving(state: torch.Tensor) -> torch.Tensor:
        # Attention stands in by the anchor's own value: the directions need no more.
        values = first.self_attn.v_proj(inputs).view(-1, 2, width).repeat_interleave(2, 1).flatten(1)
        mixed = state + first.self_attn.o_proj(values)
        return second.input_layernorm(mixed + first.mlp(first.post_attention_layernorm(mixed)))

    for norm in (second.input_layernorm, second.post_attention_layernorm):
        torch.nn.init.ones_(norm.weight)
    real, mask = real_and_mask(leaving(residual), leaving(mask_residual.expand(len(inputs), -1)))
    for group in (0, 1):
        plant(second.self_attn, width, group, real, mask)
    # The second layer adds nothing yet, so the first position starts as good as EAGLE-3's.
    torch.nn.init.zeros_(second.self_attn.o_proj.weight)
    torch.nn.init.zeros_(second.mlp.down_proj.weight)


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
    model = PEagleDraftModel.from_pretrained(options.fresh).float().eval()
    names = set(model.state_dict())
    trained = load_file(options.eagle3 / "model.safetensors")
    model.load_state_dict({k: v for k, v in trained.items() if k in names}, strict=False)
    warm(model, *rollout_inputs(options.work))
    shutil.copytree(options.fresh, options.out, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.pt"))
    made = model.state_dict()
    fresh = load_file(options.fresh / "model.safetensors")
    kept = {name: made[name].to(tensor.dtype).contiguous() for name, tensor in fresh.items()}
    save_file(kept, options.out / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
