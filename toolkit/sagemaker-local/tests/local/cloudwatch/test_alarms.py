"""States of alarms: CloudWatch's own table of missing data, then real alarms on the local server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from sagemaker_local import lifecycle
from sagemaker_local.cloudwatch.alarms import state_of
from tests.local.serving import Server, eventually

_COLUMNS = ("missing", "ignore", "breaching", "notBreaching")


# "Configuring how CloudWatch alarms treat missing data", user guide: the tables for 3 of 3 and for 2 of 3 of
# five points, oldest first. "0" is a point that does not breach, "X" one that does, "-" a missing one.
@pytest.mark.parametrize(
    ("points", "wanted", "states"),
    [
        ("0-X-X", 3, ("OK", "OK", "OK", "OK")),
        ("0----", 3, ("OK", "OK", "OK", "OK")),
        ("-----", 3, ("INSUFFICIENT_DATA", "before", "ALARM", "OK")),
        ("0XX-X", 3, ("ALARM", "ALARM", "ALARM", "ALARM")),
        ("--X--", 3, ("ALARM", "before", "ALARM", "OK")),
        ("0-X-X", 2, ("ALARM", "ALARM", "ALARM", "ALARM")),
        ("00X0X", 2, ("ALARM", "ALARM", "ALARM", "ALARM")),
        ("0-X--", 2, ("OK", "OK", "ALARM", "OK")),
        ("----0", 2, ("OK", "OK", "ALARM", "OK")),
        ("---X-", 2, ("ALARM", "before", "ALARM", "OK")),
    ],
)
def test_the_tables_of_the_user_guide(points: str, wanted: int, states: tuple[str, ...]) -> None:
    assert tuple(judged(points, 3, wanted, column) for column in _COLUMNS) == states


def judged(points: str, periods: int, wanted: int, missing: str) -> str:
    values = {"0": 0.0, "X": 1.0, "-": None}
    return state_of(
        [values[point] for point in points],
        breaches=lambda value: value > 0,
        periods=periods,
        wanted=wanted,
        missing=missing,
        now="before",
    )


@pytest.fixture
def cloudwatch(server: Server) -> Iterator[Any]:
    client = server.client("cloudwatch")
    yield client
    names = [alarm["AlarmName"] for alarm in client.describe_alarms()["MetricAlarms"]]
    client.delete_alarms(AlarmNames=names)


def now(server: Server) -> datetime:
    return datetime.fromisoformat(lifecycle.find_server(server.status.port).clock)


def alarm(cloudwatch: Any, name: str) -> dict[str, Any]:
    [found] = cloudwatch.describe_alarms(AlarmNames=[name])["MetricAlarms"]
    return dict(found)


def put(cloudwatch: Any, server: Server, metric: str, value: float, minutes_ago: int = 1) -> None:
    at = now(server) - timedelta(minutes=minutes_ago)
    datum = {"MetricName": metric, "Value": value, "Timestamp": at, "Unit": "Count"}
    cloudwatch.put_metric_data(Namespace="Ours", MetricData=[datum])


def test_a_new_alarm_has_insufficient_data_then_follows_the_metric_and_publishes(
    server: Server, cloudwatch: Any
) -> None:
    sqs, sns = server.client("sqs"), server.client("sns")
    url = sqs.create_queue(QueueName="alarmed")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    topic = sns.create_topic(Name="alarms")["TopicArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    cloudwatch.put_metric_alarm(
        AlarmName="faults",
        Metrics=[
            {
                "Id": "f",
                "MetricStat": {
                    "Metric": {"Namespace": "Ours", "MetricName": "Faults"},
                    "Period": 60,
                    "Stat": "Sum",
                },
                "ReturnData": False,
            },
            {"Id": "e", "Expression": "FILL(f, 0) * 2"},
        ],
        ComparisonOperator="GreaterThanThreshold",
        Threshold=3,
        EvaluationPeriods=1,
        TreatMissingData="missing",
        AlarmActions=[topic],
    )
    new = alarm(cloudwatch, "faults")
    assert new["StateValue"] == "INSUFFICIENT_DATA"
    assert new["StateReason"] == "Unchecked: Initial alarm creation"
    put(cloudwatch, server, "Faults", 2, minutes_ago=0)
    lifecycle.advance_clock(server.status.port, 60)
    eventually(lambda: alarm(cloudwatch, "faults")["StateValue"] == "ALARM")
    assert "greater than the threshold (3)" in alarm(cloudwatch, "faults")["StateReason"]
    [message] = eventually(lambda: sqs.receive_message(QueueUrl=url).get("Messages"))
    sent = json.loads(json.loads(message["Body"])["Message"])
    assert (sent["AlarmName"], sent["NewStateValue"], sent["OldStateValue"]) == (
        "faults",
        "ALARM",
        "INSUFFICIENT_DATA",
    )
    put(cloudwatch, server, "Faults", 0, minutes_ago=0)
    lifecycle.advance_clock(server.status.port, 60)
    eventually(lambda: alarm(cloudwatch, "faults")["StateValue"] == "OK")


def test_a_percentile_is_answered(server: Server, cloudwatch: Any) -> None:
    for value in range(1, 101):
        put(cloudwatch, server, "Latency", float(value))
    span = {"StartTime": now(server) - timedelta(minutes=5), "EndTime": now(server)}
    metric = {"Namespace": "Ours", "MetricName": "Latency"}
    answer = cloudwatch.get_metric_data(
        MetricDataQueries=[
            {"Id": "p", "MetricStat": {"Metric": metric, "Period": 300, "Stat": "p99"}},
        ],
        **span,
    )["MetricDataResults"]
    assert [result["Values"] for result in answer] == [[pytest.approx(99, rel=0.01)]]
    [point] = cloudwatch.get_metric_statistics(
        **metric, **span, Period=300, Statistics=["Average"], ExtendedStatistics=["p50"]
    )["Datapoints"]
    assert point["Average"] == 50.5
    assert point["Unit"] == "Count"
    assert point["ExtendedStatistics"]["p50"] == pytest.approx(50, rel=0.01)
