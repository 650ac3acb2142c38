"""CreateEndpoint, DescribeEndpoint, ListEndpoints, UpdateEndpoint, …WeightsAndCapacities, DeleteEndpoint."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

from sagemaker_local.clock import LocalClock

from .capacity import capacities, retained
from .deployment import check_deployment
from .describe import description, summary
from .errors import components_remain, in_progress, invalid
from .launching import EnginePlan, engine_plan
from .paging import page
from .records import EndpointRecord, Tables, hosts_components
from .shapes import checked
from .supervisor import Supervisor
from .tags import from_list

# An endpoint with one of these statuses refuses UpdateEndpoint and DeleteEndpoint.
IN_PROGRESS = frozenset({"Creating", "Updating", "SystemUpdating", "RollingBack", "Deleting"})
# UpdateEndpoint needs one of these; "DeleteEndpoint is the only operation that can be performed on a failed
# endpoint" (DescribeEndpointOutput$EndpointStatus).
_UPDATABLE = frozenset({"InService", "UpdateRollbackFailed"})
# What `pretend` can show: maintenance by AWS, a long update, a rollback that went wrong, and their end.
PRETENDED = frozenset({"SystemUpdating", "Updating", "UpdateRollbackFailed", "OutOfService", "InService"})


class Endpoints:
    """The endpoint operations. Answers come at once; the supervisors do the rest."""

    def __init__(
        self, tables: Tables, clock: LocalClock, supervise: Callable[[EndpointRecord], Supervisor]
    ) -> None:
        self._tables = tables
        self._clock = clock
        self._supervise = supervise
        self.supervisors: dict[str, Supervisor] = {}

    async def create(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """CreateEndpoint."""
        request = checked("CreateEndpoint", body)
        name = request["EndpointName"]
        self._tables.endpoints.refuse_taken(name)
        config = self._config(request["EndpointConfigName"])
        plans = self._plans(config)
        _check_deployment(request, config)
        tags = from_list(request.pop("Tags", []))
        now = self._clock.now()
        arn = self._tables.endpoints.arn(name)
        row = EndpointRecord(name, arn, now, now, request, tags, config=config, pending_since=now)
        row.capacities = capacities(config)
        row.deployment_config = request.get("DeploymentConfig")
        self._tables.endpoints.add(row)
        self.supervisors[row.arn] = self._supervise(row)
        self.supervisors[row.arn].create(plans)
        return {"EndpointArn": row.arn}

    async def describe(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """DescribeEndpoint."""
        return description(self._tables.endpoints.get(checked("DescribeEndpoint", body)["EndpointName"]))

    async def listed(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """ListEndpoints."""
        rows, token = page(self._tables.endpoints, checked("ListEndpoints", body), summary)
        return {"Endpoints": rows, **({"NextToken": token} if token else {})}

    async def update(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """UpdateEndpoint: a new fleet beside the old one; the old one serves until the new one answers."""
        request = checked("UpdateEndpoint", body)
        row = self._updatable(request["EndpointName"])
        config = self._config(request["EndpointConfigName"])
        self._check_components(row, config)
        plans = self._plans(config)
        _check_deployment(request, config)
        row.pending, row.pending_since = config, self._clock.now()
        if "DeploymentConfig" in request:
            row.deployment_config = request["DeploymentConfig"]
        elif not request.get("RetainDeploymentConfig", False):
            row.deployment_config = None
        self.supervisors[row.arn].update(plans, retained(row, config, request))
        return {"EndpointArn": row.arn}

    async def reweigh(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """UpdateEndpointWeightsAndCapacities."""
        request = checked("UpdateEndpointWeightsAndCapacities", body)
        row = self._updatable(request["EndpointName"])
        wanted = copy.deepcopy(row.capacities)
        for change in request["DesiredWeightsAndCapacities"]:
            capacity = wanted.get(change["VariantName"])
            if capacity is None:
                known = ", ".join(wanted)
                raise invalid(f"Could not find variant '{change['VariantName']}'; the endpoint has: {known}.")
            capacity.current_weight = capacity.desired_weight = float(
                change.get("DesiredWeight", capacity.desired_weight)
            )
            capacity.current_count = capacity.desired_count = change.get(
                "DesiredInstanceCount", capacity.desired_count
            )
        self.supervisors[row.arn].reweigh(wanted)
        return {"EndpointArn": row.arn}

    async def delete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """DeleteEndpoint: refused while something is in progress; the endpoint is gone a little later."""
        row = self._tables.endpoints.get(checked("DeleteEndpoint", body)["EndpointName"])
        if row.status in IN_PROGRESS:
            raise in_progress(row.arn)
        if self._tables.components_of(row.name):
            raise components_remain()

        def gone() -> None:
            self._tables.endpoints.remove(row.name)
            del self.supervisors[row.arn]

        self.supervisors[row.arn].delete(gone)
        return {}

    def pretend(self, name: str, status: str, reason: str | None) -> None:
        """Not AWS's: shows a status that only AWS's own doings lead to, for those who test against it.

        Raises:
            ApiError: no such endpoint, not such a status, or the endpoint is being created or deleted.
        """
        row = self._tables.endpoints.get(name)
        if status not in PRETENDED:
            raise invalid(f"cannot pretend status '{status}'; allowed are {', '.join(sorted(PRETENDED))}.")
        if row.status in ("Creating", "Deleting"):
            raise in_progress(row.arn)
        self.supervisors[row.arn].pretend(status, reason)

    def _updatable(self, name: str) -> EndpointRecord:
        row = self._tables.endpoints.get(name)
        if row.status in IN_PROGRESS:
            raise in_progress(row.arn)
        if row.status not in _UPDATABLE:
            raise invalid(
                f'Cannot update endpoint "{row.arn}" with status {row.status}; '
                "it can be deleted and created again."
            )
        return row

    def _config(self, name: str) -> dict[str, Any]:
        """A copy: the endpoint keeps its configuration when the configuration's entry is deleted."""
        return copy.deepcopy(self._tables.configs.get(name).body)

    def _plans(self, config: Mapping[str, Any]) -> list[EnginePlan]:
        """One engine a variant, whatever its instance count; none where components bring theirs."""
        if hosts_components(config):
            return []
        return [
            engine_plan(variant, self._tables.models.get(variant["ModelName"]).body)
            for variant in config["ProductionVariants"]
        ]

    def _check_components(self, row: EndpointRecord, config: Mapping[str, Any]) -> None:
        """The new configuration is of the old one's kind and keeps every variant that hosts components."""
        if hosts_components(config) != row.hosts_components:
            raise invalid(
                f'Cannot update endpoint "{row.arn}" from models to inference components or back; '
                "create another endpoint."
            )
        kept = {variant["VariantName"] for variant in config["ProductionVariants"]}
        for component in self._tables.components_of(row.name):
            if component.variant not in kept:
                raise invalid(
                    f"Variant '{component.variant}' hosts inference component '{component.name}' and is not "
                    "in the new configuration; delete the component first."
                )


def _check_deployment(request: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    if "DeploymentConfig" in request:
        counts = [variant["InitialInstanceCount"] for variant in config["ProductionVariants"]]
        check_deployment(request["DeploymentConfig"], counts)
