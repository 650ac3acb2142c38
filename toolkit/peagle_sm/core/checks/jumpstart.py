"""Checks on JumpStart's settings for a model, and on a lock.

`unaccelerated` gives each reason why JumpStart's settings would not run P-EAGLE, with the source.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from peagle_sm.core.catalog import ImageCatalog, ImageFacts, version_of
from peagle_sm.core.checks.base import Check, Note, check
from peagle_sm.core.jumpstart.documents import is_same_model
from peagle_sm.core.jumpstart.lock import Lock
from peagle_sm.core.plan.environment import SPECULATIVE_CONFIG
from peagle_sm.core.plan.records import Finding
from peagle_sm.core.plan.resolve import Draft

VLLM_CONFIG = "SM_VLLM_SPECULATIVE_CONFIG"
LMI_CONFIG = "OPTION_SPECULATIVE_CONFIG"
LMI_DRAFT = "OPTION_SPECULATIVE_DRAFT_MODEL"
_MOUNT = "/opt/ml/additional-model-data-sources/"
_DJL = "djl-serving reads OPTION_*, not SM_VLLM_*; JumpStart's spec of gpt-oss-20b keeps SM_VLLM_* on ml.g5"
_SDK_SOURCE = "aws/sagemaker-python-sdk pull request 6143"
_DOC = "vLLM, speculative decoding: P-EAGLE is method eagle3 with parallel_drafting"
_TWO_SIZES = "JumpStart's spec of gpt-oss-20b on ml.p5.48xlarge: 8 beside 1"


@dataclass(frozen=True)
class Reason:
    """Why P-EAGLE would be off, or in doubt; ``mended``: this program's own plan puts it right."""

    code: str
    message: str
    source: str
    mended: bool


def unaccelerated(
    image: ImageFacts, environment: Mapping[str, str], channels: frozenset[str], images: ImageCatalog
) -> tuple[Reason, ...]:
    """Say what stands between this image with this environment and P-EAGLE; empty where nothing does.

    ``channels`` are the further data sources that the model has.
    """
    reasons = _of_lmi(image, environment, images) if image.is_lmi else _of_vllm(image, environment, images)
    return (*reasons, *_of_config(image, environment, channels), *_of_sizes(environment))


def _of_lmi(image: ImageFacts, env: Mapping[str, str], images: ImageCatalog) -> Iterator[Reason]:
    tag = image.uri.rpartition("/")[2]
    if VLLM_CONFIG in env and LMI_CONFIG not in env:
        yield Reason("lmi-image", f"image {tag} ignores {VLLM_CONFIG}", _DJL, mended=False)
    if LMI_DRAFT in env and LMI_CONFIG not in env:
        yield Reason(
            "lmi-draft-model",
            f"image {tag} ignores {LMI_DRAFT}: it wants {LMI_CONFIG}",
            _SDK_SOURCE,
            mended=False,
        )
    engine = images.lmi_engine_at_most(image.uri)
    floor = images.parallel_drafting
    if engine is not None and engine < version_of(floor.version):
        has = ".".join(map(str, engine))
        yield Reason(
            "engine-version",
            f"image {tag} has vLLM {has} at most; P-EAGLE needs {floor.version} or newer",
            floor.source,
            mended=False,
        )


def _of_vllm(image: ImageFacts, env: Mapping[str, str], images: ImageCatalog) -> Iterator[Reason]:
    floor = images.parallel_drafting
    if image.version is not None and not image.at_least(floor.version):
        yield Reason(
            "engine-version",
            f"the image has vLLM {image.version_text}; P-EAGLE needs {floor.version} or newer",
            floor.source,
            mended=False,
        )
    if images.loses_quotes(image) and VLLM_CONFIG in env and env.get("PROCESS_AUTO_RECOVERY") != "false":
        yield Reason(
            "json-quotes",
            f"the image strips the quotes of {VLLM_CONFIG}, and PROCESS_AUTO_RECOVERY is not false",
            images.quotes_lost.source,
            mended=True,
        )


def _of_config(image: ImageFacts, env: Mapping[str, str], channels: frozenset[str]) -> Iterator[Reason]:
    name = LMI_CONFIG if image.is_lmi else VLLM_CONFIG
    mended = not image.is_lmi
    text = env.get(name)
    if text is None:
        if not image.is_lmi or not {VLLM_CONFIG, LMI_DRAFT} & env.keys():
            yield Reason("no-speculation", f"{name} is not set: nothing is drafted", _DOC, mended)
        return
    config = _parsed(text)
    if config is None:
        yield Reason("no-speculation", f"{name} is not a JSON object: {text[:60]!r}", _DOC, mended)
        return
    if config.get("parallel_drafting") is not True:
        yield Reason(
            "no-parallel-drafting",
            f"{name} does not set parallel_drafting: true, so the head drafts token by token, and badly",
            _DOC,
            mended,
        )
    model = config.get("model")
    if isinstance(model, str) and model.startswith(_MOUNT):
        channel = model.removeprefix(_MOUNT).partition("/")[0]
        if channel not in channels:
            has = ", ".join(sorted(channels)) or "none"
            yield Reason(
                "no-head",
                f"{name} reads the head from channel {channel!r}, and the model's channels are: {has}",
                "SageMaker API: AdditionalModelDataSources",
                mended=False,
            )


def _of_sizes(env: Mapping[str, str]) -> Iterator[Reason]:
    degree, size = env.get("TENSOR_PARALLEL_DEGREE"), env.get("SM_VLLM_TENSOR_PARALLEL_SIZE")
    if degree is not None and size is not None and degree != size:
        yield Reason(
            "tensor-parallel",
            f"TENSOR_PARALLEL_DEGREE={degree} stands beside SM_VLLM_TENSOR_PARALLEL_SIZE={size}; the vLLM "
            "image reads the second only",
            _TWO_SIZES,
            mended=True,
        )


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


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
