"""Prices of hosted models by the token: AWS's price list, kept for a day.

The price list is asked once for all models of a region: its rows cannot be filtered by a model, since the
names of a model differ from row to row. Whatever goes wrong, these functions raise nothing: the caller has a
table, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from peagle_sm.aws.control.price_file import API, Amount, Kept, keep, read_kept
from peagle_sm.aws.control.prices import attributes_of, on_demand, price_documents
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import PeagleError
from peagle_sm.core.prices import NOT_ASKED
from peagle_sm.core.token_prices import (
    Kind,
    ListedTokenPrice,
    SoldModel,
    TokenPrice,
    per_million,
    sold_models,
)

SERVICE = "AmazonBedrock"


def find_token_price(session: Session, model: str, region: str) -> ListedTokenPrice:
    """Return the price in AWS's price list: the answer of the last day, else a new one.

    If AWS does not answer, the last answer counts, however old it is. The local SageMaker is not asked.
    """
    if session.is_local or model not in sold_models():
        return ListedTokenPrice(why=NOT_ASKED.why, fresh=False)
    kept = read_kept(session.price_file, region, _name(model))
    if kept is not None and kept.is_fresh(session.wall_clock()):
        return listed_of(kept, model, region)
    try:
        return listed_of(_ask(session, region)[model], model, region)
    except PeagleError as error:
        old = ListedTokenPrice() if kept is None else listed_of(kept, model, region)
        return ListedTokenPrice(old.price, f"{API}: {error.message}", fresh=False)


def _ask(session: Session, region: str) -> dict[str, Kept]:
    """Ask for all models of a region, and keep the answers.

    Raises:
        CredentialsError: no credentials, or no permission ``pricing:GetProducts``.
        ServiceFault: the API returned an error, or did not answer.
    """
    documents = price_documents(session, SERVICE, regionCode=region)
    answers = {}
    for model, sold in sold_models().items():
        amounts = dict[str, Amount]()
        for document in documents:
            for kind, amount in read_document(document, sold):
                best = amounts.get(kind)
                # Of the newest prices the highest, so that calling is never shown cheaper than it is.
                if best is None or (amount.date, amount.value) > (best.date, best.value):
                    amounts[kind] = amount
        answers[model] = Kept(session.wall_clock(), amounts)
        keep(session.price_file, region, _name(model), answers[model])
    return answers


def read_document(document: Mapping[str, Any], sold: SoldModel) -> Iterator[tuple[Kind, Amount]]:
    """Yield the prices of a million tokens in one document of the list, if it is about this model.

    Other tiers (batch, flex, priority) and other routes (cross-region) are other usage types.
    """
    attributes = attributes_of(document)
    kind = sold.kind_of(str(attributes.get("usagetype", "")))
    if kind is None or attributes.get("feature", "") not in ("", "On-demand Inference"):
        return
    for row, amount in on_demand(document):
        if str(row.get("beginRange", "0")) not in ("0", ""):
            continue  # a discount for a high volume
        value = per_million(amount.value, str(row.get("unit", "")))
        if value is not None and math.isfinite(value):
            yield kind, replace(amount, value=value)


def listed_of(kept: Kept, model: str, region: str) -> ListedTokenPrice:
    """Return the price in an answer of AWS, or why it has none."""
    amounts = kept.prices
    if not {"input", "output"} <= amounts.keys():
        return ListedTokenPrice(why=f"{API}: no price of {model}'s tokens in {region}")
    currencies = {amount.currency for amount in amounts.values()}
    if len(currencies) > 1:
        return ListedTokenPrice(
            why=f"{API}: {model} in {region} has prices in {' and '.join(sorted(currencies))}"
        )
    cached = amounts.get("cached")
    price = TokenPrice(
        region=region,
        currency=currencies.pop(),
        input=amounts["input"].value,
        output=amounts["output"].value,
        cached=None if cached is None else cached.value,
        source=API,
        date=max(amount.date for amount in amounts.values()),
    )
    return ListedTokenPrice(price)


def _name(model: str) -> str:
    """Return the name under which the price file keeps a model's prices, beside those of instances."""
    return f"tokens of {model}"
