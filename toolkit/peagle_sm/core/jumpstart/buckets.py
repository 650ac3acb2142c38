"""Which buckets a region's JumpStart has, and what in the environment replaces them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# The SageMaker SDK's own names (sagemaker.core.jumpstart.constants).
PUBLIC_OVERRIDE = "AWS_JUMPSTART_CONTENT_BUCKET_OVERRIDE"
GATED_OVERRIDE = "AWS_JUMPSTART_GATED_CONTENT_BUCKET_OVERRIDE"
MODEL_OVERRIDE = "AWS_JUMPSTART_MODEL_BUCKET_OVERRIDE"
NEO_OVERRIDE = "AWS_NEO_CONTENT_BUCKET_OVERRIDE"

NEO_REGIONS = frozenset(
    {
        "ap-northeast-1",
        "ap-northeast-2",
        "ap-northeast-3",
        "ap-south-1",
        "ap-southeast-1",
        "ap-southeast-2",
        "ca-central-1",
        "eu-central-1",
        "eu-north-1",
        "eu-west-1",
        "eu-west-2",
        "eu-west-3",
        "sa-east-1",
        "us-east-1",
        "us-east-2",
        "us-west-1",
        "us-west-2",
    }
)
"""The regions with a bucket of draft heads by other providers (region_config.json of the SDK)."""


@dataclass(frozen=True)
class Buckets:
    """``public`` also has manifest and specs; ``neo`` has draft heads of other providers.

    ``neo`` is None in regions without such a bucket. ``target`` replaces ``public`` and ``gated`` for the
    target's files, if it is set.
    """

    public: str
    gated: str
    neo: str | None
    target: str | None = None


def buckets_for(region: str, environ: Mapping[str, str]) -> Buckets:
    """Return the buckets of a region, by the names in region_config.json of the SDK."""
    neo = f"sagemaker-sd-models-prod-{region}" if region in NEO_REGIONS else None
    return Buckets(
        public=environ.get(PUBLIC_OVERRIDE) or f"jumpstart-cache-prod-{region}",
        gated=environ.get(GATED_OVERRIDE) or f"jumpstart-private-cache-prod-{region}",
        neo=environ.get(NEO_OVERRIDE) or neo,
        target=environ.get(MODEL_OVERRIDE) or None,
    )
