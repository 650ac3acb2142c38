"""Which image the one CPU engine may stand in for."""

import re
from dataclasses import dataclass

_TAG_VERSION = re.compile(r"^v?(\d+\.\d+(?:\.\d+)?)")
REPOSITORY = "vllm"


@dataclass(frozen=True)
class Image:
    """An image URI's parts. ``version`` is what the tag says of vLLM's version, or the tag itself."""

    repository: str
    tag: str

    @property
    def version(self) -> str:
        """The vLLM version that the tag names, for showing beside the one that runs."""
        found = _TAG_VERSION.match(self.tag)
        return found.group(1) if found else self.tag


def parse_image(uri: str) -> Image:
    """Split ``registry/path/repository:tag@digest``; the repository is the last part of the path."""
    name = uri.partition("@")[0]
    path, _, last = name.rpartition("/")
    repository, _, tag = last.partition(":")
    return Image(repository if path or repository else name, tag or "latest")


def refusal(uri: str) -> str | None:
    """Return why the local engine cannot run this image, or None if it can."""
    image = parse_image(uri)
    if image.repository == REPOSITORY:
        return None
    return (
        f"the image's repository is {image.repository!r}; the local SageMaker has one engine, vLLM for CPU, "
        f"and runs images of the repository {REPOSITORY!r} only: use one of the image_uris that "
        "`peagle-sm local status` shows"
    )
