"""Where JumpStart keeps what the local S3 stands in for: its catalogue, and models' artifacts."""

from __future__ import annotations

from peagle_sm.core.catalog import load_catalog
from peagle_sm.local.jumpstart_bucket import (
    MADE_HEAD,
    MADE_TARGET,
    documents,
    gated_bucket,
    public_bucket,
)
from peagle_sm.local.moto_stores import Artifacts
from peagle_sm.local.seed import Address


def jumpstart_addresses(region: str) -> list[Address]:
    """Give where target and P-EAGLE head lie: of models whose spec is known, and of the made specs."""
    bucket = public_bucket(region)
    addresses = []
    for entry in load_catalog().jumpstart.values():
        if not entry.gated:  # gated models lie in a bucket that only JumpStart itself may read
            addresses.append(Address("target", bucket, entry.target_key))
            addresses.append(Address("p-eagle", bucket, entry.draft_key))
    return [*addresses, Address("target", bucket, MADE_TARGET), Address("p-eagle", bucket, MADE_HEAD)]


def lay_catalogue(artifacts: Artifacts, region: str) -> None:
    """Make both buckets and put manifest and specs into the public one. Blocks."""
    for bucket in (public_bucket(region), gated_bucket(region)):
        artifacts.make_bucket(bucket)
    for key, content in documents().items():
        artifacts.put(content, public_bucket(region), key)
