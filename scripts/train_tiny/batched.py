"""P-EAGLE's training pass with attention inside each document, for CPUs.

`speculators` packs documents into one row and masks what lies between them. With a block-sparse kernel that
is cheap; on a CPU the mask is dense, so three documents in a row cost three times the attention that they
need. This pass does the same sums with the documents as a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from speculators.models.peagle.core import PEagleDraftModel
from speculators.models.peagle.data import generate_cod_sample_indices
from speculators.models.peagle.metrics import compute_metrics


@dataclass(frozen=True)
class Slots:
    """The sampled slots of each document, [documents, slots]; ``live`` is False where a row is padded."""

    anchor: torch.Tensor
    depth: torch.Tensor
    live: torch.Tensor
    origin: torch.Tensor  #: of each slot's position in the packed row

    def may_attend(self) -> torch.Tensor:
        """Which slot sees which, [documents, 1, slots, slots]: real ones before, and the own chain."""
        anchor, depth = self.anchor, self.depth
        before = (depth == 0)[:, None] & (anchor[:, :, None] >= anchor[:, None])
        chain = (anchor[:, :, None] == anchor[:, None]) & (depth[:, :, None] >= depth[:, None])
        return ((before | chain) & self.live[:, None])[:, None]


def sample(document_ids: torch.Tensor, loss_mask: torch.Tensor, **sampling: Any) -> Slots:
    """Draw slots for each document of a packed row [slots], as `speculators` does for the whole row."""
    anchors, depths, starts = [], [], []
    for document in range(int(document_ids.max()) + 1):
        where = torch.where(document_ids == document)[0]
        anchor, depth = generate_cod_sample_indices(
            seq_length=len(where), loss_mask=loss_mask[:, where], **sampling
        )
        anchors.append(anchor)
        depths.append(depth)
        starts.append(int(where[0]))
    longest = max(map(len, anchors))

    def padded(row: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(row, (0, longest - len(row)))

    anchor = torch.stack([padded(row) for row in anchors])
    depth = torch.stack([padded(row) for row in depths])
    live = torch.stack([padded(torch.ones_like(row)) for row in anchors]).bool()
    return Slots(anchor, depth, live, anchor + depth + torch.tensor(starts)[:, None])


def forward(
    self: PEagleDraftModel,
    hidden_states: torch.Tensor,
    input_ids: torch.Tensor,
    document_ids: torch.Tensor,
    position_ids: torch.Tensor | None = None,
    loss_mask: torch.Tensor | None = None,
    verifier_last_hidden_states: torch.Tensor | None = None,
    loss_config: Any = None,
    max_anchors: int | None = None,
    num_depths: int = 8,
    down_sample_ratio: float = 0.7,
    down_sample_ratio_min: float = 0.2,
    **others: Any,
) -> tuple[None, torch.Tensor, dict[str, Any]]:
    """Take and give what ``PEagleDraftModel.forward`` does, for heads without norms before ``fc``.

    Raises:
        ValueError: the head has such norms, or there is no loss mask or no final state to learn from.
    """
    if self.input_norm is not None or self.fc_norm is not None:
        raise ValueError("found a norm before fc; allowed: none")
    if loss_mask is None or verifier_last_hidden_states is None:
        raise ValueError("training needs a loss mask and the target's final states")
    slots = sample(
        document_ids[0],
        loss_mask,
        num_depths=num_depths,
        down_sample_ratio=down_sample_ratio,
        down_sample_ratio_min=down_sample_ratio_min,
        max_anchors=max_anchors,
    )
    real = slots.depth == 0
    ids = torch.where(real, input_ids[0][slots.origin], self.mask_token_id)
    masked = self.mask_hidden.to(hidden_states.dtype).view(1, 1, -1)
    state = self.fc(torch.where(real[..., None], hidden_states[0][slots.origin], masked))
    stream = torch.cat([self.embed_tokens(ids).to(hidden_states.dtype), state], -1)
    position = slots.anchor + slots.depth
    rotary, mask = self.rotary_emb(stream, position), slots.may_attend()
    for layer in self.layers:
        stream = layer(
            stream, attention_mask=mask, position_ids=position, position_embeddings=rotary, **others
        )
    # Only what the loss counts goes through the output matrix.
    kept = slots.live & (loss_mask[0][slots.origin] > 0)
    with torch.no_grad():
        targets = self.verifier_lm_head(self.verifier_norm(verifier_last_hidden_states))[0]
    origin, depth = slots.origin[kept], slots.depth[kept]
    loss, metrics = compute_metrics(
        logits=self.lm_head(self.norm(stream[kept][None])),
        targets=targets[origin][None],
        loss_mask=loss_mask,
        anchor_pos=origin - depth,
        depth=depth,
        num_depths=num_depths,
        loss_config=loss_config,
    )
    return None, loss, metrics
