"""The inference component operations. Answers come at once; each component's life does the rest."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

from sagemaker_local.clock import LocalClock

from .capacity import accelerators_needed, managed_count, most_copies, shortage
from .component_life import ComponentLife
from .endpoints import check_component_deployment, deployed_image
from .engines import EnginePlan, ModelDataExists, component_plan
from .errors import ApiError, busy_component, invalid, not_local
from .models import check_image, from_list
from .records import ComponentRecord, EndpointRecord, Tables
from .requests import checked, page

MOST_ENVIRONMENT_ENTRIES = 16  # InferenceComponentContainerSpecification$Environment


def check_request(request: Mapping[str, Any]) -> None:
    """Checks CreateInferenceComponent.

    Raises:
        ApiError: AWS would refuse it, or the local server cannot run it.
    """
    if "Specifications" in request:
        raise not_local("Specifications (one per instance type)", "give Specification.")
    if "Specification" not in request:
        raise missing("specification")
    check_specification(request["Specification"])
    if "VariantName" not in request:
        raise missing("variantName")
    if request.get("RuntimeConfig", {}).get("CopyCount", 1) < 1:
        raise invalid("Inference components copy count an integer larger than 0")


def check_specification(specification: Mapping[str, Any]) -> None:
    """Checks a component's specification.

    Raises:
        ApiError: AWS would refuse it, or the local server cannot run it.
    """
    if "BaseInferenceComponentName" in specification:
        raise not_local("An adapter inference component (BaseInferenceComponentName)", "give ModelName.")
    if ("ModelName" in specification) == ("Container" in specification):
        given = "both" if "ModelName" in specification else "neither"
        raise invalid(f"Specification needs either ModelName or Container: found {given}.")
    if "Container" in specification:
        _check_container(specification["Container"])
    if "ComputeResourceRequirements" not in specification:
        raise missing("specification.computeResourceRequirements")
    _check_resources(specification["ComputeResourceRequirements"])


def missing(member: str) -> ApiError:
    """Return AWS's error for a null member that its model does not mark as required."""
    return ApiError(
        "ValidationException",
        f"1 validation error detected: Value null at '{member}' failed to satisfy constraint: "
        "Member must not be null",
    )


def _check_container(container: Mapping[str, Any]) -> None:
    if "Image" not in container:
        raise missing("specification.container.image")
    check_image(container["Image"], "Platform")
    entries = len(container.get("Environment", {}))
    if entries > MOST_ENVIRONMENT_ENTRIES:
        raise invalid(
            f"Specification.Container.Environment has {entries} entries; at most "
            f"{MOST_ENVIRONMENT_ENTRIES} are allowed. Create a model and give ModelName: it takes 100."
        )
    artifact = container.get("ArtifactUrl")
    if artifact is not None and not artifact.endswith(".tar.gz"):
        raise invalid(
            f"ArtifactUrl '{artifact}' must point to a single gzip compressed tar archive (.tar.gz suffix)."
        )


def _check_resources(needs: Mapping[str, Any]) -> None:
    if "AcceleratorPartitionType" in needs:
        raise not_local("AcceleratorPartitionType", "ask for whole accelerators.")
    least, most = needs["MinMemoryRequiredInMb"], needs.get("MaxMemoryRequiredInMb")
    if most is not None and least > most:
        raise invalid(f"MinMemoryRequiredInMb {least} is more than MaxMemoryRequiredInMb {most}.")


# What Describe repeats of the specification.
_REPEATED = (
    "InstanceType",
    "ModelName",
    "StartupParameters",
    "ComputeResourceRequirements",
    "DataCacheConfig",
    "SchedulingConfig",
)


def component_summary(row: ComponentRecord, endpoint_arn: str) -> dict[str, Any]:
    """One row of ListInferenceComponents."""
    return {
        "InferenceComponentName": row.name,
        "InferenceComponentArn": row.arn,
        "EndpointName": row.endpoint,
        "EndpointArn": endpoint_arn,
        "VariantName": row.variant,
        "CreationTime": row.created.timestamp(),
        "LastModifiedTime": row.modified.timestamp(),
        "InferenceComponentStatus": row.status,
    }


def component_description(row: ComponentRecord, endpoint_arn: str) -> dict[str, Any]:
    """DescribeInferenceComponent's answer."""
    answer = component_summary(row, endpoint_arn) | {
        "Specification": _specification(row),
        "RuntimeConfig": {"DesiredCopyCount": row.desired_copies, "CurrentCopyCount": row.current_copies},
    }
    if row.deployment_config is not None:
        answer["LastDeploymentConfig"] = row.deployment_config
    if row.failure_reason is not None and row.status == "Failed":
        answer["FailureReason"] = row.failure_reason
    return answer


def _specification(row: ComponentRecord) -> dict[str, Any]:
    specification = row.specification
    answer = {member: specification[member] for member in _REPEATED if member in specification}
    if "Container" in specification:
        container = {key: value for key, value in specification["Container"].items() if key != "Image"}
        if row.deployed_at is not None:
            container["DeployedImage"] = deployed_image(row.image, row.deployed_at)
        answer["Container"] = container
    return answer


MakeLife = Callable[[ComponentRecord, EnginePlan, Callable[[], None]], ComponentLife]


class Components:
    """Create, Describe, List, Update, UpdateRuntimeConfig, Delete."""

    def __init__(
        self, tables: Tables, clock: LocalClock, live: MakeLife, model_data_exists: ModelDataExists | None
    ) -> None:
        self._tables = tables
        self._clock = clock
        self._live = live
        self._exists = model_data_exists
        self.lives: dict[str, ComponentLife] = {}

    async def create(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """CreateInferenceComponent."""
        request = checked("CreateInferenceComponent", body)
        name = request["InferenceComponentName"]
        check_request(request)
        self._tables.components.refuse_taken(name)
        endpoint = self._host(request["EndpointName"])
        _variant(endpoint, request["VariantName"])
        specification = copy.deepcopy(request["Specification"])
        plan = await self._plan(name, request["VariantName"], specification)
        endpoint = self._host(request["EndpointName"])  # again: looking for the artifact took time
        tags = from_list(request.pop("Tags", []))
        copies = request.get("RuntimeConfig", {}).get("CopyCount", 1)
        now = self._clock.now()
        row = ComponentRecord(name, self._tables.components.arn(name), now, now, request, tags)
        row.endpoint, row.variant = endpoint.name, request["VariantName"]
        row.specification, row.image, row.desired_copies = specification, plan.image, copies
        self._tables.components.add(row)
        self.lives[row.arn] = self._live(row, plan, lambda: self._resize(row.endpoint))
        most = self._room(row, specification)
        short = most is not None and copies > most
        self.lives[row.arn].create(copies, self._shortage(row, specification, copies) if short else None)
        return {"InferenceComponentArn": row.arn}

    async def describe(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """DescribeInferenceComponent."""
        row = self._get("DescribeInferenceComponent", body)
        return component_description(row, self._tables.endpoints.arn(row.endpoint))

    async def listed(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """ListInferenceComponents."""
        request = checked("ListInferenceComponents", body)
        endpoint, variant = request.get("EndpointNameEquals"), request.get("VariantNameEquals")
        wanted = (
            row
            for row in self._tables.components
            if endpoint in (None, row.endpoint) and variant in (None, row.variant)
        )
        rows, token = page(
            wanted, request, lambda row: component_summary(row, self._tables.endpoints.arn(row.endpoint))
        )
        return {"InferenceComponents": rows, **({"NextToken": token} if token else {})}

    async def update(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """UpdateInferenceComponent: the old engine serves until the new one answers."""
        request = checked("UpdateInferenceComponent", body)
        row = self._tables.components.get(request["InferenceComponentName"])
        self._refuse_busy(row, "update")
        if "Specifications" in request:
            raise not_local("Specifications (one per instance type)", "give Specification.")
        if "Specification" not in request and "RuntimeConfig" not in request:
            raise missing("specification")
        if "DeploymentConfig" in request:
            check_component_deployment(request["DeploymentConfig"], row.current_copies)
        copies = request.get("RuntimeConfig", {}).get("CopyCount", row.desired_copies)
        if "Specification" in request:
            specification = copy.deepcopy(request["Specification"])
            check_specification(specification)
            plan = await self._plan(row.name, row.variant, specification)
            self._refuse_busy(row, "update")  # again: looking for the artifact took time
            row.deployment_config = request.get("DeploymentConfig")
            row.desired_copies = copies
            fitting = self._fitting(row, specification, copies)
            short = copies > 0 and fitting == 0
            self.lives[row.arn].update(
                plan, specification, fitting, self._shortage(row, specification, copies) if short else None
            )
        else:
            row.deployment_config = request.get("DeploymentConfig", row.deployment_config)
            self._scale(row, copies)
        return {"InferenceComponentArn": row.arn}

    async def update_runtime(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """UpdateInferenceComponentRuntimeConfig: one engine serves all copies."""
        request = checked("UpdateInferenceComponentRuntimeConfig", body)
        row = self._tables.components.get(request["InferenceComponentName"])
        self._refuse_busy(row, "update")
        self._scale(row, request["DesiredRuntimeConfig"]["CopyCount"])
        return {"InferenceComponentArn": row.arn}

    async def delete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """DeleteInferenceComponent: refused while something is in progress; it is gone a little later."""
        row = self._get("DeleteInferenceComponent", body)
        self._refuse_busy(row, "delete")

        def gone() -> None:
            self._tables.components.remove(row.name)
            del self.lives[row.arn]

        self.lives[row.arn].delete(gone)
        return {}

    # --- rules ---------------------------------------------------------------------------------------

    def _get(self, operation: str, body: Mapping[str, Any]) -> ComponentRecord:
        return self._tables.components.get(checked(operation, body)["InferenceComponentName"])

    def _refuse_busy(self, row: ComponentRecord, verb: str) -> None:
        if row.activity:
            raise busy_component(verb, row.arn, row.activity)

    def _host(self, name: str) -> EndpointRecord:
        endpoint = self._tables.endpoints.get(name)
        if not endpoint.hosts_components:
            raise invalid(
                "Inference Components are not supported in this Endpoint. Please make sure this endpoint can "
                "deploy inference components."
            )
        if endpoint.status != "InService":
            raise invalid(
                f'Cannot create an inference component on endpoint "{endpoint.arn}" with status '
                f"{endpoint.status}; wait until it is InService."
            )
        return endpoint

    async def _plan(self, name: str, variant: str, specification: Mapping[str, Any]) -> EnginePlan:
        model = None
        if "ModelName" in specification:
            model = self._tables.models.get(specification["ModelName"]).body
        if "Container" in specification:
            check_image(specification["Container"]["Image"], "Platform", self._tables.region)
        artifact = specification.get("Container", {}).get("ArtifactUrl")
        if artifact is not None and self._exists is not None and not await self._exists(artifact):
            raise invalid(f"Could not find model data at {artifact}.")
        return component_plan(name, variant, specification, model)

    # --- copies and instances ------------------------------------------------------------------------

    def _scale(self, row: ComponentRecord, copies: int) -> None:
        row.desired_copies = copies
        self.lives[row.arn].scale(self._fitting(row, row.specification, copies))

    def _fitting(self, row: ComponentRecord, specification: Mapping[str, Any], copies: int) -> int:
        """Return how many copies fit on the instances; the others wait for capacity, as in AWS."""
        most = self._room(row, specification)
        return copies if most is None else min(copies, most)

    def _room(self, row: ComponentRecord, specification: Mapping[str, Any]) -> int | None:
        variant = _variant(self._tables.endpoints.get(row.endpoint), row.variant)
        taken = self._taken(row.endpoint, row.variant, but=row)
        return most_copies(variant, accelerators_needed(specification), taken)

    def _shortage(self, row: ComponentRecord, specification: Mapping[str, Any], copies: int) -> str:
        variant = _variant(self._tables.endpoints.get(row.endpoint), row.variant)
        most = self._room(row, specification) or 0
        return shortage(variant, accelerators_needed(specification), copies, most)

    def _taken(
        self, endpoint: str, variant: str, but: ComponentRecord | None = None
    ) -> list[tuple[int, int]]:
        return [
            (accelerators_needed(row.specification), row.desired_copies)
            for row in self._tables.components_of(endpoint)
            if row.variant == variant and row is not but and row.status != "Failed"
        ]

    def _resize(self, name: str) -> None:
        """Apply managed instance scaling: adapt the instances to the copies."""
        endpoint = self._tables.endpoints.find(name)
        if endpoint is None:
            return
        for variant in endpoint.config["ProductionVariants"]:
            count = managed_count(variant, self._taken(name, variant["VariantName"]))
            if count is not None:
                capacity = endpoint.capacities[variant["VariantName"]]
                capacity.current_count = capacity.desired_count = count


def _variant(endpoint: EndpointRecord, name: str) -> Mapping[str, Any]:
    variants: list[dict[str, Any]] = endpoint.config["ProductionVariants"]
    for variant in variants:
        if variant["VariantName"] == name:
            return variant
    known = ", ".join(variant["VariantName"] for variant in variants)
    raise invalid(
        f"Could not find variant '{name}' of endpoint '{endpoint.name}'; the endpoint has: {known}."
    )
