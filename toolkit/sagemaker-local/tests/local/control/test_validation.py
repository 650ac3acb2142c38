"""Requests that AWS would refuse, refused in AWS's words."""

from typing import Any

import pytest

from sagemaker_local.control import ApiError
from sagemaker_local.control.requests import service_model
from tests.local.control.conftest import IMAGE, PREFIX, ROLE, Account

NAME_PATTERN = "[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}"
SOURCE = {"S3DataType": "S3Prefix", "CompressionType": "None", "S3Uri": "s3://bucket/target/"}
VARIANT = {
    "VariantName": "AllTraffic",
    "ModelName": "m",
    "InstanceType": "ml.g7e.2xlarge",
    "InitialInstanceCount": 1,
}


def one(value: str, where: str, constraint: str) -> str:
    return (
        f"1 validation error detected: Value {value} at '{where}' failed to satisfy constraint: {constraint}"
    )


@pytest.mark.parametrize("name", ["-e", "e-", "e_e", "é", ""])
async def test_a_name_that_aws_would_refuse(aws: Account, name: str) -> None:
    pattern = f"Member must satisfy regular expression pattern: {NAME_PATTERN}"
    message = one(f"'{name}'", "endpointName", pattern)
    await aws.refused(message, "CreateEndpoint", EndpointName=name, EndpointConfigName="c")


async def test_two_errors_are_told_together(aws: Account) -> None:
    name = "a" * 64
    await aws.refused(
        f"2 validation errors detected: Value '{name}' at 'endpointName' failed to satisfy constraint: "
        f"Member must have length less than or equal to 63; Value '{name}' at 'endpointName' failed to "
        f"satisfy constraint: Member must satisfy regular expression pattern: {NAME_PATTERN}",
        "DescribeEndpoint",
        EndpointName=name,
    )


async def test_a_required_member_is_missing(aws: Account) -> None:
    message = one("null", "endpointConfigName", "Member must not be null")
    await aws.refused(message, "CreateEndpoint", EndpointName="e")
    await aws.refused(message, "CreateEndpoint", EndpointName="e", EndpointConfigName=None)


async def test_a_member_of_a_list_is_named_by_its_place(aws: Account) -> None:
    variant = VARIANT | {"ModelName": "ENTER MODEL NAME"}
    pattern = "[a-zA-Z0-9]([\\-a-zA-Z0-9]*[a-zA-Z0-9])?"
    await aws.refused(
        one(
            "'ENTER MODEL NAME'",
            "productionVariants.1.member.modelName",
            f"Member must satisfy regular expression pattern: {pattern}",
        ),
        "CreateEndpointConfig",
        EndpointConfigName="c",
        ProductionVariants=[variant],
    )


async def test_an_instance_type_that_botocore_does_not_know(aws: Account) -> None:
    await aws.model()
    with pytest.raises(ApiError) as refusal:
        await aws.config(InstanceType="ml.nope.large")
    types = service_model().shape_for("ProductionVariantInstanceType").metadata["enum"]
    assert refusal.value.message == one(
        "'ml.nope.large'",
        "productionVariants.1.member.instanceType",
        f"Member must satisfy enum value set: [{', '.join(types)}]",
    )


@pytest.mark.parametrize(
    ("seconds", "constraint"),
    [
        (59, "Member must have value greater than or equal to 60"),
        (3601, "Member must have value less than or equal to 3600"),
    ],
)
async def test_a_timeout_out_of_range(aws: Account, seconds: int, constraint: str) -> None:
    where = "productionVariants.1.member.containerStartupHealthCheckTimeoutInSeconds"
    await aws.refused(
        one(f"'{seconds}'", where, constraint),
        "CreateEndpointConfig",
        EndpointConfigName="c",
        ProductionVariants=[VARIANT | {"ContainerStartupHealthCheckTimeoutInSeconds": seconds}],
    )


async def test_a_value_over_1024_characters_in_the_environment(aws: Account) -> None:
    value = "x" * 1025
    await aws.refused(
        one(
            f"'{{A={value}}}'",
            "primaryContainer.environment",
            "Map value must satisfy constraint: [Member must have length less than or equal to 1024, "
            "Member must have length greater than or equal to 0, "
            "Member must satisfy regular expression pattern: [\\S\\s]*]",
        ),
        "CreateModel",
        ModelName="m",
        PrimaryContainer={"Image": IMAGE, "Environment": {"A": value}},
    )


async def test_1024_characters_that_are_more_bytes_and_32_kb_in_all(aws: Account) -> None:
    with pytest.raises(ApiError, match="'A' has 2048 bytes; allowed: at most 1024"):
        await aws.model(A="é" * 1024)
    with pytest.raises(ApiError, match="at most 32768 are allowed"):
        await aws.model(**{f"K{i}": "x" * 1024 for i in range(40)})


async def test_more_than_100_entries_in_the_environment(aws: Account) -> None:
    with pytest.raises(ApiError, match="Member must have length less than or equal to 100"):
        await aws.model(**{f"K{i}": "x" for i in range(101)})


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"EndpointName": 7}, "Expected string at 'endpointName', found int."),
        ({"EndpointName": ["e"]}, "Expected string at 'endpointName', found list."),
        ([], "Expected structure, found list."),
    ],
)
async def test_a_wrong_type_cannot_be_read(aws: Account, body: Any, told: str) -> None:
    with pytest.raises(ApiError) as refusal:
        await aws.plane.handle("DescribeEndpoint", body)
    assert (refusal.value.code, refusal.value.message) == ("SerializationException", told)


async def test_true_is_not_a_number(aws: Account) -> None:
    with pytest.raises(ApiError, match="Expected integer at 'maxResults', found bool"):
        await aws.call("ListEndpoints", MaxResults=True)


async def test_members_that_aws_does_not_know_are_dropped(aws: Account) -> None:
    await aws.call("CreateModel", ModelName="m", PrimaryContainer={"Image": IMAGE, "Colour": "red"}, Size=1)
    assert (await aws.call("DescribeModel", ModelName="m"))["PrimaryContainer"] == {
        "Image": IMAGE,
        "Mode": "SingleModel",
    }


@pytest.mark.parametrize(
    ("container", "told"),
    [
        ({}, "ContainerDefinition.Image is required: found none."),
        (
            {"Image": "nginx:latest"},
            'Using non-ECR image "nginx:latest" without Vpc repository access mode is not supported.',
        ),
        (
            {"Image": IMAGE, "ModelDataUrl": "s3://b/m.tar.gz", "ModelDataSource": {"S3DataSource": SOURCE}},
            "Specify either ModelDataUrl or ModelDataSource, not both.",
        ),
        (
            {"Image": IMAGE, "ModelDataSource": {"S3DataSource": SOURCE | {"S3Uri": "s3://bucket/target"}}},
            "S3Uri 's3://bucket/target' with S3DataType S3Prefix must end with a forward slash (/).",
        ),
        (
            {
                "Image": IMAGE,
                "AdditionalModelDataSources": [{"ChannelName": "eagle", "S3DataSource": SOURCE}] * 2,
            },
            "AdditionalModelDataSources names channel 'eagle' more than once.",
        ),
        (
            {"Image": IMAGE, "MultiModelConfig": {"ModelCacheSetting": "Enabled"}},
            "ContainerDefinition.MultiModelConfig is not implemented by the local SageMaker; "
            "give Image and ModelDataSource.",
        ),
    ],
)
async def test_containers_that_cannot_be_deployed(aws: Account, container: dict[str, Any], told: str) -> None:
    await aws.refused(told, "CreateModel", ModelName="m", PrimaryContainer=container)


async def test_an_image_of_another_region(aws: Account) -> None:
    container = {"Image": IMAGE.replace("us-east-1", "eu-west-1")}
    refusal = f'Image "{container["Image"]}" is in region eu-west-1; it must be in region us-east-1.'
    await aws.refused(refusal, "CreateModel", ModelName="m", PrimaryContainer=container)


async def test_a_model_needs_exactly_one_container(aws: Account) -> None:
    neither = "A model needs a PrimaryContainer or Containers: found neither."
    await aws.refused(neither, "CreateModel", ModelName="m", ExecutionRoleArn=ROLE)
    container = {"Image": IMAGE}
    both = "Specify either PrimaryContainer or Containers, not both."
    await aws.refused(both, "CreateModel", ModelName="m", PrimaryContainer=container, Containers=[container])
    with pytest.raises(ApiError, match="An inference pipeline"):
        await aws.call("CreateModel", ModelName="m", Containers=[container, container])


@pytest.mark.parametrize(
    ("variant", "told"),
    [
        ({"ModelName": "nope"}, f'Could not find model "{PREFIX}:model/nope".'),
        (
            {"InstancePools": [{"InstanceType": "ml.g7e.2xlarge", "Priority": 1}]},
            "variant 'AllTraffic' needs either InstanceType or InstancePools, and not both.",
        ),
        (
            {"InitialInstanceCount": None},
            "variant 'AllTraffic' needs InitialInstanceCount: found none, allowed is 1 or more.",
        ),
        (
            {"ServerlessConfig": {"MemorySizeInMB": 2048, "MaxConcurrency": 1}},
            "ServerlessConfig is not implemented by the local SageMaker; "
            "give InstanceType and InitialInstanceCount.",
        ),
    ],
)
async def test_variants_that_cannot_be_deployed(aws: Account, variant: dict[str, Any], told: str) -> None:
    await aws.model()
    await aws.refused(
        told, "CreateEndpointConfig", EndpointConfigName="c", ProductionVariants=[VARIANT | variant]
    )


async def test_two_variants_of_one_name_and_what_the_local_server_does_not_run(aws: Account) -> None:
    await aws.model()
    twice = "Duplicate variant name 'AllTraffic': variant names must be unique."
    body = {"EndpointConfigName": "c", "ProductionVariants": [VARIANT, VARIANT]}
    await aws.refused(twice, "CreateEndpointConfig", **body)
    asynchronous = {"OutputConfig": {"S3OutputPath": "s3://bucket/out/"}}
    body = {"EndpointConfigName": "c", "ProductionVariants": [VARIANT]}
    with pytest.raises(ApiError, match="AsyncInferenceConfig is not implemented by the local SageMaker"):
        await aws.call("CreateEndpointConfig", **body, AsyncInferenceConfig=asynchronous)


async def test_an_operation_that_is_not_there_names_those_that_are(aws: Account) -> None:
    with pytest.raises(ApiError) as refusal:
        await aws.call("CreateTransformJob", TransformJobName="t")
    assert refusal.value.code == "UnknownOperationException"
    assert refusal.value.message.startswith(
        "CreateTransformJob is not implemented by the local SageMaker; it has CreateModel, "
    )
