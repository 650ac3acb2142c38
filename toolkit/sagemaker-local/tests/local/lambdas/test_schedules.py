"""Schedules that call functions, at a real server: the function calls back while the clock waits for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sagemaker_local import lifecycle
from tests.local.lambdas.conftest import Deployed
from tests.local.serving import Server

# Notes the time it was given, and makes a schedule of its own, which needs the scheduler's ear at once.
SWEEPER = """
import json
import boto3

def handler(event, context):
    boto3.client("sqs").send_message(QueueUrl=event["queue"], MessageBody=event["time"])
    target = {"Arn": "arn:aws:scheduler:::aws-sdk:sagemaker:deleteEndpoint", "RoleArn": event["role"]}
    target["Input"] = json.dumps({"EndpointName": "nobody"})
    boto3.client("scheduler").create_schedule(
        Name="made-" + event["time"].replace(":", ""),
        ScheduleExpression="rate(1 day)",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target=target,
    )
"""


@pytest.fixture
def queue(server: Server) -> Any:
    return server.client("sqs").create_queue(QueueName="heard")["QueueUrl"]


def heard(server: Server, url: str) -> list[str]:
    rows: list[str] = []
    sqs = server.client("sqs")
    while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
        rows += [message["Body"] for message in messages]
    return sorted(rows)


def test_a_function_on_a_schedule_has_done_its_work_when_the_clock_has_moved(
    server: Server, deployed: Deployed, queue: str
) -> None:
    name = deployed.function(SWEEPER)
    role = server.status.scheduler_role_arn
    answer = {"time": "<aws.scheduler.scheduled-time>", "queue": queue, "role": role}
    scheduler = server.client("scheduler")
    lifecycle.advance_clock(server.status.port, 0)
    scheduler.create_schedule(
        Name="sweep",
        ScheduleExpression="rate(5 minutes)",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={
            "Arn": f"arn:aws:lambda:us-east-1:123456789012:function:{name}",
            "RoleArn": role,
            "Input": json.dumps(answer),
        },
    )
    try:
        lifecycle.advance_clock(server.status.port, 11 * 60)
        times = heard(server, queue)
        assert len(times) == 3  # at once, and after five and ten minutes
        assert all(time.endswith("Z") for time in times)
        created = [each["Name"] for each in scheduler.list_schedules(NamePrefix="made-")["Schedules"]]
        assert sorted(created) == ["made-" + time.replace(":", "") for time in times]
    finally:
        for each in (
            "sweep",
            *(s["Name"] for s in scheduler.list_schedules(NamePrefix="made-")["Schedules"]),
        ):
            scheduler.delete_schedule(Name=each)
