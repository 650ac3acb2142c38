"""Whether speculation pays at all: one K against no speculation, under one load. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from peagle_sm.measure.tune.predict import Prediction

Verdict = Literal["faster", "slower", "not told apart"]


@dataclass(frozen=True)
class Against:
    """The rate at ``k`` over that without speculation, with its 95% interval; ``plain`` in tokens/s."""

    k: int
    plain: float
    ratio: float
    low: float
    high: float

    @property
    def verdict(self) -> Verdict:
        """Faster or slower only where the interval excludes 1."""
        return "faster" if self.low > 1 else "slower" if self.high < 1 else "not told apart"

    @property
    def words(self) -> str:
        """``K=2 is slower than no speculation: 0.912 [0.871, 0.956] of its 314 tokens/s``."""
        link = "from" if self.verdict == "not told apart" else "than"
        return (
            f"K={self.k} is {self.verdict} {link} no speculation: "
            f"{self.ratio:.3f} [{self.low:.3f}, {self.high:.3f}] of its {self.plain:.0f} tokens/s"
        )


def against_none(prediction: Prediction, k: int) -> Against | None:
    """Compare ``k`` (above 0) with the baseline; None where no baseline was measured at this load."""
    if 0 not in prediction.ks:
        return None
    plain = float(prediction.mean[prediction.ks.index(0)])
    return Against(k, plain, *prediction.ratio(k, 0))
