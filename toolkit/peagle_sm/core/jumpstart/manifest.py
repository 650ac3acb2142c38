"""JumpStart's manifest: which versions of which models there are, and where each one's spec lies."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pydantic import Field

from peagle_sm.core.errors import NotFound
from peagle_sm.core.jumpstart.reading import Record, check_record, damaged, load_json
from peagle_sm.core.spec.complaints import suggest

MANIFEST_KEY = "models_manifest.json"
_HUB = re.compile(r"^(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/", re.IGNORECASE)
# The endings by which a repository on the hub names the number format of the same model.
_FORMATS = re.compile(r"-(fp8|fp4|nvfp4|mxfp4|bf16|int8|int4|awq|gptq)$", re.IGNORECASE)


class Row(Record):
    """One version of one model; ``min_version`` is the oldest SageMaker SDK that may use it."""

    model_id: str = Field(min_length=1)
    version: str = Field(min_length=1)
    min_version: str
    spec_key: str = Field(min_length=1)
    search_keywords: tuple[str, ...] | None = None


def parse_manifest(content: bytes, origin: str = MANIFEST_KEY) -> tuple[Row, ...]:
    """Read a manifest.

    Raises:
        CatalogueDamaged: it is not a list of rows; the message names the row and the field.
    """
    data = load_json(content, origin)
    if not isinstance(data, list):
        raise damaged(origin, data, "a list of rows")
    return tuple(check_record(Row, row, f"{origin}: row {number}") for number, row in enumerate(data, 1))


def order_of(version: str) -> tuple[tuple[int, ...], str]:
    """What versions are ordered by: their numbers first, whatever follows them last."""
    numbers = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return (tuple(int(part) for part in numbers[1].split(".")) if numbers else (), version)


def row_of(rows: Sequence[Row], model_id: str, version: str | None = None) -> Row:
    """Return the row of a version of a model; without one, of its newest.

    Raises:
        NotFound: there is no such model, or no such version; the message names what there is.
    """
    of_model = sorted(
        (row for row in rows if row.model_id == model_id), key=lambda row: order_of(row.version)
    )
    if not of_model:
        raise NotFound(
            f"JumpStart's manifest has no model {model_id!r}."
            f"{suggest(model_id, {row.model_id for row in rows})}",
            next_step="Look whether the region has JumpStart, and give another --region if not.",
        )
    chosen = [row for row in of_model if version in (None, row.version)]
    if not chosen:
        raise NotFound(
            f"JumpStart has no version {version} of {model_id} any more; there are "
            f"{', '.join(row.version for row in of_model)}",
            next_step="Run `peagle-sm lock --upgrade SPEC` to move to the newest, and read what changes.",
        )
    return chosen[-1]


def hub_name(url: str) -> str:
    """Return the repository of a Hugging Face URL or id, in small letters: "openai/gpt-oss-20b"."""
    return _HUB.sub("", url.strip()).strip("/").lower()


def is_same_model(url: str, hub_id: str) -> bool:
    """Say whether a URL is that of a repository, or of the same model in another number format."""
    return _FORMATS.sub("", hub_name(url)) == _FORMATS.sub("", hub_name(hub_id))


def candidates(rows: Sequence[Row], hub_id: str, limit: int = 12) -> tuple[Row, ...]:
    """Return the newest rows of models whose id may be that of a repository, the likeliest first.

    The manifest has no URLs, so the specs of these have to be read. Likely is who shares the most words
    with the repository's name; who shares none is left out.
    """
    wanted = _words(_FORMATS.sub("", hub_name(hub_id).rpartition("/")[2]))
    newest = {
        row.model_id: row for row in sorted(rows, key=lambda row: order_of(row.version))
    }  # the last one of an id wins
    scored = [(len(wanted & _words(row.model_id)), row) for row in newest.values()]
    best = sorted((pair for pair in scored if pair[0]), key=lambda pair: (-pair[0], pair[1].model_id))
    return tuple(row for _, row in best[:limit])


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", text.lower()))
