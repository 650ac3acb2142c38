"""The rules that others publish, each as a small pure function: is this endpoint to be deleted now?

Read in November 2026. Each rule gets what its source looks at, with the endpoint's own idle time as its
window, and is run every five minutes, which is more often than most of the sources run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Look:
    """What a rule can see of an endpoint that is InService; a sum is None where there is no datapoint."""

    now: int
    expires_at: int | None
    """From an expiry tag of ours; None on an endpoint without one."""
    first_variant: float | None
    """Sum of Invocations over the idle time, of the first variant."""
    lanes: tuple[float | None, ...]
    """The same for every variant or component."""

    endpoint_only: float | None = None
    """The same with the dimension EndpointName alone: AWS publishes no such series, so nothing, always."""


Rule = Callable[[Look], bool]


def missing_is_idle(look: Look) -> bool:
    """No datapoint of the first variant means idle."""
    return not look.first_variant


def endpoint_name_only(look: Look) -> bool:
    """The sum by EndpointName is zero."""
    return (look.endpoint_only or 0) == 0


def one_look(look: Look) -> bool:
    """Every series has datapoints and all are zero; deleted at once."""
    return all(total == 0 for total in look.lanes if total is not None) and None not in look.lanes


def tag_lifetime(look: Look) -> bool:
    """The expiry tag is in the past, whatever the traffic."""
    return look.expires_at is not None and look.now >= look.expires_at


def nothing(look: Look) -> bool:
    """Nobody looks."""
    return False


@dataclass(frozen=True, slots=True)
class Rival:
    """A published rule, its name in the report, and where it is published."""

    name: str
    rule: Rule
    source: str


RIVALS: tuple[Rival, ...] = (
    Rival(
        "a missing metric is idle",
        missing_is_idle,
        "public Lambdas, e.g. globaldatanet/detect-idle-sagemaker-endpoints (first variant, no datapoint "
        "= idle, first 100 endpoints); Cloud Custodian's metrics filter with `missing-value: 0`",
    ),
    Rival(
        "Invocations by EndpointName alone",
        endpoint_name_only,
        "public Lambdas that query Invocations without VariantName, e.g. "
        "Sid12111/sagemaker-lambda-ml-deployment (there for display): AWS publishes no such series, "
        "and nothing sums to 0",
    ),
    Rival(
        "one look, no grace",
        one_look,
        "alarms and filters that skip missing data (Cloud Custodian's metrics filter by default) and "
        "delete at the first zero",
    ),
    Rival(
        "expiry tag alone",
        tag_lifetime,
        "janitors that delete by an expiry tag (Cloud Custodian's marked-for-op)",
    ),
    Rival("no guard", nothing, "what an endpoint is without one: samples of AWS, Terraform's provider"),
)
"""The rules compared, in the order of the table."""
