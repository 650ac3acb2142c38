"""What a published table needs in AWS before anything costs: files in S3."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from peagle_bench.compare.deployments import refuse_not_staged
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import NotFound, PlanRefused
from tests.aws.test_prices import REGION

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
