"""File on this machine that keeps AWS's prices for a day.

A missing, damaged or read-only file is not an error: prices only decorate a result. Its content is
checked, since a wrong price would make a budget wrong.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from peagle_sm.aws.files import CannotWrite, price_file, write_file
from peagle_sm.core.prices import NOT_ASKED, ListedPrice, PriceEntry

_STRICT = ConfigDict(strict=True)
MAX_AGE = timedelta(days=1)
API = "AWS Price List API"

Use = Literal["Host", "Train"]
"""What an instance is billed for, as in the usage type of a price: hosting or training."""
USE_WORDS: Mapping[Use, str] = {"Host": "hosting", "Train": "training"}


@dataclass(frozen=True, config=_STRICT)
class Amount:
    """Price per hour of one use of an instance, and the date of AWS's list."""

    value: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    currency: str
    date: str


@dataclass(frozen=True, config=_STRICT)
class Kept:
    """Prices of one instance type in one region by use, and when AWS gave them."""

    asked: AwareDatetime
    prices: Mapping[str, Amount]

    def is_fresh(self, now: datetime) -> bool:
        """Return whether AWS gave them within a day; a time in the future is not."""
        return timedelta(0) <= now - self.asked < MAX_AGE


def read_kept(path: Path | None, region: str, instance_type: str) -> Kept | None:
    """Return the file's prices of an instance type in a region; None if it has none, or is damaged."""
    record = _read(path).get(_key(region, instance_type))
    try:
        return TypeAdapter(Kept).validate_json(json.dumps(record))
    except ValidationError:
        return None


def keep(path: Path | None, region: str, instance_type: str, kept: Kept) -> None:
    """Write AWS's prices of an instance type; errors of the disk are ignored."""
    if path is None:
        return
    record = TypeAdapter(Kept).dump_python(kept, mode="json")
    with suppress(CannotWrite, OSError):
        records = {**_read(path), _key(region, instance_type): record}
        write_file(path, json.dumps(records, indent=1, sort_keys=True), parents=True)


def listed_of(kept: Kept, instance_type: str, region: str, use: Use) -> ListedPrice:
    """Return the price of one use in an answer of today, or why it has none in USD."""
    amount = kept.prices.get(use)
    if amount is None:
        return ListedPrice(None, f"{API}: no {USE_WORDS[use]} price for {instance_type} in {region}")
    if amount.currency != "USD":
        return ListedPrice(
            None,
            f"{API}: {instance_type} in {region} costs {amount.value:g} {amount.currency} an hour, "
            f"and budgets here are in USD",
        )
    return ListedPrice(entry_of(amount, instance_type, region))


def old_listed(kept: Kept | None, instance_type: str, region: str, use: Use, why: str) -> ListedPrice:
    """Return the price of one use in an old answer; ``why`` AWS gave no newer one."""
    amount = None if kept is None else kept.prices.get(use)
    if amount is None or amount.currency != "USD":
        return ListedPrice(None, why, fresh=False)
    return ListedPrice(entry_of(amount, instance_type, region), why, fresh=False)


def entry_of(amount: Amount, instance_type: str, region: str) -> PriceEntry:
    """Return the entry of an amount in USD."""
    return PriceEntry(
        instance=instance_type,
        region=region,
        usd_per_hour=amount.value,
        kind="sagemaker",
        source=API,
        date=amount.date,
    )


def find_kept(environ: Mapping[str, str], instance_type: str, region: str) -> ListedPrice:
    """Return the hosting price in the environment's price file, however old: for callers without a clock."""
    kept = read_kept(price_file(environ), region, instance_type)
    return old_listed(kept, instance_type, region, "Host", NOT_ASKED.why)


def _key(region: str, instance_type: str) -> str:
    return f"{region} {instance_type}"


def _read(path: Path | None) -> dict[str, Any]:
    try:
        records = {} if path is None else json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return records if isinstance(records, dict) else {}
