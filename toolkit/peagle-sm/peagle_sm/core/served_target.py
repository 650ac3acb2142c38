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
    model: str | None,
    catalog: Catalog,
    *,
    image: str | None = None,
    local: bool = False,
    artifacts: Mapping[str, str],
) -> ServedTarget:
    """Return the target of an endpoint.

    Args:
        uri: the S3 prefix of its files; None if unknown.
        model: its catalogue id or its own name, as the spec has it; None if unknown.
        catalog: has the models' own names.
        image: the container's image; the tag of one for CPUs ends in -cpu.
        local: whether it is on the local SageMaker, which runs every engine on a CPU.
        artifacts: S3 prefixes of the catalogue's artifacts.
    """
    place = (uri or "").rstrip("/")
    on_cpu = local or (image or "").endswith("-cpu")
    artifact = next((name for name, each in artifacts.items() if each.rstrip("/") == place), None)
    if artifact is not None:  # the files decide
        model = next((name for name, each in catalog.models.items() if each.artifact == artifact), model)
    entry = catalog.models.get(model or "")
    name = (entry and entry.hub_id) or model or place
    stand_in = bool(entry and entry.stand_in) or (local and place.startswith(_LOCAL_JUMPSTART))
    return ServedTarget(name.rpartition("/")[2] or None, stand_in, on_cpu)


def figures_note(figures_of: str) -> str:
    """Return the note below measured figures."""
    return f"{figures_of}: these figures say nothing about a large model on a GPU"
