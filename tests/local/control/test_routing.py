"""Where an invocation goes."""

from collections import Counter

import pytest

from peagle_sm.local.control import ApiError
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
