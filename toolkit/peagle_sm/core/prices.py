"""Which price of an instance counts: AWS's price list, the catalogue, or the spec's own figure. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from peagle_sm.core.catalog import Catalog, PriceEntry


@dataclass(frozen=True)
class ListedPrice:
    """Answer of AWS's price list about one instance type; ``entry`` None: no price, ``why`` says why.

    ``fresh`` is False for an answer of more than a day ago, which counts only if AWS did not answer.
    """

    entry: PriceEntry | None = None
    why: str = ""
    fresh: bool = True


NOT_ASKED = ListedPrice(why="AWS was not asked", fresh=False)


def choose_price(
    instance: str,
    region: str,
    catalog: Catalog,
    listed: ListedPrice = NOT_ASKED,
    given: float | None = None,
    field: str = "lifecycle.usd_per_hour",
) -> PriceEntry | None:
    """Return the price that counts for one instance; None if none is known.

    The order: AWS's price list, the catalogue's dated hosting price, ``given`` (the spec's ``field``), and
    last EC2's price, which is only an upper bound. An old answer of the price list counts if the catalogue's
    price is older.
    """
    table = catalog.price(instance, region)
    if listed.entry is not None and listed.fresh:
        return listed.entry
    hosting = [entry for entry in (listed.entry, table) if entry is not None and entry.kind == "sagemaker"]
    if hosting:
        return max(hosting, key=lambda entry: entry.date)
    if given is not None:
        source = f"{field} of the spec"
        return PriceEntry(instance=instance, region=region, usd_per_hour=given, kind="spec", source=source)
    return table
