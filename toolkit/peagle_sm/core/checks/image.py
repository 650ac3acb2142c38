"""Checks on where the image comes from, and on what its tag promises."""

from __future__ import annotations

import re
from collections.abc import Iterator

from peagle_sm.core.catalog.images import version_of
from peagle_sm.core.checks.base import Check, Note, check
from peagle_sm.core.plan.resolve import Draft

_ECR = re.compile(r"(\d{12})\.dkr\.ecr(?:-fips)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/(.+)")
_DLC = "https://github.com/aws/deep-learning-containers"
_OTHER_ENGINES = ("sglang", "tensorrt", "tgi", "tritonserver", "text-generation-inference")
_CPU_FAMILIES = ("c", "m", "r", "t")


def registry_of(uri: str) -> tuple[str, str, str] | None:
    """Return account, region and the rest of an ECR image URI; None for another registry."""
    found = _ECR.fullmatch(uri)
    return (found[1], found[2], found[3]) if found else None


def is_aws_own(draft: Draft) -> bool:
    """Return whether AWS publishes the image; its registries cannot always be described."""
    return draft.image is not None and draft.catalog.published_by_aws(draft.image.uri)


@check(
    "image-registry",
    why="CreateModel refuses an image outside ECR, and a host cannot pull from another region's registry.",
    source="SageMaker API: ContainerDefinition.Image; aws/sagemaker-python-sdk issue 4700",
    remedy="Push the image to ECR in the endpoint's region, or take AWS's own of that region.",
    url="https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_ContainerDefinition.html",
)
def image_registry(draft: Draft) -> Iterator[Note]:
    """An image that does not stand in ECR, or in another region's."""
    if draft.image is None or draft.context.local:
        return
    parts = registry_of(draft.image.uri)
    if parts is None:
        yield Note("error", f"image: {draft.image.uri} is not an ECR image; allowed: one in {draft.region}")
        return
    account, region, _ = parts
    if region != draft.region:
        yield Note("error", f"image: {draft.image.uri} stands in {region}; allowed: {draft.region}")
        return
    own = draft.catalog.regions.get(region)
    if own is not None and is_aws_own(draft) and account != own.account:
        yield Note("error", f"image: AWS's registry in {region} is account {own.account}; found {account}")


@check(
    "image-tag",
    why="A tag that was never published fails only when the host pulls it, with the instance billed.",
    source="aws/deep-learning-containers: release tags of the vllm repository",
    remedy="Take a published tag, or check that this one exists.",
    severity="warning",
    url=f"{_DLC}/releases",
)
def image_tag(draft: Draft) -> Iterator[Note]:
    """A tag of AWS's own vLLM repository that is not one of those known."""
    if draft.image is None or draft.image.repository != "vllm" or not is_aws_own(draft):
        return
    tag = draft.image.uri.rpartition(":")[2]
    images = draft.catalog.images
    if "@" in draft.image.uri or draft.image.server is not None:
        if draft.image.server is not None and draft.image.server not in images.servers:
            known = ", ".join(images.servers)
            yield Note("warning", f"image: {tag} is not known; known server images: {known}")
        return
    version = draft.image.version
    rules = [
        rule
        for rule in images.tags
        if version is not None and version_of(rule.first) <= version <= version_of(rule.last)
    ]
    if not rules:
        last = images.tags[-1].last
        yield Note("warning", f"image: no published vLLM {draft.image.version_text} is known; newest: {last}")
    elif tag != (published := rules[0].template.format(version=draft.image.version_text)):
        yield Note("warning", f"image: tag {tag} is not the one published for this version: {published}")


@check(
    "image-digest",
    why="A tag can be moved: the next instance of the same endpoint may start another image.",
    source="Amazon ECR: image tag mutability",
    remedy="Name the image by its digest: repository@sha256:…",
    severity="info",
    url="https://docs.aws.amazon.com/AmazonECR/latest/userguide/image-tag-mutability.html",
)
def image_digest(draft: Draft) -> Iterator[Note]:
    """An image of one's own that is named by a tag."""
    if draft.spec.image is None or draft.context.local or is_aws_own(draft):
        return
    if "@sha256:" not in draft.spec.image:
        yield Note("info", f"image: {draft.spec.image} is named by a tag, which may be moved")


@check(
    "other-engine",
    why="Only vLLM drafts in one pass; another engine ignores SM_VLLM_* or refuses to start.",
    source="sglang issue 23171 (open); this catalogue knows vLLM's images",
    remedy="Take a vLLM image, or mode none.",
    url="https://github.com/sgl-project/sglang/issues/23171",
)
def other_engine(draft: Draft) -> Iterator[Note]:
    """An image of another engine beside a draft head."""
    if draft.image is None or not draft.speculating:
        return
    name = next((each for each in _OTHER_ENGINES if each in draft.image.uri.lower()), None)
    if name is not None:
        yield Note("error", f"image: {draft.image.uri} is an image of {name}, which has no {draft.mode}")


@check(
    "no-gpu",
    why="A CUDA image on a host without an NVIDIA GPU dies before it answers.",
    source="SageMaker API: ProductionVariant.InstanceType; tags of AWS's vLLM images",
    remedy="Take an instance type with NVIDIA GPUs.",
    url="https://aws.amazon.com/ec2/instance-types/",
)
def no_gpu(draft: Draft) -> Iterator[Note]:
    """An image built for CUDA on an instance type without an NVIDIA GPU."""
    if draft.image is None or draft.image.cuda is None or draft.context.local:
        return
    for name in draft.instance_types:
        entry, family = draft.instance(name), name.removeprefix("ml.").partition(".")[0]
        neuron = family.startswith(("inf", "trn"))
        if neuron or (entry.gpu_count == 0 if entry else re.sub(r"\d.*", "", family) in _CPU_FAMILIES):
            yield Note("error", f"placement.instance_types: {name} has no NVIDIA GPU; the image is for CUDA")


CHECKS: tuple[Check, ...] = (image_registry, image_tag, image_digest, other_engine, no_gpu)
