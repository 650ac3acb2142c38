"""A spec's data in S3: each set below its own hash, a manifest that names the newest, checks, deletion.

A set is never overwritten, so a job reads the set that it was started with. Sets
stay until `learn delete-data`, since a later attempt of the same job needs its own.
The data of a job's channels, also from elsewhere, is checked and counted before the job.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from peagle_learn.aws.jobs import describe_job, job_names
from peagle_learn.core.rules import checked_document, parse_line
from peagle_learn.core.spec import LearnSpec
from peagle_learn.core.training_request import ChannelFacts
from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage import s3
from peagle_sm.aws.storage.uploads import digests, put_bytes, put_file
from peagle_sm.core.errors import CredentialsError, NotFound, PlanRefused, SpecError
from peagle_sm.service.progress import Event, Progress

SCHEMA = "peagle-sm/learn-data/1"
TRAINING, VALIDATION = "training/train.tokens.jsonl", "validation/held-out.tokens.jsonl"
HELD_OUT, GENERAL = "prompts/held-out.jsonl", "prompts/general.jsonl"
MANIFEST = "manifest.json"
_HASH_CHARACTERS = 16
SUFFIX = ".tokens.jsonl"
"""Files of training data: one document of token ids a line."""
COUNTED_BYTES = 64_000_000
"""Data in S3 up to this size is read before the job, to check and count it; the trainer checks all of it.
Of larger data the counts are those of `learn data`'s manifest."""
BEGINNING_BYTES, SAMPLED_FILES = 1_000_000, 16
"""Of larger data, this much of each file is checked, and of this many files, evenly spread."""


def data_uri(spec: LearnSpec) -> str:
    """Return the S3 prefix of all sets and the manifest; ends with a slash."""
    return f"{spec.folder}data/"


def channel_digest(name: str, content: bytes) -> str:
    """Hash a channel of one file as the trainer does, which writes it into the head's ``training.json``."""
    return hashlib.sha256(name.rpartition("/")[2].encode() + b"\n" + content).hexdigest()


def set_uri(spec: LearnSpec, data: str) -> str:
    """Return the S3 prefix of the set with a hash; ends with a slash."""
    return f"{data_uri(spec)}{data[:_HASH_CHARACTERS]}/"


def store(
    spec: LearnSpec, session: Session, data: str, folder: Path, names: Iterable[str], progress: Progress
) -> None:
    """Upload a set's files, then the manifest: a reader of the manifest finds all of them."""
    bucket, prefix = s3.split_uri(set_uri(spec, data))
    for name in names:
        progress(Event("check", f"uploading {name} to {set_uri(spec, data)}"))
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
        manifest = json.loads(s3.read_range(session, bucket, prefix + MANIFEST, 0, sizes[MANIFEST]))
    except ValueError:
        manifest = None
    document = manifest if isinstance(manifest, dict) else {}
    if document.get("schema") != SCHEMA or not isinstance(document.get("data"), str):
        raise SpecError(
            f"{data_uri(spec)}{MANIFEST} is not a manifest of `learn data`",
            next_step="Make the data again: `peagle-sm learn data`.",
        )
    return document


@dataclass(frozen=True)
class Counts:
    """How much a channel has; None if not counted."""

    documents: int | None = None
    conversations: int | None = None
    tokens: int | None = None


def manifest_counts(spec: LearnSpec, session: Session, sizes: Mapping[str, int]) -> Counts:
    """Return the counts of files, by address and size, from the manifest of the newest set.

    Nothing is counted without a manifest, or if the files are not those of the manifest.
    """
    try:
        manifest = stored_manifest(spec, session)
    except (NotFound, SpecError):
        return Counts()
    top = set_uri(spec, manifest["data"])
    named = {f"{top}{name}": each for name, each in dict(manifest.get("files") or {}).items()}
    entries = [named.get(uri) or {} for uri in sizes]
    if [each.get("size") for each in entries] != list(sizes.values()):
        return Counts()

    def count(name: str) -> int | None:
        values = [each.get(name) for each in entries]
        known = [each for each in values if isinstance(each, int)]
        return sum(known) if len(known) == len(values) else None

    return Counts(count("rows"), count("conversations"), count("tokens"))


def has_object(session: Session, uri: str) -> bool:
    """Return whether the object at an address exists; not if its bucket is gone.

    Raises:
        CredentialsError, ServiceFault: S3 refuses, or does not answer.
    """
    folder, _, name = uri.rpartition("/")
    try:
        return name in s3.list_sizes(session, *s3.split_uri(f"{folder}/"))
    except NotFound:
        return False


def prefix_digest(session: Session, uri: str) -> str:
    """Hash the names, sizes and ETags of all objects below a prefix."""
    bucket, prefix = s3.split_uri(uri)
    rows = sorted(s3.listed_objects(session, bucket, prefix))
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16] if rows else ""


# Variables of the container that choose weights or their precision; those of a head are not among them.
_TARGET_VARIABLES = (
    "HF_MODEL_ID",
    "SM_VLLM_DTYPE",
    "SM_VLLM_MODEL",
    "SM_VLLM_QUANTIZATION",
    "SM_VLLM_REVISION",
    "SM_VLLM_TOKENIZER",
)


def target_source(session: Session, endpoint: str, component: str | None = None) -> dict[str, str]:
    """Return where the target of an endpoint, or of its component, comes from; {} if that is not known.

    ``files`` is the S3 address. A head is no part of it, so a promotion leaves it as it is.
    """
    facts = control.describe_endpoint(session, endpoint)
    config = None if facts is None else control.describe_endpoint_config(session, facts.config_name)
    name = None if config is None else config.model_name
    if name is None and component is not None:
        name = (
            (control.describe_component(session, component) or {}).get("Specification", {}).get("ModelName")
        )
    model = None if name is None else control.describe_model(session, name)
    if model is None:
        return {}
    sources = {"files": model.uri or ""}
    return sources | {key: model.environment[key] for key in _TARGET_VARIABLES if key in model.environment}


def origin_of(session: Session, endpoint: str, component: str | None) -> list[Any]:
    """Return what decides an endpoint's answers besides the requests: its place, and its target's files.

    Files in folders below the target's do not count. Files that may not be listed, such as JumpStart's, count
    by their address alone.
    """
    target, files = target_source(session, endpoint, component), list[list[Any]]()
    if target.get("files"):
        with suppress(CredentialsError, NotFound):
            rows = s3.listed_objects(session, *s3.split_uri(target["files"]))
            files = sorted([name, size, tag] for name, size, tag in rows if "/" not in name)
    return [session.place(), target, files]


def read_channel(
    spec: LearnSpec, session: Session, name: str, given: str | None, base: Path, vocab: int | None
) -> ChannelFacts | None:
    """Read a channel's data: a path of this machine, an s3:// prefix, or what `learn data` wrote.

    Raises:
        SpecError: there is no such file, it was made for another target, or the trainer does not take a line.
    """
    if given is not None and not given.startswith("s3://"):
        return _local_channel(spec, name, base / given, vocab)
    newest = None if given is not None else _newest_set(spec, session)
    if given is None and newest is None:
        return None
    uri = _channel_uri(given) if given is not None else f"{newest}{name}/"
    bucket, prefix = s3.split_uri(uri)
    try:
        rows = [row for row in s3.listed_objects(session, bucket, prefix) if row[0].endswith(SUFFIX)]
    except NotFound:
        rows = []
    if not rows:
        if given is not None:
            raise SpecError(
                f"train.{name}: no file *{SUFFIX} exists below {uri}", next_step="Correct the s3:// prefix."
            )
        return None
    size = sum(row[1] for row in rows)
    sizes = {key: length for key, length, _ in rows}
    checked = ""
    if size <= COUNTED_BYTES:
        lines = (
            line
            for key, length in sizes.items()
            for line in _numbered(s3.read_range(session, bucket, prefix + key, 0, length), f"{uri}{key}")
        )
        counts = count_documents(lines, f"train.{name}", vocab)
    else:
        counts = manifest_counts(spec, session, {f"{uri}{key}": length for key, length in sizes.items()})
        checked = _check_beginnings(session, uri, sizes, f"train.{name}", vocab)
    digest = prefix_digest(session, uri)
    return ChannelFacts(
        uri, digest, size, counts.tokens, counts.documents, counts.conversations, checked=checked
    )


def _check_beginnings(
    session: Session, uri: str, sizes: Mapping[str, int], what: str, vocab: int | None
) -> str:
    """Check the whole lines at the beginning of up to `SAMPLED_FILES` files; return what was checked.

    Raises:
        SpecError: the trainer does not take a line.
    """
    bucket, prefix = s3.split_uri(uri)
    keys, documents, read = spread(list(sizes), SAMPLED_FILES), 0, 0
    for key in keys:
        length = min(sizes[key], BEGINNING_BYTES)
        content = s3.read_range(session, bucket, prefix + key, 0, length)
        whole = content if length == sizes[key] else content[: content.rfind(b"\n") + 1]
        read += len(whole)
        for origin, line in _numbered(whole, f"{uri}{key}"):
            documents += 1
            _checked(line, origin, what, vocab)
    return (
        f"checked: {documents:,} documents at the beginning of {len(keys)} of {len(sizes)} files,"
        f" {read / 1e6:,.1f} of {sum(sizes.values()) / 1e6:,.1f} MB; the job checks the rest"
    )


def spread(names: Sequence[str], most: int) -> list[str]:
    """Return at most ``most`` of the names (2 or more), evenly spread, with the first and the last."""
    if len(names) <= most:
        return list(names)
    return [names[round(at * (len(names) - 1) / (most - 1))] for at in range(most)]


def _newest_set(spec: LearnSpec, session: Session) -> str | None:
    try:
        manifest = stored_manifest(spec, session)
    except NotFound:
        return None
    now = spec.target.model_dump(mode="json")
    made_for = manifest.get("target")
    if not isinstance(made_for, dict):
        made_for = now  # not known
    for key in ("model", "revision"):
        if made_for.get(key) == now[key]:
            continue
        raise SpecError(
            f"the data below {set_uri(spec, manifest['data'])} was made for target.{key}: "
            f"{made_for.get(key)!r}; learn.yaml has {now[key]!r}",
            next_step="Make data for this target: `peagle-sm learn data`.",
        )
    return set_uri(spec, manifest["data"])


def channel_content(given: str, base: Path, session: Session) -> str:
    """Hash what a channel of learn.yaml has now: of ``s3://`` the listing, since a job gets all below it.

    Raises:
        NotFound: the bucket does not exist.
    """
    if given.startswith("s3://"):
        return prefix_digest(session, _channel_uri(given))
    total = hashlib.sha256()
    for file in _local_files(base / given):
        with suppress(OSError), file.open("rb") as content:  # what cannot be read, `read_channel` refuses
            total.update(f"{file.name} {hashlib.file_digest(content, 'sha256').hexdigest()}\n".encode())
    return total.hexdigest()


def _channel_uri(given: str) -> str:
    return f"{given.rstrip('/')}/"


def _local_files(path: Path) -> list[Path]:
    return sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]


def _local_channel(spec: LearnSpec, name: str, path: Path, vocab: int | None) -> ChannelFacts:
    files = _local_files(path)
    if not files or not all(file.is_file() and file.name.endswith(SUFFIX) for file in files):
        raise SpecError(
            f"train.{name}: {path} is not a file or folder of *{SUFFIX}",
            next_step="Give one that `peagle-sm learn data` wrote.",
        )
    total, size = hashlib.sha256(), 0

    def lines() -> Iterator[tuple[str, bytes]]:
        nonlocal size
        for file in files:
            content = file.read_bytes()
            size += len(content)
            total.update(f"{file.name}\0{len(content)}\0".encode() + content)
            yield from _numbered(content, str(file))

    counts = count_documents(lines(), f"train.{name}", vocab)
    digest = total.hexdigest()[:16]
    uri = f"{spec.folder}data/{digest}/{name}/"
    return ChannelFacts(
        uri, digest, size, counts.tokens, counts.documents, counts.conversations, files=tuple(map(str, files))
    )


def _numbered(content: bytes, origin: str) -> Iterator[tuple[str, bytes]]:
    for number, line in enumerate(content.splitlines(), 1):
        if line.strip():
            yield f"{origin} line {number}", line


def count_documents(lines: Iterable[tuple[str, bytes]], what: str, vocab: int | None = None) -> Counts:
    """Check documents as the trainer does, and count them; ``vocab`` None: unknown.

    A document without a conversation counts as a conversation of its own.

    Raises:
        SpecError: there is no document, or one is not ``{"input_ids": […], "loss_mask": […]}``.
    """
    documents = tokens = 0
    conversations = set[str]()
    for origin, line in lines:
        documents += 1
        length, conversation = _checked(line, origin, what, vocab)
        tokens += length
        conversations.add(conversation)
    if not documents:
        raise SpecError(
            f"{what}: found 0 documents; allowed: at least one",
            next_step="Run `peagle-sm learn data` with more prompts.",
        )
    return Counts(documents, len(conversations), tokens)


def _checked(line: bytes, origin: str, what: str, vocab: int | None) -> tuple[int, str]:
    """Return the number of a document's tokens, and its conversation.

    Raises:
        SpecError: the trainer does not take it.
    """
    try:
        document = parse_line(line)
        ids, _ = checked_document(document, vocab)
        return len(ids), str(document.get("conversation", origin))
    except ValueError as error:
        raise SpecError(
            f"{what}: {origin}: {error}",
            next_step="Write the data with `peagle-sm learn data`, or correct the line.",
        ) from error


@dataclass(frozen=True)
class StoredData:
    """All data of a spec in S3: its prefix, and its size."""

    uri: str
    objects: int
    bytes: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)


def find_data(spec: LearnSpec, session: Session) -> StoredData:
    """Return what `delete_data` would delete.

    Raises:
        NotFound: the spec has no data.
        PlanRefused: a training job runs that may read it.
    """
    bucket, prefix = s3.split_uri(data_uri(spec))
    sizes = s3.list_sizes(session, bucket, prefix)
    if not sizes:
        raise NotFound(f"{data_uri(spec)} has no data", next_step="There is nothing to delete.")
    for name in job_names(session, spec.name, running=True):
        job = describe_job(session, name)
        inputs = job.inputs if job is not None and job.running else []
        if any(uri.startswith(data_uri(spec)) for uri in inputs):
            raise PlanRefused(
                f"the training job {name} runs, and reads {data_uri(spec)}",
                next_step="Wait for its end, or stop it:"
                f" `peagle-sm learn stop {name}{session.command_flags()}`.",
                details={"findings": []},
            )
    return StoredData(data_uri(spec), len(sizes), sum(sizes.values()))


def delete_data(stored: StoredData, session: Session) -> None:
    """Delete it, in a bucket with versions all of them."""
    bucket, prefix = s3.split_uri(stored.uri)
    s3.remove_versions(session, bucket, prefix)
