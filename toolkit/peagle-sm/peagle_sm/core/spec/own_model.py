"""The spec's own model: a mapping in place of a catalogue id, and what was read for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from peagle_sm.core.spec.validation import UNION_TAG, SpecPart


class OwnModel(SpecPart):
    """A model that the catalogue does not have."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        max_length=63,
        description="Name of the model in plans, tags and results; not a catalogue id.",
    )
    config: str | None = Field(
        default=None,
        min_length=1,
        description="Place of its config.json: a folder or file (relative to the spec), s3://BUCKET/PREFIX/ "
        "or OWNER/NAME on the Hugging Face hub. Sizes, context and KV cache are read from it, and from the "
        "index of the weights.",
    )
    revision: str | None = Field(
        default=None, min_length=1, description="Commit, tag or branch on the hub; left out, main."
    )
    jumpstart: str | None = Field(
        default=None, min_length=1, description="JumpStart's id of the model, for source: jumpstart."
    )
    weights_gb: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="GB (10^9 bytes) of the weights in GPU memory; left out, from the files or their index.",
    )
    license: str | None = Field(default=None, min_length=1, description="Licence, as its card names it.")


def _is_mapping(value: Any) -> str:
    return f"{UNION_TAG}mapping" if isinstance(value, Mapping | OwnModel) else f"{UNION_TAG}id"


CatalogueId = Annotated[str, Field(min_length=1)]
ModelField = Annotated[
    Annotated[CatalogueId, Tag(f"{UNION_TAG}id")] | Annotated[OwnModel, Tag(f"{UNION_TAG}mapping")],
    Discriminator(_is_mapping),
]


@dataclass(frozen=True)
class OwnFacts:
    """What was read for a spec: the config.json of its own model, and its head's size.

    ``weights_bytes`` is the size of the weights' files, or the index's figure; None without either.
    ``parameters`` is the index's figure, if it has one. ``place`` names the source. ``head_bytes`` is the
    size of the weights at `head_uri`; None if it was not read.
    """

    config: Any = None
    place: str = ""
    weights_bytes: int | None = None
    parameters: int | None = None
    licence: str | None = None
    head_bytes: int | None = None
