"""An unmodified boto3 against the server: create, wait, describe, list, delete; and raw requests."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local.serving import Server


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


def test_the_seed_can_be_used_as_it_is(server: Server) -> None:
    status, s3 = server.status, server.client("s3")
    assert "SmolLM2-135M-Instruct" in status.weights
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
