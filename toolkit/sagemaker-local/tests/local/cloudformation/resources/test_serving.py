"""Models, endpoints and scalable targets from templates: waited for, failed as in AWS, gone at the end."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from sagemaker_local.cloudformation.resources.base import Created, ResourceFailure
from tests.local.cloudformation.resources.conftest import Stack
from tests.local.serving import IMAGE, Server


class Fleet:
    """Makes what an endpoint needs, as resources of a stack."""

    def __init__(self, stack: Stack, role_arn: str) -> None:
        self.stack = stack
        self.role_arn = role_arn

    def config(self, name: str, **environment: Any) -> str:
        self.stack.create(
            "AWS::SageMaker::Model",
            ModelName=name,
            ExecutionRoleArn=self.role_arn,
            PrimaryContainer={"Image": IMAGE, "Environment": environment},
        )
        variant = {
            "VariantName": "AllTraffic",
            "ModelName": name,
            "InstanceType": "ml.g7e.2xlarge",
            "InitialInstanceCount": "1",
        }
        self.stack.create(
            "AWS::SageMaker::EndpointConfig", EndpointConfigName=name, ProductionVariants=[variant]
        )
        return name

    def endpoint(self, name: str, config: str) -> tuple[Created, dict[str, Any]]:
        properties = {"EndpointName": name, "EndpointConfigName": config}
        return self.stack.create("AWS::SageMaker::Endpoint", **properties), properties

    def status(self, name: str) -> tuple[str, str]:
        result = self.stack.client("sagemaker").describe_endpoint(EndpointName=name)
        return result["EndpointStatus"], result["EndpointConfigName"]


@pytest.fixture
def fleet(stack: Stack, server: Server) -> Fleet:
    return Fleet(stack.with_tags(team="a"), server.status.role_arn)


def tags(stack: Stack, arn: str) -> dict[str, str]:
    result = stack.client("sagemaker").list_tags(ResourceArn=arn)["Tags"]
    return {tag["Key"]: tag["Value"] for tag in result}


def test_an_endpoint_is_made_updated_in_place_and_deleted(fleet: Fleet, stack: Stack) -> None:
    made, old = fleet.endpoint("Up", fleet.config("up-1", SCRIPT_VERSION=1))
    assert made.physical_id == "arn:aws:sagemaker:us-east-1:123456789012:endpoint/up"
    assert made.attributes["EndpointName"] == "Up"
    assert fleet.status("Up") == ("InService", "up-1")
    assert tags(stack, made.physical_id) == {"team": "a"}
    new = {**old, "EndpointConfigName": fleet.config("up-2"), "Tags": [{"Key": "k", "Value": "v"}]}
    stack.update("AWS::SageMaker::Endpoint", made, old, new)
    assert fleet.status("Up") == ("InService", "up-2")
    assert tags(stack, made.physical_id) == {"team": "a", "k": "v"}
    stack.delete("AWS::SageMaker::Endpoint", made, **new)
    with pytest.raises(ClientError, match="Could not find endpoint"):
        fleet.status("Up")
    stack.delete("AWS::SageMaker::Endpoint", made, **new)


def test_an_endpoint_that_fails_fails_with_its_reason_and_is_left_for_the_rollback(
    fleet: Fleet, stack: Stack
) -> None:
    config = fleet.config("broken", SCRIPT_EXIT_AFTER="0", SCRIPT_EXIT_LINE="RuntimeError: no weights")
    with pytest.raises(ResourceFailure, match=r"(?s)did not stabilize: it is Failed.*no weights") as raised:
        fleet.endpoint("broken", config)
    arn = raised.value.physical_id
    assert arn == "arn:aws:sagemaker:us-east-1:123456789012:endpoint/broken"
    stack.delete("AWS::SageMaker::Endpoint", arn, EndpointName="broken", EndpointConfigName=config)
    with pytest.raises(ClientError, match="Could not find endpoint"):
        fleet.status("broken")


def test_an_update_that_rolls_back_is_a_failure(fleet: Fleet, stack: Stack) -> None:
    made, old = fleet.endpoint("back", fleet.config("back-1"))
    worse = fleet.config("back-2", SCRIPT_EXIT_AFTER="0")
    with pytest.raises(ResourceFailure, match="is InService with configuration back-1"):
        stack.update("AWS::SageMaker::Endpoint", made, old, {**old, "EndpointConfigName": worse})
    assert fleet.status("back") == ("InService", "back-1")
    # What the engine's own rollback asks for next: nothing has to change.
    stack.update("AWS::SageMaker::Endpoint", made, {**old, "EndpointConfigName": worse}, old)
    stack.delete("AWS::SageMaker::Endpoint", made, **old)


def test_a_role_that_sagemaker_cannot_assume_is_refused(stack: Stack) -> None:
    container = {"Image": IMAGE}
    for role in (stack.role("lambda.amazonaws.com"), "arn:aws:iam::123456789012:role/nobody"):
        with pytest.raises(ResourceFailure, match="Please ensure that the role exists and allows principal"):
            stack.create("AWS::SageMaker::Model", ExecutionRoleArn=role, PrimaryContainer=container)


def test_a_generated_name_is_found_again(fleet: Fleet, stack: Stack) -> None:
    properties = {"ExecutionRoleArn": fleet.role_arn, "PrimaryContainer": {"Image": IMAGE}}
    created = stack.create("AWS::SageMaker::Model", **properties)
    name = created.attributes["ModelName"]
    assert name.startswith("peagle-s-it-")
    stack.update(
        "AWS::SageMaker::Model", created, properties, {**properties, "Tags": [{"Key": "a", "Value": "b"}]}
    )
    assert tags(stack, created.physical_id) == {"team": "a", "a": "b"}
    stack.delete("AWS::SageMaker::Model", created, **properties)
    stack.delete("AWS::SageMaker::Model", created, **properties)
    with pytest.raises(ClientError, match="Could not find model"):
        stack.client("sagemaker").describe_model(ModelName=name)


def test_a_component_is_made_changed_and_blocks_its_endpoint_until_it_is_gone(
    fleet: Fleet, stack: Stack
) -> None:
    container = {"Image": IMAGE, "Environment": {}}
    stack.create(
        "AWS::SageMaker::Model",
        ModelName="part",
        ExecutionRoleArn=fleet.role_arn,
        PrimaryContainer=container,
    )
    variant = {"VariantName": "AllTraffic", "InstanceType": "ml.g7e.48xlarge", "InitialInstanceCount": 1}
    stack.create(
        "AWS::SageMaker::EndpointConfig",
        EndpointConfigName="host",
        ExecutionRoleArn=fleet.role_arn,
        ProductionVariants=[variant],
    )
    endpoint, about = fleet.endpoint("host", "host")
    old: dict[str, Any] = {
        "InferenceComponentName": "part",
        "EndpointName": "host",
        "VariantName": "AllTraffic",
        "Specification": {
            "ModelName": "part",
            "ComputeResourceRequirements": {
                "NumberOfAcceleratorDevicesRequired": "1",
                "MinMemoryRequiredInMb": 1024,
            },
        },
        "RuntimeConfig": {"CopyCount": "1"},
    }
    created = stack.create("AWS::SageMaker::InferenceComponent", **old)
    assert created.attributes["InferenceComponentStatus"] == "InService"
    with pytest.raises(ResourceFailure, match="does not change EndpointName"):
        stack.update("AWS::SageMaker::InferenceComponent", created, old, {**old, "EndpointName": "other"})
    new = {**old, "RuntimeConfig": {"CopyCount": 2}}
    stack.update("AWS::SageMaker::InferenceComponent", created, old, new)
    sagemaker = stack.client("sagemaker")
    inference_component = sagemaker.describe_inference_component(InferenceComponentName="part")
    assert inference_component["RuntimeConfig"]["CurrentCopyCount"] == 2
    with pytest.raises(ResourceFailure):
        stack.delete("AWS::SageMaker::Endpoint", endpoint, **about)
    stack.delete("AWS::SageMaker::InferenceComponent", created, **new)
    stack.delete("AWS::SageMaker::InferenceComponent", created, **new)
    stack.delete("AWS::SageMaker::Endpoint", endpoint, **about)


def test_what_is_scaled_must_be_there(stack: Stack, server: Server) -> None:
    place = {"ServiceNamespace": "sagemaker", "ScalableDimension": "sagemaker:variant:DesiredInstanceCount"}
    limits = {"MinCapacity": 1, "MaxCapacity": "2", "RoleARN": "arn:aws:iam::123456789012:role/r"}
    with pytest.raises(ResourceFailure, match="No SageMaker resource found"):
        stack.create(
            "AWS::ApplicationAutoScaling::ScalableTarget",
            ResourceId="endpoint/nobody/variant/AllTraffic",
            **place,
            **limits,
        )
    endpoint = server.create()
    server.until(endpoint, "InService")
    whole = {**place, **limits, "ResourceId": f"endpoint/{endpoint}/variant/AllTraffic"}
    other = {**whole, "ResourceId": f"endpoint/{endpoint}/variant/Other"}
    with pytest.raises(ResourceFailure, match="No SageMaker resource found"):
        stack.create("AWS::ApplicationAutoScaling::ScalableTarget", **other)
    target = stack.create("AWS::ApplicationAutoScaling::ScalableTarget", **whole)
    tracking = {
        "PredefinedMetricSpecification": {
            "PredefinedMetricType": "SageMakerVariantConcurrentRequestsPerModelHighResolution"
        },
        "TargetValue": "5",
    }
    answer = {
        "PolicyName": "track",
        "PolicyType": "TargetTrackingScaling",
        "ScalingTargetId": target.physical_id,
        "TargetTrackingScalingPolicyConfiguration": tracking,
    }
    policy = stack.create("AWS::ApplicationAutoScaling::ScalingPolicy", **answer)
    scaling = stack.client("application-autoscaling")
    (found,) = scaling.describe_scaling_policies(ServiceNamespace="sagemaker", PolicyNames=["track"])[
        "ScalingPolicies"
    ]
    assert found["ResourceId"] == whole["ResourceId"]
    stack.delete("AWS::ApplicationAutoScaling::ScalingPolicy", policy, **answer)
    stack.delete("AWS::ApplicationAutoScaling::ScalableTarget", target, **whole)
    stack.delete("AWS::ApplicationAutoScaling::ScalableTarget", target, **whole)
