"""Which buckets a region's JumpStart has, and what in the environment replaces them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# The SageMaker SDK's own names (sagemaker.core.jumpstart.constants).
PUBLIC_OVERRIDE = "AWS_JUMPSTART_CONTENT_BUCKET_OVERRIDE"
GATED_OVERRIDE = "AWS_JUMPSTART_GATED_CONTENT_BUCKET_OVERRIDE"
MODEL_OVERRIDE = "AWS_JUMPSTART_MODEL_BUCKET_OVERRIDE"
NEO_OVERRIDE = "AWS_NEO_CONTENT_BUCKET_OVERRIDE"


@dataclass(frozen=True)
class Buckets:
    """``public`` also has manifest and specs; ``neo`` has draft heads that are not JumpStart's own.

    ``target`` replaces both for the target's files, where it is set.
    """

    public: str
    gated: str
    neo: str
    target: str | None = None


def buckets_for(region: str, environ: Mapping[str, str]) -> Buckets:
    """Return the buckets of a region; every region has these names (region_config.json of the SDK)."""
    return Buckets(
        public=environ.get(PUBLIC_OVERRIDE) or f"jumpstart-cache-prod-{region}",
        gated=environ.get(GATED_OVERRIDE) or f"jumpstart-private-cache-prod-{region}",
        neo=environ.get(NEO_OVERRIDE) or f"sagemaker-sd-models-prod-{region}",
        target=environ.get(MODEL_OVERRIDE) or None,
    )
