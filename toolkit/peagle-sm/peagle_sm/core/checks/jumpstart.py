"""Checks of a JumpStart model's spec, and of a lock."""

from __future__ import annotations

from collections.abc import Iterator

from peagle_sm.core.checks.base import Findings, check
from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.spec.lock import Lock
from peagle_sm.core.words import Finding, Severity, worst_first

_SDK = "https://github.com/aws/sagemaker-python-sdk"
_SPEC = "JumpStart spec"


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


def lock_findings(lock: Lock, newest: str | None = None) -> tuple[Finding, ...]:
    """Return the findings on a lock, errors first; ``newest`` is the newest version.

    `plan` checks whether its image and settings run P-EAGLE.
    """
    return tuple(worst_first([*_on_licence(lock), *_on_model(lock, newest)]))


def _on_licence(lock: Lock) -> Iterator[Finding]:
    licence = lock.licence
    if licence.gated and not licence.accepted:
        where = f"; its terms: {', '.join(licence.eula_uris)}" if licence.eula_uris else ""
        yield Finding(
            "error",
            f"{lock.jumpstart.model_id} is gated, and accept_eula is false{where}",
            "Read the terms, set accept_eula: true, and lock again.",
            check="licence",
            source="SageMaker API: ModelAccessConfig; JumpStartConfig.accept_eula defaults to False",
            url=_SDK,
        )


def _on_model(lock: Lock, newest: str | None) -> Iterator[Finding]:
    model = lock.jumpstart
    name = f"{model.model_id} {model.version}"
    if model.deprecated:
        yield _of_model("jumpstart-deprecated", "warning", f"AWS marks {name} as deprecated")
    if model.vulnerable or model.vulnerabilities:
        named = ", ".join(model.vulnerabilities) or "not named"
        yield _of_model("jumpstart-vulnerable", "warning", f"AWS marks {name} as vulnerable: {named}")
    if newest is not None and newest != model.version:
        yield _of_model("jumpstart-newer", "info", f"JumpStart has {newest}; {model.version} is locked")
    for message in model.messages:
        yield _of_model("jumpstart-message", "info", message)


def _of_model(check: str, severity: Severity, message: str) -> Finding:
    steps = {
        "jumpstart-message": "Read the message.",
        "jumpstart-newer": "Nothing to do; `peagle-sm lock --upgrade SPEC` changes to it.",
    }
    step = steps.get(check, "Change to the newest version with `peagle-sm lock --upgrade SPEC`.")
    return Finding(severity, message, step, check=check, source=_SPEC, url=_SDK)
