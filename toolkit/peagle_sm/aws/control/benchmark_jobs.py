"""SageMaker's AI workload configurations and AI benchmark jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from peagle_sm.aws.session.errors import aws_errors
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import NotFound, PeagleError

ENDED = ("Completed", "Failed", "Stopped")


@dataclass(frozen=True)
class JobFacts:
    """What DescribeAIBenchmarkJob says."""

    name: str
    status: str
    output: str
    failure_reason: str | None
    started_at: datetime | None
    ended_at: datetime | None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def seconds(self) -> float | None:
        """How long it ran, once it has ended."""
        if self.started_at is None or self.ended_at is None:
            return None
        return (self.ended_at - self.started_at).total_seconds()


def create_config(
    session: Session, name: str, inline: str, channels: Mapping[str, str], tags: Mapping[str, str]
) -> None:
    """Send CreateAIWorkloadConfig once; ``channels`` are S3 URIs by the name of the input channel."""
    sources = [
        {"ChannelName": channel, "DataSource": {"S3DataSource": {"S3Uri": uri}}}
        for channel, uri in channels.items()
    ]
    parameters: dict[str, Any] = {"DatasetConfig": {"InputDataConfig": sources}} if sources else {}
    with aws_errors("CreateAIWorkloadConfig", session.local_url):
        session.creating_client("sagemaker").create_ai_workload_config(
            AIWorkloadConfigName=name,
            AIWorkloadConfigs={"WorkloadSpec": {"Inline": inline}},
            Tags=_tags(tags),
            **parameters,
        )


def delete_config(session: Session, name: str) -> None:
    """Delete a workload configuration; one that is not there is no error."""
    try:
        with aws_errors("DeleteAIWorkloadConfig", session.local_url):
            session.client("sagemaker").delete_ai_workload_config(AIWorkloadConfigName=name)
    except NotFound:
        return


def create_job(
    session: Session,
    name: str,
    *,
    endpoint: str,
    component: str | None,
    config: str,
    output: str,
    role_arn: str,
    tags: Mapping[str, str],
) -> None:
    """Send CreateAIBenchmarkJob once; from here on it runs, whether anybody looks or not."""
    target: dict[str, Any] = {"Identifier": endpoint}
    if component is not None:
        target["InferenceComponents"] = [{"Identifier": component}]
    with aws_errors("CreateAIBenchmarkJob", session.local_url):
        session.creating_client("sagemaker").create_ai_benchmark_job(
            AIBenchmarkJobName=name,
            BenchmarkTarget={"Endpoint": target},
            OutputConfig={"S3OutputLocation": output},
            AIWorkloadConfigIdentifier=config,
            RoleArn=role_arn,
            Tags=_tags(tags),
        )


def describe_job(session: Session, name: str) -> JobFacts | None:
    """Return the job's facts, or None when there is none of that name."""
    try:
        with aws_errors("DescribeAIBenchmarkJob", session.local_url):
            answer = session.client("sagemaker").describe_ai_benchmark_job(AIBenchmarkJobName=name)
    except NotFound:
        return None
    return JobFacts(
        name=name,
        status=answer["AIBenchmarkJobStatus"],
        output=answer["OutputConfig"]["S3OutputLocation"],
        failure_reason=answer.get("FailureReason") or None,
        started_at=answer.get("StartTime"),
        ended_at=answer.get("EndTime"),
        raw=answer,
    )


def stop_job(session: Session, name: str) -> None:
    """Ask for the job's end; it is Stopping for a while."""
    with aws_errors("StopAIBenchmarkJob", session.local_url):
        session.client("sagemaker").stop_ai_benchmark_job(AIBenchmarkJobName=name)


def last_line(session: Session, facts: JobFacts) -> str | None:
    """The newest line that the job logged; None where there is none or it may not be read."""
    for log in facts.raw.get("OutputConfig", {}).get("CloudWatchLogs", []):
        group = str(log.get("LogGroupArn", "")).partition(":log-group:")[2].removesuffix(":*")
        try:
            with aws_errors("GetLogEvents", session.local_url):
                events = session.client("logs").get_log_events(
                    logGroupName=group, logStreamName=log.get("LogStreamName", ""), limit=1
                )["events"]
        except PeagleError:
            continue  # the figures come from S3; the log only tells what goes on
        if events:
            return str(events[-1]["message"]).strip()
    return None


def _tags(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]
