"""Metrics of an endpoint: SageMaker's, and acceptance from vLLM's log::

    … SpecDecoding metrics: Mean acceptance length: 3.94, Accepted throughput: 71.20 tokens/s, Drafted
    throughput: 121.00 tokens/s, Accepted: 712 tokens, Drafted: 1210 tokens, Per-position acceptance rate:
    0.850, 0.712, 0.603, 0.421, 0.354, Avg Draft acceptance rate: 58.8%

vLLM prints this line every ten seconds while it drafts. The filters work on any image that runs vLLM, also
JumpStart's, where embedded metrics are not possible. They count the columns from the end of the line, since
the text before the message differs between versions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from aws_cdk import CfnResource
from aws_cdk import aws_logs as logs
from constructs import Construct

from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.ineffective import DRAFTS_NEEDED, is_ineffective
from peagle_sm.core.plan.environment import (
    GATE_SLICES,
    acceptance_namespace,
    speculative_config,
)
from peagle_sm.core.planning import Plan
from peagle_sm.core.slice_values import Chosen, read_chosen

INVOCATIONS = "AWS/SageMaker"
INSTANCES = "/aws/sagemaker/Endpoints"


@dataclass(frozen=True)
class Watched:
    """Facts of an endpoint for its alarms, filters and dashboard.

    ``tokens`` is K, None without speculation. ``ks`` are the K that a number of running requests can get:
    several with a table of K, and then 0 may be one. ``always_drafts``: each step has draft tokens.
    ``slices``: those by which the gate in the container counts drafts.
    ``gpus`` counts those of one instance (the most of several types), 0 without GPUs. Prices are in USD, None
    if unknown. ``publish_s`` is the time between two utilisation datapoints.
    """

    name: str
    variant: str
    component: str | None
    tokens: int | None
    always_drafts: bool
    ks: frozenset[int]
    parallel: bool
    slices: tuple[Chosen, ...]
    gpus: int
    publish_s: int
    usd_per_instance_hour: float | None
    price_at_most: bool
    max_usd: float | None
    budget_usd: float | None
    max_lifetime_hours: float

    @property
    def acceptance_namespace(self) -> str:
        """Return the namespace of metrics from the log; it contains the endpoint's name."""
        return acceptance_namespace(self.name)

    @property
    def instances(self) -> Mapping[str, str]:
        """Return the dimensions of utilisation metrics."""
        return {"EndpointName": self.name, "VariantName": self.variant}

    @property
    def invocations(self) -> Mapping[str, str]:
        """Return the dimensions of invocation metrics; a component has its own."""
        return self.instances if self.component is None else {"InferenceComponentName": self.component}


def watched(plan: Plan) -> Watched:
    """Read these facts from a plan."""
    sent = plan.parameters("create_endpoint_config")
    container = plan.parameters("create_model")["PrimaryContainer"]
    drafting = speculative_config(plan.draft)
    tokens = drafting["num_speculative_tokens"] if drafting else None
    count = plan.spec.placement.instance_count
    lifecycle = plan.spec.lifecycle
    return Watched(
        name=plan.names.endpoint,
        variant=sent["ProductionVariants"][0]["VariantName"],
        component=plan.names.component,
        tokens=tokens,
        always_drafts=plan.draft.mode_facts.always_drafts,
        ks=_ks(drafting),
        parallel=drafting is not None and "parallel_drafting" in drafting,
        slices=read_chosen(plan.spec.metrics.slices if GATE_SLICES in container["Environment"] else ()),
        gpus=max(_gpus(name) for name in plan.draft.instance_types),
        publish_s=sent["MetricsConfig"]["MetricPublishFrequencyInSeconds"],
        usd_per_instance_hour=None if plan.usd_per_hour is None else plan.usd_per_hour / count,
        price_at_most=plan.price_at_most,
        max_usd=plan.max_usd,
        budget_usd=lifecycle.budget_usd,
        max_lifetime_hours=lifecycle.max_lifetime_hours,
    )


def _ks(drafting: Mapping[str, Any] | None) -> frozenset[int]:
    """Return every K that the engine may use."""
    if drafting is None:
        return frozenset()
    rows = drafting.get("num_speculative_tokens_per_batch_size")
    return frozenset(row[2] for row in rows) if rows else frozenset({drafting["num_speculative_tokens"]})


def _gpus(instance_type: str) -> int:
    entry = load_catalog().instances.get(instance_type)
    return entry.gpu_count if entry is not None else 0


def stat(
    name: str, namespace: str, metric: str, dimensions: Mapping[str, str], statistic: str, period_s: int
) -> dict[str, Any]:
    """Return a metric of an alarm, with the id ``name`` in its expression."""
    return {
        "Id": name,
        "ReturnData": False,
        "MetricStat": {
            "Metric": {
                "Namespace": namespace,
                "MetricName": metric,
                "Dimensions": [{"Name": key, "Value": value} for key, value in dimensions.items()],
            },
            "Stat": statistic,
            "Period": period_s,
        },
    }


ACCEPTED = "AcceptedTokens"
DRAFTED = "DraftedTokens"
INEFFECTIVE = "LinesWithIneffectiveParallelDrafting"
# Embedded metrics of the gate in container/: how many slices fell, how much, and counts of the listed ones.
DRIFTING_SLICES, LARGEST_FALL, UNCOUNTED = "DriftingSlices", "LargestFallPercent", "UncountedRequests"
SLICE_ACCEPTED, SLICE_DRAFTS, SLICE = "SliceAcceptedTokens", "SliceDrafts", "Slice"


@dataclass(frozen=True)
class Filter:
    """Metric filter: the pattern of matching lines, and the value each adds to the metric."""

    name: str
    pattern: str
    metric: str
    value: str
    default: float | None = None
    """Value for a minute without a matching line."""


def filters(endpoint: Watched) -> tuple[Filter, ...]:
    """Return the metric filters of an endpoint; none without speculation."""
    if endpoint.tokens is None:
        return ()
    counts = _pattern(endpoint.tokens)
    created = [
        Filter("AcceptedTokens", counts, ACCEPTED, "$accepted"),
        # The alarm `no-drafts` needs a series that exists before the first draft.
        Filter("DraftedTokens", counts, DRAFTED, "$drafted", default=0),
    ]
    if can_be_ineffective(endpoint):
        created += [
            Filter(f"Ineffective{tenth}", pattern, INEFFECTIVE, "1")
            for tenth, pattern in ineffective_patterns(endpoint.tokens or 0)
        ]
    return tuple(created)


def can_be_ineffective(endpoint: Watched) -> bool:
    """Decide whether parallel drafting can be ineffective: mode p-eagle with at least two tokens.

    With a K of 1 at some number of requests, drafts lack a second token in good health too.
    """
    return endpoint.parallel and (endpoint.tokens or 0) >= 2 and 1 not in endpoint.ks


def ineffective_patterns(tokens: int) -> Iterator[tuple[int, str]]:
    """Yield a filter pattern for each tenth of the first survival rate s1: 5 for 0.5 to 0.599, up to 10.

    Together they are the rule of `core.plan.environment` at its minimum of 200 drafts, with s1 at the lower
    end of its tenth: a filter compares texts, not quotients, and the rates end in a comma. A line with more
    drafts must be as clear, so the filters never match a line that the rule does not.
    """
    for tenth in range(1, 11):
        first = tenth * DRAFTS_NEEDED // 10
        most = sum(is_ineffective(DRAFTS_NEEDED, first, second) for second in range(first + 1))
        if not most:
            continue
        limit = (most - 1) * 1000 // DRAFTS_NEEDED + 1  # thousandths of s2
        yield (
            tenth,
            _pattern(
                tokens,
                drafted=f" >= {DRAFTS_NEEDED * tokens}",
                s1=f" = {tenth // 10}.{tenth % 10}*",
                s2="".join(f" {'=' if first else '|| s2 ='} {text}" for first, text in _texts_below(limit)),
            ),
        )


def _texts_below(thousandths: int) -> Iterator[tuple[bool, str]]:
    """Yield the prefixes of all rates below a limit, shortest first; a limit is below 0.150."""
    tenths, rest = divmod(thousandths, 100)
    hundredths, units = divmod(rest, 10)
    texts = [f"0.{digit}*" for digit in range(tenths)]
    texts += [f"0.{tenths}{digit}*" for digit in range(hundredths)]
    texts += [f"0.{tenths}{hundredths}{digit}*" for digit in range(units)]
    for index, text in enumerate(texts):
        yield index == 0, text


def _pattern(tokens: int, *, drafted: str = "", s1: str = "", s2: str = "") -> str:
    rates = [f"s{position}" for position in range(1, tokens + 1)]
    rates[0] += s1
    if tokens > 1:
        rates[1] += s2
    return (
        f'[..., l1 = "Accepted:", accepted, u1, l2 = "Drafted:", drafted{drafted}, u2, p1, p2, p3, '
        f"{', '.join(rates)}, a1, a2, a3, a4, a5]"
    )


def add_filters(scope: Construct, endpoint: Watched, log_group: CfnResource) -> None:
    """Add the metric filters to the endpoint's log group."""
    for entry in filters(endpoint):
        logs.CfnMetricFilter(
            scope,
            f"{entry.name}Filter",
            log_group_name=log_group.ref,
            filter_name=entry.name,
            filter_pattern=entry.pattern,
            metric_transformations=[
                logs.CfnMetricFilter.MetricTransformationProperty(
                    metric_namespace=endpoint.acceptance_namespace,
                    metric_name=entry.metric,
                    metric_value=entry.value,
                    default_value=entry.default,
                )
            ],
        )
