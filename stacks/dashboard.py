"""The body of the dashboard: what one looks at first, from left to right and from top to bottom. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stacks.acceptance import ACCEPTED, DRAFTED
from stacks.observability import alarm_name
from stacks.watched import INSTANCES, INVOCATIONS, Watched

_REGION = "${AWS::Region}"
_WIDTH = 24
_HEIGHT = 6
_TEXT_HEIGHT = 5


def body(endpoint: Watched, alarm_keys: Sequence[str], advice: str) -> dict[str, Any]:
    """Return the dashboard's body; ``advice`` is the text on how to call and how to turn off."""
    rows = [
        [_text(advice), _alarms(endpoint, alarm_keys)],
        [_spend(endpoint), _traffic(endpoint), _errors(endpoint)],
        [_latency(endpoint), _overhead(endpoint)],
        [*_drafting(endpoint), _hardware(endpoint)],
    ]
    return {"widgets": list(_placed(rows))}


def _placed(rows: Sequence[Sequence[dict[str, Any]]]) -> Sequence[dict[str, Any]]:
    placed, y = [], 0
    for row in rows:
        width, height = _WIDTH // len(row), _TEXT_HEIGHT if row is rows[0] else _HEIGHT
        for index, widget in enumerate(row):
            placed.append({"x": index * width, "y": y, "width": width, "height": height, **widget})
        y += height
    return placed


def _text(markdown: str) -> dict[str, Any]:
    return {"type": "text", "properties": {"markdown": markdown}}


def _alarms(endpoint: Watched, keys: Sequence[str]) -> dict[str, Any]:
    prefix = f"arn:${{AWS::Partition}}:cloudwatch:{_REGION}:${{AWS::AccountId}}:alarm:"
    names = [prefix + alarm_name(endpoint.name, key) for key in keys]
    return {"type": "alarm", "properties": {"title": "Alarms", "alarms": names}}


def _graph(title: str, metrics: Sequence[Any], **more: Any) -> dict[str, Any]:
    shown = {"title": title, "region": _REGION, "view": "timeSeries", "period": 60, "metrics": list(metrics)}
    return {"type": "metric", "properties": {**shown, **more}}


def _metric(namespace: str, name: str, dimensions: Mapping[str, str], **shown: Any) -> list[Any]:
    flat = [part for pair in dimensions.items() for part in pair]
    return [namespace, name, *flat, shown]


def _spend(endpoint: Watched) -> dict[str, Any]:
    price = endpoint.usd_per_instance_hour
    hours = f"reports * {endpoint.publish_s} / 3600"
    unit, label = (hours, "instance hours") if price is None else (f"{hours} * {price:g}", "USD")
    reports = _metric(
        INSTANCES, "CPUUtilization", endpoint.instances, stat="SampleCount", id="reports", visible=False
    )
    return _graph(
        f"Spent in the time shown ({label})",
        [[{"expression": unit, "label": label, "id": "spent"}], reports],
        view="singleValue",
        setPeriodToTimeRange=True,
        stat="SampleCount",
    )


def _traffic(endpoint: Watched) -> dict[str, Any]:
    return _graph(
        "Invocations a minute, and requests in flight",
        [
            _metric(INVOCATIONS, "Invocations", endpoint.invocations, stat="Sum", label="invocations"),
            _metric(
                INVOCATIONS,
                "ConcurrentRequestsPerCopy" if endpoint.component else "ConcurrentRequestsPerModel",
                endpoint.invocations,
                stat="Maximum",
                label="in flight",
                yAxis="right",
            ),
        ],
    )


def _errors(endpoint: Watched) -> dict[str, Any]:
    names = ("Invocation4XXErrors", "Invocation5XXErrors", "InvocationModelErrors")
    return _graph(
        "Errors a minute",
        [_metric(INVOCATIONS, name, endpoint.invocations, stat="Sum", label=name) for name in names],
    )


def _percentiles(endpoint: Watched, metric: str, title: str) -> dict[str, Any]:
    pairs = []
    for number, percentile in enumerate(("p50", "p90", "p99")):
        raw = f"m{number}"
        expression = {"expression": f"{raw} / 1000", "label": percentile, "id": f"e{number}"}
        pairs.append([expression])
        pairs.append(
            _metric(INVOCATIONS, metric, endpoint.invocations, stat=percentile, id=raw, visible=False)
        )
    return _graph(title, pairs, yAxis={"left": {"label": "ms", "showUnits": False, "min": 0}})


def _latency(endpoint: Watched) -> dict[str, Any]:
    return _percentiles(endpoint, "ModelLatency", "Model latency (ms)")


def _overhead(endpoint: Watched) -> dict[str, Any]:
    return _percentiles(endpoint, "OverheadLatency", "SageMaker's overhead (ms)")


def _drafting(endpoint: Watched) -> list[dict[str, Any]]:
    if endpoint.tokens is None:
        return []
    space = endpoint.acceptance_namespace
    counts = [
        _metric(space, ACCEPTED, {}, stat="Sum", id="accepted", visible=False),
        _metric(space, DRAFTED, {}, stat="Sum", id="drafted", visible=False),
    ]
    length = {"expression": f"1 + {endpoint.tokens} * accepted / drafted", "label": "length", "id": "length"}
    rate = {"expression": "100 * accepted / drafted", "label": "accepted %", "id": "rate", "yAxis": "right"}
    return [
        _graph(
            f"Acceptance at K = {endpoint.tokens}: tokens a step, and per cent of drafts",
            [[length], [rate], *counts],
            yAxis={
                "left": {"min": 1, "max": endpoint.tokens + 1, "showUnits": False},
                "right": {"min": 0, "max": 100, "showUnits": False},
            },
        )
    ]


def _hardware(endpoint: Watched) -> dict[str, Any]:
    names = ("GPUMemoryUtilization", "GPUUtilization") if endpoint.gpus else ("MemoryUtilization",)
    times = max(1, endpoint.gpus)
    title = (
        f"Use of the hardware (%; {times} GPUs count {times * 100})"
        if times > 1
        else "Use of the hardware (%)"
    )
    return _graph(
        title,
        [
            _metric(INSTANCES, name, endpoint.instances, stat="Average", label=name)
            for name in (*names, "CPUUtilization", "DiskUtilization")
        ],
    )
