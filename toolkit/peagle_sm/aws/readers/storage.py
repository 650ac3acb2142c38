"""What lies elsewhere: the image in its registry, target and head in S3, the volume's key."""

from __future__ import annotations

from typing import Any

from peagle_sm.aws.session.errors import aws_errors
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage.objects import split_uri
from peagle_sm.core.checks.image import registry_of
from peagle_sm.core.checks.preflight_facts import Artifacts, EcrImage, Key, Prefix
from peagle_sm.core.errors import NotFound, ServiceFault
from peagle_sm.core.plan.resolve import Draft

_AT_HOME = "us-east-1"
_LOOKED_AT = 1000
_NO_BUCKET = frozenset({"404", "NoSuchBucket"})
_MEDIA_TYPES = [
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.oci.image.index.v1+json",
]


def image(session: Session, draft: Draft | None) -> EcrImage:
    """Ask the registry for the image's manifest, as a pull does: whoever may pull may ask.

    Raises:
        CredentialsError: ecr:BatchGetImage is denied, here or by the registry's own policy.
        ServiceFault: the image is not one of ECR, or not known.
    """
    assert draft is not None
    parts = registry_of(draft.image.uri) if draft.image else None
    if draft.image is None or parts is None:
        raise ServiceFault("the image is not one of ECR")
    account, _, rest = parts
    path, _, digest = rest.partition("@")
    repository, _, tag = path.partition(":")
    try:
        with aws_errors("BatchGetImage", session.local_url):
            answer = session.client("ecr").batch_get_image(
                registryId=account,
                repositoryName=repository,
                imageIds=[{"imageDigest": digest} if digest else {"imageTag": tag or "latest"}],
                acceptedMediaTypes=_MEDIA_TYPES,
            )
    except ServiceFault as error:
        if error.code not in ("RepositoryNotFoundException", "ImageNotFoundException"):
            raise
        return EcrImage(draft.image.uri, False, error.message)
    failures = answer.get("failures") or ()
    reason = ", ".join(f"{row.get('failureCode')}: {row.get('failureReason')}" for row in failures)
    return EcrImage(draft.image.uri, bool(answer.get("images")), reason)


def artifacts(session: Session, draft: Draft | None) -> Artifacts:
    """List the first objects below the prefixes of target and head.

    Raises:
        CredentialsError: s3:ListBucket is missing, for the caller; the role's rights are looked at apart.
    """
    assert draft is not None
    head = draft.head_uri if draft.speculating else None
    return Artifacts(
        target=_prefix(session, draft.model_uri) if draft.model_uri else None,
        head=_prefix(session, head) if head else None,
    )


def _prefix(session: Session, uri: str) -> Prefix:
    bucket, prefix = split_uri(uri)
    s3 = session.client("s3")
    try:
        with aws_errors("ListObjectsV2", session.local_url):
            answer = s3.list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=_LOOKED_AT)
    except (ServiceFault, NotFound) as error:
        if getattr(error, "code", "404") not in _NO_BUCKET:
            raise
        return Prefix(uri, problem=f"there is no bucket {bucket}")
    rows = answer.get("Contents") or []
    return Prefix(
        uri=uri,
        keys={row["Key"].removeprefix(prefix): row["Size"] for row in rows if row["Key"] != prefix},
        more=bool(answer.get("IsTruncated")),
        region=_region(answer, session),
    )


def kms_keys(session: Session, draft: Draft) -> tuple[str, ...]:
    """Return the ARNs of the keys by which the first objects of target and head are encrypted.

    Raises:
        CredentialsError: s3:GetObject is missing.
    """
    head = draft.head_uri if draft.speculating else None
    found: list[str] = []
    for uri in filter(None, (draft.model_uri, head)):
        bucket, _ = split_uri(uri)
        s3 = session.client("s3")
        with aws_errors("ListObjectsV2", session.local_url):
            rows = (
                s3.list_objects_v2(Bucket=bucket, Prefix=split_uri(uri)[1], MaxKeys=1).get("Contents") or []
            )
        for row in rows:
            with aws_errors("HeadObject", session.local_url):
                answer = s3.head_object(Bucket=bucket, Key=row["Key"])
            if str(answer.get("ServerSideEncryption", "")).startswith("aws:kms"):
                found.append(str(answer.get("SSEKMSKeyId", "")))
    return tuple(dict.fromkeys(filter(None, found)))


def _region(answer: Any, session: Session) -> str | None:
    """S3 says in a header of each answer where the bucket is; botocore follows it there by itself."""
    headers = answer["ResponseMetadata"]["HTTPHeaders"]
    found = headers.get("x-amz-bucket-region")
    return str(found) if found and not session.is_local else None


def key(session: Session, draft: Draft | None) -> Key:
    """Look at the key of the volume."""
    assert draft is not None
    key_id = draft.spec.security.kms_key_id or ""
    try:
        with aws_errors("DescribeKey", session.local_url):
            answer = session.client("kms").describe_key(KeyId=key_id)
    except NotFound:
        return Key(key_id)
    except ServiceFault as error:
        if error.code != "NotFoundException":
            raise
        return Key(key_id)
    return Key(key_id, str(answer["KeyMetadata"].get("KeyState", "")))
