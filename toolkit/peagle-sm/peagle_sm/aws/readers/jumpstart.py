"""Documents of JumpStart's bucket."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from peagle_sm.aws.session.errors import aws_errors
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import NotFound, ServiceFault

_ABSENT = frozenset({"NoSuchKey", "NoSuchBucket", "404"})


@dataclass(frozen=True)
class Fetched:
    """One document, and the sha256 of its content in hex."""

    content: bytes
    sha256: str


def read_document(session: Session, bucket: str, key: str) -> Fetched:
    """Read a document.

    Raises:
        CredentialsError: no credentials, or no permission to read the bucket.
        NotFound: the bucket or the document does not exist.
        ServiceFault: S3 failed.
    """
    try:
        with aws_errors("GetObject", session.local_url):
            content = session.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    except ServiceFault as error:
        if error.code not in _ABSENT:
            raise
        if error.code == "NoSuchBucket":
            raise NotFound(
                f"the bucket {bucket} does not exist: region {session.region} has no JumpStart",
                next_step="Give another --region, or set source: container in the spec.",
            ) from error
        raise NotFound(
            f"s3://{bucket}/{key} does not exist",
            next_step="Run `peagle-sm lock --upgrade SPEC` to use JumpStart's present version.",
        ) from error
    return Fetched(content, hashlib.sha256(content).hexdigest())
