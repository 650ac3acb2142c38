"""Checks of the image: registry, tag, engine version, known faults.

Each known fault has a date from which it must be checked again.
"""

from __future__ import annotations

import datetime as dt
import re
from functools import cache

from peagle_sm.core.checks.base import Findings, check
from peagle_sm.core.engines import PackagedData, Version, read_data, version_of
from peagle_sm.core.plan.environment import (
    AUTO_RECOVERY,
    environment,
)
from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.spec.modes import Mode
from peagle_sm.core.words import Finding


@check(
    "image-version",
    why="The engine's version decides which flags it supports and which host it needs.",
    source="tags of AWS's vLLM images",
    remedy="Use a tag that begins with the vLLM version, such as vllm:0.30.0-gpu-….",
    severity="warning",
    url="https://github.com/aws/deep-learning-containers/releases",
)
def image_version(draft: Draft) -> Findings:
    """An image whose tag does not contain its vLLM version."""
    if draft.image is not None and draft.image.version is None and not draft.image.is_lmi:
        yield (
            f"the vLLM version of {draft.image.uri} is not known: its flags are not checked, and "
            f"its model runner is assumed to be that of {draft.catalog.engines.versions[-1].version}"
        )


@check(
    "engine-known",
    why="Model runner, flags and faults differ between versions; those of an unknown one are assumed.",
    source="vLLM's source, read by scripts/engine-matrix; `peagle-sm help engines` lists the versions",
    remedy="Use a version of `peagle-sm help engines`, or check the canary's acceptance after the deploy.",
    severity="warning",
    url="https://github.com/vllm-project/vllm/releases",
)
def engine_known(draft: Draft) -> Findings:
    """An image with a vLLM version that is not in the engine matrix."""
    if draft.image is None or draft.image.version is None:
        return
    engines = draft.catalog.engines
    if engines.entry(draft.image.version) is None:
        nearest = engines.nearest(draft.image.version).version
        yield (
            f"image: vLLM {draft.image.version_text} is not in the engine matrix "
            f"({engines.versions[0].version} to {engines.versions[-1].version}); assumed: model runner and "
            f"settings as in {nearest}, the nearest version"
        )


@check(
    "json-quotes",
    why='The supervisor joins the command line without quotes: {"method":…} becomes {method:…}.',
    source="model-hosting-container-standards <= 0.1.15 (vLLM images 0.20.2 to 0.23.0, server v2.0)",
    remedy="Use image 0.24.0 or newer, or keep PROCESS_AUTO_RECOVERY=false.",
    url="https://github.com/aws/model-hosting-container-standards",
)
def json_quotes(draft: Draft) -> Findings:
    """An image that strips the quotes of JSON values."""
    if draft.image is None or not draft.catalog.images.loses_quotes(draft.image):
        return
    if environment(draft).get(AUTO_RECOVERY) == "false":
        yield Finding(
            "warning",
            f"image {draft.image.uri.rpartition('/')[2]} probably strips quotes from JSON; "
            f"{AUTO_RECOVERY}=false is set, so a crashed engine is not restarted inside the container",
        )
    else:
        yield f"{AUTO_RECOVERY} must be false on this image, or it breaks the speculative config"


@check(
    "supervisor-characters",
    why="A % in a value crashes the supervisor, and it drops everything after ' ;'.",
    source="model-hosting-container-standards 0.1.16",
    remedy="Write the value without % and ' ;', or set serving.env.PROCESS_AUTO_RECOVERY: 'false'.",
    severity="warning",
    url="https://github.com/aws/model-hosting-container-standards",
)
def supervisor_characters(draft: Draft) -> Findings:
    """Values that the supervisor of newer images breaks."""
    values = environment(draft)
    if values.get(AUTO_RECOVERY) == "false":
        return
    for name, value in values.items():
        if name.startswith("SM_VLLM_") and ("%" in value or " ;" in value):
            yield f"{name} contains % or ' ;', which the image's supervisor breaks"


@check(
    "draft-dropped",
    why="The endpoint works without speculation, and no error is reported.",
    source="djl-serving reads OPTION_*, not SM_VLLM_*; JumpStart's spec of gpt-oss-20b on ml.g5",
    remedy="Use an instance family for which JumpStart has the vLLM image (ml.g7e, ml.g6, ml.p5…).",
    url="https://github.com/deepjavalibrary/djl-serving",
)
def draft_dropped(draft: Draft) -> Findings:
    """An LMI image, which ignores the draft settings."""
    if draft.image is None or not draft.image.is_lmi or not draft.speculating:
        return
    if draft.spec.image is not None:
        yield Finding(
            "error",
            f"image: {draft.spec.image} is an LMI image, which ignores SM_VLLM_SPECULATIVE_CONFIG: "
            f"{draft.mode} would be silently off",
            "Set image to a vLLM image, or remove the field: the plan then chooses AWS's vLLM image.",
        )
    else:
        yield (
            f"{draft.instance_types[0]} resolves to an LMI image, which ignores SM_VLLM_SPECULATIVE_CONFIG: "
            f"{draft.mode} would be silently off"
        )


class Advisory(PackagedData):
    """One fault: ``what`` happens, below which vLLM, for which models and modes.

    ``models`` are catalogue ids, ``architectures`` those of the same family in a config.json, which a user's
    own model has.
    """

    id: str
    what: str
    security: bool = False
    fixed_in: str | None = None
    models: tuple[str, ...] | None = None
    architectures: tuple[str, ...] = ()
    modes: tuple[Mode, ...] | None = None
    min_context: int | None = None
    remedy: str | None = None
    source: str
    url: str
    date: dt.date
    expires: dt.date

    def concerns(self, version: Version) -> bool:
        """Return whether a version has the fault."""
        return self.fixed_in is None or version < version_of(self.fixed_in)

    def meets(self, draft: Draft) -> bool:
        """Return whether it applies; False if the image version is unknown."""
        version = draft.image.version if draft.image else None
        return (
            version is not None
            and self.concerns(version)
            and self._of_family(draft.model.architecture, draft.spec.model_name)
            and (self.modes is None or draft.mode in self.modes)
            and (self.min_context is None or (draft.max_model_len or 0) >= self.min_context)
        )

    def _of_family(self, architecture: str | None, model: str) -> bool:
        return self.models is None or model in self.models or architecture in self.architectures


@cache
def load_advisories() -> tuple[Advisory, ...]:
    """Read the packaged advisories."""
    return tuple(Advisory.model_validate(row) for row in read_data("advisories"))


def _expiry_words(expires: dt.date, today: dt.date | None) -> str:
    """Return the validity of an advisory as text; ``today`` may be None."""
    if today is not None and today >= expires:
        return f"this advisory expired on {expires}: check whether it still holds, or upgrade peagle-sm"
    return f"valid until {expires}"


def _today(draft: Draft) -> dt.date | None:
    return draft.context.now.date() if draft.context.now else None


@check(
    "advisories",
    why="Whoever may invoke the endpoint can crash or stall an older engine with one request.",
    source="vLLM security advisories (November 2026); SageMaker passes on only /invocations and /ping",
    remedy="Let only trusted callers invoke the endpoint, or build this project's image "
    "(`peagle-sm help container`): its gate refuses such requests. AWS has no image at the floor.",
    severity="warning",
    url="https://github.com/vllm-project/vllm/security/advisories",
)
def floor(draft: Draft) -> Findings:
    """An engine below the floor of the security advisories, and what a caller can do with it."""
    lowest = draft.catalog.images.advisory_floor
    if draft.image is None or not draft.image.version or draft.image.version >= version_of(lowest.version):
        return
    if draft.context.local:
        return  # nothing to do about it: the local SageMaker brings its engine, behind the gate
    expires = dt.date.fromisoformat(lowest.expires) if lowest.expires else None
    until = f" ({_expiry_words(expires, _today(draft))})" if expires else ""
    below = (
        f"vLLM {draft.image.version_text} is below {lowest.version}, the floor of its security "
        f"advisories{until}"
    )
    holes = [
        f"{row.what} ({f'fixed in {row.fixed_in}' if row.fixed_in else 'no release with a fix is known'})"
        for row in load_advisories()
        if row.security and row.meets(draft)
    ]
    if holes and not draft.has_own_image:
        yield Finding(
            "warning", f"{below}; through InvokeEndpoint, {'; '.join(holes)}", expires=lowest.expires or None
        )
        return
    reach = (
        f"this project's gate refuses what is known: {'; '.join(holes)}"
        if holes
        else "none of the advisories known here can be reached through InvokeEndpoint"
    )
    yield Finding(
        "info",
        f"{below}; {reach}",
        "Nothing to do now; renew the image when one at the floor exists.",
        expires=lowest.expires or None,
    )


@check(
    "known-faults",
    why="The endpoint starts and answers, but crashes or loses its acceleration on some requests.",
    source="vLLM's issues, pull requests and advisories; data/advisories.yaml names each page",
    remedy="Read the page; use an image without the fault if there is one, and watch the acceptance.",
    severity="warning",
    url="https://github.com/vllm-project/vllm/issues",
)
def known_faults(draft: Draft) -> Findings:
    """Known faults of the image's engine version that apply to this spec."""
    for row in load_advisories():
        if not row.security and row.meets(draft):
            fixed = f", fixed in vLLM {row.fixed_in}" if row.fixed_in else ""
            yield Finding(
                "warning",
                f"{row.id}: {row.what}{fixed} ({row.source}; {_expiry_words(row.expires, _today(draft))})",
                " ".join(filter(None, (row.remedy, f"Read {row.url}."))),
                expires=row.expires.isoformat(),
            )


_ECR = re.compile(r"(\d{12})\.dkr\.ecr(?:-fips)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/(.+)")
_DLC = "https://github.com/aws/deep-learning-containers"
_OTHER_ENGINES = ("sglang", "tensorrt", "tgi", "tritonserver", "text-generation-inference")
_CPU_FAMILIES = ("c", "m", "r", "t")


def registry_of(uri: str) -> tuple[str, str, str] | None:
    """Return account, region and rest of an ECR image URI; None if not ECR."""
    match = _ECR.fullmatch(uri)
    return (match[1], match[2], match[3]) if match else None


@check(
    "image-registry",
    why="CreateModel refuses an image outside ECR, and a host cannot pull from another region's registry.",
    source="SageMaker API: ContainerDefinition.Image; aws/sagemaker-python-sdk issue 4700",
    remedy="Push the image to ECR in the endpoint's region, or use AWS's image of that region.",
    url="https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_ContainerDefinition.html",
)
def image_registry(draft: Draft) -> Findings:
    """An image that is not in ECR, or in another region's registry."""
    if draft.image is None or draft.context.local:
        return
    parts = registry_of(draft.image.uri)
    if parts is None:
        yield f"image: {draft.image.uri} is not an ECR image; allowed: one in {draft.region}"
        return
    account, region, _ = parts
    if region != draft.region:
        yield f"image: {draft.image.uri} is in {region}; allowed: {draft.region}"
        return
    own = draft.catalog.regions.get(region)
    if own is not None and draft.image_published_by_aws and account != own.account:
        yield f"image: found account {account}; AWS's registry in {region} is account {own.account}"


@check(
    "image-tag",
    why="A tag that was never published fails only at the pull, when the instance is already billed.",
    source="aws/deep-learning-containers: release tags of the vllm repository",
    remedy="Use a published tag, or check that this one exists.",
    severity="warning",
    url=f"{_DLC}/releases",
)
def image_tag(draft: Draft) -> Findings:
    """An unknown tag of AWS's vLLM repository."""
    if draft.image is None or draft.image.repository != "vllm" or not draft.image_published_by_aws:
        return
    tag = draft.image.uri.rpartition(":")[2]
    images = draft.catalog.images
    if "@" in draft.image.uri or draft.image.server is not None:
        if draft.image.server is not None and draft.image.server not in images.servers:
            known = ", ".join(images.servers)
            yield f"image: {tag} is not known; known server images: {known}"
        return
    version = draft.image.version
    rules = [
        rule
        for rule in images.tags
        if version is not None and version_of(rule.first) <= version <= version_of(rule.last)
    ]
    if not rules:
        last = images.tags[-1].last
        yield f"image: vLLM {draft.image.version_text} is not a known image version; newest: {last}"
    elif tag != (published := rules[0].template.format(version=draft.image.version_text)):
        yield f"image: found tag {tag}; the published tag of this version is {published}"


@check(
    "image-digest",
    why="A tag can be moved: the next instance of the same endpoint may start another image.",
    source="Amazon ECR: image tag mutability",
    remedy="Name the image by its digest: repository@sha256:…",
    severity="info",
    url="https://docs.aws.amazon.com/AmazonECR/latest/userguide/image-tag-mutability.html",
)
def image_digest(draft: Draft) -> Findings:
    """A user's image that is named by a tag."""
    if draft.spec.image is None or draft.context.local or draft.image_published_by_aws:
        return
    if "@sha256:" not in draft.spec.image:
        yield f"image: {draft.spec.image} is named by a tag, which may be moved"


@check(
    "other-engine",
    why="Only vLLM supports P-EAGLE; another engine ignores SM_VLLM_* or refuses to start.",
    source="sglang issue 23171 (open); this catalogue has vLLM's images",
    remedy="Use a vLLM image, or mode none.",
    url="https://github.com/sgl-project/sglang/issues/23171",
)
def other_engine(draft: Draft) -> Findings:
    """An image of another engine together with a draft head."""
    if draft.image is None or not draft.speculating:
        return
    name = next((each for each in _OTHER_ENGINES if each in draft.image.uri.lower()), None)
    if name is not None:
        yield f"image: {draft.image.uri} is an image of {name}, which has no {draft.mode}"


@check(
    "no-gpu",
    why="A CUDA image crashes at the start on a host without an NVIDIA GPU.",
    source="SageMaker API: ProductionVariant.InstanceType; tags of AWS's vLLM images",
    remedy="Use an instance type with NVIDIA GPUs.",
    url="https://aws.amazon.com/ec2/instance-types/",
)
def no_gpu(draft: Draft) -> Findings:
    """An image built for CUDA on an instance type without an NVIDIA GPU."""
    if draft.image is None or draft.image.cuda is None or draft.context.local:
        return
    for name in draft.instance_types:
        entry, family = draft.instance(name), name.removeprefix("ml.").partition(".")[0]
        neuron = family.startswith(("inf", "trn"))
        if neuron or (entry.gpu_count == 0 if entry else re.sub(r"\d.*", "", family) in _CPU_FAMILIES):
            yield f"placement.instance_types: {name} has no NVIDIA GPU; the image is for CUDA"
