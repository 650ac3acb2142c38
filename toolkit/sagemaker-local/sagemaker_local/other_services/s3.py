"""Bucket policies with conditions, which moto ignores: a deny of plain HTTP would deny everything."""

from __future__ import annotations

import json
from typing import Any

from sagemaker_local.other_services.checksums import lay_s3_checksums
from sagemaker_local.other_services.policies import ALLOWED, EXPLICIT, IMPLICIT, decide

_MARK = "peagle_rules"

# What is known of every request. The local port stands in for AWS's, which is reached over TLS.
_CONTEXT = {"aws:SecureTransport": "true"}


def lay_s3_rules() -> None:
    """Add our rules to moto's S3, once in a process.

    A statement of a policy whose condition does not hold says nothing; checksums are held.
    """
    lay_s3_checksums()
    from moto.iam.access_control import PermissionResult
    from moto.s3.models import FakeBucket

    if getattr(FakeBucket, _MARK, False):
        return
    results = {
        ALLOWED: PermissionResult.PERMITTED,
        EXPLICIT: PermissionResult.DENIED,
        IMPLICIT: PermissionResult.NEUTRAL,
    }

    def get_permission(self: Any, action: str, resource: str) -> Any:
        documents = [] if self.policy is None else [json.loads(self.policy)]
        return results[decide(documents, action, resource, _CONTEXT).decision]

    FakeBucket.get_permission = get_permission
    setattr(FakeBucket, _MARK, True)
