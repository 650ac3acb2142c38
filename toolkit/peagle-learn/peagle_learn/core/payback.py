"""What a head with a stated acceptance length saves, and when it has paid for its training. Pure.

An instance costs the same whatever it serves, so a faster head saves money only where fewer instances carry
the same traffic.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from peagle_bench.decide.costs import Hosting, Traffic, exactly
from peagle_bench.decide.prediction import Prediction
from peagle_bench.report.formatting import number, plural
from peagle_bench.step_times import REAL_ERROR
from peagle_sm.core.words import usd

WEEKS_PER_MONTH = 730 / 168

Verdict = Literal["pays", "never", "unknown"]


@dataclass(frozen=True)
class Payback:
    """A head of today (or no speculation), one that a training would give, and the traffic.

    ``usd_per_hour`` is the price of one instance, ``training_usd`` that of the training; None if unknown.
    ``training`` says where the price of the training is from.
    """

    now: Prediction
    then: Prediction
    traffic: Traffic
    usd_per_hour: float | None
    training_usd: float | None
    training: str

    def instances(self, prediction: Prediction, share: float = 1.0) -> int:
        """Return the instances for the traffic, at a ``share`` of the predicted rate."""
        known = self._hosting(prediction, share).instances(self.traffic)
        assert known is not None  # the hosting has a rate
        return known[0]

    def saved_usd(self, share: float = 1.0) -> float | None:
        """Return USD saved a month; None if the price is unknown. ``share`` is of the new head's rate."""
        if self.usd_per_hour is None:
            return None
        hostings = self._hosting(self.now), self._hosting(self.then, share)
        before, after = (each.usd_at(self.traffic).value for each in hostings)
        return before - after

    def weeks(self, share: float = 1.0) -> float | None:
        """Return the weeks until the training has paid for itself; None: never, or not known."""
        saved = self.saved_usd(share)
        if saved is None or saved <= 0 or self.training_usd is None:
            return None
        return self.training_usd / saved * WEEKS_PER_MONTH

    @property
    def verdict(self) -> Verdict:
        """Whether it pays; unknown if a price that decides is unknown."""
        if self.instances(self.now) <= self.instances(self.then):
            return "never"
        return "unknown" if self.weeks() is None else "pays"

    @property
    def sentence(self) -> str:
        """The verdict with its reason."""
        before, after = self.instances(self.now), self.instances(self.then)
        serves = [number(each.serves.value) for each in (self.now, self.then)]
        if self.verdict == "never":
            if self.then.serves.value <= self.now.serves.value:
                return f"Never: it is not faster ({serves[1]} tokens/s for each instance, now {serves[0]})."
            return (
                f"Never: your rate needs {plural(before, 'instance')} either way (an instance serves"
                f" {serves[0]} tokens/s now, {serves[1]} then)."
            )
        if self.verdict == "unknown":
            return f"Unknown: {' and '.join(self._unknown)} not known."
        saved = usd(self.saved_usd(), "month")
        return (
            f"Pays: {plural(after, 'instance')} in place of {before} save {saved}; the training has paid for"
            f" itself after {number(self.weeks())} weeks."
        )

    @property
    def if_slower(self) -> str:
        """What changes if the rate of the new head is below the prediction by its assumed error."""
        weeks = self.weeks(1 - REAL_ERROR)
        after = self.instances(self.then, 1 - REAL_ERROR)
        result = "never" if after >= self.instances(self.now) else "unknown"
        return result if weeks is None else f"after {number(weeks)} weeks"

    @property
    def _unknown(self) -> list[str]:
        prices = (
            (self.usd_per_hour, "the price of the serving instance is"),
            (self.training_usd, "the price of the training is"),
        )
        return [what for value, what in prices if value is None]

    def _hosting(self, prediction: Prediction, share: float = 1.0) -> Hosting:
        kind = prediction.times.arm.instance_type or "unknown"
        plain = Hosting(kind, prediction.times.mode, exactly(self.usd_per_hour or 0.0), "")
        return replace(plain, serves=exactly(prediction.serves.value * share))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types; None means unknown, and of ``weeks`` also never."""
        return {
            "verdict": self.verdict,
            "sentence": self.sentence,
            "predicted": True,
            "now": {**self.now.to_dict(), "instances": self.instances(self.now)},
            "then": {**self.then.to_dict(), "instances": self.instances(self.then)},
            "traffic": asdict(self.traffic),
            "usd_per_hour": self.usd_per_hour,
            "saved_usd_per_month": self.saved_usd(),
            "training_usd": self.training_usd,
            "training": self.training,
            "weeks": self.weeks(),
            "weeks_if_slower": self.weeks(1 - REAL_ERROR),
        }
