"""Inference components as a boto3 user meets them: invoked, measured, logged, scaled, deleted in order."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from sagemaker_local import lifecycle
from tests.local.serving import IMAGE, Server, body, eventually
from tests.local.test_front_services import read

ARMS = ("arm-baseline", "arm-p-eagle")


class Host:
    """An endpoint for components, and shorthand for what tests ask of it."""

    def __init__(self, server: Server, name: str, **variant: Any) -> None:
        self.server = server
        self.name = name
        self.sagemaker = server.client("sagemaker")
        request = {"VariantName": "AllTraffic", "InstanceType": "ml.p5.48xlarge", "InitialInstanceCount": 1}
        self.sagemaker.create_endpoint_config(
            EndpointConfigName=name,
            ExecutionRoleArn=server.status.role_arn,
            EnableNetworkIsolation=True,
            ProductionVariants=[request | variant],
        )
        self.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
        self.sagemaker.get_waiter("endpoint_in_service").wait(
            EndpointName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 30}
        )

    def add(self, component: str, **environment: str) -> None:
        """Create a component with a model of its own and wait until it is InService."""
        self.sagemaker.create_model(
            ModelName=component,
            ExecutionRoleArn=self.server.status.role_arn,
            PrimaryContainer={"Image": IMAGE, "Environment": environment},
        )
        needs = {
            "NumberOfAcceleratorDevicesRequired": 1,
            "NumberOfCpuCoresRequired": 2,
            "MinMemoryRequiredInMb": 1024,
        }
        self.sagemaker.create_inference_component(
            InferenceComponentName=component,
            EndpointName=self.name,
            VariantName="AllTraffic",
            Specification={"ModelName": component, "ComputeResourceRequirements": needs},
            RuntimeConfig={"CopyCount": 1},
        )
        self.until(component, "InService")

    def until(self, component: str, status: str) -> dict[str, Any]:
        def reached() -> Any:
            inference_component = self.sagemaker.describe_inference_component(
                InferenceComponentName=component
            )
            return inference_component if inference_component["InferenceComponentStatus"] == status else None

        return dict(eventually(reached))

    def scale(self, component: str, copies: int) -> None:
        self.sagemaker.update_inference_component_runtime_config(
            InferenceComponentName=component, DesiredRuntimeConfig={"CopyCount": copies}
        )
        self.until(component, "InService")

    def delete(self, component: str) -> None:
        self.sagemaker.delete_inference_component(InferenceComponentName=component)

        def gone() -> bool:
            try:
                self.sagemaker.describe_inference_component(InferenceComponentName=component)
            except ClientError as error:
                return "Could not find inference component" in str(error)
            return False

        eventually(gone)


@pytest.fixture(scope="module")
def host(server: Server) -> Host:
    host = Host(server, "arms")
    for arm in ARMS:
        host.add(arm, SCRIPT_VERSION=arm)
    return host


def metric(component: str, name: str, stat: str, namespace: str = "AWS/SageMaker") -> dict[str, Any]:
    dimensions = [{"Name": "InferenceComponentName", "Value": component}]
    request = {"Namespace": namespace, "MetricName": name, "Dimensions": dimensions}
    return {"Id": name.lower(), "MetricStat": {"Metric": request, "Period": 60, "Stat": stat}}


def test_two_arms_of_one_endpoint_answer_in_turn(runtime: Any, host: Host) -> None:
    for arm in (*ARMS, *ARMS):
        answer = runtime.invoke_endpoint(EndpointName=host.name, InferenceComponentName=arm, Body=b"{}")
        seen = json.loads(answer["Body"].read())
        assert seen["version"] == arm
        assert "x-amzn-sagemaker-inference-component" not in seen["headers"]
        assert answer["InvokedProductionVariant"] == "AllTraffic"


def test_an_arm_streams(runtime: Any, host: Host) -> None:
    answer = runtime.invoke_endpoint_with_response_stream(
        EndpointName=host.name,
        InferenceComponentName=ARMS[1],
        Body=body(SCRIPT_INVOKE="sse", SCRIPT_CHUNKS=3),
    )
    received = b"".join(event["PayloadPart"]["Bytes"] for event in answer["Body"])
    assert received.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("streaming", [False, True])
def test_a_component_must_be_named_and_exist(runtime: Any, host: Host, streaming: bool) -> None:
    call = runtime.invoke_endpoint_with_response_stream if streaming else runtime.invoke_endpoint
    with pytest.raises(ClientError, match="Inference Component Name header is required") as unnamed:
        call(EndpointName=host.name, Body=b"{}")
    assert unnamed.value.response["Error"]["Code"] == "ValidationError"
    with pytest.raises(ClientError, match="Inference Component nope of account 123456789012 not found"):
        call(EndpointName=host.name, InferenceComponentName="nope", Body=b"{}")


def test_a_component_s_error_points_to_its_own_log(runtime: Any, host: Host) -> None:
    with pytest.raises(ClientError) as raised:
        runtime.invoke_endpoint(
            EndpointName=host.name, InferenceComponentName=ARMS[0], Body=body(SCRIPT_INVOKE="status:500")
        )
    response: Any = raised.value.response
    group = f"/aws/sagemaker/InferenceComponents/{ARMS[0]}"
    assert response["LogStreamArn"].endswith(f"log-group:{group}")
    events = host.server.client("logs").filter_log_events(logGroupName=group)["events"]
    assert events[0]["message"].startswith("scripted engine")
    assert events[0]["logStreamName"].startswith("AllTraffic/i-")


def test_metrics_of_a_component_have_its_name_as_their_only_dimension(runtime: Any, host: Host) -> None:
    host.add("measured")
    for _ in range(3):
        runtime.invoke_endpoint(EndpointName=host.name, InferenceComponentName="measured", Body=b"{}")
    result = read(
        host.server,
        metric("measured", "Invocations", "Sum"),
        metric("measured", "InvocationsPerCopy", "Sum"),
        metric("measured", "ConcurrentRequestsPerCopy", "Maximum"),
        metric("measured", "ModelLatency", "Average"),
    )
    assert sum(result["invocations"]) == 3
    assert sum(result["invocationspercopy"]) == 3
    assert max(result["concurrentrequestspercopy"]) == 1
    assert result["modellatency"][0] > 0
    cloudwatch = host.server.client("cloudwatch")
    listed = cloudwatch.list_metrics(
        Namespace="AWS/SageMaker",
        MetricName="Invocations",
        Dimensions=[{"Name": "EndpointName", "Value": host.name}],
    )
    assert listed["Metrics"] == []


def test_utilisation_of_a_component_and_of_the_variant_that_hosts_it(host: Host) -> None:
    lifecycle.advance_clock(host.server.status.port, 300)
    components = "/aws/sagemaker/InferenceComponents"
    result = read(
        host.server,
        metric(ARMS[0], "MemoryUtilizationNormalized", "Average", components),
        metric(ARMS[0], "CPUUtilizationNormalized", "Average", components),
    )
    assert len(result["memoryutilizationnormalized"]) >= 4
    assert all(0 < value <= 100 for value in result["memoryutilizationnormalized"])
    assert len(result["cpuutilizationnormalized"]) >= 4
    of_variant = {
        "Id": "variant",
        "MetricStat": {
            "Metric": {
                "Namespace": "/aws/sagemaker/Endpoints",
                "MetricName": "MemoryUtilization",
                "Dimensions": [
                    {"Name": "EndpointName", "Value": host.name},
                    {"Name": "VariantName", "Value": "AllTraffic"},
                ],
            },
            "Period": 60,
            "Stat": "Average",
        },
    }
    assert len(read(host.server, of_variant)["variant"]) >= 4


def test_asleep_at_no_copies_a_request_fails_and_is_counted_then_it_wakes(
    server: Server, runtime: Any
) -> None:
    scaling = {"Status": "ENABLED", "MinInstanceCount": 0, "MaxInstanceCount": 1}
    sleeper = Host(server, "sleeper", ManagedInstanceScaling=scaling)
    sleeper.add("sleepy")
    sleeper.scale("sleepy", 0)
    (variant,) = sleeper.sagemaker.describe_endpoint(EndpointName="sleeper")["ProductionVariants"]
    assert variant["CurrentInstanceCount"] == 0
    with pytest.raises(ClientError, match="Inference Component has no capacity to process") as refusal:
        runtime.invoke_endpoint(EndpointName="sleeper", InferenceComponentName="sleepy", Body=b"{}")
    assert refusal.value.response["Error"]["Code"] == "ValidationError"
    result = read(server, metric("sleepy", "NoCapacityInvocationFailures", "Sum"))
    assert sum(result["nocapacityinvocationfailures"]) == 1
    sleeper.scale("sleepy", 1)
    runtime.invoke_endpoint(EndpointName="sleeper", InferenceComponentName="sleepy", Body=b"{}")


def test_the_engine_s_own_metrics_page_of_a_component(host: Host) -> None:
    page = lifecycle.endpoint_metrics(host.server.status.port, host.name, component=ARMS[0])
    assert "vllm:num_requests_running" in page


def test_tags_are_found_by_the_tagging_api_a_hundred_resources_a_page(server: Server) -> None:
    sagemaker = server.client("sagemaker")
    for number in range(12):
        sagemaker.create_model(
            ModelName=f"tagged-{number}",
            ExecutionRoleArn=server.status.role_arn,
            PrimaryContainer={"Image": IMAGE},
            Tags=[{"Key": f"k{key}", "Value": "v"} for key in range(20)],
        )
    request: dict[str, Any] = {
        "ResourceTypeFilters": ["sagemaker:model"],
        "TagFilters": [{"Key": "k7", "Values": ["v"]}],
        "ResourcesPerPage": 100,
    }
    page = server.client("resourcegroupstaggingapi").get_resources(**request)
    assert len(page["ResourceTagMappingList"]) == 12
    assert not page.get("PaginationToken")
    arn = page["ResourceTagMappingList"][0]["ResourceARN"]
    assert arn.startswith("arn:aws:sagemaker:us-east-1:123456789012:model/tagged-")
    request["ResourceTypeFilters"] = ["sagemaker:endpoint"]
    none = server.client("resourcegroupstaggingapi").get_resources(**request)
    assert none["ResourceTagMappingList"] == []
