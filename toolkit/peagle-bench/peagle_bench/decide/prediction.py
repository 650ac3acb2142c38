"""What hosting serves at a stated acceptance length, predicted from step times. Pure.

No head was measured at that acceptance length, so the rate has an interval: the assumed error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from peagle_bench.decide.costs import Hosting
from peagle_bench.report.fleet import usd_per_million_tokens
from peagle_bench.report.formatting import number, share, usd
from peagle_bench.results.records import Interval
from peagle_bench.step_times import REAL_ERROR, StepTimes


@dataclass(frozen=True)
class Prediction:
    """Output tokens/s of one instance by concurrency, at an acceptance length and a K.

    ``acceptance_length`` None: without speculation, which was measured.
    """

    times: StepTimes
    k: int
    acceptance_length: float | None

    @property
    def rates(self) -> dict[int, float]:
        """Rates by concurrency."""
        count = max(1, self.times.arm.instance_count)
        length = self.acceptance_length
        every = self.times.plain if length is None else self.times.rates(length, self.k)
        return {concurrency: rate / count for concurrency, rate in every.items()}

    @property
    def best(self) -> int:
        """Concurrency with the highest rate."""
        return max(self.rates, key=lambda concurrency: self.rates[concurrency])

    @property
    def serves(self) -> Interval:
        """Highest rate, as what one instance serves at full load."""
        rate = self.rates[self.best]
        return Interval(rate, rate * (1 - REAL_ERROR), rate * (1 + REAL_ERROR))

    @property
    def label(self) -> str:
        """Its name in a table: ``P-EAGLE, AL 3.00``."""
        length = self.acceptance_length
        return "no speculation" if length is None else f"{self.times.title}, AL {length:.2f}"

    def hosting(self, hosting: Hosting) -> Hosting:
        """Return the hosting with what one instance serves."""
        plain = self.acceptance_length is None
        how = f"predicted at c={self.best}, K={self.k}, from {self.times.source}"
        return replace(
            hosting,
            mode="none" if plain else self.times.mode,
            label=self.label,
            serves=self.serves,
            serves_source=f"at c={self.best}, from {self.times.source}" if plain else how,
        )

    def usd_per_million(self, usd_per_hour: float | None) -> float | None:
        """Return USD per million output tokens at full load; None without a price."""
        return usd_per_million_tokens(usd_per_hour, self.serves.value) if usd_per_hour else None

    def words(self, usd_per_hour: float | None) -> str:
        """Write the rates by load, and USD per million output tokens at full load."""
        loads = ", ".join(f"{number(rate)} at c={c}" for c, rate in self.rates.items())
        million = self.usd_per_million(usd_per_hour)
        cost = "" if million is None else f"; {usd(million)} USD per million output tokens at full load"
        return f"{self.label}: {loads} tokens/s{cost}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "synthetic": True,
            "acceptance_length": self.acceptance_length,
            "k": self.k,
            "mode": self.times.mode,
            "otps_by_concurrency": {str(c): rate for c, rate in self.rates.items()},
            "step_times": self.times.source,
        }


def predict(
    times: StepTimes, lengths: Sequence[float], given_k: int | None, planned_k: int | None
) -> list[Prediction]:
    """Predict the rates at each acceptance length.

    Raises:
        SpecError: K was not measured, or no head has such an acceptance length at this K.
    """
    k = times.choose_k(given_k, planned_k)
    for length in lengths:
        times.demand_length(length, k)
    return [Prediction(times, k, length) for length in lengths]


def with_predictions(
    hostings: Sequence[Hosting], predictions: Sequence[Prediction]
) -> tuple[list[Hosting], list[str]]:
    """Return the hostings with a row for each prediction, and what was left out.

    The step times are of one instance type. Another one keeps its row, without what it serves.
    """
    kind = predictions[0].times.arm.instance_type
    result: list[Hosting] = []
    for hosting in hostings:
        if hosting.instance_type == kind:
            result += [prediction.hosting(hosting) for prediction in predictions]
        else:
            result.append(hosting)
    notes = [
        f"the step times are of {kind or 'an unknown instance type'}: {hosting.instance_type} has none"
        for hosting in hostings
        if hosting.instance_type != kind
    ]
    return result, notes


def caution(times: StepTimes) -> str:
    """Say what the predicted rates are."""
    return (
        f"predicted, not measured: {times.source} has step times with synthetic acceptance, and no head was "
        f"measured at the stated acceptance length (assumed error: {share(REAL_ERROR)}); the answers "
        f"had {times.header.config.get('max_tokens')} tokens each"
    )
