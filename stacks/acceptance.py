"""Acceptance in production, read from what vLLM itself prints every ten seconds while it drafts::

    … SpecDecoding metrics: Mean acceptance length: 3.94, Accepted throughput: 71.20 tokens/s, Drafted
    throughput: 121.00 tokens/s, Accepted: 712 tokens, Drafted: 1210 tokens, Per-position acceptance rate:
    0.850, 0.712, 0.603, 0.421, 0.354, Avg Draft acceptance rate: 58.8%

Metric filters take the counts out of it. They work on any image that runs vLLM, JumpStart's among them, where
nothing of ours is inside to write embedded metrics. The columns are counted from the end of the line, since
what stands before the message differs between versions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from aws_cdk import CfnResource
from aws_cdk import aws_logs as logs
from constructs import Construct

from peagle_sm.core.catalog.parallel_drafting import DRAFTS_NEEDED, is_ineffective
from stacks.watched import Watched

ACCEPTED = "AcceptedTokens"
DRAFTED = "DraftedTokens"
INEFFECTIVE = "LinesWithIneffectiveParallelDrafting"
# Not read from vLLM's lines: the gate in container/ judges over whole windows and embeds the figure itself.
DRAFTING_FAULT = "DraftingFault"


@dataclass(frozen=True)
class Filter:
    """A metric filter: which lines count, and what each adds to the metric."""

    name: str
    pattern: str
    metric: str
    value: str
    default: float | None = None
    """The value for a minute in which no line of the log matched."""


def filters(endpoint: Watched) -> tuple[Filter, ...]:
    """Return the metric filters of an endpoint; none without speculation."""
    if endpoint.tokens is None:
        return ()
    counts = _pattern(endpoint.tokens)
    made = [
        Filter("AcceptedTokens", counts, ACCEPTED, "$accepted"),
        # The alarm `no-drafts` needs a series that exists before the first draft.
        Filter("DraftedTokens", counts, DRAFTED, "$drafted", default=0),
    ]
    if can_be_ineffective(endpoint):
        made += [
            Filter(f"Ineffective{tenth}", pattern, INEFFECTIVE, "1")
            for tenth, pattern in ineffective_patterns(endpoint.tokens or 0)
        ]
    return tuple(made)


def can_be_ineffective(endpoint: Watched) -> bool:
    """True where the second survival rate exists and parallel drafting made it."""
    return endpoint.parallel and (endpoint.tokens or 0) >= 2


def ineffective_patterns(tokens: int) -> Iterator[tuple[int, str]]:
    """Yield a pattern for each tenth of the first survival rate s1: 5 for 0.5 to 0.599, up to 10 for 1.

    Together they are the rule of `core.catalog.parallel_drafting` at its fewest drafts, 200, with s1 at the
    lower end of its tenth: a filter compares texts, not quotients or bounds, and the rates end in a comma. A
    line of more drafts must be as clear, so the filters never find what the rule does not.
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
    """Yield the beginnings of all rates below a limit, shortest first; a limit is below 0.150."""
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
    columns = [
        "...",
        'l1 = "Accepted:"',
        "accepted",
        "u1",
        'l2 = "Drafted:"',
        f"drafted{drafted}",
        "u2",
        "p1",
        "p2",
        "p3",
        *rates,
        "a1",
        "a2",
        "a3",
        "a4",
        "a5",
    ]
    return f"[{', '.join(columns)}]"


def add_filters(scope: Construct, endpoint: Watched, log_group: logs.CfnLogGroup) -> list[CfnResource]:
    """Add the metric filters to the endpoint's log group."""
    return [
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
        for entry in filters(endpoint)
    ]
