"""Checks of JumpStart's settings for a model, and of a lock.

`unaccelerated` returns the reasons why JumpStart's settings would not run P-EAGLE, with sources.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from peagle_sm.core.catalog import SPECULATIVE_CONFIG, Catalog, ImageFacts
from peagle_sm.core.checks.base import Findings, check
from peagle_sm.core.engines import version_of
from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.spec.lock import Lock
from peagle_sm.core.words import Finding, Severity, worst_first

LMI_CONFIG = "OPTION_SPECULATIVE_CONFIG"
LMI_DRAFT = "OPTION_SPECULATIVE_DRAFT_MODEL"
_MOUNT = "/opt/ml/additional-model-data-sources/"
_DJL = "djl-serving reads OPTION_*, not SM_VLLM_*; JumpStart's spec of gpt-oss-20b keeps SM_VLLM_* on ml.g5"
_SDK_SOURCE = "aws/sagemaker-python-sdk pull request 6143"
_DOC = "vLLM, speculative decoding: P-EAGLE is method eagle3 with parallel_drafting"
_TWO_SIZES = "JumpStart's spec of gpt-oss-20b on ml.p5.48xlarge: 8 beside 1"


def unaccelerated(
    image: ImageFacts, environment: Mapping[str, str], channels: frozenset[str], catalog: Catalog
) -> tuple[Finding, ...]:
    """Say what stands between this image with this environment and P-EAGLE; empty where nothing does.

    A "warning" is what this program's own plan puts right, an "error" what it cannot. ``channels`` are the
    further data sources that the model has.
    """
    reasons = _of_lmi(image, environment, catalog) if image.is_lmi else _of_vllm(image, environment, catalog)
    return (*reasons, *_of_config(image, environment, channels), *_of_sizes(environment))


def _of_lmi(image: ImageFacts, env: Mapping[str, str], catalog: Catalog) -> Iterator[Finding]:
    tag = image.uri.rpartition("/")[2]
    if SPECULATIVE_CONFIG in env and LMI_CONFIG not in env:
        yield Finding("error", f"image {tag} ignores {SPECULATIVE_CONFIG}", check="lmi-image", source=_DJL)
    if LMI_DRAFT in env and LMI_CONFIG not in env:
        yield Finding(
            "error",
            f"image {tag} ignores {LMI_DRAFT}: it needs {LMI_CONFIG}",
            check="lmi-draft-model",
            source=_SDK_SOURCE,
        )
    engine = catalog.images.lmi_engine_at_most(image.uri)
    floor = catalog.engines.parallel_drafting
    if engine is not None and engine < version_of(floor.version):
        has = ".".join(map(str, engine))
        yield Finding(
            "error",
            f"image {tag} has vLLM {has} at most; P-EAGLE needs {floor.version} or newer",
            check="engine-version",
            source=floor.source,
        )


def _of_vllm(image: ImageFacts, env: Mapping[str, str], catalog: Catalog) -> Iterator[Finding]:
    floor = catalog.engines.parallel_drafting
    if image.version is not None and not image.at_least(floor.version):
        yield Finding(
            "error",
            f"the image has vLLM {image.version_text}; P-EAGLE needs {floor.version} or newer",
            check="engine-version",
            source=floor.source,
        )
    if (
        catalog.images.loses_quotes(image)
        and SPECULATIVE_CONFIG in env
        and env.get("PROCESS_AUTO_RECOVERY") != "false"
    ):
        yield Finding(
            "warning",
            f"the image strips the quotes of {SPECULATIVE_CONFIG}, and PROCESS_AUTO_RECOVERY is not false",
            check="json-quotes",
            source=catalog.images.quotes_lost.source,
        )


def _of_config(image: ImageFacts, env: Mapping[str, str], channels: frozenset[str]) -> Iterator[Finding]:
    name = LMI_CONFIG if image.is_lmi else SPECULATIVE_CONFIG
    severity: Severity = "error" if image.is_lmi else "warning"
    text = env.get(name)
    if text is None:
        if not image.is_lmi or not {SPECULATIVE_CONFIG, LMI_DRAFT} & env.keys():
            yield Finding(
                severity, f"{name} is not set: there is no speculation", check="no-speculation", source=_DOC
            )
        return
    config = _parsed(text)
    if config is None:
        yield Finding(
            severity, f"{name} is not a JSON object: {text[:60]!r}", check="no-speculation", source=_DOC
        )
        return
    if config.get("parallel_drafting") is not True:
        yield Finding(
            severity,
            f"{name} does not set parallel_drafting: true, so the head drafts one token at a time, badly",
            check="no-parallel-drafting",
            source=_DOC,
        )
    model = config.get("model")
    if isinstance(model, str) and model.startswith(_MOUNT):
        channel = model.removeprefix(_MOUNT).partition("/")[0]
        if channel not in channels:
            has = ", ".join(sorted(channels)) or "none"
            yield Finding(
                "error",
                f"{name} reads the head from channel {channel!r}, and the model's channels are: {has}",
                check="no-head",
                source="SageMaker API: AdditionalModelDataSources",
            )


def _of_sizes(env: Mapping[str, str]) -> Iterator[Finding]:
    degree, size = env.get("TENSOR_PARALLEL_DEGREE"), env.get("SM_VLLM_TENSOR_PARALLEL_SIZE")
    if degree is not None and size is not None and degree != size:
        yield Finding(
            "warning",
            f"found TENSOR_PARALLEL_DEGREE={degree} and SM_VLLM_TENSOR_PARALLEL_SIZE={size}; the vLLM image "
            "reads only the second",
            check="tensor-parallel",
            source=_TWO_SIZES,
        )


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


_SDK = "https://github.com/aws/sagemaker-python-sdk"
_SPEC = "JumpStart spec"
# Said by checks of their own, which look at the plan and not at JumpStart's settings.
_SAID_ELSEWHERE = frozenset({"lmi-image", "engine-version", "json-quotes", "tensor-parallel"})


@check(
    "jumpstart-unaccelerated",
    why="The same model deployed by the console or the SageMaker SDK would not run like this plan.",
    source="JumpStart spec: inference_environment_variables, hosting_instance_type_variants",
    remedy="Nothing to do: this plan has its own settings. Do not deploy this model with JumpStart's button.",
    severity="info",
    url=_SDK,
)
def jumpstart_unaccelerated(draft: Draft) -> Findings:
    """JumpStart's settings that would run without P-EAGLE, and that the plan fixes."""
    entry, name = draft.jumpstart, draft.instance_types[0]
    if entry is None or draft.mode != "p-eagle" or draft.spec.image is not None or draft.image is None:
        return
    environment = entry.environment_for(name)
    if entry.speculative_config:
        environment[SPECULATIVE_CONFIG] = entry.speculative_config
    channels = frozenset({entry.draft_channel} if entry.draft_channel else ())
    for reason in unaccelerated(draft.image, environment, channels, draft.catalog):
        if reason.check not in _SAID_ELSEWHERE:
            yield f"JumpStart's settings for {name}: {reason.message}"


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


def lock_findings(lock: Lock, catalog: Catalog, *, newest: str | None = None) -> tuple[Finding, ...]:
    """Return the findings on a lock, errors first; ``newest`` is the newest version.

    No plan of this program fixes an error: with mode p-eagle, `plan` and `deploy` refuse it.
    """
    findings = [*_on_acceleration(lock, catalog), *_on_licence(lock), *_on_model(lock, newest)]
    return tuple(worst_first(findings))


def _on_acceleration(lock: Lock, catalog: Catalog) -> Iterator[Finding]:
    channels = frozenset({lock.head.channel} if lock.head else ())
    for name, instance in lock.instances.items():
        environment = {**lock.environment, **instance.environment}
        for reason in unaccelerated(catalog.images.describe(instance.image), environment, channels, catalog):
            step = (
                "Nothing to do: `peagle-sm deploy` has its own settings. Do not use JumpStart's button."
                if reason.severity == "warning"
                else "Choose another type in placement.instance_types, or another config with --config."
            )
            yield replace(
                reason,
                message=f"{name}: {reason.message}",
                next_step=step,
                check=f"jumpstart-{reason.check}",
                url=_SDK,
            )


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
