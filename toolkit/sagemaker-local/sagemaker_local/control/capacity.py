"""Instances, weights and accelerators of a configuration, and instance types with limited capacity."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from sagemaker_local import aws_facts

from .engines import StartupFailed
from .records import EndpointRecord, VariantCapacity

# A "d" after the generation, and the newer ones with GPUs.
_OWN_DISKS = re.compile(r"ml\.([a-z]+\d+[a-z]*d[a-z]*|g5|g6e?|gr6|g7e|p5(e|en)?|p6-b\d+)\.")


def has_own_disks(instance_type: str) -> bool:
    """Return whether an instance type has NVMe disks, which take neither a size nor a job's KMS key."""
    return _OWN_DISKS.match(instance_type) is not None


def instance_types(variant: Mapping[str, Any]) -> list[str]:
    """Return the instance types of a variant: one, or those of its pools."""
    pools = [pool["InstanceType"] for pool in variant.get("InstancePools", [])]
    return pools or [variant["InstanceType"]]


# AWS's own words (reports of users, July 2026); what was asked for and what there is follows.
_SHORT = (
    "There is not enough hardware resources on the instances for this endpoint to create a copy of the "
    "inference component."
)


def capacities(config: Mapping[str, Any]) -> dict[str, VariantCapacity]:
    """Return a configuration's requested capacity by variant."""
    return {
        variant["VariantName"]: VariantCapacity(
            current_weight=float(variant.get("InitialVariantWeight", 1.0)),
            desired_weight=float(variant.get("InitialVariantWeight", 1.0)),
            current_count=variant["InitialInstanceCount"],
            desired_count=variant["InitialInstanceCount"],
        )
        for variant in config["ProductionVariants"]
    }


def retained(
    row: EndpointRecord, config: Mapping[str, Any], request: Mapping[str, Any]
) -> dict[str, VariantCapacity]:
    """The new variants' weights and counts, the old ones' where UpdateEndpoint's request says to retain."""
    wanted = capacities(config)
    if not request.get("RetainAllVariantProperties", False):
        return wanted
    excluded = {item["VariantPropertyType"] for item in request.get("ExcludeRetainedVariantProperties", [])}
    for name in wanted.keys() & row.capacities.keys():
        old, new = row.capacities[name], wanted[name]
        if "DesiredWeight" not in excluded:
            new.current_weight = new.desired_weight = old.desired_weight
        if "DesiredInstanceCount" not in excluded:
            new.current_count = new.desired_count = old.desired_count
    return wanted


def accelerators_of(variant: Mapping[str, Any]) -> int | None:
    """Accelerators of one instance of the variant; None when the type is not known.

    Of several pools the first priority counts, since capacity is never short here.
    """
    pools = variant.get("InstancePools", [])
    instance = (
        variant.get("InstanceType") or min(pools, key=lambda pool: int(pool["Priority"]))["InstanceType"]
    )
    return aws_facts.accelerators_of(instance)


def accelerators_needed(specification: Mapping[str, Any]) -> int:
    """Accelerators of one copy, rounded up."""
    needs = specification.get("ComputeResourceRequirements", {})
    return math.ceil(float(needs.get("NumberOfAcceleratorDevicesRequired", 0)))


def most_copies(variant: Mapping[str, Any], each: int, taken: Iterable[tuple[int, int]]) -> int | None:
    """Return how many more copies the variant's instances can hold; None if unlimited.

    Args:
        variant: of the configuration in force.
        each: accelerators of one copy.
        taken: (accelerators of one copy, copies) of every other component of the variant.
    """
    have = accelerators_of(variant)
    if each == 0 or have is None:
        return None
    if each > have:
        return 0
    # Copies do not span instances. Others fill instances of their own first, which is near enough to AWS's
    # placement for the sizes that matter: whole instances, or one accelerator a copy.
    used = sum(size * copies for size, copies in taken)
    return max(0, have * _most_instances(variant) - used) // each


def shortage(variant: Mapping[str, Any], each: int, copies: int, most: int) -> str:
    """Return why the copies do not fit: AWS's wording, then the figures."""
    instance = variant.get("InstanceType", "the first instance pool's type")
    return (
        f"{_SHORT} Asked: {copies} x {each} accelerators. {instance} has {accelerators_of(variant)}, at most "
        f"{_most_instances(variant)} of them run, and {most} copies still fit."
    )


def managed_count(variant: Mapping[str, Any], needs: Iterable[tuple[int, int]]) -> int | None:
    """Instances under ManagedInstanceScaling for (accelerators of a copy, copies); None when it is off."""
    scaling = variant.get("ManagedInstanceScaling", {})
    if scaling.get("Status") != "ENABLED":
        return None
    have = accelerators_of(variant) or 1
    running = [(each, copies) for each, copies in needs if copies > 0]
    wanted = max(1, math.ceil(sum(each * copies for each, copies in running) / have)) if running else 0
    low = scaling.get("MinInstanceCount", variant["InitialInstanceCount"])
    return max(int(low), min(wanted, _most_instances(variant)))


def _most_instances(variant: Mapping[str, Any]) -> int:
    scaling = variant.get("ManagedInstanceScaling", {})
    count = int(variant["InitialInstanceCount"])
    if scaling.get("Status") != "ENABLED":
        return count
    return max(count, int(scaling.get("MaxInstanceCount", count)))


# As SageMaker writes it (aws/deep-learning-containers#6673).
SHORT = (
    "Unable to provision requested ML compute capacity due to InsufficientInstanceCapacity error. "
    "Please retry using a different ML instance type."
)


class Stock:
    """Instance types with limited capacity; all others are unlimited."""

    def __init__(self) -> None:
        self._left: dict[str, int] = {}

    def set(self, instance_type: str, instances: int | None) -> None:
        """Limit the instances of a type for each endpoint; None: no limit."""
        self._left.pop(instance_type, None)
        if instances is not None:
            self._left[instance_type] = instances

    def to_dict(self) -> dict[str, int]:
        """Return the limits."""
        return dict(self._left)

    def holds(self, instance_type: str, instances: int) -> bool:
        """Whether there are this many instances of a type."""
        return self._left.get(instance_type, instances) >= instances

    def place(self, config: Mapping[str, Any]) -> dict[str, str]:
        """Return the instance type that each variant gets: of several pools the first with capacity.

        Raises:
            StartupFailed: every type of a variant is short.
        """
        return {variant["VariantName"]: self._of(variant) for variant in config["ProductionVariants"]}

    def _of(self, variant: Mapping[str, Any]) -> str:
        pools = sorted(variant.get("InstancePools", []), key=lambda pool: int(pool.get("Priority", 1)))
        types = [str(pool["InstanceType"]) for pool in pools] or [str(variant.get("InstanceType", ""))]
        wanted = int(variant.get("InitialInstanceCount", 1))
        for name in types:
            if self.holds(name, wanted):
                return name
        raise StartupFailed(SHORT)
