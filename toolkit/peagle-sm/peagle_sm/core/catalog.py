"""Catalogue of models, draft heads, images, instances and prices.

Each entry has its source and date. `ImageCatalog.describe` reads repository, vLLM version and CUDA from an
image URI; other facts hold for ranges of versions. The data is in ``core/data/*.yaml``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from pydantic import Field

from peagle_sm.core.engines import EngineCatalog, Floor, PackagedData, Version, read_data, version_of
from peagle_sm.core.errors import SpecError
from peagle_sm.core.prices import PriceEntry
from peagle_sm.core.spec.endpoint_spec import Source
from peagle_sm.core.spec.modes import Mode
from peagle_sm.core.spec.validation import suggest

SPECULATIVE_CONFIG = "SM_VLLM_SPECULATIVE_CONFIG"
"""The variable from which the vLLM image takes `--speculative-config`."""
_LMI = "djl-inference"
GPU_SHARE = 0.9
"""Share of a GPU's memory that vLLM uses by default."""
GPU_OVERHEAD_GB = 2.0
FLOAT32 = ("float32", "float")
"""Names of the number type in a config.json and in vLLM's dtype argument."""


class TagRule(PackagedData):
    """Tag format of a range of versions."""

    first: str
    last: str
    cuda: str
    template: str


class ServerTag(PackagedData):
    """Content of a `server-sagemaker-cuda-vN` image; vLLM's version may be None."""

    vllm: str | None = None
    cuda: str


class VersionRange(PackagedData):
    """Range of versions and server images for which a fact holds."""

    first: str
    last: str
    servers: tuple[str, ...] = ()
    source: str


class Ami(PackagedData):
    """Host AMI with its NVIDIA driver's major version."""

    driver: int


class ImageCatalog(PackagedData):
    """Facts about AWS's vLLM images and SageMaker's host AMIs."""

    source: str
    date: str
    default_version: str
    tags: tuple[TagRule, ...]
    servers: Mapping[str, ServerTag]
    quotes_lost: VersionRange
    advisory_floor: Floor
    amis: Mapping[str, Ami]
    ami_for_cuda: Mapping[str, str]
    driver_for_cuda: Mapping[str, int]

    def default_tag(self) -> str:
        """Return the tag of the default version."""
        wanted = version_of(self.default_version)
        rule = next(r for r in self.tags if version_of(r.first) <= wanted <= version_of(r.last))
        return rule.template.format(version=self.default_version)

    def describe(self, uri: str) -> ImageFacts:
        """Return the facts in an image URI's repository and tag."""
        repository, _, tag = uri.rpartition("/")[2].partition("@")[0].partition(":")
        server = re.search(r"server-sagemaker-cuda-(v\d+(?:\.\d+)?)", tag)
        if server:
            known = self.servers.get(server[1])
            return ImageFacts(
                uri=uri,
                repository=repository,
                version=version_of(known.vllm) if known and known.vllm else None,
                cuda=known.cuda if known else None,
                server=server[1],
            )
        version = re.match(r"v?(\d+\.\d+\.\d+)", tag) if repository != _LMI else None
        cuda = re.search(r"cu(\d{2})(\d)", tag)
        return ImageFacts(
            uri=uri,
            repository=repository,
            version=version_of(version[1]) if version else None,
            cuda=f"{cuda[1]}.{cuda[2]}" if cuda else None,
            server=None,
        )

    def loses_quotes(self, image: ImageFacts) -> bool:
        """Return whether the image probably strips the quotes of JSON values."""
        if image.server in self.quotes_lost.servers:
            return True
        if image.version is None:
            return False
        return version_of(self.quotes_lost.first) <= image.version <= version_of(self.quotes_lost.last)


@dataclass(frozen=True)
class ImageFacts:
    """Facts in one image URI; a field is None if the tag lacks it."""

    uri: str
    repository: str
    version: Version | None
    cuda: str | None
    server: str | None

    @property
    def is_lmi(self) -> bool:
        """True for AWS's djl-serving image, which does not read SM_VLLM_*."""
        return self.repository == _LMI

    @property
    def version_text(self) -> str:
        """The vLLM version as text, or "unknown"."""
        return ".".join(map(str, self.version)) if self.version else "unknown"

    def at_least(self, floor: str) -> bool:
        """Return whether the version is known and not below ``floor``."""
        return self.version is not None and self.version >= version_of(floor)


class Provenance(PackagedData):
    """Source of a fact, and the ISO date when it was read."""

    source: str
    date: str


class AttentionGroup(PackagedData):
    """Layers whose KV cache has one shape; ``window`` limits its tokens.

    ``tensors`` is 2 for keys and values, and 1 for the latent vector of MLA, with ``kv_heads`` 1.
    """

    layers: int
    kv_heads: int
    head_dim: int
    window: int | None = None
    bytes_per_value: int = 2
    tensors: int = 2


def kv_cache_gb(
    groups: Iterable[AttentionGroup], tokens: int, dtype: str | None = None, gpus: int = 1
) -> float:
    """Return the KV cache in GB of one sequence of ``tokens``, on all GPUs of a replica together.

    ``dtype`` is vLLM's kv_cache_dtype. A GPU holds at least one KV head, so more GPUs than heads hold copies.
    """
    size = None if dtype in (None, "auto") else 1 if str(dtype).startswith("fp8") else 2
    return (
        sum(
            group.layers
            * group.tensors
            * max(group.kv_heads, gpus)
            * group.head_dim
            * (size or group.bytes_per_value)
            * min(tokens, group.window or tokens)
            for group in groups
        )
        / 1e9
    )


class Vocabulary(PackagedData):
    """Vocabulary file that the engine needs for chat, and its public URL."""

    name: str
    url: str
    size: int
    sha256: str


class ModelEntry(PackagedData):
    """A target model; unknown fields are None.

    ``own`` is True for the spec's own model; ``config_place`` is where its config.json was read, None before.
    ``parameters_b`` are billions. ``number_type`` is that of the config, None if it is quantized.
    ``most_head_gb`` is an upper estimate of a draft head by mode.
    """

    title: str
    hub_id: str | None = None
    jumpstart_model_id: str | None = None
    sources: tuple[Source, ...]
    stand_in: bool = False
    image: Literal["vllm", "vllm-cpu"] = "vllm"
    artifact: str | None = None
    parameters_b: float | None = None
    weights_gb: float | None = None
    licence: str | None = None
    own: bool = False
    architecture: str | None = None
    config_place: str | None = None
    number_type: str | None = None
    most_head_gb: Mapping[Mode, float] = Field(default_factory=dict)
    vocabulary: Vocabulary | None = None
    attention: tuple[AttentionGroup, ...] | None = None
    attention_heads: int | None = None
    max_context: int | None = None
    default_max_model_len: int | None = None
    default_instance_types: tuple[str, ...] = ()
    default_heads: Mapping[Mode, str] = Field(default_factory=dict)
    default_num_speculative_tokens: Mapping[Mode, int]
    provenance: Mapping[str, Provenance]


class HeadEntry(PackagedData):
    """A draft head for one target; ``method`` is its mode, ``trained_depth`` its K in training.

    ``revision`` is a commit on the hub; None takes the newest and records it. ``vllm`` is the first version
    that uses all of the head's weights. ``checked`` is how the facts were checked, and what was not seen.
    """

    target: str
    method: Mode
    hub_id: str | None = None
    artifact: str | None = None
    layers: int | None = None
    trained_depth: int | None = None
    weights_gb: float | None = None
    revision: str | None = None
    licence: str | None = None
    format: Literal["eagle3", "speculators", "native"] | None = None
    vllm: Floor | None = None
    checked: str | None = None
    source: str
    date: str


class JumpStartEntry(PackagedData):
    """What JumpStart deploys for a model, from the catalogue or from `peagle.lock`.

    A ``locked`` entry has full addresses (``target_uri``, ``draft_uri``, images without {registry}); the
    catalogue has keys in the region's public bucket. ``messages`` are AWS's messages about the model.
    """

    jumpstart_model_id: str
    version: str
    config_name: str
    source: str
    date: str
    gated: bool
    image: str
    family_images: Mapping[str, str]
    target_key: str
    draft_key: str
    draft_channel: str
    default_instance_type: str
    instance_types: tuple[str, ...]
    network_isolation: bool
    download_timeout_s: int
    startup_timeout_s: int
    environment: Mapping[str, str]
    speculative_config: str
    instance_environment: Mapping[str, Mapping[str, str]]
    locked: bool = False
    target_uri: str | None = None
    draft_uri: str | None = None
    deprecated: bool = False
    vulnerabilities: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()

    def image_for(self, instance_type: str) -> str:
        """Return an instance type's image; {registry} is the region's registry."""
        of_family = self.family_images.get(instance_type.removeprefix("ml.").partition(".")[0], self.image)
        return self.family_images.get(instance_type, of_family)

    def environment_for(self, instance_type: str) -> dict[str, str]:
        """Return the environment on an instance type, without the draft settings."""
        return {**self.environment, **self.instance_environment.get(instance_type, {})}

    def target(self, region: str) -> str:
        """Return the S3 prefix of the target's files."""
        return self.target_uri or f"s3://jumpstart-cache-prod-{region}/{self.target_key}"

    def draft(self, region: str) -> str | None:
        """Return the S3 prefix of the draft head's files; None without a head."""
        if self.draft_uri or not self.draft_key:
            return self.draft_uri
        return f"s3://jumpstart-cache-prod-{region}/{self.draft_key}"


class InstanceEntry(PackagedData):
    """An instance type: GPUs and GB per GPU, or host memory without a GPU."""

    gpu: str | None = None
    gpu_count: int = 0
    gpu_memory_gb: float = 0.0
    host_memory_gb: float | None = None
    local_storage: bool = False
    min_driver: int | None = None
    source: str
    date: str


class RegionEntry(PackagedData):
    """Account and domain of a region's image registry."""

    account: str
    domain: str

    def registry(self, region: str) -> str:
        """Return the registry's host name."""
        return f"{self.account}.dkr.ecr.{region}.{self.domain}"


class Catalog(PackagedData):
    """All entries by id."""

    models: Mapping[str, ModelEntry]
    heads: Mapping[str, HeadEntry]
    jumpstart: Mapping[str, JumpStartEntry]
    images: ImageCatalog
    engines: EngineCatalog
    instances: Mapping[str, InstanceEntry]
    prices: tuple[PriceEntry, ...]
    regions: Mapping[str, RegionEntry]

    def model(self, model_id: str) -> ModelEntry:
        """Return one model.

        Raises:
            SpecError: the model is unknown; the message lists the known ones.
        """
        if model_id not in self.models:
            owner, _, name = model_id.rpartition("/")
            config = model_id if owner else "FOLDER, s3://… or OWNER/NAME on the hub"
            raise SpecError(
                f"model: found {model_id!r}; allowed: {', '.join(sorted(self.models))}."
                f"{suggest(model_id, self.models)}",
                next_step="Change 'model' to one of these ids. For any other model, write in the spec "
                f"model: {{name: {name}, config: {config}}}; `peagle-sm help own-model` has an example.",
                details={"field": "model", "allowed": sorted(self.models)},
            )
        return self.models[model_id]

    def heads_for(self, model_id: str) -> dict[str, HeadEntry]:
        """Return a model's heads by id."""
        return {name: head for name, head in self.heads.items() if head.target == model_id}

    def published_by_aws(self, uri: str) -> bool:
        """Return whether AWS publishes this image, so that it lacks this project's code."""
        host, _, path = uri.partition("/")
        if host == "public.ecr.aws":
            return path.startswith("deep-learning-containers/")
        return host.partition(".")[0] in {region.account for region in self.regions.values()}

    def price(self, instance: str, region: str) -> PriceEntry | None:
        """Return an instance's price in a region, SageMaker's first; None if unknown."""
        rows = [row for row in self.prices if row.instance == instance and row.region == region]
        return min(rows, key=lambda row: row.kind != "sagemaker", default=None)


def _instances(data: Mapping[str, Any]) -> dict[str, InstanceEntry]:
    origin = {"source": data["source"], "date": data["date"]}
    entries: dict[str, InstanceEntry] = {}
    for family, facts in data["families"].items():
        shared = {key: value for key, value in facts.items() if key != "counts"}
        for size, count in facts["counts"].items():
            entries[f"ml.{family}.{size}"] = InstanceEntry(gpu_count=count, **shared, **origin)
    for name, facts in data["hosts"].items():
        entries[name] = InstanceEntry(host_memory_gb=facts["memory_gb"], **origin)
    return entries


def _prices(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each price; those of a group have its region, kind, source and date."""
    return [
        {
            **{key: value for key, value in group.items() if key != "prices"},
            "instance": name,
            "usd_per_hour": usd,
        }
        for group in groups
        for name, usd in group["prices"].items()
    ]


@cache
def load_catalog() -> Catalog:
    """Return the packaged catalogue, which is cached and immutable."""
    return Catalog.model_validate(
        {
            "models": read_data("models"),
            "heads": read_data("heads"),
            "jumpstart": read_data("jumpstart"),
            "images": read_data("images"),
            "engines": read_data("engines"),
            "instances": _instances(read_data("instances")),
            "prices": _prices(read_data("prices")),
            "regions": read_data("regions")["regions"],
        }
    )


@cache
def known_instance_types() -> frozenset[str]:
    """Return the instance types that botocore's model allows for endpoints."""
    from botocore.session import Session  # imported here: it is slow, and few commands need it

    shape = Session().get_service_model("sagemaker").shape_for("ProductionVariantInstanceType")
    return frozenset(shape.metadata["enum"])
