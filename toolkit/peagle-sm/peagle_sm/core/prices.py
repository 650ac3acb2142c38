"""The price of an instance: where it comes from, and which price counts. Pure.

``core/data/prices.yaml`` has the catalogue's prices; `peagle_sm.aws.control.prices` asks AWS's price list.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from peagle_sm.core.engines import PackagedData

EC2_UPPER_BOUND = 1.25
EC2_UPPER_BOUND_XLARGE = 1.4
"""Factors on EC2's price until SageMaker's is known: a type ml.*.xlarge, and any other.

From the catalogue's own prices of hosting beside EC2's: ml.p5.48xlarge and ml.p4d.24xlarge were 1.15 times as
dear as EC2's, ml.g5, ml.g6, ml.g6e and ml.g7e 1.25 times, and their .xlarge 1.40 times.
"""


class PriceEntry(PackagedData):
    """On-demand USD per hour of one instance, with its source.

    Kind "ec2" is EC2's price; SageMaker's is not known. Kind "spec" is the user's own figure.
    """

    instance: str
    region: str
    usd_per_hour: float
    kind: Literal["sagemaker", "ec2", "spec"]
    source: str
    date: str = ""

    @property
    def at_most(self) -> bool:
        """True if the price that counts is an upper bound."""
        return self.kind == "ec2"

    @property
    def counted_usd_per_hour(self) -> float:
        """Price that budgets, tags, alarms and the guard use: of EC2's price the upper bound."""
        return self.usd_per_hour * self._factor if self.at_most else self.usd_per_hour

    @property
    def _factor(self) -> float:
        return EC2_UPPER_BOUND_XLARGE if self.instance.endswith(".xlarge") else EC2_UPPER_BOUND

    def __str__(self) -> str:
        kinds = {
            "sagemaker": "SageMaker on demand, ",
            "ec2": f"EC2 on demand {self.usd_per_hour:.7g} USD x {self._factor:g} as an upper bound, "
            "NOT SageMaker's price, ",
            "spec": "",
        }
        dated = f", {self.date}" if self.date else ""
        return f"{self.instance} in {self.region}: {kinds[self.kind]}{self.source}{dated}"


@dataclass(frozen=True)
class ListedPrice:
    """Answer of AWS's price list about one instance type; without a price, ``why`` has the reason.

    ``fresh`` is False for an answer that is older than a day. It counts only if AWS gives no newer one.
    """

    entry: PriceEntry | None = None
    why: str = ""
    fresh: bool = True


NOT_ASKED = ListedPrice(why="AWS was not asked", fresh=False)


def choose_price(
    instance: str,
    region: str,
    table: PriceEntry | None,
    listed: ListedPrice = NOT_ASKED,
    given: float | None = None,
    field: str = "lifecycle.usd_per_hour",
) -> PriceEntry | None:
    """Return the price that counts for one instance; None if none is known. ``table`` is the catalogue's.

    The order: AWS's price list, the catalogue's dated hosting price, ``given`` (the spec's ``field``), and
    last EC2's price, which is only an upper bound. An old answer of the price list counts if the catalogue's
    price is older.
    """
    if listed.entry is not None and listed.fresh:
        return listed.entry
    hosting = [entry for entry in (listed.entry, table) if entry is not None and entry.kind == "sagemaker"]
    if hosting:
        return max(hosting, key=lambda entry: entry.date)
    if given is not None:
        source = f"{field} of the spec"
        return PriceEntry(instance=instance, region=region, usd_per_hour=given, kind="spec", source=source)
    return table
