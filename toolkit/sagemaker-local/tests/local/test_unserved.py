"""What moto lacks is refused in AWS's shape, with the names of service and operation."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local.serving import Server

_ROLE = "arn:aws:iam::123456789012:role/peagle-local"

# One of each protocol: what moto raises for, has no route for, and a service that it does not know.
LACKING: list[Any] = [
    pytest.param("logs", "list_anomalies", {}, "logs ListAnomalies", id="json"),
    pytest.param(
        "sqs", "cancel_message_move_task", {"TaskHandle": "x"}, "sqs CancelMessageMoveTask", id="json-1.0"
    ),
    pytest.param("cloudwatch", "list_metric_streams", {}, "monitoring ListMetricStreams", id="cbor"),
    pytest.param(
        "iam",
        "generate_service_last_accessed_details",
        {"Arn": _ROLE},
        "iam GenerateServiceLastAccessedDetails",
        id="query",
    ),
    pytest.param(
        "lambda",
        "list_provisioned_concurrency_configs",
        {"FunctionName": "f"},
        "lambda ListProvisionedConcurrencyConfigs",
        id="rest-json",
    ),
    pytest.param("route53", "list_cidr_collections", {}, "route53 ListCidrCollections", id="rest-xml"),
    pytest.param(
        "application-signals",
        "list_services",
        {"StartTime": 1, "EndTime": 2},
        "application-signals ListServices",
        id="unknown-service",
    ),
    # What moto answers without the checks of AWS.
    pytest.param("kms", "generate_data_key", {"KeyId": "k"}, "kms GenerateDataKey", id="kms"),
    pytest.param(
        "service-quotas",
        "get_service_quota",
        {"ServiceCode": "sagemaker", "QuotaCode": "L-1"},
        "servicequotas GetServiceQuota",
        id="quota",
    ),
]


@pytest.mark.parametrize(("service", "operation", "asked", "named"), LACKING)
def test_an_operation_that_moto_lacks_is_named(
    server: Server, service: str, operation: str, asked: dict[str, Any], named: str
) -> None:
    client = server.client(service)
    with pytest.raises(ClientError) as raised:
        getattr(client, operation)(**asked)
    answer = raised.value.response
    assert answer["Error"]["Code"] == "UnknownOperationException"
    assert answer["Error"]["Message"] == f"{named} is not implemented by the local SageMaker"
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 400  # a client repeats a 500


def test_what_a_service_itself_does_not_find_stays_its_own_answer(server: Server) -> None:
    with pytest.raises(ClientError) as missing:
        server.client("lambda").get_function(FunctionName="nobody")
    assert missing.value.response["Error"]["Code"] == "ResourceNotFoundException"
    with pytest.raises(ClientError) as no_bucket:
        server.client("s3").head_bucket(Bucket="nobody")
    assert no_bucket.value.response["ResponseMetadata"]["HTTPStatusCode"] == 404


def test_a_request_that_moto_breaks_over_is_told_with_what_broke(server: Server) -> None:
    scope = "local/20261120/us-east-1/dynamodb/aws4_request"
    headers = {
        "Authorization": f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0",
        "X-Amz-Target": "DynamoDB_20120810.PutItem",
        "Content-Type": "application/x-amz-json-1.0",
    }
    request = urllib.request.Request(server.url, data=b"[]", headers=headers)
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(request)
    document = json.loads(raised.value.read())
    assert (raised.value.code, document["__type"]) == (500, "InternalFailure")
    assert document["message"].startswith("dynamodb PutItem failed in moto, which emulates it locally")
