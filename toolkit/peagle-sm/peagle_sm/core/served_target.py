"""Which model an endpoint serves, and what its figures are of. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peagle_sm.core.catalog import Catalog

STAND_IN = "small stand-in weights"
_LOCAL_JUMPSTART = "s3://jumpstart-"  # the local SageMaker has stand-in weights in JumpStart's buckets


@dataclass(frozen=True)
class ServedTarget:
    """The target of an endpoint; ``name`` is the model's own, None if unknown.

    ``stand_in``: it is the small weights that ship with sagemaker-local; they only continue code. ``on_cpu``:
    its engine runs on a CPU.
    """

    name: str | None = None
    stand_in: bool = False
    on_cpu: bool = False

    @property
    def figures_of(self) -> str | None:
        """What its figures are of, if they say nothing about a GPU; None otherwise."""
        if self.stand_in:
            return STAND_IN
        return f"{self.name or 'a model'} on a CPU" if self.on_cpu else None

    @property
    def note(self) -> str:
        """What a person must know of the figures; empty for a model on a GPU."""
        if self.stand_in:
            return f"{STAND_IN}: it works like the real model, but its figures say nothing about it"
        return f"{self.figures_of}: its figures say nothing about a GPU" if self.on_cpu else ""

    @property
    def example(self) -> str:
        """A prompt to try it with."""
        return "def fibonacci(n):" if self.stand_in else "How do I reverse a string in Python?"

    def to_dict(self) -> dict[str, bool | str | None]:
        """Return the fields of JSON documents."""
        return {"stand_in_weights": self.stand_in, "figures_of": self.figures_of}


def served_target(
    uri: str | None,
    catalog: Catalog,
    *,
    name: str | None = None,
    image: str | None = None,
    local: bool = False,
    artifacts: Mapping[str, str],
) -> ServedTarget:
    """Return the target whose files are at an S3 prefix.

    Args:
        uri: the prefix; None if unknown.
        catalog: names the models behind ``artifacts``.
        name: the model's name, if the catalogue does not have it; by default the last part of ``uri``.
        image: the container's image; the tag of one for CPUs ends in -cpu.
        local: whether it is on the local SageMaker, which runs every engine on a CPU.
        artifacts: prefixes of the catalogue's artifacts.
    """
    place = (uri or "").rstrip("/")
    on_cpu = local or (image or "").endswith("-cpu")
    known = {each.rstrip("/"): artifact for artifact, each in artifacts.items()}.get(place)
    for model_id, entry in catalog.models.items():
        if known is not None and entry.artifact == known:
            return ServedTarget((entry.hub_id or model_id).rpartition("/")[2], entry.stand_in, on_cpu)
    if local and place.startswith(_LOCAL_JUMPSTART):
        return ServedTarget(name, stand_in=True, on_cpu=True)
    return ServedTarget(name or place.rpartition("/")[2] or None, on_cpu=on_cpu)


def figures_note(figures_of: str) -> str:
    """Return the note below measured figures."""
    return f"{figures_of}: these figures say nothing about a large model on a GPU"
