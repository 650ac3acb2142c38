"""Invoke runs the deployed code: what it sees, what it may not see, how its failures are told."""

from __future__ import annotations

import base64
import json
import threading
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ReadTimeoutError

from sagemaker_local import lifecycle
from tests.local.lambdas.conftest import Deployed, zipped
from tests.local.serving import Server, eventually

ECHO = """
import os
def handler(event, context):
    print("working on", event)
    return {
        "event": event,
        "request": context.aws_request_id,
        "name": context.function_name,
        "arn": context.invoked_function_arn,
        "left_ms": context.get_remaining_time_in_millis(),
        "environment": dict(os.environ),
    }
"""


def test_the_deployed_code_runs_in_its_environment(deployed: Deployed) -> None:
    name = deployed.function(ECHO, Environment={"Variables": {"MINE": "yes"}}, MemorySize=256)
    found, answer = deployed.call(name, {"a": 1}, LogType="Tail")
    assert found["event"] == {"a": 1}
    assert found["name"] == name
    assert found["arn"] == f"arn:aws:lambda:us-east-1:123456789012:function:{name}"
    assert 0 < found["left_ms"] <= 30_000
    assert found["request"] == answer["ResponseMetadata"]["RequestId"]
    assert answer["ExecutedVersion"] == "$LATEST"
    assert base64.b64decode(answer["LogResult"]) == b"working on {'a': 1}"
    url = deployed.server.url
    wanted = {
        "MINE": "yes",
        "AWS_REGION": "us-east-1",
        "AWS_LAMBDA_FUNCTION_NAME": name,
        "AWS_ENDPOINT_URL": url,
        "AWS_ENDPOINT_URL_S3": url,
        "PEAGLE_LOCAL_CLOCK_URL": f"{url}/_peagle/clock",
    }
    assert wanted.items() <= found["environment"].items()
    assert not {"HOME", "PYTHONPATH", "VIRTUAL_ENV"} & found["environment"].keys()


def test_boto3_in_a_function_reaches_this_server_and_its_clock(deployed: Deployed) -> None:
    source = """
import json, os, urllib.request
import boto3
def handler(event, context):
    with urllib.request.urlopen(os.environ["PEAGLE_LOCAL_CLOCK_URL"]) as answer:
        now = json.load(answer)["now"]
    return [boto3.client("sts").get_caller_identity()["Account"], now]
"""
    (account, now), _ = deployed.call(deployed.function(source))
    assert account == "123456789012"
    (status,) = lifecycle.status(deployed.server.status.port)
    assert abs(datetime.fromisoformat(now) - datetime.fromisoformat(status.clock)) < timedelta(minutes=1)


def test_a_function_finds_its_own_packages_and_not_what_only_this_machine_has(deployed: Deployed) -> None:
    source = """
import inner.part
def handler(event, context):
    found = {"inner": inner.part.VALUE}
    for name in ("botocore", "moto", "aiohttp", "peagle_sm"):
        try:
            __import__(name)
            found[name] = True
        except ImportError:
            found[name] = False
    return found
"""
    files = {"inner____init__": "", "inner__part": "VALUE = 7"}
    found, _ = deployed.call(deployed.function(source, files=files))
    assert found == {"inner": 7, "botocore": True, "moto": False, "aiohttp": False, "peagle_sm": False}


@pytest.mark.parametrize(
    ("source", "kind", "says"),
    [
        ("def handler(event, context):\n    raise KeyError('x')", "KeyError", "'x'"),
        ("import nothing_like_it", "Runtime.ImportModuleError", "Unable to import module 'index'"),
        ("x = 1", "Runtime.HandlerNotFound", "Handler 'handler' missing on module 'index'"),
        ("def handler(:", "Runtime.UserCodeSyntaxError", "Syntax error in module 'index'"),
        (
            "def handler(event, context):\n    return object()",
            "Runtime.MarshalError",
            "not JSON serializable",
        ),
        ("import os\ndef handler(event, context):\n    os._exit(3)", "Runtime.ExitError", "exit status 3"),
    ],
)
def test_failures_are_told_as_lambda_does(deployed: Deployed, source: str, kind: str, says: str) -> None:
    found, answer = deployed.call(deployed.function(source))
    assert answer["StatusCode"] == 200
    assert answer["FunctionError"] == "Unhandled"
    assert found["errorType"] == kind
    assert says in found["errorMessage"]


def test_a_timeout_ends_the_function_and_what_it_started(deployed: Deployed, tmp_path: Path) -> None:
    text = tmp_path / "pids"
    source = f"""
import os, pathlib, subprocess, time
def handler(event, context):
    child = subprocess.Popen(["sleep", "600"])
    pathlib.Path({str(text)!r}).write_text(f"{{os.getpid()}} {{child.pid}}")
    time.sleep(600)
"""
    name = deployed.function(source, Timeout=5)
    found, answer = deployed.call(name)
    assert answer["FunctionError"] == "Unhandled"
    assert found["errorType"] == "Sandbox.Timedout"
    assert "Task timed out after 5.00 seconds" in found["errorMessage"]
    pids = text.read_text().split()
    eventually(lambda: not any(_runs(int(pid)) for pid in pids))


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_caller_who_leaves_does_not_end_the_function(deployed: Deployed) -> None:
    source = """
import time
import boto3
def handler(event, context):
    time.sleep(3)
    boto3.client("ssm").put_parameter(Name="/finished", Type="String", Value="yes")
"""
    name = deployed.function(source)
    hasty = Config(read_timeout=1, retries={"total_max_attempts": 1})
    client = boto3.client(
        "lambda",
        endpoint_url=deployed.server.url,
        config=hasty,
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
    )
    with pytest.raises(ReadTimeoutError):
        client.invoke(FunctionName=name)
    ssm = deployed.server.client("ssm")
    eventually(lambda: ssm.get_parameters(Names=["/finished"])["Parameters"])


def test_new_code_and_configuration_are_used_at_once(deployed: Deployed) -> None:
    name = deployed.function("def handler(event, context):\n    return 1")
    assert deployed.call(name)[0] == 1
    code = zipped(index="import os\ndef handler(event, context):\n    return os.environ['N']")
    deployed.client.update_function_code(FunctionName=name, ZipFile=code)
    deployed.client.update_function_configuration(FunctionName=name, Environment={"Variables": {"N": "2"}})
    assert deployed.call(name)[0] == "2"


def test_what_is_not_there_or_not_json_is_refused(deployed: Deployed) -> None:
    for name in ("nobody", "arn:aws:lambda:us-east-1:123456789012:function:nobody"):
        with pytest.raises(ClientError) as raised:
            deployed.call(name)
        assert raised.value.response["Error"]["Code"] == "ResourceNotFoundException"
        assert "Function not found: arn:aws:lambda:us-east-1:123456789012:function:nobody" in str(
            raised.value
        )
    name = deployed.function("def handler(event, context):\n    return event")
    with pytest.raises(ClientError, match="InvalidRequestContentException"):
        deployed.client.invoke(FunctionName=name, Payload=b"{not json")
    assert deployed.client.invoke(FunctionName=name, InvocationType="DryRun")["StatusCode"] == 204
    arn = f"arn:aws:lambda:us-east-1:123456789012:function:{name}:$LATEST"
    assert deployed.call(arn, [1])[0] == [1]


def test_reserved_concurrency_refuses_the_second_invocation(deployed: Deployed) -> None:
    source = """
import time
import boto3
def handler(event, context):
    if event:
        return "second"
    boto3.client("ssm").put_parameter(Name="/running", Type="String", Value="1")
    ssm = boto3.client("ssm")
    while ssm.get_parameter(Name="/running")["Parameter"]["Value"] == "1":
        time.sleep(0.05)
"""
    name = deployed.function(source)
    deployed.client.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=1)
    first = threading.Thread(target=lambda: deployed.server.client("lambda").invoke(FunctionName=name))
    first.start()
    ssm = deployed.server.client("ssm")

    def running() -> bool:
        return bool(ssm.get_parameters(Names=["/running"])["Parameters"])

    eventually(running)
    with pytest.raises(ClientError) as raised:
        deployed.call(name, {"second": True})
    assert raised.value.response["Error"]["Code"] == "TooManyRequestsException"
    assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 429
    ssm.put_parameter(Name="/running", Value="0", Overwrite=True)
    first.join(timeout=30)
    assert deployed.call(name, {"second": True})[0] == "second"


def test_output_and_counts_reach_cloudwatch(deployed: Deployed, server: Server) -> None:
    source = (
        "import logging\ndef handler(event, context):\n    logging.warning('seen %s', event)\n    1 / event"
    )
    name = deployed.function(source)
    deployed.call(name, 1)
    deployed.client.invoke(FunctionName=name, Payload=b"0")
    messages = [
        event["message"]
        for event in server.client("logs").filter_log_events(logGroupName=f"/aws/lambda/{name}")["events"]
    ]
    assert any(message.startswith("START RequestId: ") for message in messages)
    assert any(message.startswith("[WARNING]") and message.endswith("seen 1") for message in messages)
    assert "ZeroDivisionError: division by zero" in messages
    assert _sums(server, name) == {"Invocations": 2, "Errors": 1, "Throttles": 0}


def test_a_role_that_may_not_create_log_groups_brings_no_deleted_group_back(deployed: Deployed) -> None:
    role = deployed.server.role("lambda", "logs:CreateLogStream", "logs:PutLogEvents")
    name = deployed.function("def handler(event, context):\n    print('written')", Role=role)
    logs, group = deployed.server.client("logs"), f"/aws/lambda/{name}"

    def groups() -> list[str]:
        log_groups = logs.describe_log_groups(logGroupNamePrefix=group)["logGroups"]
        return [row["logGroupName"] for row in log_groups]

    deployed.call(name)
    assert groups() == []
    logs.create_log_group(logGroupName=group)
    deployed.call(name)
    events = logs.filter_log_events(logGroupName=group)["events"]
    assert "written" in [event["message"] for event in events]
    logs.delete_log_group(logGroupName=group)
    deployed.call(name)
    assert groups() == []


def _sums(server: Server, name: str) -> dict[str, float]:
    (status,) = lifecycle.status(server.status.port)
    now = datetime.fromisoformat(status.clock)
    sums = {}
    for metric in ("Invocations", "Errors", "Throttles"):
        metric_statistics: Any = server.client("cloudwatch").get_metric_statistics(
            Namespace="AWS/Lambda",
            MetricName=metric,
            Dimensions=[{"Name": "FunctionName", "Value": name}],
            StartTime=now - timedelta(minutes=10),
            EndTime=now + timedelta(minutes=1),
            Period=60,
            Statistics=["Sum"],
        )
        sums[metric] = sum(point["Sum"] for point in metric_statistics["Datapoints"])
    return sums


def test_only_python_runs_here(deployed: Deployed) -> None:
    found, answer = deployed.call(deployed.function("", Runtime="nodejs22.x"))
    assert answer["FunctionError"] == "Unhandled"
    assert "runs only python3 functions; found nodejs22.x" in found["errorMessage"]


def test_an_event_that_fails_goes_to_the_dead_letters(deployed: Deployed, server: Server) -> None:
    sqs = server.client("sqs")
    url = sqs.create_queue(QueueName="dead-events")["QueueUrl"]
    arn = "arn:aws:sqs:us-east-1:123456789012:dead-events"
    name = deployed.function(
        "def handler(event, context):\n    raise ValueError('never')",
        DeadLetterConfig={"TargetArn": arn},
    )
    kept = deployed.client.get_function_configuration(FunctionName=name)["DeadLetterConfig"]
    assert kept == {"TargetArn": arn}
    with pytest.raises(ClientError, match="delivers to no destinations"):
        deployed.client.put_function_event_invoke_config(
            FunctionName=name, DestinationConfig={"OnFailure": {"Destination": arn}}
        )
    deployed.client.put_function_event_invoke_config(FunctionName=name, MaximumRetryAttempts=1)
    answer = deployed.client.invoke(FunctionName=name, InvocationType="Event", Payload=b'{"k": 1}')
    assert answer["StatusCode"] == 202
    port = server.status.port
    lifecycle.advance_clock(port, 59)
    assert not _letters(sqs, url)
    lifecycle.advance_clock(port, 2)
    (letter,) = _letters(sqs, url)
    assert json.loads(letter["Body"]) == {"k": 1}
    assert letter["MessageAttributes"]["ErrorMessage"]["StringValue"] == "never"


def _letters(sqs: Any, url: str) -> list[dict[str, Any]]:
    receive_message = sqs.receive_message(QueueUrl=url, MessageAttributeNames=["All"], MaxNumberOfMessages=10)
    return list(receive_message.get("Messages", []))
