"""Attention that finds the anchor: planted, since learning *where* to look takes thousands of steps.

A mask slot's input is the same constant at every depth, so all that it knows comes by attention from its
anchor, the last real slot before it. The planted keys are 1 on real slots and 0 on mask slots; the planted
queries are the other way round. Rotary embedding turns their product into a sum of cosines of the distance,
which is greatest for the nearest real slot: the anchor.
"""

from __future__ import annotations

import torch

KEY_SCALE, QUERY_SCALE = 4.0, 6.0
KEY_BAND = (0, 24)  #: rotary pairs that the keys use, fastest first
QUERY_BANDS = ((0, 12), (4, 20))  #: a sharp head for near anchors and a wide one for far ones


def plant_anchor(
    attention: torch.nn.Module, width: int, group: int, real: torch.Tensor, mask: torch.Tensor
) -> None:
    """Make key/value head ``group`` and its two query heads look at the nearest real slot.

    Args:
        attention: a Llama attention with two query heads to a key/value head.
        width: of a head.
        group: which key/value head.
        real: a direction that reads 1 on real slots and 0 on mask slots.
        mask: the reverse.
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
