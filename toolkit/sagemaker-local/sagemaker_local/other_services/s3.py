"""Our rules of S3, and what a request reads.

Bucket policies with conditions, which moto ignores: a deny of plain HTTP would deny everything.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote

from aiohttp import web

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


def place_read(request: web.Request) -> str | None:
    """Return the S3 URI of the object that a request reads or copies, or of the prefix that it lists."""
    source = request.headers.get("x-amz-copy-source")
    if source is not None:
        return f"s3://{unquote(source).lstrip('/').partition('?')[0]}"
    if request.method not in ("GET", "HEAD"):
        return None
    host, path = request.host.partition(":")[0], request.path.lstrip("/")
    if host.endswith(".localhost"):
        path = f"{host.partition('.')[0]}/{path}"
    bucket, _, key = path.partition("/")
    return f"s3://{bucket}/{key or request.query.get('prefix', '')}"
