"""What a published table needs in AWS before anything costs: files in S3, and a region with the instance."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import NotFound, PlanRefused
from peagle_sm.measure.compare.deployments import refuse_not_offered, refuse_not_staged
from tests.aws.test_prices import INSTANCE, REGION, Boto3, answering, product

PREFIXES = {
    "s3://bucket/p/target/": "peagle-sm heads stage a",
    "s3://bucket/p/head/": "peagle-sm heads stage b",
}


class Bucket:
    """A session of boto3 whose S3 lists these keys, one answer for each prefix."""

    profile_name, region_name = "default", REGION

    def __init__(self, *answers: list[str]) -> None:
        self.client_ = boto3.client(
            "s3", region_name=REGION, aws_access_key_id="x", aws_secret_access_key="y"
        )
        stub = Stubber(self.client_)
        for keys in answers:
            rows = [{"Key": key, "Size": 9, "ETag": '"0"'} for key in keys]
            stub.add_response("list_objects_v2", {"Contents": rows})
        stub.activate()
        self.stub = stub

    def client(self, service: str, **options: Any) -> Any:
        assert service == "s3"
        return self.client_


def test_a_prefix_without_files_is_refused_with_the_command_that_fills_it() -> None:
    bucket = Bucket(["p/target/config.json", "p/target/a.safetensors"], ["p/head/a.safetensors"])
    with pytest.raises(PlanRefused, match=r"s3://bucket/p/head/: no config\.json there") as caught:
        refuse_not_staged(Session.from_boto3(bucket), PREFIXES)
    assert caught.value.next_step is not None
    assert caught.value.next_step.startswith("peagle-sm heads stage b")
    assert "heads stage a" not in caught.value.next_step


def test_filled_prefixes_are_not_refused() -> None:
    bucket = Bucket(["p/target/config.json"], ["p/head/config.json"])
    refuse_not_staged(Session.from_boto3(bucket), PREFIXES)


def test_a_bucket_that_does_not_exist_is_told() -> None:
    bucket = Bucket()
    bucket.stub.add_client_error("list_objects_v2", "NoSuchBucket", "no", http_status_code=404)
    with pytest.raises(NotFound, match="bucket"):
        refuse_not_staged(Session.from_boto3(bucket), PREFIXES)


def everywhere(made: Boto3, *regions: str) -> None:
    """Let the API answer with this instance's hosting price in these regions."""
    rows = []
    for region in regions:
        row = product(f"X-Host:{INSTANCE}")
        row["product"]["attributes"]["regionCode"] = region
        rows.append(json.dumps(row))
    made.stub.add_response("get_products", {"PriceList": rows})


def test_a_region_that_lacks_the_instance_is_refused_with_those_that_have_it() -> None:
    session, made = answering()
    everywhere(made, "us-west-2", "eu-west-1")
    with pytest.raises(PlanRefused, match=f"{INSTANCE} has no hosting price in {REGION}") as caught:
        refuse_not_offered(session, INSTANCE)
    assert "eu-west-1, us-west-2" in str(caught.value)
    assert "--region eu-west-1" in str(caught.value.next_step)


def test_an_instance_with_a_price_here_or_nowhere_is_not_refused() -> None:
    session, _ = answering(product(f"USE1-Host:{INSTANCE}"))
    refuse_not_offered(session, INSTANCE)
    session, made = answering()
    everywhere(made)
    refuse_not_offered(session, INSTANCE)


def test_without_permission_for_prices_nothing_is_refused() -> None:
    made = Boto3()
    made.stub.add_client_error("get_products", "AccessDeniedException", "not authorized")
    refuse_not_offered(Session.from_boto3(made), INSTANCE)
