"""What a chat costs. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from peagle_sm.cli.words import usd


@dataclass(frozen=True)
class Spend:
    """The endpoint's price, USD per hour: 0 locally, None when it is not known.

    An endpoint is paid by the hour, asked or not: a chat's spend is the price of its time.
    """

    usd_per_hour: float | None

    def usd(self, seconds: float) -> float | None:
        """What so much time costs; None when the price is not known."""
        return None if self.usd_per_hour is None else self.usd_per_hour * seconds / 3600

    def text(self, seconds: float) -> str:
        """`no cost`, `price unknown`, or `0.07 USD so far`."""
        if self.usd_per_hour == 0:
            return "no cost"
        spent = self.usd(seconds)
        return "price unknown" if spent is None else f"{usd(spent)} so far"
