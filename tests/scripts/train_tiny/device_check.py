"""Run by the engine's Python, which has torch: what the accelerator's trainer computes, as JSON."""

from __future__ import annotations

import json

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

from scripts.train_tiny.device import data, train
from scripts.train_tiny.device.drafting import Batch, Sampling, eagle3, p_eagle, slots_of
from scripts.train_tiny.device.head import Head, Shape

MASK = 1
SLOTS, ROWS, FIRST, DEPTHS = 23, 3, 6, 4


def a_head(layers: int) -> Head:
    torch.manual_seed(layers)
    shape = Shape(32, 50, 48, layers, heads=4, key_value_heads=2, width=8, rope_theta=1e4, epsilon=1e-5)
    head = Head(shape, parallel=True)
    torch.nn.init.normal_(head.mask_hidden)
    return head


def a_batch() -> Batch:
    torch.manual_seed(7)
    live = torch.zeros(ROWS, SLOTS, dtype=torch.bool)
    live[:, FIRST : SLOTS - 1] = True
    return Batch(
        states=torch.randn(ROWS, SLOTS, 96),
        tokens=torch.randint(2, 50, (ROWS, SLOTS)),
        targets=torch.randn(ROWS, SLOTS, 50),
        live=live,
        first=FIRST,
    )


def one_chain(head: Head, batch: Batch, row: int, anchor: int, depths: int) -> torch.Tensor:
    """P-EAGLE as the engine runs it: context up to the anchor, then mask slots, causal attention."""
    context = anchor + 1
    masks = depths - 1
    ids = torch.cat([batch.tokens[row, :context], torch.full((masks,), MASK)])[None]
    states = torch.cat([batch.states[row, :context], head.mask_hidden[0].expand(masks, -1)])[None]
    stream, embedded = head.fc(states), head.embed_tokens(ids)
    turn = head.turn(torch.arange(context + masks)[None])
    for layer in head.layers:
        q, k, v = layer.project(embedded, stream, turn)
        stream = layer.finish(stream, scaled_dot_product_attention(q, k, v, is_causal=True))
        embedded = None
    logits: torch.Tensor = head.lm_head(head.norm(stream))[0, anchor:]
    return logits


def one_unrolled(head: Head, batch: Batch, row: int, anchor: int, steps: int) -> torch.Tensor:
    """EAGLE-3 as the engine runs it: the context, then its own states with the true tokens, one by one."""
    layer = head.layers[0]
    ids, stream = batch.tokens[row, : anchor + 1], head.fc(batch.states[row, : anchor + 1])
    logits, own = [], None
    for step in range(steps):
        if own is not None:
            ids = torch.cat([ids, batch.tokens[row, anchor + step][None]])
            stream = torch.cat([stream, own])
        q, k, v = layer.project(
            head.embed_tokens(ids)[None], stream[None], head.turn(torch.arange(len(ids))[None])
        )
        out = layer.finish(stream[None], scaled_dot_product_attention(q, k, v, is_causal=True))
        own = out[0, -1:]
        logits.append(head.lm_head(head.norm(own))[0])
    return torch.stack(logits)


def worst_difference(parallel: bool) -> float:
    """Between the training pass and the engine's way, over three chains of each depth."""
    head, batch = a_head(2 if parallel else 1), a_batch()
    every = Sampling(DEPTHS, 1.0, 1.0)
    made = p_eagle(head, batch, every, MASK) if parallel else eagle3(head, batch, DEPTHS)
    worst = 0.0
    for row, anchor in ((0, 8), (1, 12), (2, 17)):
        alone = (one_chain if parallel else one_unrolled)(head, batch, row, anchor, DEPTHS)
        mine = made.anchor == row * SLOTS + anchor
        for logits, depth in zip(made.logits[mine], made.depth[mine], strict=True):
            worst = max(worst, float((logits - alone[depth]).detach().abs().max()))
    return worst


def chains() -> dict[str, bool]:
    torch.manual_seed(0)
    anchor, depth = slots_of(a_batch(), Sampling(6, 0.6, 0.1))
    pairs = [set(zip(a.tolist(), d.tolist(), strict=True)) for a, d in zip(anchor, depth, strict=True)]
    whole = all((a, d - 1) in row for row in pairs for a, d in row if d > 0)
    return {"whole": whole, "eights": anchor.shape[1] % 8 == 0}


def losses(parallel: bool) -> list[float]:
    """The loss over sixty steps on one batch that can be learned by heart."""
    head, batch = a_head(2 if parallel else 1), a_batch()
    own, seen = train.optimizers(head, 2e-2), []
    for _ in range(60):
        torch.manual_seed(1)
        made = p_eagle(head, batch, Sampling(DEPTHS, 0.6, 0.1), MASK) if parallel else eagle3(head, batch, 2)
        loss = train.loss_of(made)
        loss.backward()
        for optimizer in own:
            optimizer.step()
            optimizer.zero_grad()
        seen.append(float(loss.detach()))
    return [seen[0], seen[-1]]


def epoch() -> dict[str, bool]:
    """One epoch of batches: every rollout once, each batch of one length and near the size."""
    groups = {n: torch.arange(c)[:, None] + 1000 * n for n, c in ((3, 5), (4, 17), (9, 1))}
    batches = data.order(groups, 4, seed=0)
    taken = [next(batches) for _ in range(1 + 4 + 1)]
    values = np.concatenate([rows[:, 0].numpy() for _, rows in taken])
    every = np.concatenate([rows[:, 0].numpy() for rows in groups.values()])
    return {
        "once": sorted(values.tolist()) == sorted(every.tolist()),
        "sizes": all(len(rows) <= 8 for _, rows in taken),
        "lengths": all(bool((rows // 1000 == length).all()) for length, rows in taken),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    rates = [train.share_of_rate(step, 100) for step in range(100)]
    print(
        json.dumps(
            {
                "p_eagle_difference": worst_difference(parallel=True),
                "eagle3_difference": worst_difference(parallel=False),
                "chains": chains(),
                "p_eagle_losses": losses(parallel=True),
                "eagle3_losses": losses(parallel=False),
                "epoch": epoch(),
                "rates": [rates[0], max(rates), rates[-1]],
            }
        )
    )
