"""Checks on what JumpStart itself says of a model, and on what its own settings would do."""

from __future__ import annotations

from collections.abc import Iterator

from peagle_sm.core.checks.base import Check, Note, check
from peagle_sm.core.jumpstart.acceleration import unaccelerated
from peagle_sm.core.plan.environment import SPECULATIVE_CONFIG
from peagle_sm.core.plan.resolve import Draft

_SDK = "https://github.com/aws/sagemaker-python-sdk"
# Said by checks of their own, which look at the plan and not at JumpStart's settings.
_SAID_ELSEWHERE = frozenset({"lmi-image", "engine-version", "json-quotes", "tensor-parallel"})


@check(
    "jumpstart-unaccelerated",
    why="The same model deployed by the console or the SageMaker SDK would not run as this plan does.",
    source="JumpStart spec: inference_environment_variables, hosting_instance_type_variants",
    remedy="Nothing to do: this plan sets its own. Do not deploy this model with JumpStart's own button.",
    severity="info",
    url=_SDK,
)
def jumpstart_unaccelerated(draft: Draft) -> Iterator[Note]:
    """Settings of JumpStart's own that would run without P-EAGLE, where the plan puts them right."""
    entry, name = draft.jumpstart, draft.instance_types[0]
    if entry is None or draft.mode != "p-eagle" or draft.spec.image is not None or draft.image is None:
        return
    environment = entry.environment_for(name)
    if entry.speculative_config:
        environment[SPECULATIVE_CONFIG] = entry.speculative_config
    channels = frozenset({entry.draft_channel} if entry.draft_channel else ())
    for reason in unaccelerated(draft.image, environment, channels, draft.catalog.images):
        if reason.code not in _SAID_ELSEWHERE:
            yield Note("info", f"JumpStart's own settings for {name}: {reason.message}")


@check(
    "jumpstart-deprecated",
    why="AWS stops mending a deprecated version, and lists known holes of what it ships.",
    source="JumpStart spec: deprecated, inference_vulnerable, inference_vulnerabilities",
    remedy="Move to the newest version with `peagle-sm lock --upgrade SPEC`, or use source: container.",
    severity="warning",
    url=_SDK,
)
def jumpstart_deprecated(draft: Draft) -> Iterator[Note]:
    """A version that AWS calls deprecated or vulnerable."""
    entry = draft.jumpstart
    if entry is None:
        return
    name = f"{entry.jumpstart_model_id} {entry.version}"
    if entry.deprecated:
        yield Note("warning", f"AWS calls {name} deprecated")
    if entry.vulnerabilities:
        yield Note("warning", f"AWS names vulnerabilities of {name}: {', '.join(entry.vulnerabilities)}")


@check(
    "jumpstart-message",
    why="It is AWS's own word to whoever uses the model.",
    source="JumpStart spec: usage_info_message, deprecated_message, deprecate_warn_message",
    remedy="Read it.",
    severity="info",
    url=_SDK,
)
def jumpstart_message(draft: Draft) -> Iterator[Note]:
    """What the model's spec has to say to its users."""
    for message in draft.jumpstart.messages if draft.jumpstart else ():
        yield Note("info", message)


CHECKS: tuple[Check, ...] = (
    jumpstart_unaccelerated,
    jumpstart_deprecated,
    jumpstart_message,
)
