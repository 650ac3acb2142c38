"""CreateEndpointConfig, DescribeEndpointConfig, ListEndpointConfigs, DeleteEndpointConfig."""

from collections.abc import Mapping
from typing import Any

from ..clock import LocalClock
from .errors import invalid, not_local
from .paging import page
from .records import Record, Tables
from .shapes import checked
from .tags import from_list

# Real-time endpoints on instances are what the local server runs; these would be accepted and do nothing.
_NOT_LOCAL = {
    "AsyncInferenceConfig": "deploy a real-time endpoint.",
    "ExplainerConfig": "deploy without an explainer.",
    "ShadowProductionVariants": "deploy the shadow as a variant or an endpoint of its own.",
}


class Configs:
    """The endpoint configuration operations."""

    def __init__(self, tables: Tables, clock: LocalClock) -> None:
        self._tables = tables
        self._clock = clock

    async def create(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """CreateEndpointConfig."""
        request = checked("CreateEndpointConfig", body)
        self._tables.configs.refuse_taken(request["EndpointConfigName"])
        for member, instead in _NOT_LOCAL.items():
            if member in request:
                raise not_local(member, instead)
        for variant in request["ProductionVariants"]:
            self._check_variant(variant)
        names = [variant["VariantName"] for variant in request["ProductionVariants"]]
        for name in names:
            if names.count(name) > 1:
                raise invalid(f"Duplicate variant name '{name}': variant names must be unique.")
        tags = from_list(request.pop("Tags", []))
        now = self._clock.now()
        name = request["EndpointConfigName"]
        arn = self._tables.configs.arn(name)
        row = self._tables.configs.add(Record(name, arn, now, now, request, tags))
        return {"EndpointConfigArn": row.arn}

    def _check_variant(self, variant: dict[str, Any]) -> None:
        """Checks one variant and writes AWS's default weight into it."""
        where = f"variant '{variant['VariantName']}'"
        if "ServerlessConfig" in variant:
            raise not_local("ServerlessConfig", "give InstanceType and InitialInstanceCount.")
        if "ModelName" not in variant:
            raise not_local(
                f"An endpoint for inference components ({where} has no ModelName)", "give ModelName."
            )
        self._tables.models.get(variant["ModelName"])
        if ("InstanceType" in variant) == ("InstancePools" in variant):
            raise invalid(f"{where} needs either InstanceType or InstancePools, and not both.")
        if "InitialInstanceCount" not in variant:
            raise invalid(f"{where} needs InitialInstanceCount: found none, allowed is 1 or more.")
        variant.setdefault("InitialVariantWeight", 1.0)

    async def describe(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """DescribeEndpointConfig."""
        row = self._tables.configs.get(checked("DescribeEndpointConfig", body)["EndpointConfigName"])
        return {
            "EnableNetworkIsolation": False,
            **row.body,
            "EndpointConfigArn": row.arn,
            "CreationTime": row.created.timestamp(),
        }

    async def listed(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """ListEndpointConfigs."""
        rows, token = page(self._tables.configs, checked("ListEndpointConfigs", body), _summary)
        return {"EndpointConfigs": rows, **({"NextToken": token} if token else {})}

    async def delete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """DeleteEndpointConfig: the entry only, even while an endpoint uses it."""
        self._tables.configs.remove(checked("DeleteEndpointConfig", body)["EndpointConfigName"])
        return {}


def _summary(row: Record) -> dict[str, Any]:
    return {
        "EndpointConfigName": row.name,
        "EndpointConfigArn": row.arn,
        "CreationTime": row.created.timestamp(),
    }
