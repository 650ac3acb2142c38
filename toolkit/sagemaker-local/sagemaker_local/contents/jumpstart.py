"""The local JumpStart bucket: its catalogue, and models' artifacts."""

from __future__ import annotations

from sagemaker_local.contents.jumpstart_bucket import (
    MADE_HEAD,
    MADE_TARGET,
    documents,
    gated_bucket,
    known_head,
    known_target,
    public_bucket,
)
from sagemaker_local.contents.seed import Address
from sagemaker_local.other_services.stores import Artifacts


def jumpstart_addresses(region: str) -> list[Address]:
    """Return the addresses of targets and P-EAGLE heads, for AWS's own spec and the generated specs."""
    bucket = public_bucket(region)
    return [
        Address("target", bucket, known_target()),
        Address("p-eagle", bucket, known_head()),
        Address("target", bucket, MADE_TARGET),
        Address("p-eagle", bucket, MADE_HEAD),
    ]


def lay_catalogue(artifacts: Artifacts, region: str) -> None:
    """Create both buckets and put manifest and specs into the public one. Blocks."""
    for bucket in (public_bucket(region), gated_bucket(region)):
        artifacts.make_bucket(bucket)
    for key, content in documents().items():
        artifacts.put(content, public_bucket(region), key)
