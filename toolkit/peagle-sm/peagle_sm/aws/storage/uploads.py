"""Uploads to S3 in parts with a sha256 each; a later run resumes them.

The part size depends only on the file's size, so a later run makes the same parts. S3 keeps and bills the
parts of an incomplete upload until it is completed or aborted.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage.s3 import absent_is_not_found
from peagle_sm.core.errors import NotFound, ServiceFault

PART_BYTES = 64 * 2**20
MOST_PARTS = 10_000
"""Limit of S3 (user guide, "Amazon S3 multipart upload limits")."""
WORKERS = 4
SHA256 = "SHA256"
_ALGORITHM = "ChecksumAlgorithm"

Sent = Callable[[int], None]
"""Callback: bytes of each part that S3 received, or already had."""


@dataclass(frozen=True)
class Digests:
    """A file's sha256: of the whole in hex, of each part, and in S3's format."""

    size: int
    part_bytes: int
    whole: str
    parts: tuple[bytes, ...]

    @property
    def s3(self) -> str:
        """ChecksumSHA256 of the object: for parts, of their checksums, with the count."""
        if len(self.parts) == 1:
            return _b64(self.parts[0])
        return f"{_b64(hashlib.sha256(b''.join(self.parts)).digest())}-{len(self.parts)}"


@dataclass(frozen=True)
class Incomplete:
    """An upload that was started but neither completed nor aborted."""

    key: str
    upload_id: str


def digests(path: Path, part_bytes: int = PART_BYTES) -> Digests:
    """Compute a file's checksums in one pass.

    Raises:
        OSError: the file cannot be read.
    """
    size = path.stat().st_size
    part = part_size(size, part_bytes)
    whole = hashlib.sha256()
    parts: list[bytes] = []
    with path.open("rb") as file:
        while not parts or file.tell() < size:
            piece = file.read(part)
            whole.update(piece)
            parts.append(hashlib.sha256(piece).digest())
    return Digests(size, part, whole.hexdigest(), tuple(parts))


def part_size(size: int, part_bytes: int = PART_BYTES) -> int:
    """Return the part size, doubled until S3's maximum number of parts suffices."""
    while size > part_bytes * MOST_PARTS:
        part_bytes *= 2
    return part_bytes


def checksum_of(session: Session, bucket: str, key: str) -> tuple[int, str | None] | None:
    """Return an object's size and ChecksumSHA256; None if it does not exist.

    Raises:
        CredentialsError, ServiceFault: S3 refuses, or does not answer.
    """
    try:
        with absent_is_not_found(f"s3://{bucket}/{key}"):
            found = session.api("s3").head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")
    except NotFound:
        return None
    return int(found["ContentLength"]), found.get("ChecksumSHA256")


def put_bytes(session: Session, bucket: str, key: str, content: bytes) -> None:
    """Upload a small object in one call, with its checksum."""
    checksum = _b64(hashlib.sha256(content).digest())
    with absent_is_not_found(f"s3://{bucket}"):
        session.api("s3").put_object(
            Bucket=bucket, Key=key, Body=content, ChecksumSHA256=checksum, **{_ALGORITHM: SHA256}
        )


def put_file(session: Session, bucket: str, key: str, path: Path, found: Digests, sent: Sent) -> None:
    """Upload a file, whole or in parts; skip parts that S3 already has.

    Raises:
        OSError: the file cannot be read, or changed during the upload.
        NotFound: the bucket does not exist.
        CredentialsError, ServiceFault: S3 refuses, or does not answer; uploaded parts are kept.
    """
    if len(found.parts) == 1:
        put_bytes(session, bucket, key, path.read_bytes())
        sent(found.size)
        return
    upload_id, there = _resume(session, bucket, key, found)
    tags = _send_parts(session, _Upload(bucket, key, upload_id, path, found), there, sent)
    listed = [
        {"PartNumber": n, "ETag": tags[n], "ChecksumSHA256": _b64(each)}
        for n, each in enumerate(found.parts, 1)
    ]
    session.api("s3").complete_multipart_upload(
        Bucket=bucket, Key=key, UploadId=upload_id, MultipartUpload={"Parts": listed}
    )


def incomplete_uploads(session: Session, bucket: str, prefix: str) -> list[Incomplete]:
    """Return all incomplete uploads below the prefix.

    Raises:
        NotFound: the bucket does not exist.
        CredentialsError, ServiceFault: S3 refuses, or does not answer.
    """
    with absent_is_not_found(f"s3://{bucket}"):
        rows = session.api("s3").rows("list_multipart_uploads", "Uploads", Bucket=bucket, Prefix=prefix)
        return [Incomplete(row["Key"], row["UploadId"]) for row in rows]


def abort(session: Session, bucket: str, upload: Incomplete) -> None:
    """Abort an upload and delete its parts; a missing upload is no error."""
    try:
        session.api("s3").abort_multipart_upload(Bucket=bucket, Key=upload.key, UploadId=upload.upload_id)
    except ServiceFault as error:
        if error.code != "NoSuchUpload":
            raise


@dataclass(frozen=True)
class _Upload:
    bucket: str
    key: str
    upload_id: str
    path: Path
    found: Digests


def _resume(session: Session, bucket: str, key: str, found: Digests) -> tuple[str, dict[int, str]]:
    """Return the upload to resume with its parts, or a new upload."""
    best: tuple[str, dict[int, str]] | None = None
    for upload in incomplete_uploads(session, bucket, key):
        if upload.key != key:
            continue
        tags = _fitting_parts(session, bucket, upload, found)
        if tags and (best is None or len(tags) > len(best[1])):
            best = upload.upload_id, tags
    if best is not None:
        return best
    with absent_is_not_found(f"s3://{bucket}"):
        made = session.api("s3").create_multipart_upload(Bucket=bucket, Key=key, **{_ALGORITHM: SHA256})
    return str(made["UploadId"]), {}


def _fitting_parts(session: Session, bucket: str, upload: Incomplete, found: Digests) -> dict[int, str]:
    try:
        asked = {"Bucket": bucket, "Key": upload.key, "UploadId": upload.upload_id}
        rows = list(session.api("s3").rows("list_parts", "Parts", **asked))
    except ServiceFault as error:
        if error.code == "NoSuchUpload":
            return {}
        raise
    return {
        row["PartNumber"]: row["ETag"]
        for row in rows
        if row["PartNumber"] <= len(found.parts)
        and row.get("ChecksumSHA256") == _b64(found.parts[row["PartNumber"] - 1])
    }


def _send_parts(session: Session, upload: _Upload, there: dict[int, str], sent: Sent) -> dict[int, str]:
    tags = dict(there)
    pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="upload")
    try:
        for number, _, length in _pieces(upload.found):
            if number in there:
                sent(length)
        waiting = [
            pool.submit(_send, session, upload, number, start, length)
            for number, start, length in _pieces(upload.found)
            if number not in there
        ]
        for number, tag, length in (each.result() for each in waiting):
            tags[number] = tag
            sent(length)
    finally:
        # wait for parts in flight: an abort before their end would leave them in S3
        pool.shutdown(wait=True, cancel_futures=True)
    return tags


def _pieces(found: Digests) -> Iterator[tuple[int, int, int]]:
    for index in range(len(found.parts)):
        start = index * found.part_bytes
        yield index + 1, start, min(found.part_bytes, found.size - start)


def _send(session: Session, upload: _Upload, number: int, start: int, length: int) -> tuple[int, str, int]:
    with upload.path.open("rb") as file:
        file.seek(start)
        piece = file.read(length)
    checksum = upload.found.parts[number - 1]
    if hashlib.sha256(piece).digest() != checksum:
        raise OSError(f"{upload.path} changed during the upload")
    answer = session.api("s3").upload_part(
        Bucket=upload.bucket,
        Key=upload.key,
        UploadId=upload.upload_id,
        PartNumber=number,
        Body=piece,
        ChecksumSHA256=_b64(checksum),
        **{_ALGORITHM: SHA256},
    )
    return number, str(answer["ETag"]), length


def _b64(digest: bytes) -> str:
    return base64.b64encode(digest).decode()
