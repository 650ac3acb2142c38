"""Bucket policies as the local S3 takes them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local.serving import Server


def policy(bucket: str, **statement: Any) -> str:
    resources = [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"]
    full = {"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": resources, **statement}
    return json.dumps({"Version": "2012-10-17", "Statement": [full]})


def test_a_bucket_that_denies_plain_http_takes_objects(server: Server) -> None:
    # The CDK's own staging bucket has this policy.
    s3 = server.client("s3")
    s3.create_bucket(Bucket="tls-only")
    insecure = {"Bool": {"aws:SecureTransport": "false"}}
    s3.put_bucket_policy(Bucket="tls-only", Policy=policy("tls-only", Condition=insecure))
    s3.put_object(Bucket="tls-only", Key="x", Body=b"1")
    assert s3.get_object(Bucket="tls-only", Key="x")["Body"].read() == b"1"


def test_a_plain_denial_still_denies(server: Server) -> None:
    s3 = server.client("s3")
    s3.create_bucket(Bucket="closed")
    s3.put_bucket_policy(Bucket="closed", Policy=policy("closed"))
    with pytest.raises(ClientError, match="403"):
        s3.put_object(Bucket="closed", Key="x", Body=b"1")
