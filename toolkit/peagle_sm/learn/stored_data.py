"""A spec's data in S3: each set below its own hash, and a manifest that names the newest; and its deletion.

A set is never overwritten: a job reads what it was started with, whatever `learn data` stores meanwhile. Sets
stay until `learn delete-data`, since a later attempt of the same job needs its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from peagle_sm.aws.control import processing, training
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage import s3
from peagle_sm.aws.storage.uploads import digests, put_bytes, put_file
from peagle_sm.core.errors import NotFound, PlanRefused, SpecError
from peagle_sm.core.learn.spec import LearnSpec
from peagle_sm.service.progress import Event, Progress

SCHEMA = "peagle-sm/learn-data/1"
TRAINING, VALIDATION = "training/train.tokens.jsonl", "validation/held-out.tokens.jsonl"
HELD_OUT, GENERAL = "prompts/held-out.jsonl", "prompts/general.jsonl"
MANIFEST = "manifest.json"
_HASH_CHARACTERS = 16


def data_uri(spec: LearnSpec) -> str:
    """Return the S3 prefix of all sets and the manifest; ends with a slash."""
    return f"{spec.folder}data/"


def set_uri(spec: LearnSpec, data: str) -> str:
    """Return the S3 prefix of the set with a hash; ends with a slash."""
    return f"{data_uri(spec)}{data[:_HASH_CHARACTERS]}/"


def store(
    spec: LearnSpec, session: Session, data: str, folder: Path, names: Iterable[str], tell: Progress
) -> None:
    """Upload a set's files, then the manifest: a reader of the manifest finds all of them."""
    bucket, prefix = s3.split_uri(set_uri(spec, data))
    for name in names:
        tell(Event("check", f"uploading {name} to {set_uri(spec, data)}"))
        put_file(session, bucket, prefix + name, folder / name, digests(folder / name), lambda count: None)
    _, top = s3.split_uri(data_uri(spec))
    put_bytes(session, bucket, top + MANIFEST, (folder / MANIFEST).read_bytes())


def stored_manifest(spec: LearnSpec, session: Session) -> dict[str, Any]:
    """Read the manifest of the spec's newest set.

    Raises:
        NotFound: `learn data` has not stored any.
        SpecError: it is not such a manifest.
    """
    bucket, prefix = s3.split_uri(data_uri(spec))
    sizes = s3.list_sizes(session, bucket, prefix)
    if MANIFEST not in sizes:
        raise NotFound(f"{data_uri(spec)} has no data", next_step="Make it first: `peagle-sm learn data`.")
    try:
        found = json.loads(s3.read_range(session, bucket, prefix + MANIFEST, 0, sizes[MANIFEST]))
    except ValueError:
        found = None
    whole = isinstance(found, dict) and found.get("schema") == SCHEMA and isinstance(found.get("data"), str)
    if not whole:
        raise SpecError(
            f"{data_uri(spec)}{MANIFEST} is not a manifest of `learn data`",
            next_step="Make the data again: `peagle-sm learn data`.",
        )
    return dict(found)


@dataclass(frozen=True)
class Counts:
    """How much a channel has; None if not counted."""

    documents: int | None = None
    conversations: int | None = None
    tokens: int | None = None


def told_counts(spec: LearnSpec, session: Session, sizes: Mapping[str, int]) -> Counts:
    """Return the counts of files, by address and size, from the manifest of the newest set.

    Nothing is counted if there is no manifest, or if the files are not those that it names.
    """
    try:
        manifest = stored_manifest(spec, session)
    except (NotFound, SpecError):
        return Counts()
    top = set_uri(spec, manifest["data"])
    named = {f"{top}{name}": each for name, each in dict(manifest.get("files") or {}).items()}
    told = [named.get(uri) or {} for uri in sizes]
    if [each.get("size") for each in told] != list(sizes.values()):
        return Counts()

    def count(name: str) -> int | None:
        found = [each.get(name) for each in told]
        known = [each for each in found if isinstance(each, int)]
        return sum(known) if len(known) == len(found) else None

    return Counts(count("rows"), count("conversations"), count("tokens"))


@dataclass(frozen=True)
class StoredData:
    """All data of a spec in S3: its prefix, and how much lies there."""

    uri: str
    objects: int
    bytes: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)


def find_data(spec: LearnSpec, session: Session) -> StoredData:
    """Return what `delete_data` would delete.

    Raises:
        NotFound: there is none.
        PlanRefused: a training or processing job runs that may read it.
    """
    bucket, prefix = s3.split_uri(data_uri(spec))
    sizes = s3.list_sizes(session, bucket, prefix)
    if not sizes:
        raise NotFound(f"{data_uri(spec)} has no data", next_step="There is nothing to delete.")
    for name in training.training_job_names(session, spec.name, running=True):
        job = training.describe_training_job(session, name)
        channels = job.raw.get("InputDataConfig", ()) if job is not None and job.running else ()
        if any(each["DataSource"]["S3DataSource"]["S3Uri"].startswith(data_uri(spec)) for each in channels):
            raise PlanRefused(
                f"the training job {name} runs, and reads {data_uri(spec)}",
                next_step="Wait for its end, or stop it: "
                f"`peagle-sm learn stop {name}{session.command_flags()}`.",
                details={"findings": []},
            )
    for name in processing.processing_job_names(session, spec.name, running=True):
        found = processing.describe_processing_job(session, name)
        inputs = found.raw.get("ProcessingInputs", ()) if found is not None and found.running else ()
        if any(each.get("S3Input", {}).get("S3Uri", "").startswith(data_uri(spec)) for each in inputs):
            raise PlanRefused(
                f"the processing job {name} runs, and reads {data_uri(spec)}",
                next_step="Wait for its end, or stop it: "
                f"`peagle-sm learn stop {name}{session.command_flags()}`.",
                details={"findings": []},
            )
    return StoredData(data_uri(spec), len(sizes), sum(sizes.values()))


def delete_data(found: StoredData, session: Session) -> None:
    """Delete it, in a bucket with versions all of them."""
    bucket, prefix = s3.split_uri(found.uri)
    s3.remove_versions(session, bucket, prefix)
