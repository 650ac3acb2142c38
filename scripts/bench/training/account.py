"""What an account of AWS still pays for, and what ran twice: an independent look, with boto3 alone.

Written from AWS's documentation, not from this project's code, of which nothing is imported:
https://docs.aws.amazon.com/scheduler/latest/UserGuide/managing-targets-universal.html (a schedule that calls
DeleteEndpoint), https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_StoppingCondition.html,
https://docs.aws.amazon.com/sagemaker/latest/dg/monitoring-cloudwatch.html (Invocations), and
https://docs.aws.amazon.com/AmazonS3/latest/userguide/mpu-abort-incomplete-mpu-lifecycle-config.html (parts of
an upload that was not completed are billed).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

Client = Callable[[str], Any]
DELETE = "arn:aws:scheduler:::aws-sdk:sagemaker:deleteEndpoint"
_ENDED = ("Failed", "Stopped")
_LONGEST_S = 28 * 24 * 3600  #: what SageMaker allows


def rows(client: Any, operation: str, name: str, **asked: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of every page of a List call."""
    for page in client.get_paginator(operation).paginate(**asked):
        yield from page.get(name, ())  # S3 leaves an empty list out


def endpoints(client: Client) -> dict[str, str]:
    """Return the status of each endpoint that is not being deleted."""
    listed = rows(client("sagemaker"), "list_endpoints", "Endpoints")
    return {
        each["EndpointName"]: each["EndpointStatus"]
        for each in listed
        if each["EndpointStatus"] != "Deleting"
    }


def deleted_at(client: Client) -> dict[str, datetime]:
    """Return from when on a schedule deletes an endpoint, by the endpoint's name."""
    scheduler, found = client("scheduler"), dict[str, datetime]()
    for row in rows(scheduler, "list_schedules", "Schedules"):
        try:
            schedule = scheduler.get_schedule(Name=row["Name"], GroupName=row["GroupName"])
        except scheduler.exceptions.ResourceNotFoundException:
            continue  # it went meanwhile
        target = schedule["Target"]
        if target["Arn"] == DELETE and schedule["State"] == "ENABLED" and "StartDate" in schedule:
            found[json.loads(target["Input"])["EndpointName"]] = schedule["StartDate"]
    return found


def jobs(client: Client) -> dict[str, dict[str, Any]]:
    """Return each training job's description, by its name."""
    sagemaker = client("sagemaker")
    names = [
        each["TrainingJobName"] for each in rows(sagemaker, "list_training_jobs", "TrainingJobSummaries")
    ]
    return {name: sagemaker.describe_training_job(TrainingJobName=name) for name in names}


def unlimited(client: Client, now: datetime, within: timedelta = timedelta(days=1)) -> list[str]:
    """Return what is billed and that nothing would end by itself; empty at any moment of any run."""
    limits = deleted_at(client)
    found = []
    for name, status in endpoints(client).items():
        if name not in limits:
            found.append(f"endpoint {name} ({status}) has no schedule that deletes it")
        elif limits[name] > now + within:
            found.append(f"endpoint {name} ({status}) is deleted only at {limits[name]}")
    for name, job in jobs(client).items():
        most = job.get("StoppingCondition", {}).get("MaxRuntimeInSeconds")
        if job["TrainingJobStatus"] == "InProgress" and not (most and most <= _LONGEST_S):
            found.append(f"training job {name} has MaxRuntimeInSeconds {most}")
    return found


def left_behind(client: Client, serving: str) -> list[str]:
    """Return what a run that has ended should not have left. The guard that it installed stays."""
    found = [f"endpoint {name}" for name in endpoints(client) if name != serving]
    statuses = {name: job["TrainingJobStatus"] for name, job in jobs(client).items()}
    found += [f"training job {name} runs" for name, status in statuses.items() if status == "InProgress"]
    whole = [name for name, status in statuses.items() if status not in _ENDED]
    if len(whole) > 1:
        found.append(f"{len(whole)} training jobs did the same: {', '.join(whole)}")
    found += [f"alarm {name}" for name in alarms_on(client, serving)]
    s3 = client("s3")
    for bucket in s3.list_buckets()["Buckets"]:
        parts = rows(s3, "list_multipart_uploads", "Uploads", Bucket=bucket["Name"])
        found += [f"incomplete upload s3://{bucket['Name']}/{each['Key']}" for each in parts]
    return found


def alarms_on(client: Client, endpoint: str) -> list[str]:
    """Return the names of the alarms on an endpoint's metrics: by a dimension, or by the namespace."""
    return [
        each["AlarmName"]
        for each in rows(client("cloudwatch"), "describe_alarms", "MetricAlarms")
        if endpoint in each.get("Namespace", "").split("/")
        or endpoint in [one["Value"] for one in each.get("Dimensions", ())]
    ]


def invocations(client: Client, endpoint: str, since: datetime, now: datetime) -> int:
    """Return how many requests an endpoint got."""
    points = client("cloudwatch").get_metric_statistics(
        Namespace="AWS/SageMaker",
        MetricName="Invocations",
        Dimensions=[
            {"Name": "EndpointName", "Value": endpoint},
            {"Name": "VariantName", "Value": variant_of(client, endpoint)},
        ],
        StartTime=since - timedelta(minutes=1),
        EndTime=now + timedelta(minutes=1),
        Period=60,
        Statistics=["Sum"],
    )["Datapoints"]
    return round(sum(float(each["Sum"]) for each in points))


def variant_of(client: Client, endpoint: str) -> str:
    """Return the name of an endpoint's only variant."""
    (variant,) = client("sagemaker").describe_endpoint(EndpointName=endpoint)["ProductionVariants"]
    return str(variant["VariantName"])


def head_of(client: Client, endpoint: str) -> str:
    """Return the S3 prefix of the draft head that an endpoint serves."""
    sagemaker = client("sagemaker")
    config = sagemaker.describe_endpoint(EndpointName=endpoint)["EndpointConfigName"]
    (variant,) = sagemaker.describe_endpoint_config(EndpointConfigName=config)["ProductionVariants"]
    container = sagemaker.describe_model(ModelName=variant["ModelName"])["PrimaryContainer"]
    (source,) = container["AdditionalModelDataSources"]
    return str(source["S3DataSource"]["S3Uri"])
