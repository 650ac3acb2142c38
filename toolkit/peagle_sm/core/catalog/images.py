"""What an image URI says: repository, vLLM version, CUDA; and what is known of ranges of versions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

Version = tuple[int, ...]
_LMI = "djl-inference"


def version_of(text: str) -> Version:
    """Return "0.30.0" as (0, 30, 0)."""
    return tuple(int(part) for part in text.split("."))


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TagRule(_Entry):
    """How the tags of a range of versions are written."""

    first: str
    last: str
    cuda: str
    template: str


class ServerTag(_Entry):
    """What a `server-sagemaker-cuda-vN` image holds; the vLLM version is None where it is not known."""

    vllm: str | None = None
    cuda: str


class VersionRange(_Entry):
    """Versions and server images between which something holds."""

    first: str
    last: str
    servers: tuple[str, ...] = ()
    source: str


class Floor(_Entry):
    """The lowest version for something; from ``expires`` (ISO) on it must be looked at again."""

    version: str
    source: str
    date: str | None = None
    expires: str | None = None


class Ami(_Entry):
    """A host image: the NVIDIA driver's major version."""

    driver: int


class DriverClash(_Entry):
    """A driver on which images with a vLLM below ``below`` do not start."""

    below: str
    driver: int
    source: str


class ImageCatalog(_Entry):
    """Facts on AWS's vLLM images and SageMaker's host AMIs."""

    source: str
    date: str
    default_version: str
    tags: tuple[TagRule, ...]
    servers: Mapping[str, ServerTag]
    quotes_lost: VersionRange
    advisory_floor: Floor
    amis: Mapping[str, Ami]
    ami_for_cuda: Mapping[str, str]
    driver_clash: DriverClash
    driver_for_cuda: Mapping[str, int]
    flags: Mapping[str, Floor]
    lmi: Mapping[int, str] = Field(default_factory=dict)
    vocabulary_embedded: Floor
    parallel_drafting: Floor

    def default_tag(self) -> str:
        """Return the tag of the default version."""
        wanted = version_of(self.default_version)
        rule = next(r for r in self.tags if version_of(r.first) <= wanted <= version_of(r.last))
        return rule.template.format(version=self.default_version)

    def describe(self, uri: str) -> ImageFacts:
        """Read what a URI's repository and tag say."""
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

    def lmi_engine_at_most(self, uri: str) -> Version | None:
        """Return the newest vLLM that an LMI image can have; None where its tag or the list does not say."""
        found = re.search(r"-lmi(\d+)", uri)
        later = [number for number in self.lmi if found and number >= int(found[1])]
        return version_of(self.lmi[min(later)]) if later else None

    def loses_quotes(self, image: ImageFacts) -> bool:
        """Say whether the image is suspected of stripping the quotes of JSON values."""
        if image.server in self.quotes_lost.servers:
            return True
        if image.version is None:
            return False
        return version_of(self.quotes_lost.first) <= image.version <= version_of(self.quotes_lost.last)


@dataclass(frozen=True)
class ImageFacts:
    """What one image URI says; None where the tag does not say it."""

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
        """The vLLM version as people write it, or "unknown"."""
        return ".".join(map(str, self.version)) if self.version else "unknown"

    def at_least(self, floor: str) -> bool:
        """Say whether the version is known and not below the floor."""
        return self.version is not None and self.version >= version_of(floor)
