"""Instance types of which there are not enough."""

from tests.local.control.conftest import Account

POOLS = [
    {"InstanceType": "ml.g6e.12xlarge", "Priority": 2},
    {"InstanceType": "ml.g7e.2xlarge", "Priority": 1},
]
SHORT = (
    "Unable to provision requested ML compute capacity due to InsufficientInstanceCapacity error. "
    "Please retry using a different ML instance type."
)


async def _pooled(aws: Account, name: str = "c") -> None:
    variant = {"VariantName": "AllTraffic", "ModelName": "m", "InitialInstanceCount": 2}
    variants = [{**variant, "InstancePools": POOLS}]
    await aws.call("CreateEndpointConfig", EndpointConfigName=name, ProductionVariants=variants)


async def test_of_several_pools_the_first_that_is_not_short_holds_the_instances(aws: Account) -> None:
    await aws.model()
    await _pooled(aws)
    for name, left, expected in (("a", None, [0, 2]), ("b", 1, [2, 0])):
        aws.plane.stock.set("ml.g7e.2xlarge", left)
        await aws.endpoint(name)
        result = await aws.until("InService", name)
        pools = result["ProductionVariants"][0]["InstancePools"]
        assert [pool["CurrentInstanceCount"] for pool in pools] == expected


async def test_an_endpoint_whose_types_are_all_short_fails_with_awss_words(aws: Account) -> None:
    aws.plane.stock.set("ml.g7e.2xlarge", 0)
    await aws.model()
    await aws.config()
    await aws.endpoint()
    assert (await aws.until("Failed"))["FailureReason"] == SHORT
    assert aws.launcher.requests == []
    assert aws.plane.stock.to_dict() == {"ml.g7e.2xlarge": 0}


async def test_an_update_for_which_there_are_none_left_rolls_back(aws: Account) -> None:
    await aws.serve()
    await aws.config("c2")
    aws.plane.stock.set("ml.g7e.2xlarge", 0)
    await aws.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2")
    assert (await aws.until("InService"))["EndpointConfigName"] == "c"
    assert "RollingBack" in aws.statuses()
