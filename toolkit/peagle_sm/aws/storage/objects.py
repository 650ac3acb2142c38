"""S3 objects by their URI."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from peagle_sm.aws.session.errors import aws_errors
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage.buckets import DELETED_AT_ONCE
from peagle_sm.core.errors import NotFound, SpecError


def upload(session: Session, uri: str, content: bytes) -> None:
    """Put an object."""
    bucket, key = split_uri(uri)
    with aws_errors("PutObject", session.local_url):
        session.client("s3").put_object(Bucket=bucket, Key=key, Body=content)


def download_one(session: Session, uri: str, suffix: str) -> bytes:
    """Return the one object below ``uri`` whose key ends in ``suffix``.

    Raises:
        NotFound: there is none.
    """
    bucket, prefix = split_uri(uri)
    found = [key for key in _keys(session, bucket, prefix) if key.endswith(suffix)]
    if not found:
        raise NotFound(
            f"there is no {suffix} below {uri}",
            next_step="look at what was to write it, and whether its role may write to the bucket",
        )
    with aws_errors("GetObject", session.local_url):
        return bytes(session.client("s3").get_object(Bucket=bucket, Key=found[0])["Body"].read())


def remove_prefix(session: Session, uri: str) -> None:
    """Delete every object below ``uri``."""
    bucket, prefix = split_uri(uri)
    keys = _keys(session, bucket, prefix)
    for first in range(0, len(keys), DELETED_AT_ONCE):
        batch = [{"Key": key} for key in keys[first : first + DELETED_AT_ONCE]]
        with aws_errors("DeleteObjects", session.local_url):
            session.client("s3").delete_objects(Bucket=bucket, Delete={"Objects": batch, "Quiet": True})


def split_uri(uri: str) -> tuple[str, str]:
    """Split ``s3://bucket/key``.

    Raises:
        SpecError: it is not an S3 URI.
    """
    parts = urlsplit(uri)
    if parts.scheme != "s3" or not parts.netloc:
        raise SpecError(
            f"{uri!r} is not an S3 URI; expected s3://BUCKET/PREFIX", next_step="correct the address"
        )
    return parts.netloc, parts.path.lstrip("/")


def _keys(session: Session, bucket: str, prefix: str) -> Sequence[str]:
    with aws_errors("ListObjectsV2", session.local_url):
        pages = session.client("s3").get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return [row["Key"] for page in pages for row in page.get("Contents", [])]
