"""Endpoint: the instances that serve, billed from its creation until DescribeEndpoint no longer finds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from peagle_sm.core.resources.resource import Refer, Request, Resource

BAKING_S = 300
"""Seconds that the old fleet is kept, with the alarms active, after the traffic shift."""
LONGEST_UPDATE_S = 14400
"""MaximumExecutionTimeoutInSeconds (600 to 28800): each startup timeout may be an hour."""


@dataclass(frozen=True)
class Endpoint(Resource):
    """An endpoint; ``scales``: Application Auto Scaling or SageMaker changes its instance count."""

    scales: bool = False

    kind, words = "endpoint", "endpoint"
    noun, name_field, arn_field = "endpoint", "EndpointName", "EndpointArn"
    status_field = "EndpointStatus"
    billed = True
    cloudformation = "AWS::SageMaker::Endpoint"
    template_id = "Endpoint"

    def properties(self, refer: Refer) -> dict[str, Any]:
        """Return the properties; RetainAllVariantProperties is a parameter of UpdateEndpoint.

        Without it each update of the stack resets the instance count to the config's, whatever the load is.
        """
        retain = {"RetainAllVariantProperties": True} if self.scales else {}
        return {**super().properties(refer), **retain}


def endpoint(
    name: str, config: str, tags: list[dict[str, str]], needs: tuple[str, ...], *, scales: bool
) -> Endpoint:
    """Return an endpoint that runs ``config``."""
    return Endpoint(name, {"EndpointName": name, "EndpointConfigName": config, "Tags": tags}, needs, scales)


@dataclass(frozen=True)
class Canary:
    """Share of the new fleet that first serves alone, with the alarms on, and for how long."""

    percent: int
    seconds: int


def update_request(
    name: str, config: str, alarms: Sequence[str], canary: Canary | None = None, *, retain: bool
) -> Request:
    """Return UpdateEndpoint: all at once or by canary; the alarms roll it back.

    ``retain`` keeps the present instance count instead of the config's.
    """
    routing: dict[str, Any] = {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 0}
    if canary is not None:
        size = {"Type": "CAPACITY_PERCENT", "Value": canary.percent}
        routing = {"Type": "CANARY", "CanarySize": size, "WaitIntervalInSeconds": canary.seconds}
    deployment = {
        "BlueGreenUpdatePolicy": {
            "TrafficRoutingConfiguration": routing,
            "TerminationWaitInSeconds": BAKING_S,
            "MaximumExecutionTimeoutInSeconds": LONGEST_UPDATE_S,
        },
        "AutoRollbackConfiguration": {"Alarms": [{"AlarmName": alarm} for alarm in alarms]},
    }
    parameters = {
        "EndpointName": name,
        "EndpointConfigName": config,
        "DeploymentConfig": deployment,
        "RetainAllVariantProperties": retain,
    }
    return Request("sagemaker", "update_endpoint", parameters)
