"""Models, endpoint configurations and tags: what is stored comes back, in the shapes of AWS."""

from typing import Any

import pytest
from botocore.validate import ParamValidator

from sagemaker_local.control import ApiError
from sagemaker_local.control.requests import operation
from tests.local.control.conftest import IMAGE, PREFIX, ROLE, Account, MakeAccount

SOURCE = {"S3DataType": "S3Prefix", "CompressionType": "None"}
MODEL: dict[str, Any] = {
    "ModelName": "Tiny-Model",
    "ExecutionRoleArn": ROLE,
    "EnableNetworkIsolation": True,
    "VpcConfig": {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]},
    "PrimaryContainer": {
        "Image": IMAGE,
        "Environment": {"SM_VLLM_MAX_MODEL_LEN": "8192", "EMPTY": ""},
        "ModelDataSource": {
            "S3DataSource": {**SOURCE, "S3Uri": "s3://b/t/", "ModelAccessConfig": {"AcceptEula": True}}
        },
        "AdditionalModelDataSources": [
            {"ChannelName": "eagle", "S3DataSource": {**SOURCE, "S3Uri": "s3://b/h/"}}
        ],
    },
}
CONFIG: dict[str, Any] = {
    "EndpointConfigName": "Config",
    "KmsKeyId": "alias/key",
    "ExecutionRoleArn": ROLE,
    "MetricsConfig": {"EnableEnhancedMetrics": True},
    "ProductionVariants": [
        {
            "VariantName": "AllTraffic",
            "ModelName": "Tiny-Model",
            "InstancePools": [
                {"InstanceType": "ml.p6-b200.48xlarge", "Priority": 2},
                {"InstanceType": "ml.g7e.2xlarge", "Priority": 1},
            ],
            "InitialInstanceCount": 2,
            "InferenceAmiVersion": "al2023-ami-sagemaker-inference-gpu-4-1",
            "CapacityReservationConfig": {
                "CapacityReservationPreference": "capacity-reservations-only",
                "MlReservationArn": f"{PREFIX}:training-plan/p",
            },
            "RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
            "ContainerStartupHealthCheckTimeoutInSeconds": 3600,
            "ModelDataDownloadTimeoutInSeconds": 3600,
        }
    ],
}
TAGS = [{"Key": "peagle-sm:managed-by", "Value": "peagle-sm"}, {"Key": "team", "Value": ""}]


def fits(name: str, answer: dict[str, Any]) -> None:
    """The answer is of the operation's output shape: nothing missing, nothing unknown, nothing mistyped."""
    shape = operation(name).output_shape
    assert shape is not None
    report = ParamValidator().validate(answer, shape)
    assert not report.has_errors(), report.generate_report()


async def test_a_model_comes_back_as_it_went_in(aws: Account) -> None:
    result = await aws.call("CreateModel", **MODEL, Tags=TAGS)
    assert result == {"ModelArn": f"{PREFIX}:model/tiny-model"}
    answer = await aws.call("DescribeModel", ModelName="Tiny-Model")
    fits("DescribeModel", answer)
    created = answer.pop("CreationTime")
    assert isinstance(created, float)
    assert abs(created - aws.clock.now().timestamp()) < 5
    assert answer.pop("PrimaryContainer").pop("Mode") == "SingleModel"
    assert answer == {key: value for key, value in MODEL.items() if key != "PrimaryContainer"} | result
    fits("ListModels", await aws.call("ListModels"))


async def test_a_small_model_has_no_empty_members(aws: Account) -> None:
    await aws.model()
    answer = await aws.call("DescribeModel", ModelName="m")
    always = {"ModelName", "ModelArn", "CreationTime", "EnableNetworkIsolation"}
    assert answer.keys() == always | {"ExecutionRoleArn", "PrimaryContainer"}
    assert answer["EnableNetworkIsolation"] is False


async def test_a_config_comes_back_as_it_went_in_with_awss_default_weight(aws: Account) -> None:
    await aws.call("CreateModel", **MODEL)
    created = await aws.call("CreateEndpointConfig", **CONFIG)
    assert created == {"EndpointConfigArn": f"{PREFIX}:endpoint-config/config"}
    answer = await aws.call("DescribeEndpointConfig", EndpointConfigName="Config")
    fits("DescribeEndpointConfig", answer)
    assert answer.pop("CreationTime") > 0
    weighted = CONFIG["ProductionVariants"][0] | {"InitialVariantWeight": 1.0}
    assert answer == CONFIG | created | {"ProductionVariants": [weighted], "EnableNetworkIsolation": False}
    fits("ListEndpointConfigs", await aws.call("ListEndpointConfigs"))


async def test_an_endpoint_is_described_in_awss_shape_at_every_stage(aws: Account) -> None:
    await aws.call("CreateModel", **MODEL)
    await aws.call("CreateEndpointConfig", **CONFIG)
    await aws.endpoint("e", "Config")
    fits("DescribeEndpoint", await aws.describe())
    served = await aws.until("InService")
    fits("DescribeEndpoint", served)
    (variant,) = served["ProductionVariants"]
    assert variant["InstancePools"] == [
        {"InstanceType": "ml.p6-b200.48xlarge", "CurrentInstanceCount": 0},
        {"InstanceType": "ml.g7e.2xlarge", "CurrentInstanceCount": 2},
    ]
    assert variant["RoutingConfig"] == {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"}
    fits("ListEndpoints", await aws.call("ListEndpoints"))
    aws.launcher.processes[0].kill()
    fits("DescribeEndpoint", await aws.until("Failed"))


async def test_names_are_unique_whatever_their_case(aws: Account) -> None:
    await aws.call("CreateModel", **MODEL)
    await aws.call("CreateEndpointConfig", **CONFIG)
    taken = f'Cannot create already existing model "{PREFIX}:model/tiny-model".'
    await aws.refused(taken, "CreateModel", **(MODEL | {"ModelName": "tiny-model"}))
    taken = f'Cannot create already existing endpoint configuration "{PREFIX}:endpoint-config/config".'
    await aws.refused(taken, "CreateEndpointConfig", **(CONFIG | {"EndpointConfigName": "CONFIG"}))


async def test_what_is_not_there(aws: Account) -> None:
    for operation_, body, kind, arn in (
        ("DescribeModel", {"ModelName": "x"}, "model", "model/x"),
        ("DescribeEndpoint", {"EndpointName": "x"}, "endpoint", "endpoint/x"),
        ("DeleteEndpoint", {"EndpointName": "x"}, "endpoint", "endpoint/x"),
        (
            "DescribeEndpointConfig",
            {"EndpointConfigName": "x"},
            "endpoint configuration",
            "endpoint-config/x",
        ),
    ):
        await aws.refused(f'Could not find {kind} "{PREFIX}:{arn}".', operation_, **body)


async def test_model_data_that_is_not_in_s3_is_refused_at_once(make_account: MakeAccount) -> None:
    requests = []

    async def exists(uri: str) -> bool:
        requests.append(uri)
        return uri != "s3://b/h/"

    aws = make_account(model_data_exists=exists)
    await aws.refused("Could not find model data at s3://b/h/.", "CreateModel", **MODEL)
    assert requests == ["s3://b/t/", "s3://b/h/"]
    assert (await aws.call("ListModels"))["Models"] == []


async def test_tags_are_added_overwritten_listed_and_deleted(aws: Account) -> None:
    arn = (await aws.call("CreateModel", **MODEL, Tags=TAGS))["ModelArn"]
    assert await aws.call("ListTags", ResourceArn=arn) == {"Tags": TAGS}
    more = [{"Key": "team", "Value": "b"}, {"Key": "peagle-sm:expires", "Value": "2026-11-21T08:00:00+00:00"}]
    assert await aws.call("AddTags", ResourceArn=arn, Tags=more) == {"Tags": [TAGS[0], *more]}
    assert await aws.call("DeleteTags", ResourceArn=arn, TagKeys=["team", "absent"]) == {}
    assert await aws.call("ListTags", ResourceArn=arn) == {"Tags": [TAGS[0], more[1]]}


async def test_configs_and_endpoints_are_tagged_too(aws: Account) -> None:
    await aws.serve()
    for arn in (f"{PREFIX}:endpoint-config/c", f"{PREFIX}:endpoint/e"):
        await aws.call("AddTags", ResourceArn=arn, Tags=TAGS)
        assert (await aws.call("ListTags", ResourceArn=arn))["Tags"] == TAGS


async def test_tags_that_are_refused(aws: Account) -> None:
    arn = (await aws.call("CreateModel", **MODEL))["ModelArn"]
    fifty = [{"Key": f"k{i}", "Value": "v"} for i in range(50)]
    await aws.call("AddTags", ResourceArn=arn, Tags=fifty)
    with pytest.raises(ApiError, match="would have 51 tags; at most 50 are allowed"):
        await aws.call("AddTags", ResourceArn=arn, Tags=TAGS[:1])
    with pytest.raises(ApiError, match="Duplicate tag key 'team'"):
        await aws.call("AddTags", ResourceArn=arn, Tags=[TAGS[1], TAGS[1]])
    with pytest.raises(ApiError, match="Member must satisfy regular expression pattern"):
        await aws.call("AddTags", ResourceArn=arn, Tags=[{"Key": "a*b", "Value": ""}])
    with pytest.raises(ApiError, match="Could not find resource"):
        await aws.call("ListTags", ResourceArn=f"{PREFIX}:model/nope")
    await aws.call("AddTags", ResourceArn=arn, Tags=[{"Key": "k1", "Value": "Grüße 東京"}])
