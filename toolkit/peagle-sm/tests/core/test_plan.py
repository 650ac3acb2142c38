import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.plan.resolve import Context
from peagle_sm.core.planning import Plan, make_plan
from peagle_sm.core.resources.resource import Request
from peagle_sm.core.spec.endpoint_spec import ENDPOINT_NAME, EndpointSpec, parse_spec
from peagle_sm.service.spec_to_plan import load_spec
from tests.core.support import (
    AWS,
    CONTAINER,
    GPT,
    LOCAL,
    NOW,
    ROLE,
    SCHEDULER_ROLE,
    TINY,
    breaches,
    gated_catalog,
    plan_of,
)

EXAMPLES = sorted((Path(__file__).parents[4] / "docs" / "examples").glob("*.yaml"))


def _container(plan: Plan) -> dict[str, Any]:
    container: dict[str, Any] = plan.requests[1].parameters["PrimaryContainer"]
    return container


def _variant(plan: Plan) -> dict[str, Any]:
    variant: dict[str, Any] = plan.requests[2].parameters["ProductionVariants"][0]
    return variant


def test_the_whole_plan_of_the_stand_in() -> None:
    plan = plan_of(TINY, "tags: {team: search}", LOCAL)
    digest = plan.spec_hash
    name = f"demo-{digest[:8]}"
    tags = [
        {"Key": "peagle-sm:managed-by", "Value": "peagle-sm"},
        {"Key": "peagle-sm:endpoint", "Value": "demo"},
        {"Key": "peagle-sm:spec-hash", "Value": digest},
        {"Key": "peagle-sm:model", "Value": "tiny-code"},
        {"Key": "peagle-sm:mode", "Value": "p-eagle"},
        {"Key": "peagle-sm:instance-type", "Value": "ml.c7i.2xlarge"},
        {"Key": "peagle-sm:instance-count", "Value": "1"},
        {"Key": "peagle-sm:idle-minutes", "Value": "60"},
        {"Key": "peagle-sm:grace-minutes", "Value": "10"},
        {"Key": "peagle-sm:max-lifetime-hours", "Value": "8"},
        {"Key": "peagle-sm:num-speculative-tokens", "Value": "11"},
        {"Key": "team", "Value": "search"},
    ]
    expiry = datetime(2026, 11, 20, 16, 30, 15, tzinfo=UTC)
    s3 = {"S3DataType": "S3Prefix", "CompressionType": "None"}
    assert plan.requests == (
        Request(
            "scheduler",
            "create_schedule",
            {
                "Name": "peagle-demo-lifetime",
                "Description": "peagle-sm: deletes endpoint demo at the end of its lifetime",
                "ScheduleExpression": "rate(10 minutes)",
                "StartDate": expiry,
                "EndDate": expiry.replace(day=21),
                "State": "ENABLED",
                "FlexibleTimeWindow": {"Mode": "OFF"},
                "ActionAfterCompletion": "DELETE",
                "Target": {
                    "Arn": "arn:aws:scheduler:::aws-sdk:sagemaker:deleteEndpoint",
                    "RoleArn": SCHEDULER_ROLE,
                    "Input": '{"EndpointName": "demo"}',
                    "RetryPolicy": {"MaximumEventAgeInSeconds": 60, "MaximumRetryAttempts": 0},
                },
            },
        ),
        Request(
            "sagemaker",
            "create_model",
            {
                "ModelName": name,
                "PrimaryContainer": {
                    "Image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/vllm:0.32.0-cpu",
                    "ModelDataSource": {"S3DataSource": {"S3Uri": "s3://stand-in/target/", **s3}},
                    "Environment": {
                        "PEAGLE_GATE_NAMESPACE": "peagle-sm/demo",
                        "SM_VLLM_MAX_MODEL_LEN": "8192",
                        "SM_VLLM_MODEL": "/opt/ml/model",
                        "SM_VLLM_PER_REQUEST_SPEC_DECODE_METRICS": "summary",
                        "SM_VLLM_SPECULATIVE_CONFIG": '{"method":"eagle3",'
                        '"model":"/opt/ml/additional-model-data-sources/eagle",'
                        '"num_speculative_tokens":11,"parallel_drafting":true}',
                        "SM_VLLM_TENSOR_PARALLEL_SIZE": "1",
                        "VLLM_USE_V2_MODEL_RUNNER": "0",
                    },
                    "AdditionalModelDataSources": [
                        {"ChannelName": "eagle", "S3DataSource": {"S3Uri": "s3://stand-in/p-eagle/", **s3}}
                    ],
                },
                "ExecutionRoleArn": ROLE,
                "EnableNetworkIsolation": True,
                "Tags": tags,
            },
        ),
        Request(
            "sagemaker",
            "create_endpoint_config",
            {
                "EndpointConfigName": name,
                "ProductionVariants": [
                    {
                        "ModelName": name,
                        "VariantName": "AllTraffic",
                        "InitialInstanceCount": 1,
                        "ModelDataDownloadTimeoutInSeconds": 3600,
                        "ContainerStartupHealthCheckTimeoutInSeconds": 3600,
                        "RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
                        "InstanceType": "ml.c7i.2xlarge",
                    }
                ],
                "MetricsConfig": {
                    "EnableDetailedObservability": True,
                    "MetricPublishFrequencyInSeconds": 60,
                },
                "Tags": tags,
            },
        ),
        Request("logs", "create_log_group", {"logGroupName": "/aws/sagemaker/Endpoints/demo"}),
        Request(
            "logs",
            "put_retention_policy",
            {"logGroupName": "/aws/sagemaker/Endpoints/demo", "retentionInDays": 30},
        ),
        Request(
            "sagemaker",
            "create_endpoint",
            {"EndpointName": "demo", "EndpointConfigName": name, "Tags": tags},
        ),
    )
    assert not plan.refused
    assert (plan.usd_per_hour, plan.max_usd, plan.price_source) == (0.0, 0.0, "local: nothing is billed")


def test_jumpstarts_own_environment_is_sent() -> None:
    container = _container(plan_of(GPT))
    assert container["Image"].endswith("/vllm:0.18.0-gpu-py312-cu129-ubuntu22.04-sagemaker")
    entry = load_catalog().jumpstart["gpt-oss-20b"]
    sent = dict(container["Environment"])
    assert json.loads(sent.pop("SM_VLLM_SPECULATIVE_CONFIG"))["num_speculative_tokens"] == 3
    assert sent == entry.environment_for("ml.g7e.2xlarge")
    assert container["ModelDataSource"]["S3DataSource"]["S3Uri"] == entry.target("us-east-1")
    assert container["AdditionalModelDataSources"][0]["S3DataSource"]["S3Uri"] == (
        "s3://jumpstart-cache-prod-us-east-1/lmi-eagle-heads/models/gpt-oss-20b-p-eagle/"
    )


def test_without_speculation_jumpstart_gets_no_head() -> None:
    container = _container(plan_of(GPT, "speculation: {mode: none}"))
    assert "AdditionalModelDataSources" not in container
    assert "SM_VLLM_SPECULATIVE_CONFIG" not in container["Environment"]


def test_eagle3_through_jumpstart_takes_a_head_of_ones_own() -> None:
    plan = plan_of(GPT, "speculation: {mode: eagle3, draft_head: mine}\nhead_uri: s3://bucket/eagle3/")
    container = _container(plan)
    assert not plan.refused
    assert container["AdditionalModelDataSources"][0]["S3DataSource"]["S3Uri"] == "s3://bucket/eagle3/"
    assert "parallel_drafting" not in container["Environment"]["SM_VLLM_SPECULATIVE_CONFIG"]


def test_several_types_become_pools_in_order_of_preference() -> None:
    variant = _variant(plan_of(CONTAINER, "placement: {instance_types: [ml.g7e.2xlarge, ml.p5.4xlarge]}"))
    assert variant["InstancePools"] == [
        {"InstanceType": "ml.g7e.2xlarge", "Priority": 1},
        {"InstanceType": "ml.p5.4xlarge", "Priority": 2},
    ]
    assert "InstanceType" not in variant


@pytest.mark.parametrize(
    ("extra", "ami"),
    [
        ("", "al2023-ami-sagemaker-inference-gpu-4-1"),
        ("placement: {instance_types: [ml.g6e.2xlarge]}", "al2-ami-sagemaker-inference-gpu-3-1"),
        (
            "placement: {instance_types: [ml.g6e.2xlarge], "
            "inference_ami_version: al2-ami-sagemaker-inference-gpu-2}",
            "al2-ami-sagemaker-inference-gpu-2",
        ),
    ],
)
def test_the_host_ami_suits_cuda_and_gpu(extra: str, ami: str) -> None:
    assert _variant(plan_of(GPT, extra))["InferenceAmiVersion"] == ami


def test_images_that_strip_quotes_run_without_their_supervisor() -> None:
    image = "image: 763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm:0.22.1-gpu-py312-cu130-ubuntu22.04"
    assert _container(plan_of(CONTAINER, image))["Environment"]["PROCESS_AUTO_RECOVERY"] == "false"


def test_an_agreement_is_sent_only_for_jumpstarts_own_gated_files() -> None:
    gated, said = gated_catalog(), "accept_eula: true"
    spec = parse_spec(f"{GPT}\n{said}")
    container = _container(make_plan(spec, AWS, gated))
    sources = [container["ModelDataSource"], container["AdditionalModelDataSources"][0]]
    assert [one["S3DataSource"]["ModelAccessConfig"] for one in sources] == [{"AcceptEula": True}] * 2
    of_your_own = f"{GPT}\n{said}\nmodel_uri: s3://mine/target/\nhead_uri: s3://mine/head/"
    without = [(f"{GPT}\n{said}", None), (f"{CONTAINER}\n{said}", gated), (of_your_own, gated)]
    for text, catalog in without:
        plan = make_plan(parse_spec(text), AWS, catalog)
        assert "ModelAccessConfig" not in json.dumps(_container(plan))


def test_network_and_key_reach_the_payloads() -> None:
    plan = plan_of(
        CONTAINER,
        "placement: {instance_types: [ml.c7i.2xlarge]}\nsecurity:\n"
        "  kms_key_id: alias/mine\n  vpc: {subnet_ids: [subnet-1], security_group_ids: [sg-1]}\n",
    )
    assert plan.requests[1].parameters["VpcConfig"] == {"Subnets": ["subnet-1"], "SecurityGroupIds": ["sg-1"]}
    assert plan.requests[2].parameters["KmsKeyId"] == "alias/mine"


def test_the_hash_covers_what_runs_and_nothing_else() -> None:
    base = plan_of(GPT).spec_hash
    same = ["tags: {a: b}", "lifecycle: {max_lifetime_hours: 1, idle_minutes: 20}"]
    other = [
        "speculation: {num_speculative_tokens: 4}",
        "placement: {instance_count: 2}",
        "serving: {max_model_len: 4096}",
    ]
    assert [plan_of(GPT, extra).spec_hash for extra in same] == [base, base]
    assert len({base, *(plan_of(GPT, extra).spec_hash for extra in other)}) == 4
    later = Context(AWS.account, AWS.region, NOW.replace(year=2027))
    assert plan_of(GPT, context=later).spec_hash == base


def test_no_requests_while_a_fact_is_missing() -> None:
    plan = plan_of("name: demo\nmodel: gpt-oss-20b\n")
    assert plan.requests == ()
    assert plan.refused
    fields = [finding.message.partition(":")[0] for finding in plan.findings if finding.severity == "error"]
    assert fields == ["execution_role_arn", "scheduler_role_arn"]


@pytest.mark.parametrize(
    ("region", "arn"),
    [("us-gov-west-1", "arn:aws-us-gov:"), ("cn-north-1", "arn:aws-cn:"), ("eu-west-1", "arn:aws:")],
)
def test_the_guard_calls_sagemaker_in_the_regions_partition(region: str, arn: str) -> None:
    plan = plan_of(GPT, f"placement: {{region: {region}}}")
    assert plan.requests[0].parameters["Target"]["Arn"].startswith(arn)


def test_a_model_whose_jumpstart_spec_is_not_known_is_refused_and_the_missing_fact_named() -> None:
    plan = plan_of("name: gemma\nmodel: gemma-4-31b-it\nsource: jumpstart\n")
    errors = [finding.message for finding in plan.findings if finding.severity == "error"]
    assert plan.requests == ()
    assert [
        "neither in the catalogue" in error for error in errors if "huggingface-vlm-gemma-4-31b-it" in error
    ] == [True]


def test_an_example_for_aws_plans_locally_with_the_local_servers_own_roles() -> None:
    spec = load_spec(next(path for path in EXAMPLES if path.stem == "gpt-oss-20b"))
    role, scheduler_role = f"{ROLE}-local", f"{SCHEDULER_ROLE}-local"
    plan = make_plan(spec, replace(LOCAL, role_arn=role, scheduler_role_arn=scheduler_role))
    assert not plan.refused
    assert plan.requests[0].parameters["Target"]["RoleArn"] == scheduler_role
    assert plan.requests[1].parameters["ExecutionRoleArn"] == role


def test_a_local_plan_is_for_the_local_region() -> None:
    here = plan_of(GPT, context=LOCAL)
    elsewhere = plan_of(GPT, "placement: {region: eu-west-1}", LOCAL)
    assert [request.parameters for request in elsewhere.requests[1:]] == [
        request.parameters for request in here.requests[1:]
    ]


def test_the_rules_that_payloads_are_held_against_do_find_breaches() -> None:
    broken = Request(
        "sagemaker",
        "create_endpoint_config",
        {
            "EndpointConfigName": "-a",
            "ProductionVariants": [
                {
                    "VariantName": "v",
                    "InstanceType": "ml.g9.xlarge",
                    "ModelDataDownloadTimeoutInSeconds": 9999,
                }
            ],
            "Tags": [{"Key": "k" * 129, "Value": "a&b"}],
        },
    )
    message = " ".join(breaches(broken))
    for part in (
        "EndpointConfigName",
        "ml.g9.xlarge",
        "more than 3600",
        "longer than 128",
        "'a&b' does not match",
    ):
        assert part in message
    assert "ModelName" in breaches(Request("sagemaker", "create_model", {}))[0]


_NAMES = st.from_regex(ENDPOINT_NAME, fullmatch=True)


@settings(max_examples=40, deadline=None)
@given(
    name=_NAMES,
    mode=st.sampled_from(["none", "eagle3", "p-eagle"]),
    tokens=st.integers(1, 12),
    env=st.dictionaries(
        st.from_regex(r"[A-Z_][A-Z0-9_]{0,30}", fullmatch=True),
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=50),
        max_size=5,
    ),
    tags=st.dictionaries(
        st.text("abcXYZ 019_.:/=+-@é", min_size=1, max_size=9).map("x".__add__),
        st.text("aé 0_"),
        max_size=12,  # a spec may have 30; more are refused, in the tests of the spec
    ),
    hours=st.floats(0.01, 8760),
    types=st.lists(
        st.sampled_from(["ml.g7e.2xlarge", "ml.p5.48xlarge", "ml.g6.12xlarge"]), unique=True, max_size=3
    ),
)
def test_every_payload_meets_botocores_model(
    name: str,
    mode: str,
    tokens: int,
    env: dict[str, str],
    tags: dict[str, str],
    hours: float,
    types: list[str],
) -> None:
    spec = EndpointSpec.model_validate(
        {
            "name": name,
            "model": "gpt-oss-20b",
            "speculation": {"mode": mode, "num_speculative_tokens": tokens, "draft_head": "mine"},
            "head_uri": "s3://bucket/head/",
            "serving": {"env": env},
            "placement": {"instance_types": types},
            "lifecycle": {"max_lifetime_hours": hours},
            "tags": tags,
            "execution_role_arn": ROLE,
            "scheduler_role_arn": SCHEDULER_ROLE,
        }
    )
    plan = make_plan(spec, AWS)
    assert [request.operation for request in plan.requests] == [
        "create_schedule",
        "create_model",
        "create_endpoint_config",
        "create_log_group",
        "put_retention_policy",
        "create_endpoint",
    ]
    assert [breaches(request) for request in plan.requests] == [[]] * 6
