"""boto3 as AWS's documentation teaches it: the whole life of an endpoint on the real local server and engine.

Nothing of this project is imported. All that is known of the server is the JSON that `peagle-sm local up`
prints; the rest is what a page of AWS's documentation would have a reader write.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import psutil
import pytest

if TYPE_CHECKING:
    from mypy_boto3_sagemaker import SageMakerClient
    from mypy_boto3_sagemaker.type_defs import ContainerDefinitionTypeDef, S3ModelDataSourceTypeDef
    from mypy_boto3_sagemaker_runtime import SageMakerRuntimeClient

NAME = "from-the-documentation"
VARIANT = "AllTraffic"
HEAD = "/opt/ml/additional-model-data-sources/head"
SPECULATION = {"model": HEAD, "method": "eagle3", "num_speculative_tokens": 5, "parallel_drafting": True}
REQUEST = {"prompt": "def add(first, second):\n    ", "max_tokens": 24, "temperature": 0}
# A shared machine may take minutes for what takes a quiet one some 15 s.
STARTUP_S = 900
Peagle = Callable[..., Any]


@pytest.fixture
def peagle(tmp_path: Path) -> Iterator[Peagle]:
    """Runs the command line with a state of its own; ends whatever server is left afterwards."""
    program = Path(sys.executable).with_name("peagle-sm")
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}

    def run(*words: str) -> Any:
        command = [str(program), *words, "--format", "json"]
        done = subprocess.run(
            command, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}"
        return json.loads(done.stdout)

    yield run
    subprocess.run([program, "local", "down"], env=environ, capture_output=True, check=False)


def session_of(up: dict[str, Any]) -> boto3.Session:
    return boto3.Session(
        aws_access_key_id="local", aws_secret_access_key="local", region_name=str(up["region"])
    )


def s3_prefix(uri: str) -> S3ModelDataSourceTypeDef:
    return {"S3Uri": uri, "S3DataType": "S3Prefix", "CompressionType": "None"}


def create(sagemaker: SageMakerClient, up: dict[str, Any]) -> None:
    """Model, configuration, endpoint; then wait, as "Deploy models for real-time inference" says."""
    container: ContainerDefinitionTypeDef = {
        "Image": up["image_uris"]["vllm-cpu"],
        "ModelDataSource": {"S3DataSource": s3_prefix(up["artifacts"]["target"])},
        "AdditionalModelDataSources": [
            {"ChannelName": "head", "S3DataSource": s3_prefix(up["artifacts"]["p-eagle"])}
        ],
        "Environment": {
            "SM_VLLM_SPECULATIVE_CONFIG": json.dumps(SPECULATION),
            "SM_VLLM_PER_REQUEST_SPEC_DECODE_METRICS": "summary",
        },
    }
    sagemaker.create_model(
        ModelName=NAME,
        ExecutionRoleArn=up["role_arn"],
        PrimaryContainer=container,
        EnableNetworkIsolation=True,
    )
    sagemaker.create_endpoint_config(
        EndpointConfigName=NAME,
        ProductionVariants=[
            {
                "VariantName": VARIANT,
                "ModelName": NAME,
                "InstanceType": "ml.g5.2xlarge",
                "InitialInstanceCount": 1,
                "ContainerStartupHealthCheckTimeoutInSeconds": STARTUP_S,
            }
        ],
    )
    created = sagemaker.create_endpoint(
        EndpointName=NAME, EndpointConfigName=NAME, Tags=[{"Key": "team", "Value": "docs"}]
    )
    assert created["EndpointArn"].endswith(f":endpoint/{NAME}")
    assert sagemaker.describe_endpoint(EndpointName=NAME)["EndpointStatus"] == "Creating"
    waiter = sagemaker.get_waiter("endpoint_in_service")
    waiter.wait(EndpointName=NAME, WaiterConfig={"Delay": 2, "MaxAttempts": STARTUP_S // 2})


def look(sagemaker: SageMakerClient) -> None:
    """Describe and list what was made."""
    endpoint = sagemaker.describe_endpoint(EndpointName=NAME)
    assert (endpoint["EndpointStatus"], endpoint["EndpointConfigName"]) == ("InService", NAME)
    (variant,) = endpoint["ProductionVariants"]
    assert (variant["VariantName"], variant["CurrentInstanceCount"]) == (VARIANT, 1)
    container = sagemaker.describe_model(ModelName=NAME)["PrimaryContainer"]
    assert json.loads(container["Environment"]["SM_VLLM_SPECULATIVE_CONFIG"]) == SPECULATION
    assert container["AdditionalModelDataSources"][0]["ChannelName"] == "head"
    (wanted,) = sagemaker.describe_endpoint_config(EndpointConfigName=NAME)["ProductionVariants"]
    assert wanted["ModelName"] == NAME
    tags = sagemaker.list_tags(ResourceArn=endpoint["EndpointArn"])["Tags"]
    assert tags == [{"Key": "team", "Value": "docs"}]
    pages = sagemaker.get_paginator("list_endpoints").paginate(StatusEquals="InService")
    assert [row["EndpointName"] for page in pages for row in page["Endpoints"]] == [NAME]


def invoke(runtime: SageMakerRuntimeClient) -> dict[str, Any]:
    answer = runtime.invoke_endpoint(
        EndpointName=NAME, ContentType="application/json", Body=json.dumps(REQUEST)
    )
    assert answer["InvokedProductionVariant"] == VARIANT
    assert answer["ContentType"] == "application/json"
    completion: dict[str, Any] = json.loads(answer["Body"].read())
    return completion


def lines(stream: Any) -> Iterator[str]:
    """Whole lines of a response stream: AWS cuts its parts anywhere, in the middle of a character too."""
    buffer = b""
    for event in stream:
        assert "PayloadPart" in event, event
        buffer += event["PayloadPart"]["Bytes"]
        *whole, buffer = buffer.split(b"\n")
        for line in whole:
            yield line.decode()
    assert buffer == b"", "the stream ended within a line"


def stream(runtime: SageMakerRuntimeClient) -> list[str]:
    """The pieces of text of a streamed answer."""
    answer = runtime.invoke_endpoint_with_response_stream(
        EndpointName=NAME, ContentType="application/json", Body=json.dumps({**REQUEST, "stream": True})
    )
    assert answer["ContentType"].startswith("text/event-stream")
    data = [line.removeprefix("data: ") for line in lines(answer["Body"]) if line]
    assert data[-1] == "[DONE]"
    return [choice["text"] for event in data[:-1] for choice in json.loads(event)["choices"]]


def invocations(cloudwatch: Any, since: datetime) -> float:
    """What CloudWatch has counted."""
    statistics = cloudwatch.get_metric_statistics(
        Namespace="AWS/SageMaker",
        MetricName="Invocations",
        Dimensions=[
            {"Name": "EndpointName", "Value": NAME},
            {"Name": "VariantName", "Value": VARIANT},
        ],
        StartTime=since - timedelta(minutes=5),
        EndTime=datetime.now(UTC) + timedelta(minutes=5),
        Period=60,
        Statistics=["Sum"],
    )
    return float(sum(point["Sum"] for point in statistics["Datapoints"]))


def log(logs: Any) -> list[str]:
    """What the container has written, of every page."""
    group = f"/aws/sagemaker/Endpoints/{NAME}"
    (stream,) = logs.describe_log_streams(logGroupName=group)["logStreams"]
    assert stream["logStreamName"].startswith(f"{VARIANT}/")
    where = {"logGroupName": group, "logStreamName": stream["logStreamName"]}
    page = logs.get_log_events(**where, startFromHead=True)
    messages = [event["message"] for event in page["events"]]
    token = None
    # "If you have reached the end of the stream, it returns the same token you passed in."
    while page["nextForwardToken"] != token:
        token = page["nextForwardToken"]
        page = logs.get_log_events(**where, startFromHead=True, nextToken=token)
        messages += [event["message"] for event in page["events"]]
    return messages


def delete(sagemaker: SageMakerClient) -> None:
    """Endpoint, configuration, model, in AWS's order; nothing is left in any list."""
    sagemaker.delete_endpoint(EndpointName=NAME)
    waiter = sagemaker.get_waiter("endpoint_deleted")
    waiter.wait(EndpointName=NAME, WaiterConfig={"Delay": 1, "MaxAttempts": 120})
    sagemaker.delete_endpoint_config(EndpointConfigName=NAME)
    sagemaker.delete_model(ModelName=NAME)
    assert sagemaker.list_endpoints()["Endpoints"] == []
    assert sagemaker.list_endpoint_configs()["EndpointConfigs"] == []
    assert sagemaker.list_models()["Models"] == []


def until(reached: Callable[[], bool], seconds: float = 30) -> None:
    limit = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < limit, f"not reached within {seconds} s"
        time.sleep(0.2)


def the_documentations_script(up: dict[str, Any]) -> None:
    """Deploy, look, invoke, stream, measure, read the log, delete."""
    began, session, url = datetime.now(UTC), session_of(up), str(up["endpoint_url"])
    sagemaker = session.client("sagemaker", endpoint_url=url)
    runtime = session.client("sagemaker-runtime", endpoint_url=url)
    create(sagemaker, up)
    look(sagemaker)
    whole = invoke(runtime)
    drafted = whole["metrics"]["speculative_decoding"]
    assert drafted["num_spec_tokens"] == SPECULATION["num_speculative_tokens"]
    assert drafted["num_spec_steps"] > 0
    pieces = stream(runtime)
    assert len(pieces) > 1
    assert "".join(pieces) == whole["choices"][0]["text"] != ""
    cloudwatch = session.client("cloudwatch", endpoint_url=url)
    until(lambda: invocations(cloudwatch, began) == 2)
    logs = session.client("logs", endpoint_url=url)
    until(lambda: any("parallel_drafting" in line for line in log(logs)))
    delete(sagemaker)
    with pytest.raises(runtime.exceptions.ClientError, match=f"Endpoint {NAME} of account .* not found"):
        invoke(runtime)


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.campaign
def test_the_whole_life_of_an_endpoint_and_no_process_is_left(peagle: Peagle) -> None:
    up = peagle("local", "up", "--detach")
    assert {"target", "p-eagle"} <= up["artifacts"].keys(), up["weights"]
    processes = [psutil.Process(up["pid"])]
    the_documentations_script(up)
    processes += processes[0].children(recursive=True)
    ended = peagle("local", "down")["ended"]
    assert [each["pid"] for each in ended] == [up["pid"]]
    assert psutil.wait_procs(processes, timeout=10)[1] == []
