"""What is refused of inference components, of the endpoints that host them, and of deleting those."""

from typing import Any

import pytest

from sagemaker_local.control import ApiError
from tests.local.control.conftest import IMAGE, PREFIX, ROLE, Account, specification

VARIANT = {"VariantName": "AllTraffic", "InstanceType": "ml.p5.48xlarge", "InitialInstanceCount": 1}
NEEDS = {"MinMemoryRequiredInMb": 1024}


def null(member: str) -> str:
    return (
        f"1 validation error detected: Value null at '{member}' failed to satisfy constraint: "
        "Member must not be null"
    )


async def test_an_endpoint_with_a_component_cannot_be_deleted(aws: Account) -> None:
    await aws.host()
    await aws.component()
    await aws.until_component("InService")
    message = (
        "Cannot delete endpoint with inference component associated. "
        "Please delete inference component and try it again."
    )
    await aws.refused(message, "DeleteEndpoint", EndpointName="e")
    await aws.call("DeleteInferenceComponent", InferenceComponentName="ic")
    await aws.refused(message, "DeleteEndpoint", EndpointName="e")  # it is Deleting, not gone
    await aws.until_gone()
    assert await aws.call("DeleteEndpoint", EndpointName="e") == {}


async def test_a_model_of_a_component_can_be_deleted_and_it_serves_on(aws: Account) -> None:
    await aws.host()
    await aws.component()
    await aws.until_component("InService")
    assert await aws.call("DeleteModel", ModelName="m") == {}
    assert aws.plane.route("e", component="ic").engine_url


async def test_an_endpoint_runs_models_or_components(aws: Account) -> None:
    await aws.serve()
    message = (
        "Inference Components are not supported in this Endpoint. Please make sure this endpoint can deploy "
        "inference components."
    )
    with pytest.raises(ApiError) as refusal:
        await aws.component()
    assert refusal.value.message == message
    mixed = [VARIANT | {"ModelName": "m"}, VARIANT | {"VariantName": "B"}]
    with pytest.raises(ApiError, match="'B' has no ModelName and another variant has one"):
        await aws.call("CreateEndpointConfig", EndpointConfigName="mixed", ProductionVariants=mixed)
    await aws.component_config("components")
    with pytest.raises(ApiError, match="from models to inference components or back"):
        await aws.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="components")


async def test_what_only_endpoints_for_components_may_have(aws: Account) -> None:
    await aws.model()
    variant = VARIANT | {"ModelName": "m"}
    scaling = {"ManagedInstanceScaling": {"Status": "ENABLED", "MinInstanceCount": 1}}
    body = {"EndpointConfigName": "c", "ProductionVariants": [variant | scaling]}
    only = "ManagedInstanceScaling is only supported for inference component endpoints."
    await aws.refused(only, "CreateEndpointConfig", **body)
    body = {"EndpointConfigName": "c", "ProductionVariants": [variant]}
    with pytest.raises(ApiError, match="EnableNetworkIsolation of an endpoint configuration is only"):
        await aws.call("CreateEndpointConfig", **body, EnableNetworkIsolation=True)


async def test_an_endpoint_for_components_needs_a_role_and_says_so(aws: Account) -> None:
    body = {"EndpointConfigName": "c", "ProductionVariants": [VARIANT]}
    with pytest.raises(ApiError, match="ExecutionRoleArn is required when the production variants have no"):
        await aws.call("CreateEndpointConfig", **body)
    await aws.call("CreateEndpointConfig", **body, ExecutionRoleArn=ROLE)
    answer = await aws.call("DescribeEndpointConfig", EndpointConfigName="c")
    assert answer["ProductionVariants"] == [VARIANT]
    scaling = {"Status": "ENABLED", "MinInstanceCount": 3, "MaxInstanceCount": 2}
    with pytest.raises(ApiError, match="MinInstanceCount 3 is more than MaxInstanceCount 2"):
        await aws.component_config("d", ManagedInstanceScaling=scaling)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"EndpointName": "nope"}, f'Could not find endpoint "{PREFIX}:endpoint/nope".'),
        ({"VariantName": None}, null("variantName")),
        (
            {"VariantName": "B"},
            "Could not find variant 'B' of endpoint 'e'; the endpoint has: AllTraffic.",
        ),
        ({"Specification": None}, null("specification")),
        ({"RuntimeConfig": {"CopyCount": 0}}, "Inference components copy count an integer larger than 0"),
        ({"Specification": specification("nope")}, f'Could not find model "{PREFIX}:model/nope".'),
        (
            {"Specification": {"ComputeResourceRequirements": NEEDS}},
            "Specification needs either ModelName or Container: found neither.",
        ),
        ({"Specification": {"ModelName": "m"}}, null("specification.computeResourceRequirements")),
        (
            {"Specification": {"ModelName": "m", "ComputeResourceRequirements": {}}},
            null("specification.computeResourceRequirements.minMemoryRequiredInMb"),
        ),
        (
            {
                "Specification": {
                    "ModelName": "m",
                    "ComputeResourceRequirements": {**NEEDS, "MaxMemoryRequiredInMb": 512},
                }
            },
            "MinMemoryRequiredInMb 1024 is more than MaxMemoryRequiredInMb 512.",
        ),
        (
            {
                "Specification": {
                    "Container": {"Image": IMAGE, "Environment": {f"K{i}": "" for i in range(17)}},
                    "ComputeResourceRequirements": NEEDS,
                }
            },
            "Specification.Container.Environment has 17 entries; at most 16 are allowed. Create a model and "
            "give ModelName: it takes 100.",
        ),
        (
            {
                "Specification": {
                    "Container": {"Image": IMAGE, "ArtifactUrl": "s3://b/model/"},
                    "ComputeResourceRequirements": NEEDS,
                }
            },
            "ArtifactUrl 's3://b/model/' must point to a single gzip compressed tar archive "
            "(.tar.gz suffix).",
        ),
        (
            {"Specification": {"BaseInferenceComponentName": "base"}},
            "An adapter inference component (BaseInferenceComponentName) is not implemented by the local "
            "SageMaker; give ModelName.",
        ),
    ],
)
async def test_components_that_cannot_be_created(aws: Account, change: dict[str, Any], told: str) -> None:
    await aws.host()
    body = {
        "InferenceComponentName": "ic",
        "EndpointName": "e",
        "VariantName": "AllTraffic",
        "Specification": specification(),
        **change,
    }
    await aws.refused(told, "CreateInferenceComponent", **body)
    assert (await aws.call("ListInferenceComponents"))["InferenceComponents"] == []


async def test_a_taken_name_and_an_endpoint_that_is_not_in_service(aws: Account) -> None:
    await aws.model()
    await aws.component_config()
    await aws.endpoint()
    with pytest.raises(ApiError, match="with status Creating; wait until it is InService"):
        await aws.component()
    await aws.until("InService")
    await aws.component()
    with pytest.raises(ApiError, match='Cannot create already existing inference component "arn'):
        await aws.component("IC")


async def test_artifacts_are_looked_for_at_once(make_account: Any) -> None:
    async def nothing_there(uri: str) -> bool:
        return False

    aws: Account = make_account(model_data_exists=nothing_there)
    await aws.host()
    container = {"Image": IMAGE, "ArtifactUrl": "s3://b/m.tar.gz"}
    await aws.refused(
        "Could not find model data at s3://b/m.tar.gz.",
        "CreateInferenceComponent",
        InferenceComponentName="ic",
        EndpointName="e",
        VariantName="AllTraffic",
        Specification={"Container": container, "ComputeResourceRequirements": NEEDS},
    )


async def test_an_update_of_the_endpoint_keeps_its_components(aws: Account) -> None:
    await aws.host()
    await aws.component()
    await aws.until_component("InService")
    await aws.component_config("renamed", VariantName="Other")
    with pytest.raises(ApiError, match="'AllTraffic' hosts inference component 'ic'"):
        await aws.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="renamed")
    await aws.component_config("wider", InitialInstanceCount=2)
    await aws.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="wider")
    assert await aws.status() == "Updating"
    assert aws.plane.route("e", component="ic").engine_url
    assert (await aws.until("InService"))["EndpointConfigName"] == "wider"
    assert len(aws.launcher.processes) == 1


@pytest.mark.parametrize(
    "batch", [{"Type": "CAPACITY_PERCENT", "Value": 60}, {"Type": "COPY_COUNT", "Value": 2}]
)
async def test_an_update_in_batches_that_are_too_large(aws: Account, batch: dict[str, Any]) -> None:
    await aws.host()
    await aws.component()
    await aws.until_component("InService")
    policy = {"RollingUpdatePolicy": {"MaximumBatchSize": batch, "WaitIntervalInSeconds": 0}}
    with pytest.raises(ApiError, match="MaximumBatchSize is"):
        await aws.call(
            "UpdateInferenceComponent",
            InferenceComponentName="ic",
            Specification=specification(),
            DeploymentConfig=policy,
        )


async def test_an_update_needs_something_to_update(aws: Account) -> None:
    await aws.host()
    await aws.component()
    await aws.until_component("InService")
    await aws.refused(null("specification"), "UpdateInferenceComponent", InferenceComponentName="ic")
