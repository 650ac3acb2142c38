"""What the guard itself costs in a month, as a sum that can be checked. us-east-1; free tiers not counted."""

from __future__ import annotations

from dataclasses import dataclass

from peagle_sm.core.guard.names import SWEEP_MINUTES

HOURS_PER_MONTH = 730
SWEEPS_PER_MONTH = HOURS_PER_MONTH * 60 // SWEEP_MINUTES
ALARM_METRICS = 7
"""Metrics in the three alarms: each is billed, also inside a metric expression."""
QUERIES_PER_VARIANT = 3
"""Metrics that a sweep asks CloudWatch about one production variant or inference component."""
_SWEEP_S = 2.0
_SWEEP_GB = 0.25
_LOG_GB_PER_SWEEP = 2e-6
_WRITES_PER_SWEEP = 3

SOURCE = (
    "list prices of us-east-1 as public pages give them (aws.amazon.com/cloudwatch/pricing and "
    "/lambda/pricing, and pages that quote them), read in November 2026; other regions differ by some percent"
)


@dataclass(frozen=True)
class Line:
    """One item of the bill: ``quantity`` a month times ``usd_each``."""

    what: str
    quantity: float
    usd_each: float

    @property
    def usd(self) -> float:
        """USD a month."""
        return self.quantity * self.usd_each


@dataclass(frozen=True)
class GuardPrice:
    """The bill of an idle guard, and what each watched variant adds; USD a month."""

    lines: tuple[Line, ...]
    per_variant: Line
    source: str = SOURCE

    @property
    def usd_per_month(self) -> float:
        """The sum without endpoints."""
        return sum(line.usd for line in self.lines)


def guard_price() -> GuardPrice:
    """Return the bill. How long a sweep takes and how much it writes are estimates, set high."""
    return GuardPrice(
        lines=(
            Line("metrics watched by alarms", ALARM_METRICS, 0.10),
            Line("GB-seconds of Lambda on Arm", SWEEPS_PER_MONTH * _SWEEP_S * _SWEEP_GB, 0.0000133334),
            Line("requests to Lambda", SWEEPS_PER_MONTH, 0.20e-6),
            Line("writes to the register", SWEEPS_PER_MONTH * _WRITES_PER_SWEEP, 1.25e-6),
            Line("GB of logs", SWEEPS_PER_MONTH * _LOG_GB_PER_SWEEP, 0.50),
        ),
        per_variant=Line(
            "metrics read for each variant watched", SWEEPS_PER_MONTH * QUERIES_PER_VARIANT, 0.01 / 1000
        ),
    )
