"""DeploymentConfig: what AWS accepts of it. Here the traffic always shifts at once."""

from collections.abc import Iterable, Mapping
from typing import Any

from .errors import invalid

_LARGEST_PERCENT = 50  # "between 5% to 50%", RollingUpdatePolicy; "less than or equal to 50%", CanarySize


def check_deployment(config: Mapping[str, Any], counts: Iterable[int]) -> None:
    """Checks the deployment configuration of an endpoint.

    Args:
        config: `DeploymentConfig` of CreateEndpoint or UpdateEndpoint.
        counts: instances of each variant.

    Raises:
        ApiError: two policies, a batch out of range, or a time limit that the waiting exceeds.
    """
    blue_green, rolling = config.get("BlueGreenUpdatePolicy"), config.get("RollingUpdatePolicy")
    if blue_green is not None and rolling is not None:
        raise invalid("DeploymentConfig has BlueGreenUpdatePolicy and RollingUpdatePolicy; give one of them.")
    smallest = min(counts, default=1)
    if rolling is not None:
        _check_size("RollingUpdatePolicy.MaximumBatchSize", rolling["MaximumBatchSize"], 5, smallest)
    if blue_green is not None:
        _check_blue_green(blue_green, smallest)


def check_component_deployment(config: Mapping[str, Any], copies: int) -> None:
    """Checks the deployment configuration of UpdateInferenceComponent.

    Raises:
        ApiError: the batch is out of range.
    """
    policy = config["RollingUpdatePolicy"]
    _check_size("RollingUpdatePolicy.MaximumBatchSize", policy["MaximumBatchSize"], 5, copies)


def _check_blue_green(policy: Mapping[str, Any], count: int) -> None:
    routing = policy["TrafficRoutingConfiguration"]
    steps = {"CANARY": ("CanarySize", 1), "LINEAR": ("LinearStepSize", 10)}
    kind = routing["Type"]
    for other, (member, least) in steps.items():
        if kind != other and member in routing:
            raise invalid(f"TrafficRoutingConfiguration.{member} is for Type {other}; found Type {kind}.")
        if kind == other:
            if member not in routing:
                raise invalid(f"TrafficRoutingConfiguration of Type {kind} needs {member}: found none.")
            _check_size(f"TrafficRoutingConfiguration.{member}", routing[member], least, count)
    limit = policy.get("MaximumExecutionTimeoutInSeconds")
    waiting = policy.get("TerminationWaitInSeconds", 0) + routing["WaitIntervalInSeconds"]
    if limit is not None and limit <= waiting:
        raise invalid(
            f"MaximumExecutionTimeoutInSeconds is {limit}; it must be larger than the {waiting} s of "
            "TerminationWaitInSeconds and WaitIntervalInSeconds."
        )


def _check_size(where: str, size: Mapping[str, Any], least_percent: int, total: int) -> None:
    """A percentage within AWS's bounds, or a number of at most half; one is allowed of one."""
    value = size["Value"]
    if size["Type"] == "CAPACITY_PERCENT":
        if not least_percent <= value <= _LARGEST_PERCENT:
            raise invalid(f"{where} is {value}%; allowed are {least_percent}% to {_LARGEST_PERCENT}%.")
        return
    most = max(1, total // 2)
    if value > most:
        raise invalid(f"{where} is {value}; allowed is at most {most}, half of {total}.")
