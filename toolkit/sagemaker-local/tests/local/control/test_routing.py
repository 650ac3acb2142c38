"""Where an invocation goes."""

from collections import Counter

import pytest

from sagemaker_local.control import ApiError
from tests.local.control.conftest import Account


async def test_traffic_follows_the_weights_and_a_named_variant_is_obeyed(aws: Account) -> None:
    await aws.model("a")
    await aws.model("b")
    variant = {"InstanceType": "ml.g7e.2xlarge", "InitialInstanceCount": 1}
    await aws.call(
        "CreateEndpointConfig",
        EndpointConfigName="c",
        ProductionVariants=[
            {**variant, "VariantName": "A", "ModelName": "a", "InitialVariantWeight": 3},
            {**variant, "VariantName": "B", "ModelName": "b", "InitialVariantWeight": 1},
        ],
    )
    await aws.endpoint()
    await aws.until("InService")
    drawn = Counter(aws.plane.route("e").variant_name for _ in range(400))
    assert 250 < drawn["A"] < 350
    named = aws.plane.route("e", "B")
    assert (named.variant_name, named.model_name) == ("B", "b")
    assert named.engine_url != aws.plane.route("e", "A").engine_url
    with pytest.raises(ApiError, match="Variant C not found"):
        aws.plane.route("e", "C")


async def test_a_route_says_what_it_leads_to(aws: Account) -> None:
    await aws.serve()
    route = aws.plane.route("e")
    assert (route.endpoint_name, route.endpoint_status, route.endpoint_config_name) == ("e", "InService", "c")
    assert route.engine_url == aws.launcher.processes[0].url


@pytest.mark.parametrize("name", ["nope", "E"])
async def test_an_endpoint_that_is_not_there_or_spelt_otherwise(aws: Account, name: str) -> None:
    await aws.serve("e")
    with pytest.raises(ApiError) as missing:
        aws.plane.route(name)
    assert missing.value.code == "ValidationError"
    assert missing.value.message == f"Endpoint {name} of account 123456789012 not found."


async def test_an_endpoint_that_is_creating_does_not_serve(aws: Account) -> None:
    await aws.model(SCRIPT_PING="never")
    await aws.config()
    await aws.endpoint()
    with pytest.raises(ApiError, match="not found"):
        aws.plane.route("e")


async def test_an_endpoint_of_components_wants_one_named_and_others_want_none(aws: Account) -> None:
    await aws.host("e")
    await aws.component("ic")
    await aws.until_component("InService")
    route = aws.plane.route("e", component="ic")
    assert (route.component_name, route.variant_name, route.model_name) == ("ic", "AllTraffic", "m")
    with pytest.raises(ApiError) as unnamed:
        aws.plane.route("e")
    assert (unnamed.value.code, unnamed.value.message) == (
        "ValidationError",
        "Inference Component Name header is required for endpoints to which you plan to deploy inference "
        "components. Please include Inference Component Name header or consider using SageMaker models.",
    )
    assert unnamed.value.members == {"ErrorCode": "INFERENCE_COMPONENT_NAME_MISSING"}
    await aws.config("models")
    await aws.endpoint("plain", "models")
    await aws.until("InService", "plain")
    with pytest.raises(ApiError) as unwanted:
        aws.plane.route("plain", component="ic")
    assert (unwanted.value.code, unwanted.value.message) == (
        "ValidationError",
        "Inference Component Name header is not allowed for endpoints to which you dont plan to deploy "
        "inference components. Please remove the Inference Component Name header and try again.",
    )


async def test_a_component_that_is_not_there_or_another_endpoints(aws: Account) -> None:
    await aws.host("e")
    await aws.endpoint("other", "c")
    await aws.until("InService", "other")
    await aws.component("ic", endpoint="other")
    await aws.until_component("InService")
    for name in ("nope", "ic", "IC"):
        with pytest.raises(ApiError) as missing:
            aws.plane.route("e", component=name)
        text = f"Inference Component {name} of account 123456789012 not found."
        assert (missing.value.code, missing.value.message) == ("ValidationError", text)
