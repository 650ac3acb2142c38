"""Checks of what AWS says about a JumpStart model."""

from __future__ import annotations

from peagle_sm.core.checks.base import Findings, check
from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.words import Finding


@check(
    "jumpstart-deprecated",
    why="AWS does not fix deprecated versions, and lists known vulnerabilities.",
    source="JumpStart spec: deprecated, inference_vulnerable, inference_vulnerabilities, usage_info_message",
    remedy="Change to the newest version with `peagle-sm lock --upgrade SPEC`, or set source: container.",
    severity="warning",
    url="https://github.com/aws/sagemaker-python-sdk",
)
def jumpstart_deprecated(draft: Draft) -> Findings:
    """A JumpStart version that AWS marks as deprecated or vulnerable, and AWS's message about the model."""
    entry = draft.jumpstart
    if entry is None:
        return
    name = f"{entry.jumpstart_model_id} {entry.version}"
    if entry.deprecated:
        yield f"AWS marks {name} as deprecated"
    if entry.vulnerabilities:
        yield f"AWS lists vulnerabilities of {name}: {', '.join(entry.vulnerabilities)}"
    for message in entry.messages:
        yield Finding("info", message, "Read the message.")
