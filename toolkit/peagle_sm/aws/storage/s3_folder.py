"""A prefix in S3 as a folder: listed once, read in pieces."""

from __future__ import annotations

from peagle_sm.aws.session.errors import aws_errors
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage.objects import split_uri
from peagle_sm.core.errors import NotFound, PeagleError, ServiceFault
from peagle_sm.core.heads.reading import Folder

_ABSENT = frozenset({"NoSuchBucket", "NoSuchKey", "404"})


def s3_folder(session: Session, uri: str) -> Folder:
    """What lies below ``uri``, a prefix that ends in a slash or is taken as if it did.

    Raises:
        NotFound: there is no such bucket, or nothing below the prefix.
        CredentialsError, ServiceFault: S3 refuses, or does not answer.
    """
    bucket, prefix = split_uri(uri if uri.endswith("/") else uri + "/")
    sizes = list_sizes(session, bucket, prefix)
    if not sizes:
        raise NotFound(
            f"there is nothing below s3://{bucket}/{prefix}",
            next_step="Correct the prefix, or put it there with `peagle-sm heads stage`.",
        )

    def read(name: str, start: int, length: int) -> bytes:
        if length == 0:
            return b""
        return read_range(session, bucket, prefix + name, start, length)

    return Folder(f"s3://{bucket}/{prefix}", sizes, read)


def list_sizes(session: Session, bucket: str, prefix: str) -> dict[str, int]:
    """Bytes of every object below the prefix, by its name there; markers of folders are left out.

    Raises:
        NotFound: there is no such bucket.
        CredentialsError, ServiceFault: S3 refuses, or does not answer.
    """
    with absent_is_not_found(f"s3://{bucket}"), aws_errors("ListObjectsV2", session.local_url):
        pages = session.client("s3").get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        rows = [
            (row["Key"].removeprefix(prefix), row["Size"])
            for page in pages
            for row in page.get("Contents", [])
        ]
    return {name: size for name, size in rows if name and not name.endswith("/")}


def read_range(session: Session, bucket: str, key: str, start: int, length: int) -> bytes:
    """A piece of an object.

    Raises:
        NotFound: there is none of that name.
        CredentialsError, ServiceFault: S3 refuses, or does not answer.
    """
    span = f"bytes={start}-{start + length - 1}"
    with absent_is_not_found(f"s3://{bucket}/{key}"), aws_errors("GetObject", session.local_url):
        return bytes(session.client("s3").get_object(Bucket=bucket, Key=key, Range=span)["Body"].read())


class absent_is_not_found:
    """S3's codes for what is not there become NotFound."""

    def __init__(self, what: str) -> None:
        """Name what was looked for."""
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ServiceFault) and error.code in _ABSENT:
            raise NotFound(
                f"there is no {self._what}", next_step="Correct the address; `aws s3 ls` shows what there is."
            ) from error
        if isinstance(error, ServiceFault) and error.code == "403":
            raise _denied(self._what, error) from error


def _denied(what: str, error: ServiceFault) -> PeagleError:
    from peagle_sm.core.errors import CredentialsError

    return CredentialsError(
        f"{what} belongs to somebody else, or you may not read it",
        next_step="Ask for s3:ListBucket and s3:GetObject on it.",
        details=error.details,
    )
