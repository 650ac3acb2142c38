"""Alarms of an endpoint, with their descriptions and treatment of missing data. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from stacks.metrics import (
    DRAFTED,
    DRIFTING_SLICES,
    INEFFECTIVE,
    INSTANCES,
    INVOCATIONS,
    Watched,
    can_be_ineffective,
    stat,
)

_MICROSECONDS = 1_000_000
_WEEK_S = 7 * 24 * 3600


@dataclass(frozen=True)
class AlarmRule:
    """One alarm: ``expression`` over ``queries`` compared with ``threshold``.

    ``periods`` of the queries' length are evaluated, and ``breaching`` of them must breach. ``silence`` says
    what missing data means. An ``only_on``
    alarm exists only while the endpoint is on, because its data cannot show whether the endpoint is off.
    """

    key: str
    text: str
    queries: tuple[dict[str, Any], ...]
    expression: str
    threshold: float = 0
    compare: Literal["GreaterThanThreshold", "GreaterThanOrEqualToThreshold", "LessThanThreshold"] = (
        "GreaterThanThreshold"
    )
    missing: Literal["notBreaching", "breaching"] = "notBreaching"
    silence: str = "Without traffic there is no data, and nothing is wrong."
    periods: int = 1
    breaching: int = 1
    only_on: bool = False


def watches(endpoint: Watched) -> tuple[AlarmRule, ...]:
    """Return every alarm of an endpoint."""
    return (
        *_errors(endpoint),
        *_latency(endpoint),
        *_drafting(endpoint),
        *_presence(endpoint),
        _spend(endpoint),
    )


def _errors(endpoint: Watched) -> Iterator[AlarmRule]:
    yield AlarmRule(
        key="errors-5xx",
        text="The engine answered 5xx. Read its traceback in the log group.",
        queries=(stat("failed", INVOCATIONS, "Invocation5XXErrors", endpoint.invocations, "Sum", 300),),
        expression="failed",
    )
    yield AlarmRule(
        key="model-errors",
        text="More than 5% of the requests got no 2xx from the model in two of three periods of 5 minutes. "
        "Refused requests, timeouts and broken connections count too.",
        queries=(
            stat("failed", INVOCATIONS, "InvocationModelErrors", endpoint.invocations, "Sum", 300),
            stat("invocations", INVOCATIONS, "Invocations", endpoint.invocations, "Sum", 300),
        ),
        expression="100 * failed / invocations",
        threshold=5,
        periods=3,
        breaching=2,
    )


def _latency(endpoint: Watched) -> Iterator[AlarmRule]:
    yield AlarmRule(
        key="latency-p99",
        text="One request in a hundred takes more than 45 s in the model, in three periods of 5 minutes in a "
        "row; SageMaker ends an invocation at 60 s. Lower max_tokens, use streaming, or scale out.",
        queries=(stat("latency", INVOCATIONS, "ModelLatency", endpoint.invocations, "p99", 300),),
        expression=f"latency / {_MICROSECONDS}",
        threshold=45,
        periods=3,
        breaching=3,
    )


def _drafting(endpoint: Watched) -> Iterator[AlarmRule]:
    if endpoint.tokens is None:
        return
    space: dict[str, str] = {}
    if can_be_ineffective(endpoint):
        yield AlarmRule(
            key="parallel-drafting-ineffective",
            text="Parallel drafting is ineffective: the first draft token is accepted and the second almost "
            "never (s1 0.5 or more and s2/s1 below 0.15, each at 99% confidence for 200 drafts, in three "
            "lines of the log within 15 minutes). Answers are still correct, but slower. `peagle-sm verify` "
            "measures the head's own profile.",
            queries=(stat("lines", endpoint.acceptance_namespace, INEFFECTIVE, space, "Sum", 900),),
            expression="lines",
            compare="GreaterThanOrEqualToThreshold",
            threshold=3,
            silence="The log has such a line only in this case, so missing data means no fault.",
        )
    if endpoint.slices:
        yield AlarmRule(
            key="acceptance-fell",
            text="The gate in the container found that the acceptance length fell in a slice of the traffic, "
            "compared with earlier requests of the same slices and the same K; a change of the mix is no "
            f"fall. `peagle-sm acceptance {endpoint.name} --since 24h` says which slice, since when and by "
            "how much. Answers are still correct, but slower.",
            queries=(stat("fell", endpoint.acceptance_namespace, DRIFTING_SLICES, space, "Maximum", 300),),
            expression="fell",
        )
    if 0 in endpoint.ks or not endpoint.always_drafts:
        return  # without drafts in good health: many requests at a K of 0, or text that repeats nothing
    yield AlarmRule(
        key="no-drafts",
        text="The log has no drafted token for 50 or more requests in 30 minutes: speculation is off, for "
        "example because the image ignores the draft head. Single-token requests have no drafts either.",
        queries=(
            stat("invocations", INVOCATIONS, "Invocations", endpoint.invocations, "Sum", 1800),
            stat("drafted", endpoint.acceptance_namespace, DRAFTED, space, "Sum", 1800),
        ),
        expression="IF(invocations >= 50 AND FILL(drafted, 0) < 1, 1, 0)",
    )


def _presence(endpoint: Watched) -> Iterator[AlarmRule]:
    if endpoint.component is not None:
        return  # it may scale to zero, and then having no instance is correct
    yield AlarmRule(
        key="no-instance",
        text="EndpointState is on, but no instance has reported for 30 minutes: capacity was lost, or the "
        "endpoint was deleted outside the stack.",
        queries=(stat("reports", INSTANCES, "CPUUtilization", endpoint.instances, "SampleCount", 300),),
        expression="reports",
        compare="LessThanThreshold",
        threshold=1,
        periods=6,
        breaching=6,
        missing="breaching",
        silence="Missing data is the fault; the alarm exists only while the endpoint is on.",
        only_on=True,
    )


def _spend(endpoint: Watched) -> AlarmRule:
    """Make the alarm on spending over the endpoint's lifetime, at most a week (CloudWatch's limit)."""
    hours = math.ceil(endpoint.max_lifetime_hours)
    period = min(hours * 3600, _WEEK_S)
    reports = stat("reports", INSTANCES, "CPUUtilization", endpoint.instances, "SampleCount", period)
    instance_hours = f"reports * {endpoint.publish_s} / 3600"
    window = f"{period // 3600} hours"
    price = endpoint.usd_per_instance_hour
    if price is None or endpoint.max_usd is None:
        description = f"More instance hours in {window} than max_lifetime_hours allows (no price is known)."
        expression, threshold = instance_hours, endpoint.max_lifetime_hours * 1.05
    else:
        limit = 0.8 * endpoint.budget_usd if endpoint.budget_usd is not None else endpoint.max_usd * 1.05
        whose = "80% of budget_usd" if endpoint.budget_usd is not None else "its whole lifetime can cost"
        bound = "most " if endpoint.price_at_most else ""
        description = f"Spent in {window}: more than {whose}, at {bound}{price:g} USD an instance hour."
        expression, threshold = f"{instance_hours} * {price:g}", round(limit, 2)
    return AlarmRule(
        key="spend",
        text=description,
        queries=(reports,),
        expression=expression,
        threshold=threshold,
        silence="An endpoint that is off writes no data.",
    )
