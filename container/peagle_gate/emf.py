"""One line of CloudWatch's embedded metric format. Pure.

https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
CloudWatch takes the figures out of the log by itself, so the container needs no right and no network.
"""

from __future__ import annotations

import json
from typing import Any

from peagle_gate.acceptance import Counts, enough, fault

ACCEPTANCE_LENGTH = "AcceptanceLength"
DRAFTS = "Drafts"
GENERATED = "GeneratedTokens"
FAULT = "DraftingFault"


def line(counts: Counts, window: Counts, *, parallel: bool, namespace: str, unix_ms: int) -> tuple[str, bool]:
    """Return the line that tells of ``counts``, and whether it judges ``window``.

    ``counts`` is what came since the last line, ``window`` what came since the last judgement: windows
    are added up until they can be judged. The namespace carries the endpoint's name, so no figure needs a
    dimension.
    """
    values: dict[str, Any] = {DRAFTS: counts.drafts, GENERATED: counts.generated}
    if counts.drafts:
        values[ACCEPTANCE_LENGTH] = round(counts.acceptance_length, 4)
        for position, rate in enumerate(counts.survival, 1):
            values[f"Survival{position}"] = round(rate, 4)
    found: dict[str, Any] = {}
    judges = enough(window, parallel=parallel)
    if judges:
        reason = fault(window, parallel=parallel)
        values[FAULT] = 1 if reason else 0
        if reason:
            found["reason"] = reason
    described = {
        "Timestamp": unix_ms,
        "CloudWatchMetrics": [
            {
                "Namespace": namespace,
                "Dimensions": [[]],
                "Metrics": [{"Name": name, "Unit": _unit(name)} for name in values],
            }
        ],
    }
    return json.dumps({"_aws": described, "source": "peagle_gate", **found, **values}), judges


def _unit(name: str) -> str:
    return "Count" if name in (DRAFTS, GENERATED, FAULT) else "None"
