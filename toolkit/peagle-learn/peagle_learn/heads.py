"""A trained head: fetched from its job, checked before any engine starts, and put where engines read it."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tarfile
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from peagle_learn.core.proof import head_hash
from peagle_learn.core.spec import LearnSpec
from peagle_learn.stored_data import set_uri
from peagle_sm.aws.control import cloudwatch
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage import s3
from peagle_sm.core.errors import NotFound, PeagleError, PlanRefused, SpecError
from peagle_sm.core.heads.layout import HeadReport
from peagle_sm.core.heads.reading import MANIFEST, parse_manifest
from peagle_sm.service.heads.checking import Sources, check_head
from peagle_sm.service.heads.staging import plan_staging, stage

ARCHIVE = ".tar.gz"
_PIECE = 16 * 2**20
_CANARY_LINES = '"peagle_gate: canary:"'  #: CloudWatch's pattern for them
_CANARY = re.compile(r"peagle_gate: canary: (.+?); ")  #: as `peagle_gate.asgi.Gate` writes it
_MOST_BYTES = 64 * 2**30  #: of an unpacked head
_MOST_FILES = 256


@dataclass(frozen=True)
class Candidate:
    """A head on this machine, its hash, its check, and what its training wrote about itself."""

    folder: Path
    sha256: str
    report: HeadReport
    training: Mapping[str, Any]


def open_candidate(
    what: str,
    session: Session,
    work: Path,
    *,
    target: str,
    num_speculative_tokens: int | None,
    sources: Sources,
) -> Candidate:
    """Fetch a head, check it, and hash it; a damaged head has its faults in the report.

    Args:
        what: a folder, ``s3://…/model.tar.gz`` of a training job, or an ``s3://`` prefix of a head's files.
        session: for ``s3://``.
        work: folder of this machine for what is fetched.
        target: the target's catalogue id, folder or prefix.
        num_speculative_tokens: K of the endpoint.
        sources: how targets are opened.

    Raises:
        NotFound: it does not exist.
        SpecError: the archive is damaged, or holds what no head has.
    """
    folder = Path(what) if not what.startswith("s3://") else _fetched(what, session, work)
    if not folder.is_dir():
        raise NotFound(f"the head {what} does not exist", next_step="Give a folder, or an s3:// address.")
    report = check_head(
        folder,
        target=target,
        mode="p-eagle",
        num_speculative_tokens=num_speculative_tokens,
        sources=sources,
    )
    sums = {file.name: str(file.sha256) for file in report.files}
    return Candidate(folder, head_hash(sums), report, _training(folder))


def trained_apart(candidate: Candidate, manifest: Mapping[str, Any], spec: LearnSpec) -> bool | None:
    """Return whether a head was trained on the training part of the newest set; None if that is not known.

    Raises:
        PlanRefused: it was trained on another set, which may have the held-out prompts of this one.
    """
    with suppress(AttributeError, KeyError, TypeError):  # another trainer's file, or none
        learned = candidate.training["data"]["training"]["sha256"]
        stored = manifest["channel_sha256"]
        if learned == stored:
            return True
        if spec.train.training is None:
            raise PlanRefused(
                f"the head was trained on other data than the newest set, {set_uri(spec, manifest['data'])}:"
                " it may have learned the held-out prompts of that, so a proof would show nothing. Nothing"
                " was created.",
                next_step="Train with the newest set: `peagle-sm learn train`. Or make the head's own set the"
                " newest: `peagle-sm learn data` with its prompts and settings asks for no answer twice.",
                details={"findings": [], "found": learned, "allowed": stored},
            )
    return None


def _training(folder: Path) -> Mapping[str, Any]:
    try:
        document = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _fetched(uri: str, session: Session, work: Path) -> Path:
    """Download a head once; a half fetched one is not taken for whole."""
    bucket, key = s3.split_uri(uri)
    folder = work / "fetched" / hashlib.sha256(uri.encode()).hexdigest()[:16]
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)  # the object may have been written again
    part.mkdir(parents=True)
    if key.endswith(ARCHIVE):
        archive = part.with_suffix(ARCHIVE)
        _download(session, bucket, key, archive)
        try:
            unpack(archive, part)
        finally:
            archive.unlink(missing_ok=True)
    else:
        prefix = key if key.endswith("/") else key + "/"
        sizes = s3.list_sizes(session, bucket, prefix)
        if not sizes:
            raise NotFound(f"no objects exist below {uri}", next_step="Correct the address of the head.")
        for name in sizes:
            if ".." in PurePosixPath(name).parts:
                raise SpecError(
                    f"{uri}: the name {name!r} is outside the prefix", next_step="Use another head."
                )
            (part / name).parent.mkdir(parents=True, exist_ok=True)
            _download(session, bucket, prefix + name, part / name)
        (part / MANIFEST).unlink(missing_ok=True)
    part.rename(folder)
    return folder


def _download(session: Session, bucket: str, key: str, path: Path) -> None:
    name = key.rpartition("/")[2]
    size = s3.list_sizes(session, bucket, key.removesuffix(name)).get(name)
    if size is None:
        raise NotFound(
            f"s3://{bucket}/{key} does not exist",
            next_step="Train the head first (`peagle-sm learn train`), or give --head.",
        )
    with path.open("wb") as file:
        for start in range(0, size, _PIECE):
            file.write(s3.read_range(session, bucket, key, start, min(_PIECE, size - start)))


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a job's model.tar.gz: plain files below the folder, of a bounded number and size.

    Raises:
        SpecError: it is damaged, or has a link, a device, a path outside, or too much.
    """
    total = count = 0
    try:
        with tarfile.open(archive, "r:gz") as opened:
            for member in opened:
                path = PurePosixPath(member.name)
                if member.isdir():
                    continue
                total, count = total + member.size, count + 1
                if not member.isfile() or path.is_absolute() or ".." in path.parts:
                    raise _bad_archive(f"{member.name!r} is not a plain file below the head's folder")
                if total > _MOST_BYTES or count > _MOST_FILES:
                    raise _bad_archive(
                        f"more than {_MOST_FILES} files or {_MOST_BYTES / 2**30:.0f} GiB; no head has that"
                    )
                opened.extract(member, folder, filter="data")
    except (tarfile.TarError, zlib.error, EOFError, OSError, ValueError) as error:
        raise _bad_archive(str(error)) from error


def _bad_archive(why: str) -> SpecError:
    return SpecError(f"the head's archive cannot be used: {why}", next_step="Train the head again.")


def stage_candidate(
    candidate: Candidate, uri: str, session: Session, sources: Sources, *, cache: Path, version: str
) -> str:
    """Copy a checked head below its own prefix, once; return the prefix.

    Raises:
        HeadRefused: the head has a fault.
        PlanRefused: the prefix holds other files.
        NotFound, CredentialsError, ServiceFault: S3 refuses, or does not answer.
    """
    candidate.report.raise_for_faults()
    bucket, prefix = s3.split_uri(uri)
    sizes = s3.list_sizes(session, bucket, prefix)
    if MANIFEST in sizes and _is_staged(session, bucket, prefix, sizes[MANIFEST], candidate.sha256):
        return uri
    plan = plan_staging(str(candidate.folder), uri, sources=sources, mode="p-eagle")
    stage(plan, sources=sources, cache=cache, version=version)
    return uri


def _is_staged(session: Session, bucket: str, prefix: str, size: int, sha256: str) -> bool:
    """Tell whether the prefix has the head already: its manifest may have lineage that must stay."""
    try:
        manifest = parse_manifest(s3.read_range(session, bucket, prefix + MANIFEST, 0, size))
    except ValueError:
        return False
    return head_hash({file.name: str(file.sha256) for file in manifest.files}) == sha256


def staged_hash(uri: str, session: Session) -> str:
    """Compute the hash of the files that an engine would load from a prefix, from their content.

    Raises:
        NotFound: nothing is there.
    """
    bucket, prefix = s3.split_uri(uri)
    sizes = s3.list_sizes(session, bucket, prefix)
    if not sizes:
        raise NotFound(
            f"no objects exist below {uri}", next_step="Prove the head again: `peagle-sm learn prove`."
        )
    sums = {}
    for name, size in sizes.items():
        if "/" in name or not name.endswith((".safetensors", ".json")):
            continue
        digest = hashlib.sha256()
        for start in range(0, size, _PIECE):
            digest.update(s3.read_range(session, bucket, prefix + name, start, min(_PIECE, size - start)))
        sums[name] = digest.hexdigest()
    return head_hash(sums)


def canary_fault(session: Session, endpoint: str, start: datetime) -> str | None:
    """Return what the gate's canary reported about the drafting of an endpoint that failed.

    None if there was no canary (AWS's images have no gate), if it passed, or if it got no answer: then the
    endpoint failed for another reason. None also if the log cannot be read.
    """
    with suppress(PeagleError):
        for line in cloudwatch.matching_lines(session, endpoint, start, None, _CANARY_LINES):
            match = _CANARY.search(line)
            if match is not None and not match[1].startswith(("passed", "the canary ")):
                return match[1]
    return None
