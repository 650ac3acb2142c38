"""What the slots of a P-EAGLE head see: real ones on the target's own rollouts, mask ones behind them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from speculators.models.peagle.core import PEagleDraftModel

FIRST_ANCHOR, ANCHOR_STEP, SAMPLED_DEPTHS = 90, 7, 8


@dataclass(frozen=True)
class Rollout:
    """One rollout as the head sees it: slot j holds token j + 1 and the states at j."""

    states: torch.Tensor  #: auxiliary states, [slots, 3H]
    tokens: torch.Tensor  #: [slots]


def read_rollouts(work: Path, count: int) -> list[Rollout]:
    """The first ``count`` rollouts of ``work``."""
    rows = []
    for index in range(count):
        stored = load_file(work / "rollouts" / "hidden_states" / f"hs_{index}.safetensors")
        hidden = stored["hidden_states"].float()
        rows.append(Rollout(hidden[:-1, :3].reshape(len(hidden) - 1, -1), stored["token_ids"][1:]))
    return rows


def entering(layer: torch.nn.Module, embedded: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    """What the first layer's attention reads, [slots, 2H]: both halves behind their norms."""
    return torch.cat([layer.input_layernorm(embedded), layer.hidden_norm(state)], -1)


def real_and_mask(
    inputs: torch.Tensor, masks: torch.Tensor, ridge: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Two directions [width]: the first reads 1 on real inputs and 0 on mask ones, the second the reverse.

    ``ridge`` keeps them small where the inputs hardly vary; it is a share of the mean square.
    """
    rows = torch.cat([inputs, masks])
    is_real = torch.cat([torch.ones(len(inputs)), torch.zeros(len(masks))])
    gram = rows.T @ rows + ridge * len(rows) * torch.eye(rows.shape[1])
    return torch.linalg.solve(gram, rows.T @ is_real), torch.linalg.solve(gram, rows.T @ (1 - is_real))


def leaving_first_layer(
    model: PEagleDraftModel, rollouts: list[Rollout]
) -> tuple[torch.Tensor, torch.Tensor]:
    """What leaves the first layer, [slots, H], of real and of mask slots."""
    real_rows, mask_rows = [], []
    for rollout in rollouts:
        count = len(rollout.tokens)
        anchors = torch.arange(FIRST_ANCHOR, count - SAMPLED_DEPTHS, ANCHOR_STEP)
        depth = torch.cat(
            [torch.zeros(count, dtype=torch.long), torch.arange(1, SAMPLED_DEPTHS).repeat(len(anchors))]
        )
        anchor = torch.cat([torch.arange(count), anchors.repeat_interleave(SAMPLED_DEPTHS - 1)])
        real, position = depth == 0, anchor + depth
        embedded = model.embed_tokens(torch.where(real, rollout.tokens[position], model.mask_token_id))
        state = model.fc(torch.where(real[:, None], rollout.states[position], model.mask_hidden.view(1, -1)))
        before = real[None] & (anchor[:, None] >= anchor[None])
        chain = (anchor[:, None] == anchor[None]) & (depth[:, None] >= depth[None])
        inputs = torch.cat([embedded, state], -1)[None]
        out = model.layers[0](
            inputs,
            attention_mask=(before | chain)[None, None],
            position_ids=position[None],
            position_embeddings=model.rotary_emb(inputs, position[None]),
        )[0]
        real_rows.append(out[real])
        mask_rows.append(out[~real])
    return torch.cat(real_rows), torch.cat(mask_rows)
