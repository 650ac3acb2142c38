"""Hourly instance prices, from AWS's Price List API or from the catalogue.

The API is free and needs only the permission ``pricing:GetProducts``. If it does not answer, the catalogue's
price is used, with its date. If neither has a price, the price is None, with the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from peagle_sm.aws.session.session import Session
from peagle_sm.core.catalog import Catalog, PriceEntry, load_catalog
from peagle_sm.core.errors import PeagleError

API = "AWS Price List API"
SERVICE = "AmazonSageMaker"
LOCAL = "local: nothing is billed"


@dataclass(frozen=True)
class HourlyPrice:
    """On-demand USD per hour of ``instances`` instances; None if unknown.

    ``source`` is the price's source, or why there is no price; ``note`` is why the price is not from AWS.
    """

    usd_per_hour: float | None
    source: str
    note: str | None = None


def hourly(
    session: Session | None,
    instance_type: str | None,
    instances: int = 1,
    *,
    region: str | None = None,
    catalog: Catalog | None = None,
) -> HourlyPrice:
    """Price ``instances`` of ``instance_type`` in ``region`` (None: the session's).

    Without a session only the catalogue is used. This raises nothing: a measurement must not fail for lack of
    a price.
    """
    if session is not None and session.is_local:
        return HourlyPrice(0.0, LOCAL)
    place = region or (session.region if session else None)
    if instance_type is None or place is None:
        missing = "instance type" if instance_type is None else "region"
        return HourlyPrice(None, f"no price: the {missing} is not known")
    price, note = find_price(session, instance_type, place, catalog=catalog)
    if price is None:
        return HourlyPrice(None, f"no price known for {instance_type} in {place}", note)
    return HourlyPrice(round(price.usd_per_hour * instances, 4), describe(price, instances), note)


def find_price(
    session: Session | None, instance_type: str, region: str, *, catalog: Catalog | None = None
) -> tuple[PriceEntry | None, str | None]:
    """Return one instance's price, and why it is not from AWS (None if it is)."""
    known = (catalog or load_catalog()).price(instance_type, region)
    if session is None or session.is_local:
        return known, "AWS was not asked"
    try:
        asked = listed_price(session, instance_type, region)
    except PeagleError as error:
        return known, f"{API}: {error.message}"
    return (asked, None) if asked else (known, f"{API}: no hosting price for {instance_type} in {region}")


def describe(price: PriceEntry, instances: int = 1) -> str:
    """Format a price in one line: instance, region, kind, source and date."""
    return f"{instances} x {price}" if instances != 1 else str(price)


Use = Literal["Host", "Train", "Processing"]
"""What an instance is billed for, as in the usage type of a price: hosting, training or processing."""
_WORDS: Mapping[Use, str] = {"Host": "hosting", "Train": "training", "Processing": "processing"}


def find_job_price(
    session: Session, instance_type: str, region: str, use: Use
) -> tuple[PriceEntry | None, str | None]:
    """Return the price of one instance of a job, and why there is none.

    The catalogue's prices are of hosting, so it has none of jobs.
    """
    try:
        asked = listed_price(session, instance_type, region, use)
    except PeagleError as error:
        return None, f"{API}: {error.message}"
    return (
        (asked, None) if asked else (None, f"{API}: no {_WORDS[use]} price for {instance_type} in {region}")
    )


def listed_price(session: Session, instance_type: str, region: str, use: Use = "Host") -> PriceEntry | None:
    """Return SageMaker's price of one use from the Price List API; None without one.

    Raises:
        CredentialsError: no credentials, or no permission ``pricing:GetProducts``.
        ServiceFault: the API returned an error, or did not answer.
    """
    products = _products(session, regionCode=region, instanceName=instance_type)
    found = [entry for product in products if (entry := read_product(product, instance_type, region, use))]
    return max(found, key=lambda entry: entry.date, default=None)


def find_elsewhere(
    session: Session, instance_type: str, *, catalog: Catalog | None = None
) -> list[PriceEntry]:
    """Return an instance's hosting prices in other regions, cheapest first.

    A region with a price offers the instance type; its capacity is not known. If the Price List API does not
    answer, the catalogue's prices are returned. The local SageMaker needs no call.
    """
    if session.is_local:
        return []
    try:
        products = _products(session, instanceName=instance_type)
        regions = (
            (each, each.get("product", {}).get("attributes", {}).get("regionCode")) for each in products
        )
        entries = (read_product(each, instance_type, str(region)) for each, region in regions if region)
        found = [entry for entry in entries if entry is not None]
    except PeagleError:
        rows = (catalog or load_catalog()).prices
        found = [row for row in rows if row.instance == instance_type and row.kind == "sagemaker"]
    newest: dict[str, PriceEntry] = {}
    for row in sorted(found, key=lambda row: row.date):
        newest[row.region] = row
    newest.pop(session.region, None)
    return sorted(newest.values(), key=lambda row: (row.usd_per_hour, row.region))


def _products(session: Session, **fields: str) -> list[dict[str, Any]]:
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in fields.items()]
    texts = session.api("pricing").rows("get_products", "PriceList", ServiceCode=SERVICE, Filters=filters)
    return [json.loads(text) for text in texts]


def read_product(
    product: Mapping[str, Any], instance_type: str, region: str, use: Use = "Host"
) -> PriceEntry | None:
    """Parse a price list document; None unless of this use, on demand, in USD.

    An instance has a row for each use (training, notebooks, batch …), distinguished by the usage type:
    ``USE1-Host:ml.g5.xlarge`` is real-time hosting, ``USE1-Train:ml.g5.xlarge`` training,
    ``USE1-Processing:ml.m5.xlarge`` processing.
    """
    attributes = product.get("product", {}).get("attributes", {})
    usage = str(attributes.get("usagetype", ""))
    if not re.fullmatch(rf"([A-Z0-9]+-)?{use}:{re.escape(instance_type)}", usage):
        return None
    prices = [(usd, date) for usd, date in _on_demand(product) if usd > 0]  # a free tier has its own row
    if not prices:
        return None
    usd, date = max(prices, key=lambda pair: pair[1])
    return PriceEntry(
        instance=instance_type, region=region, usd_per_hour=usd, kind="sagemaker", source=API, date=date
    )


def _on_demand(product: Mapping[str, Any]) -> Iterator[tuple[float, str]]:
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        date = str(product.get("publicationDate") or term.get("effectiveDate", ""))[:10]
        for dimension in term.get("priceDimensions", {}).values():
            usd = dimension.get("pricePerUnit", {}).get("USD")
            if usd is not None and dimension.get("unit") == "Hrs":
                yield float(usd), date
