"""Would what JumpStart resolves to run P-EAGLE at all? Each reason why not, with who says so."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from peagle_sm.core.catalog.images import ImageCatalog, ImageFacts, version_of

VLLM_CONFIG = "SM_VLLM_SPECULATIVE_CONFIG"
LMI_CONFIG = "OPTION_SPECULATIVE_CONFIG"
LMI_DRAFT = "OPTION_SPECULATIVE_DRAFT_MODEL"
_MOUNT = "/opt/ml/additional-model-data-sources/"
_DJL = "djl-serving reads OPTION_*, not SM_VLLM_*; JumpStart's spec of gpt-oss-20b keeps SM_VLLM_* on ml.g5"
_SDK = "aws/sagemaker-python-sdk pull request 6143"
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
            _SDK,
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
