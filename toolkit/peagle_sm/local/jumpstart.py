"""Where JumpStart keeps the artifacts that the local S3 stands in for."""

from __future__ import annotations

from peagle_sm.core.catalog import load_catalog
from peagle_sm.local.seed import Address


def jumpstart_addresses(region: str) -> list[Address]:
    """Give where target and P-EAGLE head of each model lie whose JumpStart spec is known."""
    bucket = f"jumpstart-cache-prod-{region}"
    addresses = []
    for entry in load_catalog().jumpstart.values():
        if not entry.gated:  # gated models lie in a bucket that only JumpStart itself may read
            addresses.append(Address("target", bucket, entry.target_key))
            addresses.append(Address("p-eagle", bucket, entry.draft_key))
    return addresses
