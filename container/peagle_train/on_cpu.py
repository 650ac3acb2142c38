"""The attention of NeMo AutoModel 0.7.0's P-EAGLE trainer on a machine without a GPU.

torch 2.13 has no backward pass of flex_attention on a CPU. The same attention is computed here from what
P-EAGLE's mask is made of: a real position sees the real ones before it; a masked one sees the real ones up to
its anchor, and its own chain, and nothing else. That never holds a mask of all positions squared.
``dense`` does, as flex_attention would; a test holds one against the other.
"""

from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from nemo_automodel.components.speculative.eagle import peagle_draft
from torch.utils.checkpoint import checkpoint

ROWS = 512
"""Masked queries at a time; they are computed again in the backward pass."""
_LIBRARYS_MASK = peagle_draft._PeagleDraftMixin.build_peagle_block_mask


def compute_dtype(stored: str | None) -> Any:
    """Return the dtype to compute in: bfloat16 if the target is stored so and this CPU multiplies in it.

    With the instructions it is twice as fast as float32, without them slower. ``stored`` is what the
    target's config says.
    """
    # torch has no public name for these two questions.
    fast = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return torch.bfloat16 if fast and stored == "bfloat16" else torch.float32


def dense(q: Any, k: Any, v: Any, *, block_mask: Any, scale: float) -> Any:
    """Attention with the whole mask."""
    rows, columns = torch.arange(q.shape[-2])[:, None], torch.arange(k.shape[-2])[None, :]
    zero = torch.zeros((), dtype=torch.long)
    allowed = block_mask.mask_mod(zero, zero, rows, columns)
    # Padding sees nothing, and a softmax over nothing is NaN; its loss is masked, so it may see itself.
    return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed | (rows == columns), scale=scale)


def structured(q: Any, k: Any, v: Any, *, block_mask: Any, scale: float) -> Any:
    """Attention from anchors and depths, a block of masked queries at a time."""
    anchor, depth = block_mask.anchor, block_mask.depth
    real = torch.where(depth == 0)[0]
    if not torch.equal(anchor[real], torch.arange(len(real))):
        raise ValueError("the real positions are not all those up to the last one, in order")
    k0, v0 = k[:, :, real], v[:, :, real]
    # Padding comes last, so what it sees is seen by no other.
    out = [F.scaled_dot_product_attention(q[:, :, real], k0, v0, is_causal=True, scale=scale)]
    masked = torch.where(depth > 0)[0]
    masked = masked[torch.argsort(anchor[masked], stable=True)]  # so that chains lie together
    qm, km, vm, am, dm = q[:, :, masked], k[:, :, masked], v[:, :, masked], anchor[masked], depth[masked]
    for first in range(0, len(masked), ROWS):
        rows = slice(first, first + ROWS)
        out.append(checkpoint(_block, rows, qm, km, vm, k0, v0, am, dm, scale, use_reentrant=False))
    return torch.cat(out, -2)[:, :, torch.argsort(torch.cat([real, masked]))]


def _block(
    rows: slice, q: Any, k: Any, v: Any, k0: Any, v0: Any, anchor: Any, depth: Any, scale: float
) -> Any:
    """Attention of some masked positions: to the real ones up to their anchors, and to their own chains."""
    a, d = anchor[rows, None], depth[rows, None]
    upto = int(a[-1]) + 1
    own = slice(int(torch.searchsorted(anchor, a[0])), int(torch.searchsorted(anchor, a[-1], right=True)))
    keys, values = (torch.cat([x0[:, :, :upto], x[:, :, own]], -2) for x0, x in ((k0, k), (v0, v)))
    # The mask is made here, where it is made again in the backward pass, and not kept in between.
    allowed = torch.cat([torch.arange(upto) <= a, (anchor[own] == a) & (depth[own] <= d)], 1)
    return F.scaled_dot_product_attention(q[:, :, rows], keys, values, attn_mask=allowed, scale=scale)


def _parts(self: Any, anchor_pos: Any, depth: Any, lengths: Any, total_seq_len: int) -> Any:
    return SimpleNamespace(anchor=anchor_pos, depth=depth)


def install(attention: str = "structured") -> None:
    """Put ``structured`` or ``dense`` in the place of flex_attention; nothing where there is a GPU."""
    if torch.cuda.is_available():
        return
    peagle_draft._peagle_flex_attention = dense if attention == "dense" else structured
    peagle_draft._PeagleDraftMixin.build_peagle_block_mask = (
        _LIBRARYS_MASK if attention == "dense" else _parts
    )
