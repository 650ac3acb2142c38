"""CreateEndpointConfig, DescribeEndpointConfig, ListEndpointConfigs, DeleteEndpointConfig."""

from collections.abc import Callable, Mapping
from typing import Any

from sagemaker_local.clock import LocalClock

from .errors import not_local
from .models import check_role
from .paging import page
from .records import Record, Tables
from .shapes import checked
from .tags import from_list
from .variants import check_variants

# Real-time endpoints on instances are what the local server runs; these would be accepted and do nothing.
_NOT_LOCAL = {
    "AsyncInferenceConfig": "deploy a real-time endpoint.",
    "ExplainerConfig": "deploy without an explainer.",
    "ShadowProductionVariants": "deploy the shadow as a variant or an endpoint of its own.",
}


class Configs:
    """The endpoint configuration operations."""

    def __init__(
        self, tables: Tables, clock: LocalClock, assumable: Callable[[str], bool] | None = None
    ) -> None:
        self._tables = tables
        self._clock = clock
        self._assumable = assumable

    async def create(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """CreateEndpointConfig."""
        request = checked("CreateEndpointConfig", body)
        self._tables.configs.refuse_taken(request["EndpointConfigName"])
        for member, instead in _NOT_LOCAL.items():
            if member in request:
                raise not_local(member, instead)
        check_role(request.get("ExecutionRoleArn"), self._assumable)
        check_variants(request, self._tables.models)
        tags = from_list(request.pop("Tags", []))
        now = self._clock.now()
        name = request["EndpointConfigName"]
        arn = self._tables.configs.arn(name)
        row = self._tables.configs.add(Record(name, arn, now, now, request, tags))
        return {"EndpointConfigArn": row.arn}

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
