"""What a recording will do: checked, described, then started.

Nothing is opened or created before `start`, so that a command can show the plan and ask.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from peagle_sm.aws.session.errors import aws_errors
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage.s3 import split_uri
from peagle_sm.core.errors import PeagleError, SpecError
from peagle_sm.traffic.exchange import NEVER
from peagle_sm.traffic.recorder import Recorder, RecordTarget, TrafficSource
from peagle_sm.traffic.worker import need_library

KEEP_DAYS = 30
FOREVER = "forever"
_MOST_DAYS = 3650

STORED = "prompts, answers, parameters, token counts, times, slices and acceptance, with secrets redacted"
LIMITS = "names, addresses, unknown formats of keys, and secrets in images stay or cannot be recognised"
LEFT_OUT = f"token ids, log-probabilities, images, audio; the fields {', '.join(NEVER[:-1])} and {NEVER[-1]}"


@dataclass(frozen=True)
class RecordingPlan:
    """Settings of a recording; ``keep_days`` None keeps records for ever."""

    target: str
    sample: float = 1.0
    keep_days: int | None = KEEP_DAYS
    kms_key_id: str | None = None

    @property
    def is_s3(self) -> bool:
        """True if records go to S3."""
        return self.target.startswith("s3://")

    def rows(self) -> list[tuple[str, str]]:
        """Return what will be recorded, as names and texts for people."""
        share = "every request" if self.sample == 1 else f"{self.sample:.3g} of the requests, by chance"
        return [
            ("records", f"{share}, to {self.target}"),
            ("stored", STORED),
            ("not stored", LEFT_OUT),
            ("redaction", f"by format; {LIMITS}"),
            ("encryption", self._encryption()),
            ("kept", self._kept()),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            **dict(self.rows()),
            "target": self.target,
            "sample": self.sample,
            "keep_days": self.keep_days,
        }

    def _encryption(self) -> str:
        if not self.is_s3:
            return "none of its own: the disk's; the file is readable by you only (mode 600)"
        if self.kms_key_id is not None:
            return f"SSE-KMS with {self.kms_key_id}"
        return "the bucket's own (S3 encrypts with SSE-S3 unless the bucket has a key)"

    def _kept(self) -> str:
        if self.keep_days is None:
            return "until you delete them"
        days = f"{self.keep_days} day{'' if self.keep_days == 1 else 's'}"
        if self.is_s3:
            return f"{days}, by a lifecycle rule on the bucket, for the objects of this recording only"
        return f"{days} after a file is full or a day old; deleted while a recording runs"


def planned(
    target: str,
    *,
    sample: float = 1.0,
    keep_days: int | str | None = KEEP_DAYS,
    kms_key_id: str | None = None,
) -> RecordingPlan:
    """Check the settings of a recording; ``keep_days`` "forever" or None keeps the records.

    Raises:
        SpecError: a setting is invalid.
    """
    if not 0 < sample <= 1:
        raise SpecError(
            f"sample: found {sample:g}; allowed: above 0, at most 1 (1 records every request)",
            next_step="give for example 0.1 for one request in ten",
        )
    if kms_key_id is not None and not kms_key_id.strip():
        raise SpecError(
            f"KMS key: found {kms_key_id!r}; allowed: the key's id, ARN or alias",
            next_step="give for example alias/records, or leave the key out",
        )
    plan = RecordingPlan(target, sample, _days(keep_days), kms_key_id)
    if plan.is_s3:
        split_uri(target)
    elif "://" in target or not target:
        raise SpecError(
            f"found {target!r}; allowed: a file, or s3://BUCKET/PREFIX",
            next_step="give for example traffic.jsonl",
        )
    elif kms_key_id is not None:
        raise SpecError(
            f"KMS key: found {kms_key_id!r} with the file {target}; allowed: with s3://BUCKET/PREFIX only",
            next_step="record to S3, or leave the key out and keep the file on an encrypted disk",
        )
    return plan


def _days(value: int | str | None) -> int | None:
    if value is None or value == FOREVER:
        return None
    try:
        days = int(value)
    except ValueError:
        days = 0
    if not 1 <= days <= _MOST_DAYS:
        raise SpecError(
            f"keep days: found {value!r}; allowed: 1 to {_MOST_DAYS}, or {FOREVER}",
            next_step=f"give a number of days, for example {KEEP_DAYS}",
        )
    return days


def with_endpoint_key(plan: RecordingPlan, session: Session, endpoint: str) -> RecordingPlan:
    """Return the plan with the KMS key of the endpoint's config, unless it has a key or needs none."""
    if not plan.is_s3 or plan.kms_key_id is not None:
        return plan
    try:
        with aws_errors("DescribeEndpointConfig", session.local_url):
            client = session.client("sagemaker")
            name = client.describe_endpoint(EndpointName=endpoint)["EndpointConfigName"]
            key = client.describe_endpoint_config(EndpointConfigName=name).get("KmsKeyId")
    except PeagleError:
        return plan  # no permission to describe it: the bucket's own encryption
    return replace(plan, kms_key_id=key) if key else plan


def start(
    plan: RecordingPlan,
    session: Session,
    source: TrafficSource,
    *,
    on_problem: Callable[[str], object] = lambda message: None,
) -> Recorder:
    """Open the target, check it, and start recording.

    Raises:
        NotFound: the bucket, or a package that is needed, does not exist.
        SpecError: the file or the bucket cannot be used.
        CredentialsError, ServiceFault: S3 refuses, or does not answer.
    """
    need_library()
    target = _target(plan, session, source.endpoint)
    return Recorder(target, source, sample=plan.sample, on_problem=on_problem)


def _target(plan: RecordingPlan, session: Session, endpoint: str) -> RecordTarget:
    if not plan.is_s3:
        from peagle_sm.traffic.file_target import FileTarget

        return FileTarget(Path(plan.target), keep_days=plan.keep_days)
    from peagle_sm.traffic.s3_target import S3Target

    bucket = S3Target(session, plan.target, endpoint, keep_days=plan.keep_days, kms_key_id=plan.kms_key_id)
    bucket.prepare()
    return bucket
