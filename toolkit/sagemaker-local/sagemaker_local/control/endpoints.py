"""The endpoint operations: create, describe, list, update, delete, weights and capacities."""

import copy
import hashlib
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from sagemaker_local.clock import LocalClock

from .capacity import capacities, instance_types, retained
from .engines import EnginePlan, engine_plan
from .errors import components_remain, in_progress, invalid, not_local
from .models import from_list
from .records import EndpointRecord, Tables, VariantCapacity, hosts_components
from .requests import checked, page
from .supervisor import Supervisor, TrafficShift

# Whether a resource of Application Auto Scaling, such as endpoint/E/variant/V, is a registered target
Scalable = Callable[[str], Awaitable[bool]]
_LARGEST_PERCENT = 50  # "less than or equal to 50%", CanarySize; "between 5% to 50%", RollingUpdatePolicy


def check_deployment(config: Mapping[str, Any], counts: Iterable[int]) -> None:
    """Checks the deployment configuration of an endpoint.

    Args:
        config: `DeploymentConfig` of CreateEndpoint or UpdateEndpoint.
        counts: instances of each variant.

    Raises:
        ApiError: the canary's size is missing or out of range, or the waiting exceeds the time limit; or the
            local server does not move traffic so.
    """
    if "RollingUpdatePolicy" in config:
        raise not_local("DeploymentConfig.RollingUpdatePolicy of an endpoint", "give BlueGreenUpdatePolicy.")
    policy = config.get("BlueGreenUpdatePolicy")
    if policy is None:
        return
    routing = policy["TrafficRoutingConfiguration"]
    kind = routing["Type"]
    if kind == "LINEAR":
        raise not_local("TrafficRoutingConfiguration of Type LINEAR", "choose CANARY or ALL_AT_ONCE.")
    for member in ("CanarySize", "LinearStepSize"):
        if member in routing and (kind, member) != ("CANARY", "CanarySize"):
            other = "CANARY" if member == "CanarySize" else "LINEAR"
            raise invalid(f"TrafficRoutingConfiguration.{member} is for Type {other}; found Type {kind}.")
    if kind == "CANARY":
        if "CanarySize" not in routing:
            raise invalid("TrafficRoutingConfiguration of Type CANARY needs CanarySize: found none.")
        smallest = min(counts, default=1)
        _check_size("TrafficRoutingConfiguration.CanarySize", routing["CanarySize"], 1, smallest)
    limit = policy.get("MaximumExecutionTimeoutInSeconds")
    waiting = policy.get("TerminationWaitInSeconds", 0) + routing["WaitIntervalInSeconds"]
    if limit is not None and limit <= waiting:
        raise invalid(
            f"MaximumExecutionTimeoutInSeconds is {limit}; it must be larger than the {waiting} s of "
            "TerminationWaitInSeconds and WaitIntervalInSeconds."
        )


def check_component_deployment(config: Mapping[str, Any], copies: int) -> None:
    """Checks the deployment configuration of UpdateInferenceComponent.

    Raises:
        ApiError: the batch is out of range.
    """
    policy = config["RollingUpdatePolicy"]
    _check_size("RollingUpdatePolicy.MaximumBatchSize", policy["MaximumBatchSize"], 5, copies)


def _check_size(where: str, size: Mapping[str, Any], least_percent: int, total: int) -> None:
    """Check a batch size: a percentage within AWS's bounds, or at most half (1 of 1 is allowed)."""
    value = size["Value"]
    if size["Type"] == "CAPACITY_PERCENT":
        if not least_percent <= value <= _LARGEST_PERCENT:
            raise invalid(f"{where} is {value}%; allowed are {least_percent}% to {_LARGEST_PERCENT}%.")
        return
    most = max(1, total // 2)
    if value > most:
        raise invalid(f"{where} is {value}; allowed is at most {most}, half of {total}.")


def traffic_shift(config: Mapping[str, Any], counts: Iterable[int]) -> TrafficShift | None:
    """Return the steps of a checked deployment configuration; None if all traffic moves at once.

    A canary is a whole number of instances, at least one.
    """
    policy = config.get("BlueGreenUpdatePolicy", {})
    routing = policy.get("TrafficRoutingConfiguration", {})
    size = routing.get("CanarySize")
    if size is None:
        return None
    total = min(counts, default=1)
    percent = size["Type"] == "CAPACITY_PERCENT"
    canary = max(1, math.ceil(total * size["Value"] / 100) if percent else size["Value"])
    first = [(canary / total, float(routing["WaitIntervalInSeconds"]))] if canary < total else []
    alarms = config.get("AutoRollbackConfiguration", {}).get("Alarms", [])
    return TrafficShift(
        steps=(*first, (1.0, float(policy.get("TerminationWaitInSeconds", 0)))),
        alarms=tuple(alarm["AlarmName"] for alarm in alarms),
    )


# With these statuses FailureReason is shown.
_FAILED = frozenset({"Failed", "UpdateRollbackFailed"})
# What DescribeEndpoint repeats of a variant of the configuration.
_REPEATED = ("ManagedInstanceScaling", "RoutingConfig")


def summary(row: EndpointRecord) -> dict[str, Any]:
    """One row of ListEndpoints."""
    return {
        "EndpointName": row.name,
        "EndpointArn": row.arn,
        "CreationTime": row.created.timestamp(),
        "LastModifiedTime": row.modified.timestamp(),
        "EndpointStatus": row.status,
    }


def description(row: EndpointRecord) -> dict[str, Any]:
    """DescribeEndpoint's answer."""
    answer = summary(row) | {"EndpointConfigName": row.config["EndpointConfigName"]}
    if row.deployed_at is not None:
        answer["ProductionVariants"] = [
            _variant(row, variant, row.capacities[variant["VariantName"]], row.deployed_at)
            for variant in row.config["ProductionVariants"]
        ]
    pending = row.config if row.status == "Creating" else row.pending
    if pending is not None and row.pending_since is not None:
        answer["PendingDeploymentSummary"] = _pending(pending, row.pending_since)
    if row.deployment_config is not None:
        answer["LastDeploymentConfig"] = row.deployment_config
    if row.failure_reason is not None and row.status in _FAILED:
        answer["FailureReason"] = row.failure_reason
    if "MetricsConfig" in row.config:
        answer["MetricsConfig"] = row.config["MetricsConfig"]
    return answer


def _variant(
    row: EndpointRecord, variant: Mapping[str, Any], has: VariantCapacity, since: datetime
) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "VariantName": variant["VariantName"],
        "CurrentInstanceCount": has.current_count,
        "DesiredInstanceCount": has.desired_count,
    }
    if "ModelName" in variant:  # components have images and shares of the traffic of their own
        image = row.images[variant["VariantName"]]
        answer |= {
            "DeployedImages": [deployed_image(image, since)],
            "CurrentWeight": has.current_weight,
            "DesiredWeight": has.desired_weight,
        }
    if "InstancePools" in variant:
        answer["InstancePools"] = _pools(
            variant["InstancePools"], row.placed.get(variant["VariantName"], ""), has.current_count
        )
    return answer | {member: variant[member] for member in _REPEATED if member in variant}


def deployed_image(image: str, since: datetime) -> dict[str, Any]:
    """Return a DeployedImage; the digest is a hash of the image's name, not the registry's."""
    resolved = image
    if "@sha256:" not in image:
        repository, _, tag = image.rpartition(":")
        digest = hashlib.sha256(image.encode()).hexdigest()
        resolved = f"{image if '/' in tag else repository}@sha256:{digest}"
    return {"SpecifiedImage": image, "ResolvedImage": resolved, "ResolutionTime": since.timestamp()}


def _pools(pools: list[Mapping[str, Any]], placed: str, count: int) -> list[dict[str, Any]]:
    """Return instance pools: the first pool with capacity holds every instance."""
    return [
        {
            "InstanceType": pool["InstanceType"],
            "CurrentInstanceCount": count if pool["InstanceType"] == placed else 0,
        }
        for pool in pools
    ]


def _pending(config: Mapping[str, Any], since: datetime) -> dict[str, Any]:
    return {
        "EndpointConfigName": config["EndpointConfigName"],
        "StartTime": since.timestamp(),
        "ProductionVariants": [
            {
                "VariantName": variant["VariantName"],
                "DesiredWeight": float(variant.get("InitialVariantWeight", 1.0)),
                "DesiredInstanceCount": variant["InitialInstanceCount"],
                "CurrentInstanceCount": 0,
                **({"InstanceType": variant["InstanceType"]} if "InstanceType" in variant else {}),
                "VariantStatus": [{"Status": "Creating", "StartTime": since.timestamp()}],
            }
            for variant in config["ProductionVariants"]
        ],
    }


# An endpoint with one of these statuses refuses UpdateEndpoint and DeleteEndpoint.
IN_PROGRESS = frozenset({"Creating", "Updating", "RollingBack", "Deleting"})
# UpdateEndpoint needs one of these; "DeleteEndpoint is the only operation that can be performed on a failed
# endpoint" (DescribeEndpointOutput$EndpointStatus).
_UPDATABLE = frozenset({"InService", "UpdateRollbackFailed"})


class Endpoints:
    """The endpoint operations. Answers come at once; the supervisors do the rest."""

    def __init__(
        self,
        tables: Tables,
        clock: LocalClock,
        supervise: Callable[[EndpointRecord], Supervisor],
        scalable: Scalable | None = None,
    ) -> None:
        self._tables = tables
        self._scalable = scalable
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
        await self._check_targets(row, config)
        plans = self._plans(config)
        _check_deployment(request, config)
        row.pending, row.pending_since = config, self._clock.now()
        if "DeploymentConfig" in request:
            row.deployment_config = request["DeploymentConfig"]
        elif not request.get("RetainDeploymentConfig", False):
            row.deployment_config = None
        wanted = retained(row, config, request)
        counts = [capacity.desired_count for capacity in wanted.values()]
        shift = traffic_shift(row.deployment_config or {}, counts)
        self.supervisors[row.arn].update(plans, wanted, shift)
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
        """Return a copy: an endpoint keeps its configuration after DeleteEndpointConfig."""
        return copy.deepcopy(self._tables.configs.get(name).body)

    def _plans(self, config: Mapping[str, Any]) -> list[EnginePlan]:
        """Return one engine plan for each variant; none if the endpoint hosts components."""
        if hosts_components(config):
            return []
        return [
            engine_plan(variant, self._tables.models.get(variant["ModelName"]).body)
            for variant in config["ProductionVariants"]
        ]

    async def _check_targets(self, row: EndpointRecord, config: Mapping[str, Any]) -> None:
        """Check that every variant that Application Auto Scaling scales keeps its instance types."""
        new = {variant["VariantName"]: instance_types(variant) for variant in config["ProductionVariants"]}
        for variant in row.config["ProductionVariants"]:
            name = variant["VariantName"]
            if self._scalable is None or new.get(name) == instance_types(variant):
                continue
            if await self._scalable(f"endpoint/{row.name}/variant/{name}"):
                raise invalid(
                    f'The variant(s) "[{name}]" must be deregistered as scalable target with AWS Auto '
                    "Scaling before they can be removed or have their instance type updated."
                )

    def _check_components(self, row: EndpointRecord, config: Mapping[str, Any]) -> None:
        """Check that a new configuration keeps the kind and every variant that hosts components."""
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
