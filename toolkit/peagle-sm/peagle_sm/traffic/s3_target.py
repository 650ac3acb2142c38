"""An S3 prefix as a target: compressed objects of whole lines, encrypted, tagged, with a lifecycle rule.

Keys are ``PREFIX/ENDPOINT/yyyy/mm/dd/hh/peagle-traffic-<time>-<writer>-<number>.jsonl.gz``. The rule deletes
only objects that have this prefix and the tag that this writer puts on its own.
"""

from __future__ import annotations

import gzip
import hashlib
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from peagle_sm.aws.session.errors import aws_errors, is_unsettled
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage.s3 import absent_is_not_found, split_uri
from peagle_sm.core.errors import CredentialsError, PeagleError, ServiceFault, SpecError
from peagle_sm.traffic.recorder import Lost

TAG = ("peagle-sm", "traffic")
NAME = "peagle-traffic-"
BATCH_BYTES = 4 * 1024 * 1024
BATCH_S = 60.0  #: at most between a request and its upload
_MOST_BYTES = 16 * 1024 * 1024  #: kept while uploads fail; the oldest lines are lost first
_AGAIN_S = 30.0  #: after an upload that failed
_RULES = 1000  #: maximum rules in a bucket's lifecycle configuration (S3 user guide)


class S3Target:
    """Lines in batches under a prefix; `prepare` checks the bucket first."""

    def __init__(
        self,
        session: Session,
        uri: str,
        endpoint: str,
        *,
        keep_days: int | None,
        kms_key_id: str | None = None,
        batch_bytes: int = BATCH_BYTES,
        batch_s: float = BATCH_S,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the prefix; ``kms_key_id`` None uses the bucket's own encryption.

        Raises:
            SpecError: ``uri`` is not an S3 URI.
        """
        self._session = session
        self.bucket, prefix = split_uri(uri)
        self.prefix = prefix.strip("/") + "/" if prefix.strip("/") else ""
        self._endpoint = endpoint
        self._keep_days = keep_days
        self._kms_key_id = kms_key_id
        self._batch_bytes = batch_bytes
        self._batch_s = batch_s
        self._clock = clock
        self._monotonic = monotonic
        self._writer = secrets.token_hex(4)
        self._number = 0
        self._lines: list[bytes] = []
        self._size = 0
        self._since = 0.0
        self._not_before = 0.0

    def prepare(self) -> None:
        """Check that the bucket can be written, and add the lifecycle rule.

        Raises:
            NotFound: the bucket does not exist.
            SpecError: the bucket is in another region, or everybody can read it.
            CredentialsError: a permission is missing.
            ServiceFault: S3 returns an error, or does not answer.
        """
        self._check_region()
        self._refuse_public()
        if self._keep_days is not None:
            self._add_rule(self._keep_days)
        try:
            self._put(b"")  # an empty object: the same permissions, key and tag as the records need
        except (CredentialsError, ServiceFault) as error:
            if isinstance(error, ServiceFault) and error.code != "403":
                raise
            raise CredentialsError(
                f"{self.describe()} does not accept records: {error.message}",
                next_step="ask for s3:PutObject and s3:PutObjectTagging on the prefix, and for"
                " kms:GenerateDataKey on its key, or record to a file",
            ) from error

    def write(self, lines: Sequence[bytes]) -> Lost | None:
        """Keep lines for the next upload."""
        if not self._lines:
            self._since = self._monotonic()
        self._lines += lines
        self._size += sum(map(len, lines))
        return self._shortened()

    def tick(self) -> Lost | None:
        """Upload a batch that is large or old enough."""
        now = self._monotonic()
        due = self._size >= self._batch_bytes or now - self._since >= self._batch_s
        if not self._lines or not due or now < self._not_before:
            return None
        return self._upload()

    def close(self) -> Lost | None:
        """Upload the rest."""
        return self._upload(last=True) if self._lines else None

    def describe(self) -> str:
        """Return the prefix."""
        return f"s3://{self.bucket}/{self.prefix}"

    def _upload(self, *, last: bool = False) -> Lost | None:
        try:
            self._put(b"".join(self._lines))
        except PeagleError as error:
            self._not_before = self._monotonic() + _AGAIN_S
            reason = f"{self.describe()}: {error.message}"
            # A refusal lasts; other errors may pass, so the lines are kept while there is room.
            if last or not is_unsettled(error):
                lost, self._lines, self._size = len(self._lines), [], 0
                return Lost(lost, reason)
            return self._shortened()
        self._lines, self._size = [], 0
        return None

    def _shortened(self) -> Lost | None:
        lost = 0
        while self._size > _MOST_BYTES:
            self._size -= len(self._lines[lost])
            lost += 1
        del self._lines[:lost]
        return Lost(lost, f"{self.describe()}: S3 does not accept them fast enough") if lost else None

    def _put(self, content: bytes) -> None:
        now = datetime.fromtimestamp(self._clock(), UTC)
        place = f"{self.prefix}{self._endpoint}/{now:%Y/%m/%d/%H}/"
        key = f"{place}{NAME}{now:%Y%m%dT%H%M%SZ}-{self._writer}-{self._number}.jsonl.gz"
        encryption: dict[str, Any] = {}
        if self._kms_key_id is not None:
            encryption = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": self._kms_key_id}
        with aws_errors("PutObject", self._session.local_url):
            self._session.client("s3").put_object(
                Bucket=self.bucket,
                Key=key,
                Body=gzip.compress(content, compresslevel=6, mtime=0),
                ContentType="application/jsonl",
                Tagging="=".join(TAG),
                ExpectedBucketOwner=self._session.account(),
                **encryption,
            )
        self._number += 1

    def _check_region(self) -> None:
        with absent_is_not_found(f"s3://{self.bucket}"), aws_errors("HeadBucket", self._session.local_url):
            try:
                head = self._session.client("s3").head_bucket(
                    Bucket=self.bucket, ExpectedBucketOwner=self._session.account()
                )
            except Exception as error:
                region = _region_in(error)
                if region in (None, self._session.region):
                    raise
                head = {"BucketRegion": region}
        region = head.get("BucketRegion") or self._session.region
        if region != self._session.region:
            raise SpecError(
                f"the bucket {self.bucket} is in {region}; allowed: {self._session.region}, the endpoint's "
                "region, so that prompts do not leave it",
                next_step="give a bucket in that region, or record to a file",
            )

    def _refuse_public(self) -> None:
        try:
            with aws_errors("GetBucketPolicyStatus", self._session.local_url):
                status = self._session.client("s3").get_bucket_policy_status(Bucket=self.bucket)
        except PeagleError:
            return  # no policy, or no permission to read it
        if status.get("PolicyStatus", {}).get("IsPublic"):
            raise SpecError(
                f"the bucket {self.bucket} has a public policy: everybody could read the prompts",
                next_step="block public access to the bucket, or give another one",
            )

    def _add_rule(self, days: int) -> None:
        s3, local = self._session.client("s3"), self._session.local_url
        rule = lifecycle_rule(self.prefix, days)
        try:
            with aws_errors("GetBucketLifecycleConfiguration", local):
                lifecycle: Mapping[str, Any] = s3.get_bucket_lifecycle_configuration(Bucket=self.bucket)
        except PeagleError as error:
            if not _is_no_rules(error):
                raise _without_rule(self.bucket, error) from error
            lifecycle = {}
        others = [each for each in lifecycle.get("Rules", ()) if each.get("ID") != rule["ID"]]
        if rule in lifecycle.get("Rules", ()):
            return
        if len(others) >= _RULES:
            raise SpecError(
                f"the bucket {self.bucket} has {len(others):,} lifecycle rules; allowed: {_RULES:,}",
                next_step="give another bucket, or --keep-days forever",
            )
        default = lifecycle.get("TransitionDefaultMinimumObjectSize")
        kept = {"TransitionDefaultMinimumObjectSize": default} if default else {}
        try:
            with aws_errors("PutBucketLifecycleConfiguration", local):
                s3.put_bucket_lifecycle_configuration(
                    Bucket=self.bucket, LifecycleConfiguration={"Rules": [*others, rule]}, **kept
                )
        except PeagleError as error:
            raise _without_rule(self.bucket, error) from error


def lifecycle_rule(prefix: str, days: int) -> dict[str, Any]:
    """Return the rule that deletes this writer's objects under a prefix, and their old versions."""
    name, value = TAG
    return {
        "ID": f"peagle-sm-traffic-{hashlib.sha256(prefix.encode()).hexdigest()[:12]}",
        "Filter": {"And": {"Prefix": prefix, "Tags": [{"Key": name, "Value": value}]}},
        "Status": "Enabled",
        "Expiration": {"Days": days},
        "NoncurrentVersionExpiration": {"NoncurrentDays": 1},
    }


def _without_rule(bucket: str, error: PeagleError) -> PeagleError:
    return CredentialsError(
        f"the lifecycle rule that deletes old records cannot be set on {bucket}: {error.message}",
        next_step="ask for s3:GetLifecycleConfiguration and s3:PutLifecycleConfiguration on the bucket, or"
        " give --keep-days forever and delete the records yourself",
    )


def _is_no_rules(error: PeagleError) -> bool:
    return getattr(
        error, "code", ""
    ) == "NoSuchLifecycleConfiguration" or "lifecycle configuration does not" in (error.message.lower())


def _region_in(error: Exception) -> str | None:
    response = getattr(error, "response", None)
    headers = (response or {}).get("ResponseMetadata", {}).get("HTTPHeaders", {})
    region = headers.get("x-amz-bucket-region")
    return str(region) if region else None
