"""What is known of models, draft heads, images, instances and prices, each with its source and date."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from peagle_sm.core.catalog.images import ImageCatalog
from peagle_sm.core.errors import SpecError
from peagle_sm.core.spec.complaints import suggest
from peagle_sm.core.spec.endpoint_spec import Mode, Source


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Provenance(_Entry):
    """Where a fact comes from, and when it was read (ISO date)."""

    source: str
    date: str


class AttentionGroup(_Entry):
    """Layers whose KV cache has one shape; ``window`` caps its tokens."""

    layers: int
    kv_heads: int
    head_dim: int
    window: int | None = None
    bytes_per_value: int = 2


class Vocabulary(_Entry):
    """A file that the engine needs to chat, beside the weights, and where it is published."""

    name: str
    url: str
    size: int
    sha256: str


class ModelEntry(_Entry):
    """A target model; None where a fact is not known."""

    title: str
    hub_id: str | None = None
    jumpstart_model_id: str | None = None
    sources: tuple[Source, ...]
    stand_in: bool = False
    image: Literal["vllm", "vllm-cpu"] = "vllm"
    artifact: str | None = None
    weights_gb: float | None = None
    vocabulary: Vocabulary | None = None
    attention: tuple[AttentionGroup, ...] | None = None
    max_context: int | None = None
    default_max_model_len: int | None = None
    default_instance_types: tuple[str, ...]
    default_heads: Mapping[Mode, str] = Field(default_factory=dict)
    default_num_speculative_tokens: Mapping[Mode, int]
    provenance: Mapping[str, Provenance]


class HeadEntry(_Entry):
    """A draft head for one target; ``trained_depth`` is the K it was trained for.

    ``revision`` is a commit on the hub; where it is None the newest is taken, and recorded.
    """

    target: str
    method: Literal["eagle3", "p-eagle"]
    hub_id: str | None = None
    artifact: str | None = None
    layers: int | None = None
    trained_depth: int | None = None
    weights_gb: float | None = None
    revision: str | None = None
    licence: str | None = None
    source: str
    date: str


class JumpStartEntry(_Entry):
    """What JumpStart's own spec deploys for a model: from the catalogue, or ``locked`` by `peagle.lock`.

    A lock has whole addresses (``target_uri``, ``draft_uri``, images without {registry}), the catalogue
    keys of the region's public bucket. ``messages`` are AWS's own words about the model.
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
        """Return the image of an instance type; {registry} in it stands for the region's registry."""
        of_family = self.family_images.get(instance_type.removeprefix("ml.").partition(".")[0], self.image)
        return self.family_images.get(instance_type, of_family)

    def environment_for(self, instance_type: str) -> dict[str, str]:
        """Return the environment on an instance type, without the draft settings."""
        return {**self.environment, **self.instance_environment.get(instance_type, {})}

    def target(self, region: str) -> str:
        """Return the S3 prefix of the target's files."""
        return self.target_uri or f"s3://jumpstart-cache-prod-{region}/{self.target_key}"

    def draft(self, region: str) -> str | None:
        """Return the S3 prefix of the draft head's files; None where the config has none."""
        if self.draft_uri or not self.draft_key:
            return self.draft_uri
        return f"s3://jumpstart-cache-prod-{region}/{self.draft_key}"


class InstanceEntry(_Entry):
    """One instance type: GPUs and GB per GPU, or host memory where there is no GPU."""

    gpu: str | None = None
    gpu_count: int = 0
    gpu_memory_gb: float = 0.0
    host_memory_gb: float | None = None
    local_storage: bool = False
    min_driver: int | None = None
    source: str
    date: str


class PriceEntry(_Entry):
    """USD per hour of one instance on demand; kind "ec2" is not SageMaker's own price."""

    instance: str
    region: str
    usd_per_hour: float
    kind: Literal["sagemaker", "ec2"]
    source: str
    date: str


class RegionEntry(_Entry):
    """The account and domain of the region's image registry."""

    account: str
    domain: str

    def registry(self, region: str) -> str:
        """Return the registry's host name."""
        return f"{self.account}.dkr.ecr.{region}.{self.domain}"


class RegionList(_Entry):
    """The regions that have a feature."""

    source: str
    date: str
    regions: tuple[str, ...]


class Catalog(_Entry):
    """Everything known, by id."""

    models: Mapping[str, ModelEntry]
    heads: Mapping[str, HeadEntry]
    jumpstart: Mapping[str, JumpStartEntry]
    images: ImageCatalog
    instances: Mapping[str, InstanceEntry]
    prices: tuple[PriceEntry, ...]
    regions: Mapping[str, RegionEntry]
    instance_pools: RegionList

    def model(self, model_id: str) -> ModelEntry:
        """Return one model.

        Raises:
            SpecError: no such model; the message lists the known ones.
        """
        if model_id not in self.models:
            raise SpecError(
                f"model: found {model_id!r}; allowed: {', '.join(sorted(self.models))}."
                f"{suggest(model_id, self.models)}",
                next_step="Change 'model' to an id of the catalogue.",
                details={"field": "model", "allowed": sorted(self.models)},
            )
        return self.models[model_id]

    def heads_for(self, model_id: str) -> dict[str, HeadEntry]:
        """Return the heads of a model by id."""
        return {name: head for name, head in self.heads.items() if head.target == model_id}

    def published_by_aws(self, uri: str) -> bool:
        """Return whether AWS publishes this image, so that nothing of this project runs in it."""
        host, _, path = uri.partition("/")
        if host == "public.ecr.aws":
            return path.startswith("deep-learning-containers/")
        return host.partition(".")[0] in {region.account for region in self.regions.values()}

    def price(self, instance: str, region: str) -> PriceEntry | None:
        """Return the price of an instance in a region, SageMaker's own before EC2's; None if unknown."""
        found = [row for row in self.prices if row.instance == instance and row.region == region]
        return min(found, key=lambda row: row.kind != "sagemaker", default=None)


def _read(name: str) -> Any:
    text = resources.files("peagle_sm.core").joinpath("data", f"{name}.yaml").read_text(encoding="utf-8")
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


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


@cache
def load_catalog() -> Catalog:
    """Read the packaged catalogue; the result is shared and immutable."""
    regions = _read("regions")
    return Catalog.model_validate(
        {
            "models": _read("models"),
            "heads": _read("heads"),
            "jumpstart": _read("jumpstart"),
            "images": _read("images"),
            "instances": _instances(_read("instances")),
            "prices": _read("prices"),
            "regions": regions["regions"],
            "instance_pools": regions["instance_pools"],
        }
    )


@cache
def known_instance_types() -> frozenset[str]:
    """Return the instance types that botocore's own service model allows for an endpoint."""
    from botocore.session import Session  # imported here: it is slow, and few commands need it

    shape = Session().get_service_model("sagemaker").shape_for("ProductionVariantInstanceType")
    return frozenset(shape.metadata["enum"])


@cache
def known_regions() -> frozenset[str]:
    """Return the regions of every partition for which botocore's endpoint data lists SageMaker."""
    from botocore.session import Session  # imported here: it is slow, and few commands need it

    session = Session()
    return frozenset(
        region
        for partition in session.get_available_partitions()
        for region in session.get_available_regions("sagemaker", partition_name=partition)
    )
