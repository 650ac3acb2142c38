"""The one way in which a value at a share of a list is read off. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which ``share`` of ``ordered`` lies, by linear interpolation (numpy's default).

    Args:
        ordered: from small to large, at least one.
        share: 0 to 1.
    """
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
