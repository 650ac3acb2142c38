"""Prices of hosted models by the token: the packaged table, and how AWS's price list names them. Pure.

``core/data/token_prices.yaml`` has the dated table; `peagle_sm.aws.control.token_prices` asks AWS's price
list. The fields of that list were read in public code that parses it (November 2026):

* ``usagetype`` has the region's short name, the model's name, the kind of token and the tier, such as
  ``USE1-openai.gpt-oss-20b-mantle-input-tokens-standard``; without a tier it is the standard one;
* ``feature`` is "On-demand Inference" or empty, and "Batch Inference" for the batch price;
* the unit is "1K tokens" or "1M tokens".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from pydantic import Field

from peagle_sm.core.engines import PackagedData, read_data

Kind = Literal["input", "output", "cached"]
_KINDS: Mapping[Kind, str] = {
    "input": "input-tokens",
    "output": "output-tokens",
    "cached": "cache-read-tokens|cache-read-input-token-count",
}
#: Tokens that a unit of the price list prices.
_TOKENS_OF_UNIT = {"1K tokens": 1e3, "1M tokens": 1e6}


class TokenPrice(PackagedData):
    """Price of a million tokens of one model in one region, with its source.

    ``cached`` is the price of input tokens that were found in the prompt cache; None if the list has none,
    and then they cost as much as other input tokens.
    """

    region: str
    currency: str
    input: float = Field(gt=0)
    output: float = Field(gt=0)
    cached: float | None = Field(default=None, gt=0)
    source: str
    date: str

    def __str__(self) -> str:
        cached = "" if self.cached is None else f" (cached {self.cached:g})"
        dated = f", {self.date}" if self.date else ""
        prices = f"{self.input:g}{cached} in, {self.output:g} out"
        return f"{prices} {self.currency} per million: {self.source}{dated}"


class SoldModel(PackagedData):
    """A model that Amazon Bedrock sells by the token; ``names`` are its names in usage types."""

    bedrock_id: str
    names: tuple[str, ...]
    prices: tuple[TokenPrice, ...]

    def price(self, region: str) -> TokenPrice | None:
        """Return the table's price in a region; None if it has none."""
        return next((price for price in self.prices if price.region == region), None)

    def kind_of(self, usage_type: str) -> Kind | None:
        """Return which token of this model, in the standard tier, a usage type prices; None for any other."""
        for kind, words in _KINDS.items():
            names = "|".join(re.escape(name) for name in self.names)
            if re.fullmatch(rf"([A-Z0-9]+-)?({names})-({words})(-standard)?", usage_type):
                return kind
        return None


@dataclass(frozen=True)
class ListedTokenPrice:
    """Answer of AWS's price list about one model; without a price, ``why`` has the reason.

    ``fresh`` is False for an answer that is older than a day.
    """

    price: TokenPrice | None = None
    why: str = ""
    fresh: bool = True


def per_million(amount: float, unit: str) -> float | None:
    """Return the price of a million tokens; None for a unit that is not known."""
    tokens = _TOKENS_OF_UNIT.get(unit)
    return None if tokens is None else amount * 1e6 / tokens


def choose_token_price(table: TokenPrice | None, listed: ListedTokenPrice) -> TokenPrice | None:
    """Return the price that counts: a fresh answer of AWS, else the newer of an old answer and the table."""
    if listed.price is not None and listed.fresh:
        return listed.price
    known = [price for price in (listed.price, table) if price is not None]
    return max(known, key=lambda price: price.date, default=None)


@cache
def sold_models() -> Mapping[str, SoldModel]:
    """Return the models that are sold by the token, by their catalogue id."""
    return {name: SoldModel.model_validate(entry) for name, entry in read_data("token_prices").items()}
