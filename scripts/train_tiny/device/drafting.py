"""The two training passes: EAGLE-3 unrolled on its own states, and P-EAGLE with all its depths at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import pad, scaled_dot_product_attention

from scripts.train_tiny.device.head import Head


@dataclass(frozen=True)
class Batch:
    """Rollouts of one length: slot j holds token j + 1 and the target's states at j.

    ``states`` [B, slots, 3H]; ``tokens`` [B, slots]; ``targets`` [B, slots, V], the target's logits of the
    token after each slot's; ``live`` [B, slots], where that token counts; ``first``, the first slot with any.
    """

    states: torch.Tensor
    tokens: torch.Tensor
    targets: torch.Tensor
    live: torch.Tensor
    first: int


@dataclass(frozen=True)
class Drafted:
    """Draft logits [rows, V] and what they are to be, [rows, V].

    ``depth`` of each row (0 is the next token), and the ``anchor`` of its chain: document * slots + slot.
    """

    logits: torch.Tensor
    targets: torch.Tensor
    depth: torch.Tensor
    anchor: torch.Tensor


def eagle3(head: Head, batch: Batch, steps: int) -> Drafted:
    """EAGLE-3 fed its own states and the true tokens, ``steps`` times, as `speculators` trains it."""
    layer, stream = head.layers[0], head.fc(batch.states)
    slots = batch.tokens.shape[1]
    place = torch.arange(slots, device=stream.device)[None]
    future = torch.ones(slots, slots, dtype=torch.bool, device=stream.device).triu(1)
    keys: list[torch.Tensor] = []
    values: list[torch.Tensor] = []
    chains = torch.arange(batch.tokens.numel(), device=stream.device).view_as(batch.tokens)
    logits, targets, depths, anchors = [], [], [], []
    for step in range(steps):
        with torch.no_grad():
            embedded = head.embed_tokens(pad(batch.tokens[:, step:], (0, step)))
        q, k, v = layer.project(embedded, stream, head.turn(place + step))
        keys.append(k)
        values.append(v)
        scores = (q @ keys[0].transpose(2, 3)).masked_fill(future, float("-inf"))
        # Of its own drafts a slot sees only those of its own chain.
        own = [(q * key).sum(-1, keepdim=True) for key in keys[1:]]
        weights = (torch.cat([scores, *own], -1) * head.shape.width**-0.5).softmax(-1).to(v.dtype)
        attended = weights[..., :slots] @ values[0]
        for chain, value in enumerate(values[1:]):
            attended = attended + weights[..., slots + chain, None] * value
        stream = layer.finish(stream, attended)
        kept = batch.live[:, step:]
        logits.append(head.lm_head(head.norm(stream[:, : slots - step][kept])))
        targets.append(batch.targets[:, step:][kept])
        depths.append(torch.full((len(logits[-1]),), step, device=stream.device))
        anchors.append(chains[:, : slots - step][kept])
    return Drafted(torch.cat(logits), torch.cat(targets), torch.cat(depths), torch.cat(anchors))


@dataclass(frozen=True)
class Sampling:
    """How many slots each further depth gets: ``ratio ** depth`` of the anchors, at least ``floor``."""

    depths: int
    ratio: float
    floor: float


def slots_of(batch: Batch, sampling: Sampling) -> tuple[torch.Tensor, torch.Tensor]:
    """Anchor and depth of every slot, each [B, S]: the real ones, then chains drawn behind random anchors.

    The anchors of a depth are a subset of those of the depth before, so each chain is whole. S is a
    multiple of eight, filled up by slots of depth -1 that nobody sees.
    """
    rows, slots = batch.tokens.shape
    device = batch.tokens.device
    order = batch.first + torch.rand(rows, slots - batch.first, device=device).argsort(1)
    anchors = [torch.arange(slots, device=device).expand(rows, -1)]
    depths = [torch.zeros(slots, dtype=torch.long, device=device)]
    for depth in range(1, sampling.depths):
        count = int(order.shape[1] * max(sampling.ratio**depth, sampling.floor))
        anchors.append(order[:, :count])
        depths.append(torch.full((count,), depth, device=device))
    anchor, depth = torch.cat(anchors, 1), torch.cat(depths).expand(rows, -1)
    fill = -anchor.shape[1] % 8
    return pad(anchor, (0, fill)), pad(depth, (0, fill), value=-1)


def p_eagle(head: Head, batch: Batch, sampling: Sampling, mask_token_id: int) -> Drafted:
    """P-EAGLE: real slots as EAGLE-3's first pass, and mask slots behind random anchors, in one pass."""
    anchor, depth = slots_of(batch, sampling)
    last = batch.tokens.shape[1] - 1
    place = (anchor + depth).clamp(0, last)
    real = depth == 0
    before = real[:, None] & (anchor[:, :, None] >= anchor[:, None])
    chain = (anchor[:, :, None] == anchor[:, None]) & (depth[:, :, None] >= depth[:, None])
    # Slots that only fill up are seen by each other alone.
    seen = (before | (chain & ((depth >= 0)[:, None] | (depth < 0)[:, :, None])))[:, None]
    ids = torch.where(real, batch.tokens.gather(1, place), mask_token_id)
    states = batch.states.gather(1, place[..., None].expand(-1, -1, batch.states.shape[-1]))
    stream = head.fc(torch.where(real[..., None], states, head.mask_hidden.to(states.dtype)))
    embedded: torch.Tensor | None = head.embed_tokens(ids)
    turn = head.turn(anchor + depth)
    for layer in head.layers:
        q, k, v = layer.project(embedded, stream, turn)
        stream = layer.finish(stream, scaled_dot_product_attention(q, k, v, attn_mask=seen))
        embedded = None
    kept = (depth >= 0) & (anchor + depth <= last) & batch.live.gather(1, place)
    row = torch.arange(len(place), device=place.device)[:, None].expand_as(place)
    logits, targets = head.lm_head(head.norm(stream[kept])), batch.targets[row[kept], place[kept]]
    return Drafted(logits, targets, depth[kept], (row * (last + 1) + anchor)[kept])
