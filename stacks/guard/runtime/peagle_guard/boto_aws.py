"""``aws.Aws`` over boto3: one method, one call. Clients have the guard's timeouts and retries."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError, ReadTimeoutError

from peagle_guard.aws import (
    Component,
    Job,
    NoUpdates,
    Page,
    Query,
    Result,
    Stack,
    Tagged,
    Unanswered,
)
from peagle_guard.records import Endpoint
from peagle_guard.register import DynamoRegister
from peagle_guard.settings import Settings, now
from peagle_sm.core.plan.tags_and_schedules import MANAGED_BY, MANAGER

# A Lambda has minutes at most: no single call may hang for long.
PATIENT = Config(connect_timeout=5, read_timeout=30, retries={"mode": "standard", "total_max_attempts": 4})
# An invocation is not repeated: the next sweep is the retry. One that hangs must leave time for the others.
ONCE = Config(connect_timeout=5, read_timeout=60, retries={"total_max_attempts": 1})
# Whoever invoked the function must hear of it if this call hangs.
BRIEF = Config(connect_timeout=5, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 2})


def client(service: str, session: boto3.Session | None = None, config: Config = PATIENT) -> Any:
    """Return a client of the session, by default the Lambda's own."""
    make: Any = session or boto3
    return make.client(service, config=config)


_PAGE = 100
# DescribeScalableTargets takes at most 50 resource ids.
_MOST_IDS = 50


class FunctionFailed(Exception):
    """Error raised by an invoked Lambda; the message is its own."""


class BotoAws:
    """AWS by boto3; satisfies ``aws.Aws``."""

    def __init__(self, settings: Settings, session: boto3.Session | None = None) -> None:
        """Take the settings, and a session (the Lambda's own by default)."""
        self._settings = settings
        self._session = session
        self._clients: dict[tuple[str, Config], Any] = {}
        self._calls: Counter[str] = Counter()

    def _client(self, service: str, config: Config = PATIENT) -> Any:
        """Return a client that counts its calls; made at its first use, since each costs time at a start."""
        if (service, config) not in self._clients:
            created = self._clients[service, config] = client(service, self._session, config)
            # First, so that nothing that answers in AWS's place hides a call.
            created.meta.events.register_first("before-call.*.*", self._count)
        return self._clients[service, config]

    def _count(self, model: Any, **_: Any) -> None:
        self._calls[model.name] += 1

    @property
    def register(self) -> DynamoRegister:
        """The guard's memory."""
        return DynamoRegister(self._client("dynamodb"), self._settings.table)

    @property
    def calls(self) -> Mapping[str, int]:
        """How often each operation was called."""
        return self._calls

    @property
    def now(self) -> datetime:
        """The Lambda's clock."""
        return now(self._settings)

    def time(self) -> datetime:
        """Return the current time on AWS's clock: the Date header of a response.

        Without a valid header this machine's clock is used.
        """
        answer = self._client("sagemaker").list_endpoints(MaxResults=1)
        try:
            return parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"]).astimezone(UTC)
        except (KeyError, ValueError):
            return now(self._settings)

    def list_endpoints(self, token: str | None) -> Page[Endpoint]:
        """ListEndpoints, 100 a page."""
        answer = self._client("sagemaker").list_endpoints(MaxResults=_PAGE, **_next(token))
        return Page(tuple(endpoint_of(row) for row in answer["Endpoints"]), answer.get("NextToken"))

    def describe_endpoint(self, name: str) -> Endpoint | None:
        """DescribeEndpoint; None where there is none of that name."""
        return described(self._client("sagemaker"), name)

    def list_components(self, token: str | None) -> Page[Component]:
        """ListInferenceComponents of all endpoints, 100 a page."""
        answer = self._client("sagemaker").list_inference_components(MaxResults=_PAGE, **_next(token))
        rows = answer["InferenceComponents"]
        return Page(
            tuple(Component(r["InferenceComponentName"], r["EndpointName"], r["VariantName"]) for r in rows),
            answer.get("NextToken"),
        )

    def tagged_endpoints(self, token: str | None) -> Page[Tagged]:
        """GetResources for endpoints with our tag, 100 a page."""
        answer = self._client("resourcegroupstaggingapi").get_resources(
            ResourceTypeFilters=["sagemaker:endpoint"],
            TagFilters=[{"Key": MANAGED_BY, "Values": [MANAGER]}],
            ResourcesPerPage=_PAGE,
            **({"PaginationToken": token} if token else {}),
        )
        rows = answer["ResourceTagMappingList"]
        tagged = tuple(Tagged(row["ResourceARN"], _tags(row["Tags"])) for row in rows)
        return Page(tagged, answer.get("PaginationToken") or None)

    def running_jobs(self, token: str | None) -> Page[tuple[str, str]]:
        """ListTrainingJobs, those in progress, 100 a page: name and ARN."""
        request: dict[str, Any] = {"StatusEquals": "InProgress", "MaxResults": _PAGE, **_next(token)}
        answer = self._client("sagemaker").list_training_jobs(**request)
        jobs = tuple(
            (row["TrainingJobName"], row["TrainingJobArn"]) for row in answer["TrainingJobSummaries"]
        )
        return Page(jobs, answer.get("NextToken"))

    def describe_job(self, name: str) -> Job:
        """DescribeTrainingJob."""
        answer = self._client("sagemaker").describe_training_job(TrainingJobName=name)
        started = answer.get("TrainingStartTime")
        seconds = answer["StoppingCondition"].get("MaxRuntimeInSeconds")
        return Job(
            name=name,
            started_at=None if started is None else started.astimezone(UTC),
            max_runtime=None if seconds is None else timedelta(seconds=seconds),
            spot=bool(answer.get("EnableManagedSpotTraining")),
        )

    def endpoint_tags(self, arn: str) -> Mapping[str, str]:
        """ListTags: at most 50 tags, so one page of 100 holds them."""
        return _tags(self._client("sagemaker").list_tags(ResourceArn=arn, MaxResults=_PAGE)["Tags"])

    def metric_data(
        self, queries: Sequence[Query], start: datetime, end: datetime, token: str | None
    ) -> Page[Result]:
        """GetMetricData by minute, at most 500 queries."""
        answer = self._client("cloudwatch").get_metric_data(
            MetricDataQueries=[_query(each) for each in queries],
            StartTime=start,
            EndTime=end,
            ScanBy="TimestampAscending",
            **_next(token),
        )
        return Page(tuple(_result(row) for row in answer["MetricDataResults"]), answer.get("NextToken"))

    def invoke(self, function: str, event: Mapping[str, Any]) -> Mapping[str, Any]:
        """Invoke a Lambda and return its answer.

        Raises:
            FunctionFailed: the function raised an error, or answered no JSON object.
            Unanswered: no answer came in time.
        """
        try:
            answer = self._client("lambda", ONCE).invoke(
                FunctionName=function, Payload=json.dumps(event).encode()
            )
            body = answer["Payload"].read().decode()
        except (ReadTimeoutError, ConnectionClosedError) as error:
            raise Unanswered(f"{function}: {error}") from error
        response = json.loads(body) if body else None
        if answer.get("FunctionError") or not isinstance(response, dict):
            raise FunctionFailed(f"{function}: {body[:500]}")
        return response

    def publish(self, subject: str, text: str) -> None:
        """Send a notice to the topic."""
        self._client("sns").publish(TopicArn=self._settings.topic_arn, Subject=subject, Message=text)

    def describe_stack(self, name: str) -> Stack | None:
        """DescribeStacks; None where there is none of that name."""
        try:
            stack = self._client("cloudformation").describe_stacks(StackName=name)["Stacks"][0]
        except ClientError as error:
            if "does not exist" in error.response["Error"].get("Message", ""):
                return None
            raise
        if stack["StackStatus"] == "DELETE_COMPLETE":
            return None
        parameters = {
            row["ParameterKey"]: row.get("ParameterValue", "") for row in stack.get("Parameters", ())
        }
        return Stack(name, stack["StackStatus"], parameters)

    def update_stack(self, name: str, parameters: Sequence[Mapping[str, Any]]) -> None:
        """UpdateStack with the previous template.

        Raises:
            NoUpdates: CloudFormation sees no difference.
        """
        try:
            self._client("cloudformation").update_stack(
                StackName=name, UsePreviousTemplate=True, Parameters=list(parameters)
            )
        except ClientError as error:
            if "no updates are to be performed" in error.response["Error"].get("Message", "").lower():
                raise NoUpdates from error
            raise

    def components(self, endpoint: str) -> Sequence[str]:
        """ListInferenceComponents of one endpoint, those that are being deleted included."""
        pages = (
            self._client("sagemaker")
            .get_paginator("list_inference_components")
            .paginate(EndpointNameEquals=endpoint)
        )
        return [row["InferenceComponentName"] for page in pages for row in page["InferenceComponents"]]

    def scalable_targets(self, resource_ids: Sequence[str]) -> Sequence[tuple[str, str]]:
        """DescribeScalableTargets: resource id and dimension of each."""
        pages = self._client("application-autoscaling").get_paginator("describe_scalable_targets")
        return [
            (row["ResourceId"], row["ScalableDimension"])
            for first in range(0, len(resource_ids), _MOST_IDS)
            for page in pages.paginate(
                ServiceNamespace="sagemaker", ResourceIds=list(resource_ids[first : first + _MOST_IDS])
            )
            for row in page["ScalableTargets"]
        ]

    def deregister(self, resource_id: str, dimension: str) -> None:
        """DeregisterScalableTarget; one that is gone already is fine."""
        try:
            self._client("application-autoscaling").deregister_scalable_target(
                ServiceNamespace="sagemaker", ResourceId=resource_id, ScalableDimension=dimension
            )
        except ClientError as error:
            if error.response["Error"]["Code"] != "ObjectNotFoundException":
                raise

    def delete_component(self, name: str) -> None:
        """DeleteInferenceComponent; one that is gone or being deleted already is left alone."""
        try:
            status = self._client("sagemaker").describe_inference_component(InferenceComponentName=name)
            if status["InferenceComponentStatus"] != "Deleting":
                self._client("sagemaker").delete_inference_component(InferenceComponentName=name)
        except ClientError as error:
            if not is_missing(error):
                raise

    def stop_job(self, name: str) -> None:
        """StopTrainingJob; one that has ended is left alone."""
        try:
            self._client("sagemaker").stop_training_job(TrainingJobName=name)
        except ClientError as error:
            code, text = error.response["Error"]["Code"], error.response["Error"].get("Message", "")
            ended = "is in status" in text or "not found" in text.lower()
            if code != "ResourceNotFound" and (code != "ValidationException" or not ended):
                raise

    def delete_endpoint(self, name: str) -> None:
        """DeleteEndpoint; the configuration and the model are kept."""
        self._client("sagemaker").delete_endpoint(EndpointName=name)

    def schedule_times(self, name: str) -> tuple[datetime | None, datetime | None] | None:
        """StartDate and LastModificationDate of a schedule; None where there is none of that name."""
        try:
            answer = self._client("scheduler").get_schedule(Name=name)
        except ClientError as error:
            if error.response["Error"]["Code"] == "ResourceNotFoundException":
                return None
            raise
        start, changed_at = answer.get("StartDate"), answer.get("LastModificationDate")
        return (
            None if start is None else start.astimezone(UTC),
            None if changed_at is None else changed_at.astimezone(UTC),
        )

    def delete_schedule(self, name: str) -> None:
        """DeleteSchedule; none of that name is fine."""
        try:
            self._client("scheduler").delete_schedule(Name=name)
        except ClientError as error:
            if error.response["Error"]["Code"] != "ResourceNotFoundException":
                raise

    def delete_alarms(self, names: Sequence[str]) -> None:
        """DeleteAlarms; those that do not exist are fine."""
        self._client("cloudwatch", BRIEF).delete_alarms(AlarmNames=list(names))


def is_missing(error: ClientError) -> bool:
    """Decide whether SageMaker's error means "not found", for which it has no error code."""
    code, message = error.response["Error"]["Code"], error.response["Error"].get("Message", "")
    return code in ("ResourceNotFound", "ResourceNotFoundException") or (
        code == "ValidationException" and "could not find" in message.lower()
    )


def is_refusal(error: Exception) -> bool:
    """Decide whether AWS has certainly not executed the request."""
    if not isinstance(error, ClientError):
        return False
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
    return status < 500


def described(sagemaker: Any, name: str) -> Endpoint | None:
    """DescribeEndpoint; None where there is none of that name."""
    try:
        answer = sagemaker.describe_endpoint(EndpointName=name)
    except ClientError as error:
        if is_missing(error):
            return None
        raise
    return endpoint_of(answer)


def endpoint_of(row: Mapping[str, Any]) -> Endpoint:
    """Read an endpoint from a list's row or a description; only the latter has variants."""
    variants = row.get("ProductionVariants", ())
    counts = [each["CurrentInstanceCount"] for each in variants if "CurrentInstanceCount" in each]
    return Endpoint(
        name=row["EndpointName"],
        arn=row["EndpointArn"],
        created_at=row["CreationTime"].astimezone(UTC),
        modified_at=row["LastModifiedTime"].astimezone(UTC),
        status=row["EndpointStatus"],
        config_name=row.get("EndpointConfigName", ""),
        variants=tuple(each["VariantName"] for each in variants),
        instances=sum(counts) if counts else None,
        is_async="AsyncInferenceConfig" in row,
    )


def _query(query: Query) -> dict[str, Any]:
    dimensions = [{"Name": name, "Value": value} for name, value in query.dimensions]
    metric = {"Namespace": query.namespace, "MetricName": query.metric, "Dimensions": dimensions}
    return {"Id": query.id, "MetricStat": {"Metric": metric, "Period": 60, "Stat": query.stat}}


def _result(row: Mapping[str, Any]) -> Result:
    stamps = (stamp.astimezone(UTC) for stamp in row["Timestamps"])
    points = dict(zip(stamps, row["Values"], strict=True))
    return Result(row["Id"], points, row.get("StatusCode", "Complete") == "Complete")


def _tags(rows: Sequence[Mapping[str, str]]) -> dict[str, str]:
    return {row["Key"]: row["Value"] for row in rows}


def _next(token: str | None) -> dict[str, str]:
    return {"NextToken": token} if token else {}
