"""S3: one bucket of our own, made safe before anything is put in it."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

from peagle_sm.aws.session.errors import aws_errors
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import CredentialsError, NotFound, ServiceFault
from peagle_sm.core.plan.payloads import partition

_AT_HOME = "us-east-1"
"""The one region that CreateBucket must not be told."""
_ABSENT = frozenset({"404", "NoSuchBucket", "NoSuchKey", "NotFound"})
DELETED_AT_ONCE = 1000  #: keys that DeleteObjects takes


def exists(session: Session, bucket: str) -> bool:
    """Whether the account has that bucket.

    Raises:
        CredentialsError: somebody else has it, or the permission is missing.
    """
    try:
        with aws_errors("HeadBucket", session.local_url):
            session.client("s3").head_bucket(Bucket=bucket, ExpectedBucketOwner=session.account())
    except NotFound:
        return False
    except ServiceFault as error:
        if error.code in _ABSENT:
            return False
        if error.code == "403":
            raise CredentialsError(
                f"the bucket {bucket} belongs to another account, or you may not see it",
                next_step="Ask for s3:ListBucket on it; if another account has that name, tell us.",
                details={"bucket": bucket},
            ) from error
        raise
    return True


def create(session: Session, bucket: str) -> None:
    """Make the bucket in the session's region."""
    place: dict[str, Any] = {}
    if session.region != _AT_HOME:
        place["CreateBucketConfiguration"] = {"LocationConstraint": session.region}
    with aws_errors("CreateBucket", session.local_url):
        session.creating_client("s3").create_bucket(Bucket=bucket, **place)


def secure(session: Session, bucket: str) -> None:
    """Close it to the public, encrypt it, keep old versions, and refuse what does not come by TLS."""
    s3 = session.client("s3")
    closed = dict.fromkeys(
        ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets"), True
    )
    encrypted = {"Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]}
    with aws_errors("PutPublicAccessBlock", session.local_url):
        s3.put_public_access_block(Bucket=bucket, PublicAccessBlockConfiguration=closed)
    with aws_errors("PutBucketEncryption", session.local_url):
        s3.put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration=encrypted)
    with aws_errors("PutBucketVersioning", session.local_url):
        s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    with aws_errors("PutBucketPolicy", session.local_url):
        s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps(_only_by_tls(bucket, session.region)))


def put_if_absent(session: Session, bucket: str, key: str, content: bytes) -> bool:
    """Upload unless the key is there; whether something was uploaded. The key tells the content."""
    s3 = session.client("s3")
    owner = session.account()
    try:
        with aws_errors("HeadObject", session.local_url):
            s3.head_object(Bucket=bucket, Key=key, ExpectedBucketOwner=owner)
        return False
    except NotFound:
        pass
    except ServiceFault as error:
        if error.code not in _ABSENT:
            raise
    checksum = base64.b64encode(hashlib.sha256(content).digest()).decode()
    with aws_errors("PutObject", session.local_url):
        s3.put_object(
            Bucket=bucket, Key=key, Body=content, ChecksumSHA256=checksum, ExpectedBucketOwner=owner
        )
    return True


def remove(session: Session, bucket: str, prefix: str) -> bool:
    """Delete every version under ``prefix`` and then the bucket; False when it holds more, and stays."""
    s3 = session.client("s3")
    with aws_errors("ListObjectVersions", session.local_url):
        rows = [
            {"Key": row["Key"], "VersionId": row["VersionId"]}
            for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket)
            for row in [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
        ]
    ours = [row for row in rows if row["Key"].startswith(prefix)]
    for first in range(0, len(ours), DELETED_AT_ONCE):
        batch = ours[first : first + DELETED_AT_ONCE]
        with aws_errors("DeleteObjects", session.local_url):
            s3.delete_objects(Bucket=bucket, Delete={"Objects": batch, "Quiet": True})
    if len(ours) < len(rows):
        return False
    with aws_errors("DeleteBucket", session.local_url):
        s3.delete_bucket(Bucket=bucket)
    return True


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
