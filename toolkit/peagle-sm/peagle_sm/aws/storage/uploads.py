"""Uploads to S3 with a sha256 of each part, by s3transfer, boto3's own library.

The part size depends only on the file's size, so the object's checksum can be computed before the upload. S3
keeps and bills the parts of an incomplete upload until it is aborted. An upload that fails is aborted; that
of a killed process is aborted when the same file is sent again.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from peagle_sm.aws.session.errors import aws_errors
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage.s3 import absent_is_not_found
from peagle_sm.core.errors import NotFound, ServiceFault

PART_BYTES = 64 * 2**20
MOST_PARTS = 10_000
"""Limit of S3 (user guide, "Amazon S3 multipart upload limits")."""
WORKERS = 4
_SHA256 = {"ChecksumAlgorithm": "SHA256"}

Sent = Callable[[int], None]
"""Callback in the caller's thread: bytes that were sent since the last call; below 0 before a retry."""


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
            head = session.api("s3").head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")
    except NotFound:
        return None
    return int(head["ContentLength"]), head.get("ChecksumSHA256")


def put_bytes(session: Session, bucket: str, key: str, content: bytes) -> None:
    """Upload a small object in one call, with its checksum."""
    checksum = _b64(hashlib.sha256(content).digest())
    with absent_is_not_found(f"s3://{bucket}"):
        session.api("s3").put_object(Bucket=bucket, Key=key, Body=content, ChecksumSHA256=checksum, **_SHA256)


def put_file(session: Session, bucket: str, key: str, path: Path, file: Digests, sent: Sent) -> None:
    """Upload a file, whole or in parts; an error, also of ``sent``, aborts the upload.

    Incomplete uploads of the same key, of a process that was killed, are aborted first.

    Raises:
        OSError: the file cannot be read.
        NotFound: the bucket does not exist.
        CredentialsError, ServiceFault: S3 refuses, or does not answer.
    """
    from s3transfer.manager import TransferConfig, TransferManager

    config = TransferConfig(
        multipart_threshold=file.part_bytes + 1,
        multipart_chunksize=file.part_bytes,
        max_request_concurrency=WORKERS,
    )
    if len(file.parts) > 1:
        for upload in incomplete_uploads(session, bucket, key):
            if upload.key == key:
                abort(session, bucket, upload)
    news: SimpleQueue[int | None] = SimpleQueue()
    with (
        absent_is_not_found(f"s3://{bucket}"),
        aws_errors("PutObject", session.local_url),
        TransferManager(session.client("s3"), config) as manager,
    ):
        subscribers: list[Any] = [_Progress(news)]
        future = manager.upload(str(path), bucket, key, dict(_SHA256), subscribers)
        while (count := news.get()) is not None:
            sent(count)
        future.result()


class _Progress:
    """Subscriber of s3transfer, which calls it in its own threads; None marks the end."""

    def __init__(self, news: SimpleQueue[int | None]) -> None:
        self._news = news

    def on_progress(self, future: Any, bytes_transferred: int, **_: Any) -> None:
        self._news.put(bytes_transferred)

    def on_done(self, future: Any, **_: Any) -> None:
        self._news.put(None)


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
    """Abort an upload and delete its parts; ignore a missing upload."""
    try:
        session.api("s3").abort_multipart_upload(Bucket=bucket, Key=upload.key, UploadId=upload.upload_id)
    except ServiceFault as error:
        if error.code != "NoSuchUpload":
            raise


def _b64(digest: bytes) -> str:
    return base64.b64encode(digest).decode()
