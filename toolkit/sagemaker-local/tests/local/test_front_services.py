"""Metrics, logs and schedules as a boto3 user meets them on the server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from sagemaker_local import lifecycle
from sagemaker_local.errors import NotFound
from tests.local.serving import Server, body, eventually


def query(endpoint: str, name: str, stat: str, namespace: str = "AWS/SageMaker") -> dict[str, Any]:
    dimensions = [
        {"Name": "EndpointName", "Value": endpoint},
        {"Name": "VariantName", "Value": "AllTraffic"},
    ]
    metric = {"Namespace": namespace, "MetricName": name, "Dimensions": dimensions}
    return {"Id": name.lower(), "MetricStat": {"Metric": metric, "Period": 60, "Stat": stat}}


def local_now(server: Server) -> datetime:
    (status,) = lifecycle.status(server.status.port)
    return datetime.fromisoformat(status.clock)


def read(server: Server, *queries: dict[str, Any]) -> dict[str, list[float]]:
    now = local_now(server)
    answer = server.client("cloudwatch").get_metric_data(
        StartTime=now - timedelta(minutes=30),
        EndTime=now + timedelta(minutes=1),
        MetricDataQueries=list(queries),
    )
    return {result["Id"]: result["Values"] for result in answer["MetricDataResults"]}


def test_traffic_shows_in_cloudwatch(server: Server, runtime: Any) -> None:
    name = server.deploy()
    for status in (200, 200, 400, 500):
        script = body() if status == 200 else body(SCRIPT_INVOKE=f"status:{status}")
        try:
            runtime.invoke_endpoint(EndpointName=name, Body=script)
        except ClientError:
            assert status != 200
    result = read(
        server,
        query(name, "Invocations", "Sum"),
        query(name, "Invocation4XXErrors", "Sum"),
        query(name, "Invocation5XXErrors", "Sum"),
        query(name, "ModelLatency", "Average"),
        query(name, "ConcurrentRequestsPerModel", "Maximum"),
    )
    assert sum(result["invocations"]) == 4
    assert sum(result["invocation4xxerrors"]) == 1
    assert sum(result["invocation5xxerrors"]) == 1
    assert result["concurrentrequestspermodel"][0] == 1
    assert 0 < result["modellatency"][0] < 10e6


def test_utilisation_of_the_engine_s_process_fills_the_minutes_that_the_clock_jumps(server: Server) -> None:
    name = server.deploy()
    lifecycle.advance_clock(server.status.port, 600)
    result = read(server, query(name, "MemoryUtilization", "Average", "/aws/sagemaker/Endpoints"))
    assert len(result["memoryutilization"]) >= 9
    assert all(0 < value < 100 for value in result["memoryutilization"])


def test_outsiders_may_not_write_metrics_of_aws(server: Server) -> None:
    cloudwatch = server.client("cloudwatch")
    cloudwatch.put_metric_data(Namespace="Mine", MetricData=[{"MetricName": "x", "Value": 1}])
    with pytest.raises(ClientError, match="The value AWS/ for parameter Namespace is invalid"):
        cloudwatch.put_metric_data(Namespace="AWS/SageMaker", MetricData=[{"MetricName": "x", "Value": 1}])


def test_more_than_500_queries_are_refused(server: Server) -> None:
    queries = [{**query("e", "Invocations", "Sum"), "Id": f"q{number}"} for number in range(501)]
    assert len(read(server, *queries[:500])) == 500
    with pytest.raises(ClientError, match="must not have a size greater than 500"):
        read(server, *queries)


def test_the_engine_s_lines_are_in_cloudwatch_logs(server: Server) -> None:
    name = server.deploy()
    logs = server.client("logs")
    group = f"/aws/sagemaker/Endpoints/{name}"

    def events() -> Any:
        try:
            return logs.filter_log_events(logGroupName=group)["events"]
        except ClientError:
            return []

    first = eventually(events)[0]
    assert first["message"].startswith("scripted engine")
    assert first["logStreamName"].startswith("AllTraffic/i-")
    assert lifecycle.endpoint_logs(server.status.port, name)[0] == first["message"]


def test_the_engine_s_own_metrics_page_can_be_read(server: Server) -> None:
    name = server.deploy()
    assert "vllm:num_requests_running" in lifecycle.endpoint_metrics(server.status.port, name)
    with pytest.raises(NotFound, match="absent"):
        lifecycle.endpoint_metrics(server.status.port, "absent")


@pytest.fixture
def scheduler(server: Server) -> Iterator[Any]:
    client = server.client("scheduler")
    yield client
    for known in client.list_schedules()["Schedules"]:
        client.delete_schedule(Name=known["Name"])


def target(server: Server, endpoint: str, role: str | None = None) -> dict[str, Any]:
    return {
        "Arn": "arn:aws:scheduler:::aws-sdk:sagemaker:deleteEndpoint",
        "RoleArn": role or server.status.scheduler_role_arn,
        "Input": json.dumps({"EndpointName": endpoint}),
    }


def names(sagemaker: Any) -> set[str]:
    pages = sagemaker.get_paginator("list_endpoints").paginate()
    return {found["EndpointName"] for page in pages for found in page["Endpoints"]}


def test_a_lifetime_schedule_deletes_the_endpoint_and_no_sooner(
    server: Server, sagemaker: Any, scheduler: Any
) -> None:
    name = server.deploy()
    expiry = local_now(server) + timedelta(hours=2)
    scheduler.create_schedule(
        Name=f"peagle-{name}-lifetime",
        ScheduleExpression="rate(10 minutes)",
        StartDate=expiry,
        EndDate=expiry + timedelta(days=1),
        FlexibleTimeWindow={"Mode": "OFF"},
        Target=target(server, name),
    )
    lifecycle.advance_clock(server.status.port, 7000)
    assert sagemaker.describe_endpoint(EndpointName=name)["EndpointStatus"] == "InService"
    lifecycle.advance_clock(server.status.port, 300)
    eventually(lambda: name not in names(sagemaker))


def test_a_one_time_schedule_fires_by_itself(server: Server, sagemaker: Any, scheduler: Any) -> None:
    name = server.deploy()
    at = local_now(server) + timedelta(seconds=2)
    scheduler.create_schedule(
        Name="once",
        ScheduleExpression=f"at({at:%Y-%m-%dT%H:%M:%S})",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target=target(server, name),
        ActionAfterCompletion="DELETE",
    )
    eventually(lambda: name not in names(sagemaker))
    eventually(lambda: not scheduler.list_schedules()["Schedules"])


def test_a_schedule_carries_the_local_time(server: Server, scheduler: Any) -> None:
    scheduler.create_schedule(
        Name="dated",
        ScheduleExpression="rate(1 day)",
        StartDate=datetime.now(UTC) + timedelta(days=2000),
        FlexibleTimeWindow={"Mode": "OFF"},
        Target=target(server, "nobody"),
    )
    creation_date = scheduler.get_schedule(Name="dated")["CreationDate"]
    assert abs(creation_date - local_now(server)) < timedelta(seconds=30)


def test_a_role_that_scheduler_may_not_assume_is_refused(server: Server, scheduler: Any) -> None:
    with pytest.raises(ClientError) as raised:
        scheduler.create_schedule(
            Name="untrusted",
            ScheduleExpression="rate(1 day)",
            FlexibleTimeWindow={"Mode": "OFF"},
            Target=target(server, "nobody", role=server.status.role_arn),
        )
    assert raised.value.response["Error"]["Code"] == "ValidationException"
    assert "must allow AWS EventBridge Scheduler to assume the role" in str(raised.value)


def test_a_schedule_that_fails_writes_to_its_dead_letter_queue(server: Server, scheduler: Any) -> None:
    sqs = server.client("sqs")
    url = sqs.create_queue(QueueName="dead")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    scheduler.create_schedule(
        Name="hopeless",
        ScheduleExpression="rate(1 day)",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={**target(server, "no-such-endpoint"), "DeadLetterConfig": {"Arn": arn}},
    )

    def letters() -> Any:
        return sqs.receive_message(QueueUrl=url, MessageAttributeNames=["All"]).get("Messages")

    (letter,) = eventually(letters)
    assert letter["MessageAttributes"]["ERROR_CODE"]["StringValue"] == "ValidationException"
    assert json.loads(letter["Body"]) == {"EndpointName": "no-such-endpoint"}


@pytest.mark.parametrize("service", ["sagemaker", "dynamodb"])
def test_every_answer_is_dated_by_the_local_clock(server: Server, service: str) -> None:
    lifecycle.advance_clock(server.status.port, 3600)
    before = local_now(server)
    client = server.client(service)
    answer = client.list_endpoints() if service == "sagemaker" else client.list_tables()
    date = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
    assert before - timedelta(seconds=1) <= date <= local_now(server)
