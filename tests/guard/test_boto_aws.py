"""The adapters' words, checked against botocore's own model of each request and answer."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, ReadTimeoutError
from botocore.response import StreamingBody
from botocore.stub import ANY, Stubber

from peagle_guard.aws import NoUpdates, Query, Result, Stack, Unanswered
from peagle_guard.boto_aws import ONCE, BotoAws, FunctionFailed
from tests.guard.by_hand import MINUTE, START, arn_of
from tests.guard.simulator.people import SETTINGS


class Session(boto3.Session):
    """Hands out one stubbed client a service; ``configs`` has the config that each was asked with."""

    def __init__(self) -> None:
        super().__init__("key", "secret", region_name="us-east-1")
        self.stubs = Stubs(super().client)
        self.configs: dict[str, Any] = {}

    def client(self, service_name: str, *args: Any, **more: Any) -> Any:
        self.configs[service_name] = more.get("config")
        return self.stubs[service_name].client


class Stubs(dict[str, Stubber]):
    """Stubbed clients by service, made at their first use."""

    def __init__(self, make: Callable[..., Any]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, service: str) -> Stubber:
        self[service] = Stubber(self._make(service))
        self[service].activate()
        return self[service]


@pytest.fixture
def session() -> Session:
    return Session()


BERLIN = timezone(timedelta(hours=1))
ROW = {
    "EndpointName": "chat",
    "EndpointArn": arn_of("chat"),
    "CreationTime": START.astimezone(BERLIN),
    "LastModifiedTime": START + MINUTE,
    "EndpointStatus": "InService",
}


def test_pages_of_100_are_asked_for_and_calls_are_counted(session: Session) -> None:
    aws = BotoAws(SETTINGS, session)
    sagemaker, tagging = session.stubs["sagemaker"], session.stubs["resourcegroupstaggingapi"]
    sagemaker.add_response("list_endpoints", {"Endpoints": [ROW], "NextToken": "n"}, {"MaxResults": 100})
    sagemaker.add_response("list_endpoints", {"Endpoints": []}, {"MaxResults": 100, "NextToken": "n"})
    first = aws.list_endpoints(None)
    assert (first.items[0].created_at, first.items[0].created_at.tzinfo, first.token) == (START, UTC, "n")
    assert aws.list_endpoints("n").token is None
    row = {"ResourceARN": arn_of("chat"), "Tags": [{"Key": "team", "Value": "search"}]}
    request = {"ResourceTypeFilters": ["sagemaker:endpoint"], "TagFilters": ANY, "ResourcesPerPage": 100}
    answer = {"ResourceTagMappingList": [row], "PaginationToken": ""}
    tagging.add_response("get_resources", answer, request)
    page = aws.tagged_endpoints(None)
    assert (page.items[0].tags, page.token) == ({"team": "search"}, None)
    assert aws.calls == {"ListEndpoints": 2, "GetResources": 1}


def test_a_description_has_variants_and_a_missing_endpoint_is_none(session: Session) -> None:
    aws = BotoAws(SETTINGS, session)
    stub = session.stubs["sagemaker"]
    variants = [
        {"VariantName": "a", "CurrentInstanceCount": 2},
        {"VariantName": "b", "CurrentInstanceCount": 1},
    ]
    answer = {**ROW, "EndpointConfigName": "chat-1", "ProductionVariants": variants}
    stub.add_response("describe_endpoint", answer, {"EndpointName": "chat"})
    endpoint = aws.describe_endpoint("chat")
    assert endpoint is not None
    assert (endpoint.variants, endpoint.instances, endpoint.config_name) == (("a", "b"), 3, "chat-1")
    assert not endpoint.is_async
    queued = {**answer, "AsyncInferenceConfig": {"OutputConfig": {"S3OutputPath": "s3://answers/"}}}
    stub.add_response("describe_endpoint", queued, {"EndpointName": "chat"})
    assert aws.describe_endpoint("chat") == replace(endpoint, is_async=True)
    message = 'Could not find endpoint "arn:aws:sagemaker:us-east-1:123456789012:endpoint/chat".'
    stub.add_client_error("describe_endpoint", "ValidationException", message)
    assert aws.describe_endpoint("chat") is None
    stub.add_client_error("describe_endpoint", "ThrottlingException", "Rate exceeded")
    with pytest.raises(Exception, match="Rate exceeded"):
        aws.describe_endpoint("chat")


def test_metrics_are_asked_by_minute_and_a_part_is_not_whole(session: Session) -> None:
    aws = BotoAws(SETTINGS, session)
    query = Query(
        "i0", "AWS/SageMaker", "Invocations", (("EndpointName", "chat"), ("VariantName", "a")), "Sum"
    )
    dimensions = [{"Name": "EndpointName", "Value": "chat"}, {"Name": "VariantName", "Value": "a"}]
    metric = {"Namespace": "AWS/SageMaker", "MetricName": "Invocations", "Dimensions": dimensions}
    session.stubs["cloudwatch"].add_response(
        "get_metric_data",
        {
            "MetricDataResults": [
                {"Id": "i0", "StatusCode": "PartialData", "Timestamps": [START], "Values": [2.0]}
            ]
        },
        {
            "MetricDataQueries": [
                {"Id": "i0", "MetricStat": {"Metric": metric, "Period": 60, "Stat": "Sum"}}
            ],
            "StartTime": START,
            "EndTime": START + MINUTE,
            "ScanBy": "TimestampAscending",
        },
    )
    page = aws.metric_data([query], START, START + MINUTE, None)
    assert page.items == (Result("i0", {START: 2.0}, whole=False),)


def payload(document: object) -> StreamingBody:
    body = json.dumps(document).encode()
    return StreamingBody(io.BytesIO(body), len(body))


def test_a_function_that_failed_is_an_error(session: Session) -> None:
    aws = BotoAws(SETTINGS, session)
    stub = session.stubs["lambda"]
    request = {"FunctionName": "peagle-guard-switch", "Payload": b'{"action": "off"}'}
    stub.add_response("invoke", {"Payload": payload({"state": "done"}), "StatusCode": 200}, request)
    assert aws.invoke("peagle-guard-switch", {"action": "off"}) == {"state": "done"}
    failed = {"Payload": payload({"errorMessage": "no"}), "FunctionError": "Unhandled", "StatusCode": 200}
    stub.add_response("invoke", failed, request)
    with pytest.raises(FunctionFailed, match="no"):
        aws.invoke("peagle-guard-switch", {"action": "off"})


def test_the_switch_updates_with_the_previous_template_and_nothing_else(session: Session) -> None:
    aws = BotoAws(SETTINGS, session)
    stub = session.stubs["cloudformation"]
    stack = {"StackName": "Peagle-chat", "StackStatus": "CREATE_COMPLETE", "CreationTime": datetime.now(UTC)}
    parameters = [{"ParameterKey": "EndpointState", "ParameterValue": "on"}]
    stub.add_response("describe_stacks", {"Stacks": [{**stack, "Parameters": parameters}]}, ANY_STACK)
    assert aws.describe_stack("Peagle-chat") == Stack(
        "Peagle-chat", "CREATE_COMPLETE", {"EndpointState": "on"}
    )
    deleted = {**stack, "StackStatus": "DELETE_COMPLETE"}
    stub.add_response("describe_stacks", {"Stacks": [deleted]}, ANY_STACK)
    stub.add_client_error("describe_stacks", "ValidationError", "Stack with id Peagle-chat does not exist")
    assert [aws.describe_stack("Peagle-chat") for _ in range(2)] == [None, None]
    stub.add_client_error("describe_stacks", "AccessDenied", "not authorized")
    with pytest.raises(ClientError, match="not authorized"):
        aws.describe_stack("Peagle-chat")
    request = {**ANY_STACK, "UsePreviousTemplate": True, "Parameters": parameters}
    stub.add_response("update_stack", {"StackId": "id"}, request)
    aws.update_stack("Peagle-chat", parameters)
    stub.add_client_error("update_stack", "ValidationError", "No updates are to be performed.")
    with pytest.raises(NoUpdates):
        aws.update_stack("Peagle-chat", parameters)


def test_alarms_that_cloudwatch_does_not_answer_about_do_not_hang_the_sweep(session: Session) -> None:
    session.stubs["cloudwatch"].add_response("delete_alarms", {}, {"AlarmNames": ["slow"]})
    BotoAws(SETTINGS, session).delete_alarms(["slow"])
    config = session.configs["cloudwatch"]
    waits: Any = ONCE
    longest = (config.connect_timeout + config.read_timeout) * config.retries["total_max_attempts"]
    assert longest < waits.read_timeout / 1.5, "the sweeper waits for the switch, and must hear of the fault"


ANY_STACK = {"StackName": "Peagle-chat"}


def test_a_component_that_is_going_already_is_left_alone(session: Session) -> None:
    aws = BotoAws(SETTINGS, session)
    stub = session.stubs["sagemaker"]
    described = {
        "InferenceComponentName": "copy",
        "InferenceComponentArn": "arn:aws:sagemaker:us-east-1:123456789012:inference-component/copy",
        "EndpointName": "chat",
        "EndpointArn": arn_of("chat"),
        "InferenceComponentStatus": "Deleting",
        "CreationTime": START,
        "LastModifiedTime": START,
    }
    request = {"InferenceComponentName": "copy"}
    stub.add_response("describe_inference_component", described, request)
    aws.delete_component("copy")
    in_service = {**described, "InferenceComponentStatus": "InService"}
    stub.add_response("describe_inference_component", in_service, request)
    stub.add_response("delete_inference_component", {}, request)
    aws.delete_component("copy")
    stub.assert_no_pending_responses()


def test_a_training_job_that_has_ended_is_left_alone_and_any_other_refusal_is_an_error(
    session: Session,
) -> None:
    aws = BotoAws(SETTINGS, session)
    stub = session.stubs["sagemaker"]
    stub.add_response("stop_training_job", {}, {"TrainingJobName": "job"})
    aws.stop_job("job")
    status = "The request was rejected because the training job is in status Completed."
    for message in (status, "Requested resource not found."):
        stub.add_client_error("stop_training_job", "ValidationException", message)
        aws.stop_job("job")
    for code, message in (("ValidationException", "1 validation error"), ("AccessDeniedException", "no")):
        stub.add_client_error("stop_training_job", code, message)
        with pytest.raises(ClientError, match=message):
            aws.stop_job("job")


def test_jobs_in_progress_are_listed_by_page_and_described_in_utc(session: Session) -> None:
    aws = BotoAws(SETTINGS, session)
    stub = session.stubs["sagemaker"]
    arn = "arn:aws:sagemaker:us-east-1:123456789012:training-job/job"
    row = {
        "TrainingJobName": "job",
        "TrainingJobArn": arn,
        "CreationTime": START,
        "TrainingJobStatus": "InProgress",
    }
    request = {"StatusEquals": "InProgress", "MaxResults": 100}
    stub.add_response("list_training_jobs", {"TrainingJobSummaries": [], "NextToken": "n"}, request)
    stub.add_response("list_training_jobs", {"TrainingJobSummaries": [row]}, {**request, "NextToken": "n"})
    assert aws.running_jobs(None).items == ()
    assert aws.running_jobs("n").items == (("job", arn),)
    described = {
        "TrainingJobName": "job",
        "TrainingJobArn": arn,
        "ModelArtifacts": {"S3ModelArtifacts": "s3://b/k"},
        "TrainingJobStatus": "InProgress",
        "SecondaryStatus": "Training",
        "ResourceConfig": {"VolumeSizeInGB": 1},
        "AlgorithmSpecification": {"TrainingInputMode": "File"},
        "CreationTime": START,
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
        "TrainingStartTime": START.astimezone(BERLIN),
    }
    stub.add_response("describe_training_job", described, {"TrainingJobName": "job"})
    job = aws.describe_job("job")
    assert (job.started_at, job.max_runtime, job.spot) == (START, timedelta(hours=1), False)
    assert job.started_at is not None
    assert job.started_at.tzinfo is UTC


def test_a_schedule_that_is_not_there_is_none_and_deleting_it_is_fine(session: Session) -> None:
    aws = BotoAws(SETTINGS, session)
    stub = session.stubs["scheduler"]
    for operation in ("get_schedule", "delete_schedule"):
        stub.add_client_error(operation, "ResourceNotFoundException", "Schedule does not exist.")
    assert aws.schedule_times("peagle-chat-lifetime") is None
    aws.delete_schedule("peagle-chat-lifetime")


def test_a_function_that_hangs_gives_no_answer_and_leaves_time_for_others(session: Session) -> None:
    aws = BotoAws(SETTINGS, session)
    client = session.stubs["lambda"].client
    session.stubs["lambda"].deactivate()

    def hang(**_: Any) -> None:
        raise ReadTimeoutError(endpoint_url="https://lambda")

    client.meta.events.register_first("before-call.lambda.Invoke", hang)
    with pytest.raises(Unanswered, match="peagle-guard-switch: Read timeout"):
        aws.invoke("peagle-guard-switch", {})
    # The sweeper has 240 s, and stops after two calls that hang.
    assert 2 * session.configs["lambda"].read_timeout <= 120


# --- the present: neither the schedule's time nor this machine's clock -------------------------------


def dated(date: str | None) -> dict[str, object]:
    headers = {} if date is None else {"date": date}
    return {"Endpoints": [], "ResponseMetadata": {"HTTPHeaders": headers}}


def test_the_present_is_the_date_of_an_answer(session: Session) -> None:
    aws = BotoAws(SETTINGS, session)
    answer = dated("Mon, 16 Nov 2026 08:00:00 GMT")
    session.stubs["sagemaker"].add_response("list_endpoints", answer, {"MaxResults": 1})
    assert aws.time() == START


@pytest.mark.parametrize("date", [None, "soon"])
def test_without_a_date_it_is_this_machine_s_clock(session: Session, date: str | None) -> None:
    aws = BotoAws(SETTINGS, session)
    session.stubs["sagemaker"].add_response("list_endpoints", dated(date), {"MaxResults": 1})
    before = datetime.now(UTC)
    assert before <= aws.time() <= datetime.now(UTC)
