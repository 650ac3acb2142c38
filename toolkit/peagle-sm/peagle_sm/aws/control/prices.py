"""Hourly instance prices: AWS's price list, kept for a day, else the catalogue, else the spec's own figure.

The Price List API is free and needs only the permission ``pricing:GetProducts``. One call has an instance
type's prices of hosting and training. Whatever goes wrong, these functions raise nothing unless
they say so: a price decorates a result.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from peagle_sm.aws.control.price_file import (
    API,
    USE_WORDS,
    Amount,
    Kept,
    Use,
    keep,
    listed_of,
    old_listed,
    read_kept,
)
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import PeagleError, ServiceFault
from peagle_sm.core.prices import NOT_ASKED, ListedPrice

SERVICE = "AmazonSageMaker"
LOCAL = "local: nothing is billed"

# Usage types of hosting also end in Hosting: and Hst: (us-gov-west-1).
_USAGES: Mapping[Use, str] = {"Host": "Host|Hosting|Hst", "Train": "Train"}


def find_listed(
    session: Session, instance_type: str, region: str, use: Use = "Host", *, ask: bool = True
) -> ListedPrice:
    """Return the price in AWS's price list: the answer of the last day, else a new one.

    If AWS does not answer, or ``ask`` is False, the last answer counts, however old it is. A session that got
    no answer once does not ask again.
    """
    kept = read_kept(session.price_file, region, instance_type)
    if kept is not None and kept.is_fresh(session.wall_clock()):
        return listed_of(kept, instance_type, region, use)
    if not ask:
        return old_listed(kept, instance_type, region, use, NOT_ASKED.why)
    try:
        return ask_list(session, instance_type, region, use)
    except PeagleError as error:
        return old_listed(kept, instance_type, region, use, f"{API}: {error.message}")


def ask_list(session: Session, instance_type: str, region: str, use: Use = "Host") -> ListedPrice:
    """Ask AWS's price list, and keep the answer.

    Raises:
        CredentialsError: no credentials, or no permission ``pricing:GetProducts``.
        ServiceFault: the API returned an error, or did not answer.
    """
    products = price_documents(session, SERVICE, regionCode=region, instanceName=instance_type)
    amounts: dict[str, Amount] = {}
    for listed_use in USE_WORDS:
        candidates = [
            amount for product in products if (amount := read_product(product, instance_type, listed_use))
        ]
        if candidates:  # of the newest prices the highest, so that a budget holds
            amounts[listed_use] = max(
                candidates, key=lambda amount: (amount.currency == "USD", amount.date, amount.value)
            )
    kept = Kept(session.wall_clock(), amounts)
    keep(session.price_file, region, instance_type, kept)
    return listed_of(kept, instance_type, region, use)


def price_documents(session: Session, service: str, **fields: str) -> list[dict[str, Any]]:
    """Return the documents of a service in AWS's price list with these fields.

    Raises:
        CredentialsError: no credentials, or no permission ``pricing:GetProducts``.
        ServiceFault: the API returned an error, or did not answer; this session does not ask again.
    """
    if session.price_trouble is not None:
        raise session.price_trouble
    try:
        return _documents(session, service, fields)
    except PeagleError as error:
        session.price_trouble = error
        raise


def _documents(session: Session, service: str, fields: Mapping[str, str]) -> list[dict[str, Any]]:
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in fields.items()]
    try:
        texts = list(
            session.api("pricing").rows("get_products", "PriceList", ServiceCode=service, Filters=filters)
        )
    except PeagleError:
        raise
    except Exception as error:  # a credential_process may raise anything, and a price only decorates
        message = f"GetProducts: {type(error).__name__}: {error}"
        raise ServiceFault(message, operation="GetProducts", code="") from error
    return [product for text in texts if (product := _parsed(text)) is not None]


def _parsed(text: Any) -> dict[str, Any] | None:
    try:
        product = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None
    return product if isinstance(product, dict) else None


def read_product(product: Mapping[str, Any], instance_type: str, use: Use = "Host") -> Amount | None:
    """Parse a price list document; None unless on demand, of this instance type and this use.

    An instance has a row for each use (training, notebooks, batch …). The attribute ``component`` names it:
    Hosting, Training. A document without one is known by its usage type, such as
    ``USE1-Host:ml.g5.xlarge``.
    """
    attributes = attributes_of(product)
    usage = str(attributes.get("usagetype", ""))
    component = str(attributes.get("component", "")).lower()
    if attributes.get("locationType", "AWS Region") != "AWS Region":
        return None  # a Local Zone has prices of its own
    if component:
        name = str(attributes.get("instanceName") or usage.rpartition(":")[2])
        if component != USE_WORDS[use] or name != instance_type:
            return None
    elif not re.fullmatch(rf"([A-Z0-9]+-)?({_USAGES[use]}):{re.escape(instance_type)}", usage):
        return None
    hourly = (amount for row, amount in on_demand(product) if row.get("unit") == "Hrs")
    return max(hourly, key=lambda amount: (amount.date, amount.value), default=None)


def attributes_of(product: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the attributes of a price list document; empty if it has none."""
    described = product.get("product")
    attributes = described.get("attributes") if isinstance(described, Mapping) else None
    return attributes if isinstance(attributes, Mapping) else {}


def on_demand(document: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Amount]]:
    """Yield the on-demand prices of a document, each with its row; a free tier's, of price 0, is left out."""
    try:
        for term in document.get("terms", {}).get("OnDemand", {}).values():
            date = str(document.get("publicationDate") or term.get("effectiveDate", ""))[:10]
            for row in term.get("priceDimensions", {}).values():
                for currency, text in row.get("pricePerUnit", {}).items():
                    value = float(text)
                    if math.isfinite(value) and value > 0:
                        yield row, Amount(value, str(currency), date)
    except (AttributeError, TypeError, ValueError):
        return  # a document of another shape has no price
