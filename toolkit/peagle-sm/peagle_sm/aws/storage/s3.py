"""S3: a secured bucket, objects by URI, and a prefix as a folder.

A bucket is secured before its first upload. A prefix is listed once and its files are read in pieces.
Multipart uploads are in `uploads`.
"""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any
from urllib.parse import urlsplit

from peagle_sm.aws.session.errors import aws_errors
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import CredentialsError, NotFound, PeagleError, ServiceFault, SpecError
from peagle_sm.core.heads.reading import Folder
from peagle_sm.core.plan.tags_and_schedules import partition

_AT_HOME = "us-east-1"
"""Region that CreateBucket refuses as a location constraint."""
_ABSENT = frozenset({"404", "NoSuchBucket", "NoSuchKey", "NotFound"})
_DELETED_AT_ONCE = 1000  #: maximum keys per DeleteObjects


def exists(session: Session, bucket: str) -> bool:
    """Return whether the account has that bucket.

    Raises:
        CredentialsError: another account owns it, or the permission is missing.
    """
    try:
        session.api("s3").head_bucket(Bucket=bucket, ExpectedBucketOwner=session.account())
    except NotFound:
        return False
    except ServiceFault as error:
        if error.code in _ABSENT:
            return False
        if error.code == "403":
            raise CredentialsError(
                f"the bucket {bucket} belongs to another account, or you lack permission for it",
                next_step="Ask for s3:ListBucket on it; if another account owns it, report that as an issue.",
                details={"bucket": bucket},
            ) from error
        raise
    return True


def create(session: Session, bucket: str) -> None:
    """Create a bucket in the session's region."""
    place: dict[str, Any] = {}
    if session.region != _AT_HOME:
        place["CreateBucketConfiguration"] = {"LocationConstraint": session.region}
    session.api("s3", once=True).create_bucket(Bucket=bucket, **place)


def secure(session: Session, bucket: str) -> None:
    """Block public access, enable encryption and versioning, and require TLS."""
    closed = dict.fromkeys(
        ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets"), True
    )
    encrypted = {"Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]}
    session.api("s3").put_public_access_block(Bucket=bucket, PublicAccessBlockConfiguration=closed)
    session.api("s3").put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration=encrypted)
    session.api("s3").put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    session.api("s3").put_bucket_policy(
        Bucket=bucket, Policy=json.dumps(_only_by_tls(bucket, session.region))
    )


def put_if_absent(session: Session, bucket: str, key: str, content: bytes) -> bool:
    """Upload unless the key exists (keys are content hashes); return if uploaded."""
    owner = session.account()
    try:
        session.api("s3").head_object(Bucket=bucket, Key=key, ExpectedBucketOwner=owner)
        return False
    except NotFound:
        pass
    except ServiceFault as error:
        if error.code not in _ABSENT:
            raise
    checksum = base64.b64encode(hashlib.sha256(content).digest()).decode()
    session.api("s3").put_object(
        Bucket=bucket, Key=key, Body=content, ChecksumSHA256=checksum, ExpectedBucketOwner=owner
    )
    return True


def remove(session: Session, bucket: str, prefix: str) -> bool:
    """Delete all versions under ``prefix``, then the bucket; False if other objects are in it."""
    remove_versions(session, bucket, prefix)
    if any(session.api("s3").rows("list_object_versions", "Versions", "DeleteMarkers", Bucket=bucket)):
        return False
    session.api("s3").delete_bucket(Bucket=bucket)
    return True


def remove_versions(session: Session, bucket: str, prefix: str) -> None:
    """Delete every version of every object below ``prefix``, and the markers of deleted ones.

    Raises:
        ServiceFault: S3 refused some; the message names the first.
    """
    place = {"Bucket": bucket, "Prefix": prefix}
    rows = list(session.api("s3").rows("list_object_versions", "Versions", "DeleteMarkers", **place))
    keys = [{"Key": row["Key"], "VersionId": row["VersionId"]} for row in rows]
    for first in range(0, len(keys), _DELETED_AT_ONCE):
        batch = {"Objects": keys[first : first + _DELETED_AT_ONCE], "Quiet": True}
        refused = session.api("s3").delete_objects(Bucket=bucket, Delete=batch).get("Errors")
        if refused:
            first_error = refused[0]
            raise ServiceFault(
                f"{len(refused)} objects below s3://{bucket}/{prefix} were not deleted: "
                f"{first_error.get('Key')}: {first_error.get('Code')} {first_error.get('Message', '')}",
                operation="DeleteObjects",
                code=str(first_error.get("Code", "")),
                next_step="Ask for s3:DeleteObject and s3:DeleteObjectVersion on them, and run it again.",
            )


def _only_by_tls(bucket: str, region: str) -> dict[str, Any]:
    arn = f"arn:{partition(region)}:s3:::{bucket}"
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "OnlyByTls",
                "Effect": "Deny",
                "Principal": {"AWS": "*"},
                "Action": "s3:*",
                "Resource": [arn, f"{arn}/*"],
                "Condition": {"Bool": {"aws:SecureTransport": "false"}},
            }
        ],
    }


def upload(session: Session, uri: str, content: bytes) -> None:
    """Upload an object."""
    bucket, key = split_uri(uri)
    session.api("s3").put_object(Bucket=bucket, Key=key, Body=content)


def split_uri(uri: str) -> tuple[str, str]:
    """Split ``s3://bucket/key``.

    Raises:
        SpecError: it is not an S3 URI.
    """
    parts = urlsplit(uri)
    if parts.scheme != "s3" or not parts.netloc:
        raise SpecError(
            f"{uri!r} is not an S3 URI; expected s3://BUCKET/PREFIX", next_step="Correct the S3 URI."
        )
    return parts.netloc, parts.path.lstrip("/")


_ABSENT_CODES = frozenset({"NoSuchBucket", "NoSuchKey", "404"})


def s3_folder(session: Session, uri: str) -> Folder:
    """Return the objects below the prefix ``uri`` as a folder.

    Raises:
        NotFound: the bucket does not exist, or the prefix has no objects.
        CredentialsError, ServiceFault: S3 refuses, or does not answer.
    """
    bucket, prefix = split_uri(uri if uri.endswith("/") else uri + "/")
    sizes = list_sizes(session, bucket, prefix)
    if not sizes:
        raise NotFound(
            f"no objects exist below s3://{bucket}/{prefix}",
            next_step="Correct the prefix, or upload the files with `peagle-sm heads stage`.",
        )

    def read(name: str, start: int, length: int) -> bytes:
        if length == 0:
            return b""
        return read_range(session, bucket, prefix + name, start, length)

    return Folder(f"s3://{bucket}/{prefix}", sizes, read)


def list_sizes(session: Session, bucket: str, prefix: str) -> dict[str, int]:
    """Return the sizes of all objects below the prefix, without folder markers.

    Raises:
        NotFound: the bucket does not exist.
        CredentialsError, ServiceFault: S3 refuses, or does not answer.
    """
    return {name: size for name, size, _ in listed_objects(session, bucket, prefix)}


def listed_objects(session: Session, bucket: str, prefix: str) -> list[tuple[str, int, str]]:
    """Return name below the prefix, size and ETag of all objects, without folder markers.

    Raises:
        NotFound: the bucket does not exist.
        CredentialsError, ServiceFault: S3 refuses, or does not answer.
    """
    with absent_is_not_found(f"s3://{bucket}"):
        listed = session.api("s3").rows("list_objects_v2", "Contents", Bucket=bucket, Prefix=prefix)
        rows = [(row["Key"].removeprefix(prefix), row["Size"], row["ETag"].strip('"')) for row in listed]
    return [row for row in rows if row[0] and not row[0].endswith("/")]


def read_range(session: Session, bucket: str, key: str, start: int, length: int) -> bytes:
    """Return a byte range of an object.

    Raises:
        NotFound: the object does not exist.
        CredentialsError, ServiceFault: S3 refuses, or does not answer.
    """
    span = f"bytes={start}-{start + length - 1}"
    with absent_is_not_found(f"s3://{bucket}/{key}"):
        return _content(session, Bucket=bucket, Key=key, Range=span)


def _content(session: Session, **parameters: str) -> bytes:
    with aws_errors("GetObject", session.local_url):  # also while the body is read
        return bytes(session.client("s3").get_object(**parameters)["Body"].read())


class absent_is_not_found:
    """Context manager that maps S3's codes for missing objects to NotFound."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ServiceFault) and error.code in _ABSENT_CODES:
            raise NotFound(
                f"{self._what} does not exist", next_step="Correct the S3 URI; `aws s3 ls` lists objects."
            ) from error
        if isinstance(error, ServiceFault) and error.code == "403":
            raise _denied(self._what, error) from error


def _denied(what: str, error: ServiceFault) -> PeagleError:
    return CredentialsError(
        f"{what} belongs to another account, or you lack permission to read it",
        next_step="Ask for s3:ListBucket and s3:GetObject on it.",
        details=error.details,
    )
