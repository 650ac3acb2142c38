"""An unmodified boto3 against the server: create, wait, describe, list, delete; and raw requests."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local.serving import IMAGE, Server, eventually


def test_an_endpoint_comes_up_is_described_and_goes(server: Server, sagemaker: Any) -> None:
    name = server.create(SCRIPT_PING="0.2")
    assert sagemaker.describe_endpoint(EndpointName=name)["EndpointStatus"] == "Creating"
    sagemaker.get_waiter("endpoint_in_service").wait(
        EndpointName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 20}
    )
    described = sagemaker.describe_endpoint(EndpointName=name)
    assert described["EndpointStatus"] == "InService"
    assert described["EndpointArn"] == f"arn:aws:sagemaker:us-east-1:123456789012:endpoint/{name}"
    assert described["CreationTime"].tzinfo is not None
    sagemaker.delete_endpoint(EndpointName=name)
    sagemaker.get_waiter("endpoint_deleted").wait(
        EndpointName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 20}
    )
    sagemaker.delete_endpoint_config(EndpointConfigName=name)
    sagemaker.delete_model(ModelName=name)
    with pytest.raises(ClientError) as gone:
        sagemaker.describe_endpoint(EndpointName=name)
    assert gone.value.response["Error"]["Code"] == "ValidationException"
    assert gone.value.response["Error"]["Message"].startswith("Could not find endpoint")
    assert gone.value.response["ResponseMetadata"]["RequestId"]


def test_paginators_walk_pages_of_ten(server: Server, sagemaker: Any) -> None:
    for number in range(12):
        sagemaker.create_model(
            ModelName=f"page-{number:02d}",
            ExecutionRoleArn=server.status.role_arn,
            PrimaryContainer={"Image": IMAGE},
        )
    pages = list(sagemaker.get_paginator("list_models").paginate(NameContains="page-"))
    assert [len(page["Models"]) for page in pages] == [10, 2]
    for number in range(12):
        sagemaker.delete_model(ModelName=f"page-{number:02d}")


def test_a_failed_engine_fails_the_endpoint_with_its_last_words(server: Server) -> None:
    name = server.create(
        SCRIPT_EXIT_AFTER="0.1", SCRIPT_EXIT_LINE="ValueError: no such head", SCRIPT_PING="never"
    )
    assert "ValueError: no such head" in server.until(name, "Failed")["FailureReason"]


def test_model_data_must_exist(server: Server, sagemaker: Any) -> None:
    with pytest.raises(ClientError, match="s3://nowhere/x/"):
        sagemaker.create_model(
            ModelName="no-data",
            ExecutionRoleArn=server.status.role_arn,
            PrimaryContainer={
                "Image": IMAGE,
                "ModelDataSource": {
                    "S3DataSource": {
                        "S3Uri": "s3://nowhere/x/",
                        "S3DataType": "S3Prefix",
                        "CompressionType": "None",
                    }
                },
            },
        )


def post(
    server: Server, headers: dict[str, str], data: bytes, path: str = "/"
) -> tuple[int, dict[str, Any], Any]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.status.port}{path}", data=data, headers=headers
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.load(answer), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, json.load(error), error.headers


SIGNED = "AWS4-HMAC-SHA256 Credential=local/20261120/{region}/sagemaker/aws4_request, SignedHeaders=host"


def signed(region: str = "us-east-1", operation: str = "ListEndpoints") -> dict[str, str]:
    return {
        "Authorization": SIGNED.format(region=region),
        "X-Amz-Target": f"SageMaker.{operation}",
        "Content-Type": "application/x-amz-json-1.1",
    }


def test_a_raw_request_gets_json_1_1(server: Server) -> None:
    status, answer, headers = post(server, signed(), b"{}")
    assert status == 200
    assert isinstance(answer["Endpoints"], list)
    assert headers["Content-Type"] == "application/x-amz-json-1.1"
    assert headers["x-amzn-RequestId"]


@pytest.mark.parametrize(
    ("headers", "data", "status", "code"),
    [
        (signed(), b"not json", 400, "SerializationException"),
        (signed(), b"[]", 400, "SerializationException"),
        (signed(operation="CreateCheese"), b"{}", 400, "UnknownOperationException"),
        (signed(region="eu-west-1"), b"{}", 403, "InvalidSignatureException"),
        ({"X-Amz-Target": "SageMaker.ListEndpoints"}, b"{}", 403, "MissingAuthenticationTokenException"),
        ({**signed(), "Host": "evil.example"}, b"{}", 403, "AccessDeniedException"),
    ],
)
def test_raw_requests_that_are_refused(
    server: Server, headers: dict[str, str], data: bytes, status: int, code: str
) -> None:
    got, answer, answer_headers = post(server, headers, data)
    assert (got, answer["__type"], answer_headers["x-amzn-ErrorType"]) == (status, code, code)
    assert answer["message"]


def test_another_region_is_another_place(server: Server) -> None:
    with pytest.raises(ClientError, match="Credential should be scoped to a valid region"):
        server.client("sagemaker", region_name="eu-west-1").list_endpoints()


def test_the_seed_can_be_used_as_it_is(server: Server) -> None:
    status, s3 = server.status, server.client("s3")
    assert status.weights == "small stand-in weights"
    assert status.artifacts["p-eagle"] == "s3://peagle-sm-local-us-east-1/tiny-code/p-eagle/"
    head = s3.get_object(
        Bucket="jumpstart-cache-prod-us-east-1", Key="lmi-eagle-heads/models/gpt-oss-20b-p-eagle/config.json"
    )
    assert json.load(head["Body"]) == {"part": "p-eagle"}
    roles = {role["Arn"] for role in server.client("iam").list_roles()["Roles"]}
    assert {status.role_arn, status.scheduler_role_arn} <= roles
    assert server.client("sts").get_caller_identity()["Account"] == "123456789012"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_s3_keeps_what_it_is_given_under_either_name(server: Server, host: str) -> None:
    from tests.local.serving import client_at

    s3 = client_at(f"http://{host}:{server.status.port}", "s3")
    s3.create_bucket(Bucket=f"mine-{host.replace('.', '-')}")
    where = {"Bucket": f"mine-{host.replace('.', '-')}", "Key": "a b/ü+%.txt"}
    s3.put_object(**where, Body=b"x" * 100_000, Metadata={"my_key": "v"})
    assert s3.head_object(**where)["ContentLength"] == 100_000
    assert s3.head_object(**where)["Metadata"] == {"my_key": "v"}
    assert s3.get_object(**where)["Body"].read() == b"x" * 100_000


def test_the_model_gets_what_lies_under_its_s3_prefix(server: Server, sagemaker: Any) -> None:
    uri = server.status.artifacts["target"]
    sagemaker.create_model(
        ModelName="with-data",
        ExecutionRoleArn=server.status.role_arn,
        PrimaryContainer={
            "Image": IMAGE,
            "ModelDataSource": {
                "S3DataSource": {"S3Uri": uri, "S3DataType": "S3Prefix", "CompressionType": "None"}
            },
        },
    )
    assert eventually(lambda: sagemaker.describe_model(ModelName="with-data"))["ModelArn"]
