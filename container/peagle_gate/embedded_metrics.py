"""Log lines in CloudWatch's embedded metric format.

CloudWatch reads the metrics from the log, so the container needs no permission and no network.
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

COUNT, PERCENT, NONE = "Count", "Percent", "None"  #: units


def metrics_line(
    metrics: Mapping[str, tuple[float, str]],
    members: Mapping[str, Any],
    *,
    namespace: str,
    unix_ms: int,
    dimensions: Sequence[str] = (),
) -> str:
    """Return a line with metrics (value and unit by name) and further members of the JSON object.

    ``dimensions`` are the members that are dimensions of the metrics. The namespace contains the endpoint's
    name, so most metrics need none.
    """
    described = {
        "Namespace": namespace,
        "Dimensions": [list(dimensions)],
        "Metrics": [{"Name": name, "Unit": unit} for name, (_, unit) in metrics.items()],
    }
    values = {name: value for name, (value, _) in metrics.items()}
    header = {"Timestamp": unix_ms, "CloudWatchMetrics": [described]}
    return json.dumps({"_aws": header, "source": "peagle_gate", **members, **values})
