"""Finds a model in JumpStart's bucket: by its id, or by its Hugging Face URL where AWS's id is not known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from peagle_sm.aws.readers.jumpstart import DocumentCache, Fetched
from peagle_sm.core.catalog.catalog import ModelEntry
from peagle_sm.core.errors import NotFound
from peagle_sm.core.jumpstart.document import Document, parse_document
from peagle_sm.core.jumpstart.lock import Lock
from peagle_sm.core.jumpstart.manifest import Row, candidates, hub_name, is_same_model, row_of

By = Literal["id", "url"]


@dataclass(frozen=True)
class Found:
    """A spec, how it was found, and in which bucket."""

    row: Row
    document: Document
    fetched: Fetched
    by: By
    bucket: str


def find(rows: Sequence[Row], documents: DocumentCache, entry: ModelEntry, keep: Lock | None) -> Found:
    """Return the spec of a model: the version that ``keep`` locked; else the newest.

    A model is known by its id, else by the Hugging Face URL in its spec.

    Raises:
        CatalogueDamaged: a spec cannot be read.
        CredentialsError, ServiceFault: S3 cannot be asked.
        NotFound: there is no such model or version.
    """
    if keep is not None:
        row = row_of(rows, keep.jumpstart.model_id, keep.jumpstart.version)
        return _open(row, documents, keep.source.found_by)
    known = entry.jumpstart_model_id
    if known is not None and any(row.model_id == known for row in rows):
        return _open(row_of(rows, known), documents, "id")
    if entry.hub_id is None:
        raise NotFound(
            f"{entry.title}: neither an id of JumpStart's nor a Hugging Face URL is known for it",
            next_step="Use source: container.",
        )
    return _by_url(rows, documents, entry.hub_id)


def _by_url(rows: Sequence[Row], documents: DocumentCache, hub_id: str) -> Found:
    """The model whose spec has the repository's URL; the same number format before another."""
    looked = candidates(rows, hub_id)
    same = []
    for row in looked:
        found = _open(row, documents, "url")
        names = [name for name in (found.document.model.huggingface_id, found.document.model.url) if name]
        if any(hub_name(name) == hub_name(hub_id) for name in names):
            return found
        if any(is_same_model(name, hub_id) for name in names):
            same.append(found)
    if not same:
        near = ", ".join(row.model_id for row in looked[:5]) or "none"
        raise NotFound(
            f"JumpStart has no model of huggingface.co/{hub_id} in this region; nearest by name: {near}",
            next_step="Give another --region, or use source: container.",
        )
    return same[0]


def _open(row: Row, documents: DocumentCache, by: By) -> Found:
    fetched = documents.read(row.spec_key)
    document = parse_document(fetched.content, f"s3://{documents.bucket}/{row.spec_key}")
    return Found(row, document, fetched, by, documents.bucket)
