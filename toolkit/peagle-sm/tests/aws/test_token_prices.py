"""Prices by the token, in the documents that the Price List API sends for Amazon Bedrock."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from peagle_sm.aws.control.token_prices import find_token_price, read_document
from peagle_sm.aws.session.session import LocalTarget, Session
from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.token_prices import ListedTokenPrice, choose_token_price, sold_models
from tests.prices import token_document
from tests.service.aws_errors import client_error

MODEL, REGION = "gpt-oss-20b", "us-east-1"
NOON = datetime(2026, 11, 26, 12, tzinfo=UTC)
DENIED = client_error("GetProducts", "AccessDeniedException", "not authorized: pricing:GetProducts")


class PriceList:
    """A boto3 session whose pricing client has Bedrock's rows of one region, and counts the calls."""

    profile_name = "default"

    def __init__(self, *rows: dict[str, Any], error: Exception | None = None) -> None:
        self.region_name, self.rows, self.error, self.calls = REGION, rows, error, 0

    def client(self, service: str, **options: Any) -> Any:
        assert service == "pricing"
        return self

    def get_paginator(self, operation: str) -> Any:
        return self

    def paginate(self, ServiceCode: str, Filters: list[dict[str, str]]) -> Iterator[dict[str, Any]]:
        assert ServiceCode == "AmazonBedrock"
        assert [(one["Field"], one["Value"]) for one in Filters] == [("regionCode", REGION)]
        self.calls += 1
        if self.error is not None:
            raise self.error
        yield {"PriceList": [json.dumps(row) for row in self.rows]}


def row(usage: str, usd: str, **more: str) -> dict[str, Any]:
    return token_document(usage, REGION, usd, **more)


#: Each tier by both naming conventions, as in AWS's list of 2026: only two rows count.
ROWS = (
    row("USE1-gpt-oss-20b-input-tokens", "0.00008"),
    row("USE1-openai.gpt-oss-20b-mantle-output-tokens-standard", "0.4", unit="1M tokens", feature=""),
    row("USE1-gpt-oss-20b-input-tokens-flex", "0.00004"),
    row("USE1-gpt-oss-20b-output-tokens-priority", "0.00053"),
    row("USE1-gpt-oss-20b-input-tokens-batch", "0.00004", feature="Batch Inference"),
    row("USE1-openai.gpt-oss-20b-mantle-output-tokens-batch", "0.0002", feature=""),
    row("USE1-openai.gpt-oss-20b-mantle-input-tokens-global-standard", "0.00001", feature=""),
    row("USE1-gpt-oss-20b-input-tokens-custom-model", "9", feature="Model Customization"),
    row("USE1-GPT-OSS-Safeguard-20B-input-tokens", "9"),
    row("USE1-gpt-oss-120b-input-tokens", "0.00016"),
)


def session(boto: PriceList, path: Path | None = None, hours: float = 0) -> Session:
    return Session.from_boto3(boto, clock=lambda: NOON + timedelta(hours=hours), price_file=path)


def test_the_standard_tier_is_taken_in_both_conventions_and_units() -> None:
    price = find_token_price(session(PriceList(*ROWS)), MODEL, REGION).price
    assert price is not None
    assert (price.input, price.output, price.cached) == (pytest.approx(0.08), 0.4, None)
    assert (price.currency, price.source, price.date) == ("USD", "AWS Price List API", "2026-11-01")


def test_cached_input_has_its_price_where_the_list_has_one() -> None:
    cached = row("USE1-openai.gpt-oss-20b-mantle-cache-read-tokens-standard", "0.00001", feature="")
    price = find_token_price(session(PriceList(*ROWS, cached)), MODEL, REGION).price
    assert price is not None
    assert price.cached == pytest.approx(0.01)


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"product": {"attributes": {"usagetype": "USE1-gpt-oss-20b-input-tokens"}}, "terms": []},
        row("USE1-gpt-oss-20b-input-tokens", "0"),
        row("USE1-gpt-oss-20b-input-tokens", "NaN"),
        row("USE1-gpt-oss-20b-input-tokens", "free"),
        row("USE1-gpt-oss-20b-input-tokens", "0.00007", unit="1B tokens"),
        row("USE1-gpt-oss-20b-input-tokens", "0.00001", begins="1000000"),
        row("USE1-gpt-oss-20b-input-tokens", "0.00007", feature="Model Customization"),
    ],
)
def test_a_row_that_is_no_price_of_a_token(odd: dict[str, Any]) -> None:
    assert list(read_document(odd, sold_models()[MODEL])) == []


def test_one_answer_has_all_models_of_a_region_and_is_kept_for_a_day(tmp_path: Path) -> None:
    path, boto = tmp_path / "prices.json", PriceList(*ROWS)
    for hours, calls in ((0, 1), (23, 1), (25, 2)):
        assert find_token_price(session(boto, path, hours), MODEL, REGION).fresh
        other = find_token_price(session(boto, path, hours), "gpt-oss-120b", REGION)
        assert (other.price, "no price of gpt-oss-120b's tokens" in other.why) == (None, True)
        assert boto.calls == calls


def test_without_an_answer_the_newer_of_the_last_one_and_the_table_counts(tmp_path: Path) -> None:
    path, table = tmp_path / "prices.json", sold_models()[MODEL].price(REGION)
    denied = find_token_price(session(PriceList(error=DENIED), path), MODEL, REGION)
    assert (denied.price, "not authorized" in denied.why) == (None, True)
    assert choose_token_price(table, denied) is table
    find_token_price(session(PriceList(*ROWS), path), MODEL, REGION)
    later = find_token_price(session(PriceList(error=DENIED), path, 30), MODEL, REGION)
    assert later.price is not None
    assert not later.fresh
    assert choose_token_price(table, later) is table  # of 2026-11-26; the answer is of 2026-11-01


def test_prices_in_two_currencies_are_said() -> None:
    rows = (
        row("CNN1-gpt-oss-20b-input-tokens", "1", currency="CNY"),
        row("CNN1-gpt-oss-20b-output-tokens", "1"),
    )
    listed = find_token_price(session(PriceList(*rows)), MODEL, REGION)
    assert listed == ListedTokenPrice(why=listed.why)
    assert "CNY and USD" in listed.why


def test_the_local_server_is_not_asked() -> None:
    local = Session.from_boto3(PriceList(error=DENIED), LocalTarget("http://127.0.0.1:9"))
    assert find_token_price(local, MODEL, REGION).price is None


def test_every_row_of_the_table_is_dated_and_of_a_model_of_the_catalogue() -> None:
    assert sold_models().keys() <= load_catalog().models.keys()
    for sold in sold_models().values():
        for price in sold.prices:
            assert datetime.fromisoformat(price.date) < NOON.replace(tzinfo=None)
            assert price.source
            assert (price.currency, price.region) == ("USD", REGION)
