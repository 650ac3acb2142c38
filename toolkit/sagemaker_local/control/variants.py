"""Which production variants a configuration may have: all with a model, or all for inference components."""

from collections.abc import Mapping
from typing import Any

from .errors import invalid, not_local
from .records import Record, Table, hosts_components


def check_variants(request: dict[str, Any], models: Table[Record]) -> None:
    """Checks the variants of CreateEndpointConfig and writes AWS's default weight into those with a model.

    Raises:
        ApiError: a variant cannot be deployed.
    """
    variants = request["ProductionVariants"]
    for variant in variants:
        _check_capacity(variant)
    if hosts_components(request):
        _check_for_components(request)
    else:
        for variant in variants:
            _check_model(variant, models)
        # The containers' isolation is each model's own (CreateModel$EnableNetworkIsolation).
        if request.get("EnableNetworkIsolation", False):
            raise invalid(
                "EnableNetworkIsolation of an endpoint configuration is only supported for inference "
                "component endpoints; set it on the model."
            )
    names = [variant["VariantName"] for variant in variants]
    for name in names:
        if names.count(name) > 1:
            raise invalid(f"Duplicate variant name '{name}': variant names must be unique.")


def _check_capacity(variant: Mapping[str, Any]) -> None:
    where = f"variant '{variant['VariantName']}'"
    if "ServerlessConfig" in variant:
        raise not_local("ServerlessConfig", "give InstanceType and InitialInstanceCount.")
    if ("InstanceType" in variant) == ("InstancePools" in variant):
        raise invalid(f"{where} needs either InstanceType or InstancePools, and not both.")
    if "InitialInstanceCount" not in variant:
        raise invalid(f"{where} needs InitialInstanceCount: found none, allowed is 1 or more.")
    scaling = variant.get("ManagedInstanceScaling", {})
    low, high = scaling.get("MinInstanceCount", 0), scaling.get("MaxInstanceCount")
    if high is not None and low > high:
        raise invalid(f"{where}: MinInstanceCount {low} is more than MaxInstanceCount {high}.")


def _check_model(variant: dict[str, Any], models: Table[Record]) -> None:
    if "ModelName" not in variant:
        raise invalid(
            f"variant '{variant['VariantName']}' has no ModelName and another variant has one: an endpoint "
            "runs either models or inference components."
        )
    models.get(variant["ModelName"])
    if "ManagedInstanceScaling" in variant:
        raise invalid("ManagedInstanceScaling is only supported for inference component endpoints.")
    variant.setdefault("InitialVariantWeight", 1.0)


def _check_for_components(request: Mapping[str, Any]) -> None:
    if "ExecutionRoleArn" not in request:
        raise invalid(
            "ExecutionRoleArn is required when the production variants have no ModelName (an endpoint for "
            "inference components): found none."
        )
