"""Checks on what JumpStart itself says of a model, on what its own settings would do, and on a lock."""

from __future__ import annotations

from collections.abc import Iterator

from peagle_sm.core.catalog.images import ImageCatalog
from peagle_sm.core.checks.base import Check, Note, check
from peagle_sm.core.jumpstart.acceleration import unaccelerated
from peagle_sm.core.jumpstart.lock import Lock
from peagle_sm.core.jumpstart.manifest import is_same_model
from peagle_sm.core.plan.environment import SPECULATIVE_CONFIG
from peagle_sm.core.plan.records import Finding
from peagle_sm.core.plan.resolve import Draft

_SDK = "https://github.com/aws/sagemaker-python-sdk"
_SPEC = "JumpStart spec"
_ORDER = {"error": 0, "warning": 1, "info": 2}
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


def lock_findings(
    lock: Lock, images: ImageCatalog, *, newest: str | None = None, hub_id: str | None = None
) -> tuple[Finding, ...]:
    """Return the findings on a lock, errors first; ``newest`` is the manifest's newest version.

    An error is what no plan of this program can mend: with mode p-eagle, `plan` and `deploy` refuse it.
    """
    found = [*_on_acceleration(lock, images), *_on_licence(lock), *_on_model(lock, newest, hub_id)]
    return tuple(sorted(found, key=lambda finding: _ORDER[finding.severity]))


def _on_acceleration(lock: Lock, images: ImageCatalog) -> Iterator[Finding]:
    channels = frozenset({lock.head.channel} if lock.head else ())
    for name, one in lock.instances.items():
        environment = {**lock.environment, **one.environment}
        for reason in unaccelerated(images.describe(one.image), environment, channels, images):
            step = (
                "Nothing to do: `peagle-sm deploy` sets its own. Do not use JumpStart's own button."
                if reason.mended
                else "Choose another of placement.instance_types, or another config with --config."
            )
            severity = "warning" if reason.mended else "error"
            yield Finding(
                f"jumpstart-{reason.code}",
                severity,  # type: ignore[arg-type]
                f"{name}: {reason.message}",
                step,
                reason.source,
                _SDK,
            )


def _on_licence(lock: Lock) -> Iterator[Finding]:
    licence = lock.licence
    if licence.gated and not licence.accepted:
        where = f"; its terms: {', '.join(licence.eula_uris)}" if licence.eula_uris else ""
        yield Finding(
            "licence",
            "error",
            f"{lock.jumpstart.model_id} is gated, and accept_eula is false{where}",
            "Read the terms, set accept_eula: true, and lock again.",
            "SageMaker API: ModelAccessConfig; JumpStartConfig.accept_eula defaults to False",
            _SDK,
        )


def _on_model(lock: Lock, newest: str | None, hub_id: str | None) -> Iterator[Finding]:
    model = lock.jumpstart
    name = f"{model.model_id} {model.version}"
    if model.deprecated:
        yield _of_model("jumpstart-deprecated", "warning", f"AWS calls {name} deprecated")
    if model.vulnerable or model.vulnerabilities:
        named = ", ".join(model.vulnerabilities) or "not named"
        yield _of_model("jumpstart-vulnerable", "warning", f"AWS calls {name} vulnerable: {named}")
    if hub_id is not None and model.url and not is_same_model(model.url, hub_id):
        yield _of_model(
            "jumpstart-url", "warning", f"its spec is of {model.url}, and {hub_id} was looked for"
        )
    if newest is not None and newest != model.version:
        yield _of_model("jumpstart-newer", "info", f"JumpStart has {newest}; {model.version} is locked")
    for message in model.messages:
        yield _of_model("jumpstart-message", "info", message)


def _of_model(check: str, severity: str, message: str) -> Finding:
    steps = {
        "jumpstart-message": "Read it.",
        "jumpstart-url": "Look whether it is the model that you want before you deploy it.",
        "jumpstart-newer": "Nothing to do; `peagle-sm lock --upgrade SPEC` moves to it.",
    }
    step = steps.get(check, "Move to the newest version with `peagle-sm lock --upgrade SPEC`.")
    return Finding(check, severity, message, step, _SPEC, _SDK)  # type: ignore[arg-type]
