"""The plan of a stack, and what only a stack carries: components, scaling, updates."""

from __future__ import annotations

import json
from typing import Any

import pytest

from peagle_sm.core.errors import PlanRefused
from peagle_sm.core.plan.resolve import Context
from peagle_sm.core.planning import Plan, make_plan
from tests.core.support import CONTAINER, GPT, ROLE, STACK, bodies, breaches, plan_of, spec_of


def _container(plan: Plan) -> dict[str, Any]:
    container: dict[str, Any] = bodies(plan).model["PrimaryContainer"]
    return container


def test_a_stacks_plan_has_no_clock_and_passes_placeholders_on() -> None:
    place = Context(
        "${AWS::AccountId}",
        "us-east-1",
        role_arn="${ExecutionRoleArn}",
        scheduler_role_arn="${SchedulerRoleArn}",
        stack="Peagle-demo",
    )
    plan = make_plan(
        spec_of("name: demo\nmodel: gpt-oss-20b\nhours: mon-fri 8:00-19:00 europe/berlin\n"), place
    )
    sent = bodies(plan)
    assert not plan.refused
    assert [request.operation for request in plan.requests] == [
        "create_model",
        "create_endpoint_config",
        "create_log_group",
        "put_retention_policy",
        "create_endpoint",
    ]
    assert sent.model["ExecutionRoleArn"] == "${ExecutionRoleArn}"
    assert sent.config["ProductionVariants"][0]["ModelName"] == sent.model["ModelName"]
    assert sent.endpoint["EndpointConfigName"] == sent.config["EndpointConfigName"]
    assert sent.component is None
    marks = {tag["Key"]: tag["Value"] for tag in sent.endpoint["Tags"]}
    assert marks["peagle-sm:stack"] == "Peagle-demo"
    assert marks["peagle-sm:hours"] == "Mon-Fri 08:00-19:00 Europe/Berlin"
    assert marks["peagle-sm:usd-per-hour"] == "4.2"
    assert (plan.usd_per_hour, plan.update_usd_per_hour) == (4.2, 4.2)
    assert sent.model["Tags"] == sent.config["Tags"] == sent.endpoint["Tags"]


def test_bodies_of_a_plan_with_a_missing_fact_say_which() -> None:
    with pytest.raises(PlanRefused, match="execution_role_arn: found nothing"):
        bodies(plan_of("name: demo\nmodel: gpt-oss-20b\n"))


def test_an_endpoint_that_scales_to_zero_runs_its_model_as_a_component() -> None:
    plan = plan_of(
        GPT,
        "lifecycle: {idle: scale-to-zero, budget_usd: 900}\nautoscaling: {max_instances: 3}\n"
        "placement: {instance_types: [ml.p6-b200.48xlarge]}",
        STACK,
    )
    sent = bodies(plan)
    assert not plan.refused or plan.usd_per_hour is None or plan.max_usd is not None
    (variant,) = sent.config["ProductionVariants"]
    assert "ModelName" not in variant
    assert variant["ManagedInstanceScaling"] == {
        "Status": "ENABLED",
        "MinInstanceCount": 0,
        "MaxInstanceCount": 3,
    }
    assert (sent.config["ExecutionRoleArn"], sent.config["EnableNetworkIsolation"]) == (ROLE, True)
    assert sent.component == {
        "InferenceComponentName": "demo",
        "EndpointName": "demo",
        "VariantName": "AllTraffic",
        "Specification": {
            "ModelName": sent.model["ModelName"],
            "StartupParameters": {
                "ModelDataDownloadTimeoutInSeconds": 3600,
                "ContainerStartupHealthCheckTimeoutInSeconds": 3600,
            },
            "ComputeResourceRequirements": {
                "NumberOfAcceleratorDevicesRequired": 1.0,
                "MinMemoryRequiredInMb": 8192,
            },
        },
        "RuntimeConfig": {"CopyCount": 8},
        "Tags": sent.endpoint["Tags"],
    }
    assert {"Key": "peagle-sm:idle", "Value": "scale-to-zero"} in sent.component["Tags"]
    assert [breaches(request) for request in plan.requests] == [[]] * 10


def test_a_head_staged_below_its_target_needs_no_channel() -> None:
    container = _container(plan_of(CONTAINER.replace("s3://bucket/head/", "s3://bucket/target/p-eagle")))
    assert "AdditionalModelDataSources" not in container
    assert '"model":"/opt/ml/model/p-eagle"' in container["Environment"]["SM_VLLM_SPECULATIVE_CONFIG"]


def test_the_budget_counts_with_as_many_instances_as_there_may_be() -> None:
    plan = plan_of(GPT, "autoscaling: {max_instances: 3}\nlifecycle: {budget_usd: 100}", STACK)
    assert (plan.usd_per_hour, plan.most_usd_per_hour, plan.max_usd) == (4.2, 12.6, 100.8)
    assert [finding.check for finding in plan.findings if finding.severity == "error"] == ["budget"]
    assert {"Key": "peagle-sm:usd-per-hour", "Value": "4.2"} in bodies(plan).endpoint["Tags"]


def test_the_tags_say_what_list_shows() -> None:
    for extra, bounds in (("", None), ("autoscaling: {max_instances: 3}", "1-3")):
        sent = bodies(plan_of(GPT, extra, STACK))
        tags = {tag["Key"]: tag["Value"] for tag in sent.endpoint["Tags"]}
        (variant,) = sent.config["ProductionVariants"]
        document = json.loads(sent.model["PrimaryContainer"]["Environment"]["SM_VLLM_SPECULATIVE_CONFIG"])
        assert tags["peagle-sm:num-speculative-tokens"] == str(document["num_speculative_tokens"])
        assert tags["peagle-sm:instance-type"] == variant["InstanceType"]
        assert tags["peagle-sm:instance-count"] == str(variant["InitialInstanceCount"])
        assert tags.get("peagle-sm:instance-bounds") == bounds
    plain = {tag["Key"] for tag in bodies(plan_of(GPT, "speculation: {mode: none}", STACK)).endpoint["Tags"]}
    assert "peagle-sm:num-speculative-tokens" not in plain


def test_the_engines_figures_come_as_often_as_asked() -> None:
    plan = plan_of(GPT, "metrics: {publish_seconds: 10}")
    # The guard expects a datapoint a minute unless the tag says otherwise.
    assert {"Key": "peagle-sm:publish-seconds", "Value": "10"} in bodies(plan).endpoint["Tags"]
    assert _container(plan)["ContainerMetricsConfig"] == {
        "MetricsEndpoints": [{"MetricsEndpointPath": "/metrics", "MetricPublishFrequencyInSeconds": 10}]
    }
    assert bodies(plan).config["MetricsConfig"] == {
        "EnableDetailedObservability": True,
        "MetricPublishFrequencyInSeconds": 10,
    }
    assert [breaches(request) for request in plan.requests] == [[]] * 6
