"""Does the tuner's K stand against a sweep over every K? Pure.

The sweep measures every K in every round, so the rates of two K are compared round by round, and what the
machine does meanwhile falls out. An interval wider than +-5% decides nothing, which counts as failure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from peagle_sm.measure.compare.student import quantile
from peagle_sm.measure.records import CheckRecord, Interval
from peagle_sm.measure.tune.decide import CHOICE_LOSS
from peagle_sm.measure.tune.reading import Reading

WIDEST = 0.05


@dataclass(frozen=True)
class Agreement:
    """The rate of a mode at the tuner's K over that at the sweep's best K, at one concurrency."""

    mode: str
    concurrency: int
    tuned: int
    swept: int
    ratio: Interval
    rounds: int

    @property
    def decided(self) -> bool:
        """Whether the interval is narrow enough to say anything."""
        return (self.ratio.high - self.ratio.low) / 2 <= WIDEST

    @property
    def agrees(self) -> bool:
        """Whether the tuner's K is as good as the sweep's: the interval is narrow and does not exclude it.

        The tuner may give away `CHOICE_LOSS` for a smaller K, so that much is allowed.
        """
        return self.decided and self.ratio.high >= 1 - CHOICE_LOSS


def compare(sweep: Sequence[Reading], mode: str, tuned: int, concurrency: int) -> Agreement:
    """Compare by the rounds of the sweep of one mode; each must hold both K.

    Raises:
        ValueError: fewer than two rounds, or a round without the tuned K.
    """
    rows = [reading for reading in sweep if reading.concurrency == concurrency and reading.k]
    rounds = sorted({reading.block for reading in rows})
    if len(rounds) < 2:
        raise ValueError("compare: needs at least two rounds")
    logs = {(reading.k, reading.block): float(np.log(reading.rate)) for reading in rows}
    ks = sorted({reading.k for reading in rows})
    swept = max(ks, key=lambda k: np.mean([logs[k, block] for block in rounds]))
    differences = [logs[tuned, block] - logs[swept, block] for block in rounds]
    middle = float(np.mean(differences))
    spread = float(np.std(differences, ddof=1) / np.sqrt(len(rounds)))
    half = quantile(len(rounds) - 1) * spread
    ratio = Interval(float(np.exp(middle)), float(np.exp(middle - half)), float(np.exp(middle + half)))
    return Agreement(mode, concurrency, tuned, swept, ratio, len(rounds))


def check_record(agreement: Agreement, arm: str) -> CheckRecord:
    """The line of a results file."""
    ratio = agreement.ratio
    verdict = (
        "agrees" if agreement.agrees else "disagrees" if agreement.decided else "is not decided (too wide)"
    )
    return CheckRecord(
        name=f"tune-sweep c={agreement.concurrency}",
        arm=arm,
        baseline=f"K={agreement.swept} of the sweep",
        passed=agreement.agrees,
        summary=(
            f"c={agreement.concurrency}: K={agreement.tuned} {verdict} with the sweep's K={agreement.swept}: "
            f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}] of its rate, {agreement.rounds} rounds"
        ),
        power=f"an interval wider than +-{WIDEST:.0%} counts as failure",
        figures={"ratio": ratio.value, "low": ratio.low, "high": ratio.high, "rounds": agreement.rounds},
    )
