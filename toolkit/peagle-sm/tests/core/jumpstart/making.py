"""JumpStart documents for tests: that of gpt-oss-20b, and what has been changed in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from peagle_sm.core.jumpstart.documents import Document, parse_document
from peagle_sm.core.jumpstart.resolve import Buckets, buckets_for
from peagle_sm.core.spec.lock import (
    Lock,
    LockedHead,
    LockedInstance,
    LockedLicence,
    LockedModel,
    LockedSource,
    LockInput,
)
from sagemaker_local.contents.jumpstart_bucket import known_spec

BUCKETS: Buckets = buckets_for("us-east-1", {})
VLLM = "763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm:0.18.0-gpu-py312-cu129-ubuntu22.04-sagemaker"
LMI = "763104351884.dkr.ecr.us-east-1.amazonaws.com/djl-inference:0.34.0-lmi16.0.0-cu128"
TARGET = (
    "s3://jumpstart-cache-prod-us-east-1/openai-reasoning/openai-reasoning-gpt-oss-20b/artifacts/"
    "inference-prepack/v1.0.0/"
)
HEAD = "s3://jumpstart-cache-prod-us-east-1/lmi-eagle-heads/models/gpt-oss-20b-p-eagle/"
CONFIG = (
    '{"model": "/opt/ml/additional-model-data-sources/eagle", "method": "eagle3", '
    '"num_speculative_tokens": 3, "parallel_drafting": true}'
)


def document(change: Callable[[dict[str, Any]], None] = lambda _: None) -> Document:
    """The spec of gpt-oss-20b after a change."""
    spec = known_spec()
    change(spec)
    return parse_document(json.dumps(spec).encode())


def best(spec: dict[str, Any]) -> dict[str, Any]:
    """The component with P-EAGLE, to be changed."""
    component: dict[str, Any] = spec["inference_config_components"]["lmi-optimized"]
    return component


def a_lock(**fields: Any) -> Lock:
    """A lock of gpt-oss-20b on ml.g7e.2xlarge."""
    given: dict[str, Any] = {
        "lock_version": 1,
        "written_by": "peagle-sm 0.1.0",
        "written_at": "2026-11-22T03:00:00+00:00",
        "asked": LockInput(model="gpt-oss-20b"),
        "source": LockedSource(
            place="aws",
            region="us-east-1",
            bucket=BUCKETS.public,
            spec_key="k",
            sha256="0" * 64,
        ),
        "jumpstart": LockedModel(
            model_id="openai-reasoning-gpt-oss-20b",
            version="3.38.0",
            config="lmi-optimized",
            ranking=("lmi-optimized", "lmi"),
            url="https://huggingface.co/openai/gpt-oss-20b",
        ),
        "licence": LockedLicence(gated=False, accepted=False),
        "head": LockedHead(channel="eagle", uri=HEAD),
        "network_isolation": True,
        "environment": {"SM_VLLM_SPECULATIVE_CONFIG": CONFIG, "SM_VLLM_TENSOR_PARALLEL_SIZE": "1"},
        "instances": {"ml.g7e.2xlarge": LockedInstance(image=VLLM, target_uri=TARGET)},
    }
    return Lock(**{**given, **fields})
