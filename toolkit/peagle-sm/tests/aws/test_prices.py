"""Prices from the Price List API, in the documents that it sends, kept for a day; and without it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ConnectTimeoutError
from botocore.session import Session as BotocoreSession

from peagle_bench.prices import hourly
from peagle_learn.aws.prices import find_job_price
from peagle_sm.aws.control.price_file import Use, find_kept
from peagle_sm.aws.control.prices import (
    ask_list,
    find_listed,
    read_product,
)
from peagle_sm.aws.session.session import LocalTarget, Session
from peagle_sm.core.errors import CredentialsError
from peagle_sm.service.spec_to_plan import plan_for
from tests.core.support import GPT, spec_of
from tests.prices import document, documents, hosting_types
from tests.service.aws_errors import client_error

INSTANCE, REGION = "ml.g7e.2xlarge", "us-east-1"
NOON = datetime(2026, 11, 26, 12, tzinfo=UTC)
DENIED = client_error("GetProducts", "AccessDeniedException", "not authorized: pricing:GetProducts")


class PriceList:
    """A boto3 session whose pricing client filters documents as AWS does, and counts the calls.

    ``error`` is raised instead of an answer.
    """

    profile_name = "default"

    def __init__(self, region: str, *rows: dict[str, Any], error: Exception | None = None) -> None:
        self.region_name, self.rows, self.error, self.calls = region, rows, error, 0
        self.asked_in = ""

    def client(self, service: str, **options: Any) -> Any:
        assert service == "pricing"
        self.asked_in = options["region_name"]
        return self

    def get_paginator(self, operation: str) -> Any:
        assert operation == "get_products"
        return self

    def paginate(self, ServiceCode: str, Filters: list[dict[str, str]]) -> list[dict[str, Any]]:
        assert ServiceCode == "AmazonSageMaker"
        self.calls += 1
        if self.error is not None:
            raise self.error
        rows = [
            json.dumps(row)
            for row in self.rows
            if all(row["product"]["attributes"].get(one["Field"]) == one["Value"] for one in Filters)
        ]
        return [{"PriceList": rows[:1]}, {"PriceList": rows[1:]}]


def product(
    usage: str, usd: str = "4.8125", *, date: str = "2026-11-01T00:00:00Z", unit: str = "Hrs"
) -> dict[str, Any]:
    dimension = {"unit": unit, "pricePerUnit": {"USD": usd}}
    return {
        "product": {"attributes": {"usagetype": usage, "instanceName": INSTANCE, "regionCode": REGION}},
        "terms": {"OnDemand": {"A.B": {"effectiveDate": date, "priceDimensions": {"A.B.C": dimension}}}},
        "publicationDate": date,
    }


def answering(*products: dict[str, Any], region: str = REGION) -> Session:
    return Session.from_boto3(PriceList(region, *products))


def test_the_hosting_row_is_taken_among_the_instance_s_uses() -> None:
    session = answering(
        product(f"USE1-Train:{INSTANCE}", "1"),
        product(f"USE1-AsyncInf:{INSTANCE}", "2"),
        product(f"USE1-Host:{INSTANCE}"),
        product(f"USE1-Host:{INSTANCE}0", "9"),
    )
    price = find_listed(session, INSTANCE, REGION).entry
    assert price is not None
    assert (price.usd_per_hour, price.kind, price.date) == (4.8125, "sagemaker", "2026-11-01")


def test_price_of_several_instances_says_whose_price_and_when() -> None:
    session = answering(product(f"USE1-Host:{INSTANCE}"))
    price = hourly(session, INSTANCE, 2)
    assert price.usd_per_hour == 9.625
    assert price.source == f"2 x {INSTANCE} in {REGION}: SageMaker on demand, AWS Price List API, 2026-11-01"
    assert price.note is None


@pytest.mark.parametrize(
    ("region", "asked_in"),
    [
        ("eu-west-1", "eu-central-1"),
        ("us-west-2", "us-east-1"),
        ("cn-north-1", "cn-northwest-1"),
    ],
)
def test_the_api_is_asked_where_it_answers(region: str, asked_in: str) -> None:
    boto = PriceList(region)
    assert find_listed(Session.from_boto3(boto), INSTANCE, region).entry is None
    assert boto.asked_in == asked_in
    known = BotocoreSession()
    places = {name for each in ("aws", "aws-cn") for name in known.get_available_regions("pricing", each)}
    assert asked_in in places


@pytest.mark.parametrize(("error", "note"), [(DENIED, "pricing:GetProducts"), (None, "no hosting price for")])
def test_without_a_listed_price_the_catalogue_answers(error: Exception | None, note: str) -> None:
    price = hourly(Session.from_boto3(PriceList(REGION, error=error)), INSTANCE)
    assert (price.usd_per_hour, "2026-11-20" in price.source) == (4.2, True)
    assert note in (price.note or "")


@pytest.mark.parametrize(
    ("instance", "planned", "counted", "source"),
    [
        ("ml.unlisted.xlarge", 7.5, 15.0, "the endpoint's tag peagle-sm:usd-per-hour"),
        ("ml.p6-b200.48xlarge", 130.0, 260.0, "the endpoint's tag peagle-sm:usd-per-hour"),
        ("ml.p6-b200.48xlarge", 142.416, 284.832, "as an upper bound"),
    ],
)
def test_the_price_of_the_plan_counts_in_a_measurement_too(
    instance: str, planned: float, counted: float, source: str
) -> None:
    session = answering()
    price = hourly(session, instance, 2, planned=planned)
    assert price.usd_per_hour == pytest.approx(counted)
    assert source in price.source


def test_a_price_that_nobody_knows_stays_unknown() -> None:
    unknown = hourly(None, "ml.g9.xlarge", region="eu-west-3")
    assert (unknown.usd_per_hour, unknown.source) == (None, "no price known for ml.g9.xlarge in eu-west-3")
    assert hourly(None, None, region=REGION).source == "no price: the instance type is not known"
    assert hourly(None, INSTANCE).source == "no price: the region is not known"


def test_nothing_is_billed_locally() -> None:
    session = Session.from_boto3(PriceList(REGION), LocalTarget("http://127.0.0.1:9"))
    assert hourly(session, INSTANCE, 3).usd_per_hour == 0.0


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"product": "none"},
        {**product(f"USE1-Host:{INSTANCE}"), "terms": []},
        product(f"USE1-Host:{INSTANCE}", "0"),
        product(f"USE1-Host:{INSTANCE}", "NaN"),
        product(f"USE1-Host:{INSTANCE}", "-1"),
        product(f"USE1-Host:{INSTANCE}", "free"),
        product(f"USE1-Host:{INSTANCE}", unit="GB-Mo"),
        {**product(f"USE1-Host:{INSTANCE}"), "terms": {"Reserved": {}}},
    ],
)
def test_a_row_that_is_no_hourly_price(odd: dict[str, Any]) -> None:
    assert read_product(odd, INSTANCE) is None


def test_the_component_decides_where_a_document_has_one() -> None:
    """A Local Zone's row and a studio's are not the region's hosting; us-gov-west-1 says UGW1-Hosting:."""
    studio = document(INSTANCE, REGION, "Studio-JupyterLab", "2.61")
    zone = document(INSTANCE, REGION, "Hosting", "9")
    zone["product"]["attributes"]["locationType"] = "AWS Local Zone"
    assert read_product(studio, INSTANCE) is None
    assert read_product(zone, INSTANCE) is None
    assert read_product(product(f"UGW1-Hosting:{INSTANCE}"), INSTANCE) is not None


def kept_session(boto: PriceList, path: Path, clock: Callable[[], datetime] = lambda: NOON) -> Session:
    return Session.from_boto3(boto, clock=clock, price_file=path)


def planned(session: Session, instance: str, more: str = "") -> Any:
    spec = spec_of(GPT, f"placement: {{instance_types: [{instance}]}}\n{more}")
    return plan_for(spec, session, without_credentials=True)


@pytest.mark.parametrize("region", ["us-east-1", "eu-west-1", "ap-northeast-1"])
def test_every_gpu_type_of_hosting_has_its_list_price_and_a_budget_works(region: str, tmp_path: Path) -> None:
    """Types are botocore's own; the list has a row for each use, as AWS's."""
    session = kept_session(PriceList(region, *documents(region)), tmp_path / "prices.json")
    for place, instance in enumerate(hosting_types(), start=1):
        usd = 0.5 + place
        allowed = planned(session, instance, f"lifecycle: {{budget_usd: {usd * 8:.2f}}}")
        refused = planned(session, instance, f"lifecycle: {{budget_usd: {usd * 8 - 0.5:.2f}}}")
        assert (allowed.usd_per_hour, allowed.max_usd, allowed.price_at_most) == (usd, usd * 8, False)
        assert f"{instance} in {region}: SageMaker on demand, AWS Price List API" in allowed.price_source
        assert "budget" not in {one.check for one in allowed.errors()}, instance
        assert "budget" in {one.check for one in refused.errors()}, instance
        if allowed.requests:
            assert float(allowed.tags()["peagle-sm:usd-per-hour"]) == usd


def test_an_answer_is_kept_for_a_day_and_then_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "prices.json"
    first = PriceList("eu-west-1", document(INSTANCE, "eu-west-1", "Hosting", "5.5"))
    assert hourly(kept_session(first, path), INSTANCE).usd_per_hour == 5.5
    later = PriceList("eu-west-1", document(INSTANCE, "eu-west-1", "Hosting", "6"))
    for hours, usd, calls in ((23, 5.5, 0), (25, 6.0, 1), (25, 6.0, 1)):
        session = kept_session(later, path, partial(NOON.__add__, timedelta(hours=hours)))
        assert hourly(session, INSTANCE).usd_per_hour == usd
        assert later.calls == calls
    assert find_listed(kept_session(first, path, lambda: NOON), INSTANCE, "eu-west-1").entry
    assert first.calls == 2, "an answer from the future is asked again"


def test_that_there_is_no_price_is_kept_too(tmp_path: Path) -> None:
    boto = PriceList("eu-west-1")
    for _ in range(3):
        listed = find_listed(kept_session(boto, tmp_path / "p.json"), INSTANCE, "eu-west-1")
        assert (listed.entry, listed.fresh) == (None, True)
    assert boto.calls == 1


OFFLINE = ConnectTimeoutError(endpoint_url="https://api.pricing.us-east-1.amazonaws.com")


def test_without_the_network_the_last_answer_counts_with_its_date(tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    boto = PriceList("eu-west-1", document(INSTANCE, "eu-west-1", "Hosting", "5.5"))
    hourly(kept_session(boto, path), INSTANCE)
    lost = PriceList("eu-west-1", error=OFFLINE)
    plan = planned(kept_session(lost, path, lambda: NOON + timedelta(days=9)), INSTANCE)
    assert plan.usd_per_hour == 5.5
    assert "AWS Price List API, 2026-11-01" in plan.price_source
    assert [one.severity for one in plan.findings if one.check == "price"] == ["info"]
    assert find_kept({"PEAGLE_SM_PRICES": str(path)}, INSTANCE, "eu-west-1").entry
    assert find_kept({"PEAGLE_SM_PRICES": str(path)}, INSTANCE, "eu-west-2").entry is None


def test_without_the_network_a_plan_works_and_asks_once(tmp_path: Path) -> None:
    lost = PriceList("eu-west-1", error=OFFLINE)
    session = kept_session(lost, tmp_path / "prices.json")
    plan = planned(session, "ml.g7e.2xlarge, ml.g7e.4xlarge")
    assert (plan.usd_per_hour, lost.calls) == (None, 1)
    assert "price" not in {one.check for one in plan.errors()}
    budget = planned(session, INSTANCE, "lifecycle: {budget_usd: 100}")
    assert lost.calls == 1
    steps = [one.next_step for one in budget.errors() if one.check == "budget"]
    assert "lifecycle.usd_per_hour" in steps[0]
    given = planned(session, INSTANCE, "lifecycle: {budget_usd: 100, usd_per_hour: 5}")
    assert (given.usd_per_hour, given.price_source) == (
        5.0,
        f"{INSTANCE} in eu-west-1: lifecycle.usd_per_hour of the spec",
    )
    assert not given.errors()


@pytest.mark.parametrize("error", [ValueError("not JSON"), OSError("no such file"), RuntimeError("odd")])
def test_whatever_goes_wrong_a_plan_is_made(error: Exception, tmp_path: Path) -> None:
    """Botocore passes on what a credential_process raises."""
    plan = planned(kept_session(PriceList(REGION, error=error), tmp_path / "p.json"), INSTANCE)
    assert plan.usd_per_hour == 4.2
    assert [str(error) in one.message for one in plan.findings if one.check == "price"] == [True]


DAMAGED = [
    b"",
    b"\xff\xfe",
    b"[]",
    b"[" * 100_000,
    b'{"eu-west-1 ml.g7e.2xlarge": 5}',
    b'{"eu-west-1 ml.g7e.2xlarge": {"asked": "never", "prices": {}}}',
    b'{"eu-west-1 ml.g7e.2xlarge": {"asked": "2026-11-26T11:00:00", "prices": {}}}',
    *(
        b'{"eu-west-1 ml.g7e.2xlarge": {"asked": "2026-11-26T11:00:00+00:00", "prices": {"Host":'
        b' {"value": %s, "currency": "USD", "date": "2026-11-01"}}}}' % value
        for value in (b"0", b"-1", b"NaN", b"Infinity", b"true", b'"1"', b"1" + b"0" * 400)
    ),
]


@pytest.mark.parametrize("content", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_file_is_asked_again_and_replaced(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    path.write_bytes(content)
    boto = PriceList("eu-west-1", document(INSTANCE, "eu-west-1", "Hosting", "5.5"))
    for _ in range(2):
        assert hourly(kept_session(boto, path), INSTANCE).usd_per_hour == 5.5
    assert boto.calls == 1


def test_a_folder_that_cannot_be_written_costs_a_call_and_no_result(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    boto = PriceList("eu-west-1", document(INSTANCE, "eu-west-1", "Hosting", "5.5"))
    for path in (tmp_path / "file" / "prices.json", tmp_path):
        assert hourly(kept_session(boto, path), INSTANCE).usd_per_hour == 5.5


def test_a_price_in_another_currency_is_said_and_never_taken_for_dollars(tmp_path: Path) -> None:
    row = document(INSTANCE, "cn-north-1", "Hosting", "31.5", currency="CNY")
    boto = PriceList("cn-north-1", row)
    for _ in range(2):  # from AWS, then from the file
        price = hourly(kept_session(boto, tmp_path / "p.json"), INSTANCE)
        assert price.usd_per_hour is None
        assert "31.5 CNY" in (price.note or "")
    assert boto.calls == 1


def test_of_several_rows_the_newest_and_then_the_highest_counts(tmp_path: Path) -> None:
    rows = [
        document(INSTANCE, "eu-west-1", "Hosting", usd, date=date)
        for usd, date in (("9", "2026-01-01"), ("5", "2026-11-01"), ("6", "2026-11-01"))
    ]
    assert hourly(kept_session(PriceList("eu-west-1", *rows), tmp_path / "p"), INSTANCE).usd_per_hour == 6.0


def test_one_call_has_the_prices_of_hosting_and_training(tmp_path: Path) -> None:
    region = "eu-west-1"
    rows = [
        document(INSTANCE, region, component, usd)
        for component, usd in (("Hosting", "5"), ("Training", "6"), ("Processing", "7"))
    ]
    boto = PriceList(region, *rows)
    session = kept_session(boto, tmp_path / "p.json")
    uses: tuple[tuple[Use, float], ...] = (("Host", 5.0), ("Train", 6.0))
    for use, usd in uses:
        entry = find_listed(session, INSTANCE, region, use).entry
        assert entry is not None
        assert entry.usd_per_hour == usd
    assert boto.calls == 1


def test_a_job_s_price_is_the_list_s_then_the_spec_s_then_hosting_s(tmp_path: Path) -> None:
    kind = "ml.p6-b200.48xlarge"
    session = kept_session(PriceList(REGION), tmp_path / "p.json")
    given, source = find_job_price(session, kind, REGION, "Train", 150.0, "train.usd_per_hour")
    assert given is not None
    assert (given.counted_usd_per_hour, source.startswith("train.usd_per_hour of the spec")) == (150.0, True)
    bound, source = find_job_price(session, kind, REGION, "Train")
    assert bound is not None
    assert (bound.counted_usd_per_hour, bound.at_most) == (pytest.approx(142.416), True)
    assert "the price of hosting" in source
    listed = kept_session(PriceList(REGION, document(kind, REGION, "Training", "140")), tmp_path / "q.json")
    entry, source = find_job_price(listed, kind, REGION, "Train", 150.0, "train.usd_per_hour")
    assert entry is not None
    assert entry.usd_per_hour == 140.0
    assert "train.usd_per_hour of the spec differs: 150" in source


def test_a_denied_call_is_an_error_for_who_asks_for_it(tmp_path: Path) -> None:
    boto = PriceList(REGION, error=DENIED)
    session = Session.from_boto3(boto, price_file=tmp_path / "p.json")
    for _ in range(2):
        with pytest.raises(CredentialsError, match="not authorized"):
            ask_list(session, INSTANCE, REGION)
    assert not (tmp_path / "p.json").exists()
