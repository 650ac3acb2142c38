"""The price list of the local SageMaker: GetProducts as boto3 and the product ask it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from peagle_sm.aws.control.price_file import Use
from peagle_sm.aws.control.prices import find_listed
from peagle_sm.aws.session.session import Session
from tests.local.serving import Server
from tests.prices import document, documents, hosting_types, token_document


class Account:
    """A boto3 session of an account whose price list the local server plays."""

    profile_name = "default"

    def __init__(self, server: Server, region: str) -> None:
        self.server, self.region_name = server, region

    def client(self, service: str, **options: Any) -> Any:
        return self.server.client(service)


def recorded(server: Server, rows: list[dict[str, Any]]) -> None:
    with urllib.request.urlopen(f"{server.url}/_peagle/prices", json.dumps(rows).encode()) as answer:
        assert json.loads(answer.read()) == {"documents": len(rows)}


@pytest.fixture
def packaged(server: Server) -> Iterator[Server]:
    """The server with its own list, put back after the test."""
    pages = server.client("pricing").get_paginator("get_products").paginate(ServiceCode="AmazonSageMaker")
    rows = [json.loads(text) for page in pages for text in page["PriceList"]]
    yield server
    recorded(server, rows)


def test_the_packaged_list_has_a_price_for_each_use(packaged: Server) -> None:
    session = Session.from_boto3(Account(packaged, "us-west-2"))
    uses: tuple[Use, ...] = ("Host", "Train")
    for use in uses:
        entry = find_listed(session, "ml.p5.48xlarge", "us-west-2", use).entry
        assert entry is not None
        assert (entry.usd_per_hour, entry.date) == (63.296, "2026-09-01")
    assert find_listed(session, "ml.p5.48xlarge", "eu-west-1").entry is None


def test_a_recorded_list_is_paged_and_every_type_is_found(packaged: Server) -> None:
    region = "eu-west-1"
    recorded(packaged, documents(region))
    client = packaged.client("pricing")
    wanted = [{"Type": "TERM_MATCH", "Field": "component", "Value": "Hosting"}]
    pages = list(
        client.get_paginator("get_products").paginate(
            ServiceCode="AmazonSageMaker", Filters=wanted, PaginationConfig={"PageSize": 20}
        )
    )
    names = [
        json.loads(text)["product"]["attributes"]["instanceName"]
        for page in pages
        for text in page["PriceList"]
    ]
    assert names == hosting_types()
    assert [len(page["PriceList"]) for page in pages[:-1]] == [20] * (len(pages) - 1)
    assert {page["FormatVersion"] for page in pages} == {"aws_v1"}
    session = Session.from_boto3(Account(packaged, region))
    for place, name in enumerate(hosting_types(), start=1):
        entry = find_listed(session, name, region).entry
        assert entry is not None
        assert entry.usd_per_hour == place + 0.5


@pytest.mark.parametrize(
    ("kind", "value", "count"),
    [
        ("TERM_MATCH", "Hosting", 1),
        ("EQUALS", "Hosting", 1),
        ("TERM_MATCH", "Host", 0),
    ],
)
def test_filters_of_the_model(kind: str, value: str, count: int, packaged: Server) -> None:
    rows = [document("ml.g5.xlarge", "eu-west-1", use, "1") for use in ("Hosting", "Training", "Processing")]
    recorded(packaged, rows)
    wanted = [
        {"Type": kind, "Field": "component", "Value": value},
        {"Type": "TERM_MATCH", "Field": "regionCode", "Value": "eu-west-1"},
    ]
    answer = packaged.client("pricing").get_products(ServiceCode="AmazonSageMaker", Filters=wanted)
    assert len(answer["PriceList"]) == count


def test_a_token_of_another_call_and_wrong_parameters_are_refused(packaged: Server) -> None:
    client = packaged.client("pricing")
    token = client.get_products(ServiceCode="AmazonSageMaker", MaxResults=1)["NextToken"]
    wanted = [{"Type": "TERM_MATCH", "Field": "component", "Value": "Hosting"}]
    calls: list[tuple[str, dict[str, Any]]] = [
        ("InvalidNextTokenException", {"NextToken": token, "Filters": wanted}),
        ("InvalidNextTokenException", {"NextToken": "none"}),
        ("InvalidParameterException", {"FormatVersion": "aws_v2"}),
        ("InvalidParameterException", {"ServiceCode": "AmazonNothing"}),
        ("InvalidParameterException", {"Filters": [{**wanted[0], "Type": "CONTAINS"}]}),
    ]
    for code, more in calls:
        with pytest.raises(ClientError) as caught:
            client.get_products(**{"ServiceCode": "AmazonSageMaker", **more})
        assert caught.value.response["Error"]["Code"] == code
    with pytest.raises(ClientError, match="DescribeServices is not implemented"):
        client.describe_services()


def command(server: Server, path: Path, *words: str) -> Any:
    """Run `peagle-sm` as on AWS, with the server in the place of AWS's price list."""
    environment = {
        **os.environ,
        "AWS_ENDPOINT_URL_PRICING": server.url,
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "y",
        "PEAGLE_SM_PRICES": str(path),
    }
    done = subprocess.run(
        [sys.executable, "-m", "peagle_sm", *words, "--format", "json"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_commands_take_the_list_s_price_and_keep_it(packaged: Server, tmp_path: Path) -> None:
    region, kind, prices = "eu-west-1", "ml.g7e.2xlarge", tmp_path / "prices.json"
    role = "arn:aws:iam::123456789012:role/peagle"
    spec = tmp_path / "peagle.yaml"
    spec.write_text(
        f"name: demo\nmodel: gpt-oss-20b\nexecution_role_arn: {role}\nscheduler_role_arn: {role}\n"
        f"placement: {{region: {region}, instance_types: [{kind}]}}\nlifecycle: {{budget_usd: 44}}\n"
    )
    recorded(packaged, [document(kind, region, "Hosting", "5.5")])
    for _ in range(2):
        plan = command(packaged, prices, "plan", str(spec))
        assert (plan["usd_per_hour"], plan["max_usd"], plan["refused"]) == (5.5, 44.0, False)
        assert (
            plan["price_source"] == f"{kind} in {region}: SageMaker on demand, AWS Price List API, 2026-11-01"
        )
        recorded(packaged, [])  # what was kept counts now
    types = ("ml.p5.48xlarge", "ml.p5en.48xlarge", "ml.p6-b200.48xlarge", "ml.p6-b300.48xlarge")
    recorded(packaged, [document(name, region, "Training", "70") for name in types])
    answer = command(packaged, prices, "learn", "plan", "gpt-oss-120b", "--region", region)
    for row in answer["options"]:
        assert row["price"].startswith("70.00 USD/hour")
        assert row["usd"] == (pytest.approx(70 * row["hours"]) if row["fits"] else None)


def test_prices_of_tokens_come_from_the_list_too_and_are_kept(packaged: Server, tmp_path: Path) -> None:
    region, prices = "eu-west-1", tmp_path / "prices.json"
    names = {"EU-gpt-oss-20b-input-tokens": "0.00009", "EU-gpt-oss-20b-output-tokens": "0.0004"}
    tokens = [token_document(name, region, usd) for name, usd in names.items()]
    words = ("decide", "gpt-oss-20b", "--otps", "40", "--tokens", "600/200", "--region", region)
    recorded(packaged, [document("ml.g7e.2xlarge", region, "Hosting", "5.5"), *tokens])
    for _ in range(2):
        answer = command(packaged, prices, *words)
        assert answer["calling"]["usd_per_million"] == {
            "input": pytest.approx(0.09),
            "output": pytest.approx(0.4),
            "cached": None,
        }
        assert "AWS Price List API, 2026-11-01" in answer["calling"]["source"]
        (option,) = answer["options"]
        assert option["usd_per_hour"]["value"] == 5.5
        recorded(packaged, [])  # what was kept counts now
