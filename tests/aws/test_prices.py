"""Prices from the Price List API, in the documents that it sends, and what happens without it."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from peagle_sm.aws.control.prices import find_elsewhere, find_price, hourly, listed_price, read_product
from peagle_sm.aws.session.session import LocalTarget, Session

INSTANCE, REGION = "ml.g7e.2xlarge", "us-east-1"


class Boto3:
    """A session of boto3 whose pricing client answers from a list."""

    profile_name = "default"

    def __init__(self, region: str = REGION) -> None:
        self.region_name = region
        self.asked_in = ""
        self.client_ = boto3.client(
            "pricing", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="y"
        )
        self.stub = Stubber(self.client_)
        self.stub.activate()

    def client(self, service: str, **options: Any) -> Any:
        assert service == "pricing"
        self.asked_in = options["region_name"]
        return self.client_


def product(
    usage: str, usd: str = "4.8125", *, date: str = "2026-11-01T00:00:00Z", unit: str = "Hrs"
) -> dict[str, Any]:
    dimension = {"unit": unit, "pricePerUnit": {"USD": usd}}
    return {
        "product": {"attributes": {"usagetype": usage, "instanceName": INSTANCE, "regionCode": REGION}},
        "terms": {"OnDemand": {"A.B": {"effectiveDate": date, "priceDimensions": {"A.B.C": dimension}}}},
        "publicationDate": date,
    }


def answering(*products: dict[str, Any], region: str = REGION) -> tuple[Session, Boto3]:
    made = Boto3(region)
    made.stub.add_response(
        "get_products",
        {"PriceList": [json.dumps(each) for each in products]},
        {
            "ServiceCode": "AmazonSageMaker",
            "Filters": [
                {"Type": "TERM_MATCH", "Field": "regionCode", "Value": region},
                {"Type": "TERM_MATCH", "Field": "instanceName", "Value": INSTANCE},
            ],
        },
    )
    return Session.from_boto3(made), made


def test_the_hosting_row_is_taken_among_the_instance_s_uses() -> None:
    session, _ = answering(
        product(f"USE1-Train:{INSTANCE}", "1"),
        product(f"USE1-AsyncInf:{INSTANCE}", "2"),
        product(f"USE1-Host:{INSTANCE}"),
        product(f"USE1-Host:{INSTANCE}0", "9"),
    )
    price = listed_price(session, INSTANCE, REGION)
    assert price is not None
    assert (price.usd_per_hour, price.kind, price.date) == (4.8125, "sagemaker", "2026-11-01")


def test_price_of_several_instances_says_whose_price_and_when() -> None:
    session, _ = answering(product(f"USE1-Host:{INSTANCE}"))
    price = hourly(session, INSTANCE, 2)
    assert price.usd_per_hour == 9.625
    assert price.source == f"2 x {INSTANCE} in {REGION}: SageMaker on demand, AWS Price List API, 2026-11-01"
    assert price.note is None


@pytest.mark.parametrize(
    ("region", "asked_in"),
    [("eu-west-1", "eu-central-1"), ("ap-southeast-2", "ap-south-1"), ("us-west-2", "us-east-1")],
)
def test_the_api_is_asked_where_it_answers(region: str, asked_in: str) -> None:
    session, made = answering(region=region)
    assert hourly(session, INSTANCE).usd_per_hour is None
    assert made.asked_in == asked_in


def test_without_permission_the_catalogue_answers_and_says_why() -> None:
    made = Boto3()
    made.stub.add_client_error("get_products", "AccessDeniedException", "not authorized: pricing:GetProducts")
    price = hourly(Session.from_boto3(made), INSTANCE)
    assert price.usd_per_hour == 4.2
    assert "2026-11-20" in price.source
    assert "pricing:GetProducts" in (price.note or "")


def test_an_instance_that_the_api_does_not_list() -> None:
    session, _ = answering()
    price, note = find_price(session, INSTANCE, REGION)
    assert price is not None
    assert price.usd_per_hour == 4.2
    assert "no hosting price for" in (note or "")


def test_a_price_that_nobody_knows_stays_unknown() -> None:
    unknown = hourly(None, "ml.g9.xlarge", region="eu-west-3")
    assert (unknown.usd_per_hour, unknown.source) == (None, "no price known for ml.g9.xlarge in eu-west-3")
    assert hourly(None, None, region=REGION).source == "no price: the instance type is not known"
    assert hourly(None, INSTANCE).source == "no price: the region is not known"


def test_nothing_is_billed_locally() -> None:
    session = Session.from_boto3(Boto3(), LocalTarget("http://127.0.0.1:9"))
    assert hourly(session, INSTANCE, 3).usd_per_hour == 0.0


@pytest.mark.parametrize(
    "odd",
    [
        {},
        product(f"USE1-Host:{INSTANCE}", "0"),
        product(f"USE1-Host:{INSTANCE}", unit="GB-Mo"),
        {**product(f"USE1-Host:{INSTANCE}"), "terms": {"Reserved": {}}},
    ],
)
def test_a_row_that_is_no_hourly_price(odd: dict[str, Any]) -> None:
    assert read_product(odd, INSTANCE, REGION) is None


def test_other_regions_are_offered_the_cheapest_first() -> None:
    def priced(prefix: str, region: str, usd: str) -> str:
        made = product(f"{prefix}Host:{INSTANCE}", usd)
        made["product"]["attributes"]["regionCode"] = region
        return json.dumps(made)

    boto = Boto3()
    rows = [
        priced("EU-", "eu-west-1", "9.5"),
        priced("USE1-", REGION, "7"),
        priced("USW2-", "us-west-2", "8.25"),
    ]
    filters = [{"Type": "TERM_MATCH", "Field": "instanceName", "Value": INSTANCE}]
    asked = {"ServiceCode": "AmazonSageMaker", "Filters": filters}
    boto.stub.add_response("get_products", {"PriceList": rows}, asked)
    offers = find_elsewhere(Session.from_boto3(boto), INSTANCE)
    assert [(one.region, one.usd_per_hour, one.source) for one in offers] == [
        ("us-west-2", 8.25, "AWS Price List API"),
        ("eu-west-1", 9.5, "AWS Price List API"),
    ]
