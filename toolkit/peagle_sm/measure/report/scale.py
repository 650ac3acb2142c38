"""From values to places on a chart, and the ticks between. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """Maps ``low``..``high`` onto ``start``..``end`` (pixels), evenly or by logarithm."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The place of ``value``."""
        low, high, at = (math.log(x) if self.log else x for x in (self.low, self.high, value))
        share = (at - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)

    def inside(self, value: float) -> bool:
        """Whether ``value`` lies in the domain (a hair beyond it counts)."""
        slack = (self.high - self.low) * 1e-9
        return self.low - slack <= value <= self.high + slack


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About ``count`` round values that enclose ``low`` and ``high``: 1, 2, 2.5 or 5 by a power of ten."""
    if high <= low:
        high = low + (abs(low) or 1.0)
    rough = (high - low) / max(1, count - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def decade_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times the powers of ten that enclose ``low`` and ``high``, for a logarithmic axis."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    steps = [m * 10.0**power for power in range(first, last + 1) for m in (1, 2, 5)]
    start = max((step for step in steps if step <= low * 1.0001), default=low)
    end = min((step for step in steps if step >= high * 0.9999), default=high)
    return [round(step, 12) for step in steps if start <= step <= end]


def ratio_ticks(low: float, high: float) -> list[float]:
    """Round ratios between ``low`` and ``high`` for a logarithmic axis, 1 always among them."""
    steps = (0.5, 0.25, 0.2, 0.1, 0.05, 0.02, 0.01)
    span = high - low
    step = next((s for s in steps if span / s >= 4), 0.005)
    if span > 4:
        step = nice_ticks(low, high)[1] - nice_ticks(low, high)[0]
    ticks = [round(i * step, 4) for i in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return sorted({*(t for t in ticks if t > 0), 1.0} if low <= 1 <= high else ticks)


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move places as little as needed so that they are ``gap`` apart and within ``low``..``high``.

    The order is kept. Where there is no room for all, they overlap evenly.
    """
    if not wanted:
        return []
    gap = min(gap, (high - low) / max(1, len(wanted) - 1))
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    placed: list[float] = []
    for at, i in enumerate(order):
        floor = low if at == 0 else placed[-1] + gap
        placed.append(max(floor, min(wanted[i], high)))
    ceiling = high
    for at in range(len(placed) - 1, -1, -1):
        placed[at] = min(placed[at], ceiling)
        ceiling = placed[at] - gap
    result = [0.0] * len(wanted)
    for place, i in zip(placed, order, strict=True):
        result[i] = place
    return result


def bounds(values: Iterable[float | None]) -> tuple[float, float]:
    """The least and the greatest; (0, 1) where there is none."""
    found = [value for value in values if value is not None]
    return (min(found), max(found)) if found else (0.0, 1.0)
