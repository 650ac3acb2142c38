"""Checks on the image: registry, tag, engine version, known faults.

Each known fault has a day from which somebody must check again whether it still holds.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from functools import cache
from importlib import resources

import yaml
from pydantic import BaseModel, ConfigDict

from peagle_sm.core.catalog import version_of
from peagle_sm.core.checks.base import Check, Edits, Fix, Note, check
from peagle_sm.core.plan.environment import AUTO_RECOVERY, REQUEST_METRICS, environment, speculative_config
from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.spec.endpoint_spec import Mode


@check(
    "image-version",
    why="Which flags the engine knows, and which host it needs, depends on its version.",
    source="tags of AWS's vLLM images",
    remedy="Use a tag that begins with the vLLM version, such as vllm:0.30.0-gpu-….",
    severity="warning",
    url="https://github.com/aws/deep-learning-containers/releases",
)
def image_version(draft: Draft) -> Iterator[Note]:
    """An image whose tag does not tell its vLLM version."""
    if draft.image is not None and draft.image.version is None and not draft.image.is_lmi:
        yield Note(
            "warning", f"the vLLM version of {draft.image.uri} is not known: its flags are not checked"
        )


@check(
    "flag-versions",
    why="An engine that does not know a flag refuses to start.",
    source="vLLM release notes; see data/images.yaml for each flag",
    remedy="Take a newer image, or remove the variable from serving.env.",
    url="https://github.com/vllm-project/vllm/releases",
)
def flag_versions(draft: Draft) -> Iterator[Note]:
    """Variables that need a newer vLLM than the image has."""
    if draft.image is None or draft.image.version is None:
        return
    found = draft.image.version_text
    for name in environment(draft):
        floor = draft.catalog.images.flags.get(name)
        if floor is not None and not draft.image.at_least(floor.version):
            yield Note(
                "error", f"{name} needs vLLM {floor.version} or newer ({floor.source}); the image has {found}"
            )
    config, parallel = speculative_config(draft), draft.catalog.images.parallel_drafting
    if config is not None and config.parallel_drafting and not draft.image.at_least(parallel.version):
        yield Note("error", f"P-EAGLE needs vLLM {parallel.version} or newer; the image has {found}")


@check(
    "request-metrics",
    why="The engine refuses to start with this flag when speculation is off.",
    source="vLLM 0.32.0: --per-request-spec-decode-metrics",
    remedy=f"Remove {REQUEST_METRICS} from serving.env.",
    url="https://github.com/vllm-project/vllm/releases",
)
def request_metrics(draft: Draft) -> Iterator[Note]:
    """Per-request draft metrics without speculation."""
    if not draft.speculating and REQUEST_METRICS in draft.spec.serving.env:
        yield Note(
            "error", f"serving.env.{REQUEST_METRICS}: found with mode none; allowed only with speculation on"
        )


def _verbatim(draft: Draft) -> Edits:
    """Without the supervisor the command line is passed on as it is; nothing to write where it is off."""
    off = environment(draft).get(AUTO_RECOVERY) == "false"
    return {} if off else {f"serving.env.{AUTO_RECOVERY}": "false"}


@check(
    "json-quotes",
    why='The supervisor joins the command line without quoting: {"method":…} arrives as {method:…}.',
    source="model-hosting-container-standards <= 0.1.15 (vLLM images 0.20.2 to 0.23.0, server v2.0)",
    remedy="Take image 0.24.0 or newer, or keep PROCESS_AUTO_RECOVERY=false.",
    url="https://github.com/aws/model-hosting-container-standards",
    fix=Fix(f"set {AUTO_RECOVERY}=false", edits=_verbatim),
)
def json_quotes(draft: Draft) -> Iterator[Note]:
    """An image that strips the quotes of JSON values."""
    if draft.image is None or not draft.catalog.images.loses_quotes(draft.image):
        return
    if environment(draft).get(AUTO_RECOVERY) == "false":
        yield Note(
            "warning",
            f"image {draft.image.uri.rpartition('/')[2]} is suspected of stripping quotes from JSON; "
            f"{AUTO_RECOVERY}=false is set, so a crashed engine is not restarted inside the container",
        )
    else:
        yield Note(
            "error", f"{AUTO_RECOVERY} must be false on this image, or the speculative config arrives broken"
        )


@check(
    "supervisor-characters",
    why="A % in a value raises in the supervisor, and everything after ' ;' is cut.",
    source="model-hosting-container-standards 0.1.16",
    remedy="Write the value without % and ' ;', or set serving.env.PROCESS_AUTO_RECOVERY: 'false'.",
    severity="warning",
    url="https://github.com/aws/model-hosting-container-standards",
    fix=Fix(f"set {AUTO_RECOVERY}=false", edits=_verbatim),
)
def supervisor_characters(draft: Draft) -> Iterator[Note]:
    """Values that the supervisor of newer images breaks."""
    values = environment(draft)
    if values.get(AUTO_RECOVERY) == "false":
        return
    for name, value in values.items():
        if name.startswith("SM_VLLM_") and ("%" in value or " ;" in value):
            yield Note("warning", f"{name} contains % or ' ;', which the image's supervisor breaks")


@check(
    "draft-dropped",
    why="The endpoint works without speculation, and no error is reported.",
    source="djl-serving reads OPTION_*, not SM_VLLM_*; JumpStart's spec of gpt-oss-20b on ml.g5",
    remedy="Take an instance family for which JumpStart has the vLLM image (ml.g7e, ml.g6, ml.p5…).",
    url="https://github.com/deepjavalibrary/djl-serving",
)
def draft_dropped(draft: Draft) -> Iterator[Note]:
    """An LMI image, which ignores the draft settings."""
    if draft.image is not None and draft.image.is_lmi and draft.speculating:
        yield Note(
            "error",
            f"{draft.instance_types[0]} resolves to an LMI image, which ignores SM_VLLM_SPECULATIVE_CONFIG: "
            f"{draft.mode} would be silently off",
        )


ENGINE_CHECKS: tuple[Check, ...] = (
    image_version,
    flag_versions,
    request_metrics,
    json_quotes,
    supervisor_characters,
    draft_dropped,
)


class Advisory(BaseModel):
    """One fault: ``what`` happens, before which vLLM, to which models and modes (None: to all)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    what: str
    security: bool = False
    fixed_in: str | None = None
    models: tuple[str, ...] | None = None
    modes: tuple[Mode, ...] | None = None
    min_context: int | None = None
    source: str
    url: str
    date: dt.date
    expires: dt.date

    def meets(self, draft: Draft) -> bool:
        """Whether the spec can meet it; an image of unknown version cannot be said to."""
        version = draft.image.version if draft.image else None
        return (
            version is not None
            and (self.fixed_in is None or version < version_of(self.fixed_in))
            and (self.models is None or draft.spec.model in self.models)
            and (self.modes is None or draft.mode in self.modes)
            and (self.min_context is None or (draft.max_model_len or 0) >= self.min_context)
        )


@cache
def _load_advisories() -> tuple[Advisory, ...]:
    """Read the packaged list."""
    text = resources.files("peagle_sm.core").joinpath("data", "advisories.yaml").read_text(encoding="utf-8")
    return tuple(Advisory.model_validate(row) for row in yaml.safe_load(text))


def _expiry_words(expires: dt.date, today: dt.date | None) -> str:
    """Say until when an advisory is believed; ``today`` None leaves the judgement to the reader."""
    if today is not None and today >= expires:
        return f"this advisory expired on {expires}: look whether it still holds, or upgrade peagle-sm"
    return f"believed until {expires}"


def _today(draft: Draft) -> dt.date | None:
    return draft.context.now.date() if draft.context.now else None


@check(
    "advisories",
    why="Older engines have known holes: a request can kill them or reach into the network.",
    source="vLLM security advisories, floor 0.33.0 as of November 2026",
    remedy="Move to an image at or above the floor as soon as AWS publishes one; keep the endpoint private.",
    severity="warning",
    url="https://github.com/vllm-project/vllm/security/advisories",
)
def floor(draft: Draft) -> Iterator[Note]:
    """An engine below the floor of the security advisories."""
    lowest = draft.catalog.images.advisory_floor
    if draft.image is None or not draft.image.version or draft.image.version >= version_of(lowest.version):
        return
    expires = dt.date.fromisoformat(lowest.expires) if lowest.expires else None
    until = f" ({_expiry_words(expires, _today(draft))})" if expires else ""
    holes = [
        f"{row.what} (fixed in {row.fixed_in})"
        for row in _load_advisories()
        if row.security and row.meets(draft)
    ]
    yield Note(
        "warning",
        f"vLLM {draft.image.version_text} is below {lowest.version}, the floor of its security advisories"
        f"{until}{''.join(f'; {hole}' for hole in holes)}",
        expires=expires,
    )


@check(
    "known-faults",
    why="The endpoint starts and answers, and then crashes or loses its acceleration on some requests.",
    source="vLLM's issues, pull requests and advisories; data/advisories.yaml names each page",
    remedy="Read the page; take an image without the fault where there is one, and watch acceptance.",
    severity="warning",
    url="https://github.com/vllm-project/vllm/issues",
)
def known_faults(draft: Draft) -> Iterator[Note]:
    """Faults of the image's engine version that this model, mode or context can meet."""
    for row in _load_advisories():
        if not row.security and row.meets(draft):
            fixed = f", fixed in vLLM {row.fixed_in}" if row.fixed_in else ""
            yield Note(
                "warning",
                f"{row.id}: {row.what}{fixed} ({row.source}; {_expiry_words(row.expires, _today(draft))})",
                f"Read {row.url}.",
                row.expires,
            )


ADVISORY_CHECKS: tuple[Check, ...] = (floor, known_faults)


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


REGISTRY_CHECKS: tuple[Check, ...] = (image_registry, image_tag, image_digest, other_engine, no_gpu)
