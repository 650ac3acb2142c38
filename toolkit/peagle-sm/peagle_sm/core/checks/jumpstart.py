"""Checks of what AWS says about a JumpStart model."""

from __future__ import annotations

from peagle_sm.core.checks.base import Findings, check
from peagle_sm.core.plan.resolve import Draft

_SDK = "https://github.com/aws/sagemaker-python-sdk"


@check(
    "jumpstart-deprecated",
    why="AWS does not fix deprecated versions, and lists known vulnerabilities.",
    source="JumpStart spec: deprecated, inference_vulnerable, inference_vulnerabilities",
    remedy="Change to the newest version with `peagle-sm lock --upgrade SPEC`, or set source: container.",
    severity="warning",
    url=_SDK,
)
def jumpstart_deprecated(draft: Draft) -> Findings:
    """A JumpStart version that AWS marks as deprecated or vulnerable."""
    entry = draft.jumpstart
    if entry is None:
        return
    name = f"{entry.jumpstart_model_id} {entry.version}"
    if entry.deprecated:
        yield f"AWS marks {name} as deprecated"
    if entry.vulnerabilities:
        yield f"AWS lists vulnerabilities of {name}: {', '.join(entry.vulnerabilities)}"


@check(
    "jumpstart-message",
    why="AWS has a message for users of the model.",
    source="JumpStart spec: usage_info_message, deprecated_message, deprecate_warn_message",
    remedy="Read the message.",
    severity="info",
    url=_SDK,
)
def jumpstart_message(draft: Draft) -> Findings:
    """A message for users in the model's JumpStart spec."""
    yield from draft.jumpstart.messages if draft.jumpstart else ()
