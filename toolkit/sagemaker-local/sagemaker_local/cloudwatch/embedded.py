"""Metrics embedded in log lines, which CloudWatch Logs extracts: the embedded metric format.

https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
A line that is not such a document is an ordinary line. A metric or a dimension set that the line does not
define is left out, the rest is kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from sagemaker_local.clock import LocalClock

# Limits of the specification: names of a dimension set, values of one metric.
_MOST_DIMENSIONS = 30
_MOST_VALUES = 100
_MARK = '"CloudWatchMetrics"'


def embedded_metrics(line: str, clock: LocalClock) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the namespaces of a log line with their data, as PutMetricData takes them.

    A container's time stamp is in real time: its clock does not move with the local one.
    """
    if not line.startswith("{") or _MARK not in line:
        return
    try:
        root = json.loads(line)
    except ValueError:
        return
    described = root.get("_aws") if isinstance(root, dict) else None
    if not isinstance(described, dict) or not isinstance(described.get("CloudWatchMetrics"), list):
        return
    stamp = described.get("Timestamp")
    real = datetime.fromtimestamp(stamp / 1000, UTC) if isinstance(stamp, int | float) else None
    at = clock.now() if real is None else clock.local_time_of(real)
    for directive in described["CloudWatchMetrics"]:
        if isinstance(directive, dict) and isinstance(directive.get("Namespace"), str):
            data = [
                {**datum, "Dimensions": dimensions, "Timestamp": at}
                for dimensions in _dimension_sets(root, directive.get("Dimensions"))
                for datum in _data(root, directive.get("Metrics"))
            ]
            yield directive["Namespace"], data


def _dimension_sets(root: dict[str, Any], given: Any) -> Iterator[list[dict[str, str]]]:
    for names in given if isinstance(given, list) else ():
        if not isinstance(names, list) or len(names) > _MOST_DIMENSIONS:
            continue
        values = [value for name in names if isinstance(value := root.get(name), str) and value]
        if len(values) == len(names):
            yield [{"Name": name, "Value": value} for name, value in zip(names, values, strict=True)]


def _data(root: dict[str, Any], given: Any) -> Iterator[dict[str, Any]]:
    for metric in given if isinstance(given, list) else ():
        name = metric.get("Name") if isinstance(metric, dict) else None
        value = root.get(name) if isinstance(name, str) else None
        values = value if isinstance(value, list) else [value]
        if 0 < len(values) <= _MOST_VALUES and all(_is_number(each) for each in values):
            yield {"MetricName": name, "Unit": metric.get("Unit", "None"), "Values": values}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
