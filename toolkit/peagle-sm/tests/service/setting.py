"""The spec of these tests, and names that the local SageMaker knows."""

from __future__ import annotations

from typing import Any

from peagle_sm.core.spec.endpoint_spec import EndpointSpec

ACCOUNT = "123456789012"
EXECUTION_ROLE = f"arn:aws:iam::{ACCOUNT}:role/peagle-sm-local-execution"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/peagle-sm-local-scheduler"
GUARDS_ROLE = f"arn:aws:iam::{ACCOUNT}:role/peagle-scheduler-us-east-1"
BUCKET = "peagle-tests"
REGISTRY = "763104351884.dkr.ecr.us-east-1.amazonaws.com"


def make_spec(name: str = "demo", env: dict[str, str] | None = None, **changes: Any) -> EndpointSpec:
    """A spec whose engine comes up when `Account.sleep` lets it; ``env`` scripts it."""
    fields: dict[str, Any] = {
        "name": name,
        "model": "gpt-oss-20b",
        "source": "container",
        "image": f"{REGISTRY}/vllm:0.30.0-gpu-py312-cu130-ubuntu24.04-sagemaker",
        "model_uri": f"s3://{BUCKET}/target/",
        "head_uri": f"s3://{BUCKET}/head/",
        "speculation": {"mode": "p-eagle", "num_speculative_tokens": 3, "draft_head": "mine"},
        "placement": {"instance_types": ["ml.g7e.2xlarge"]},
        "lifecycle": {"max_lifetime_hours": 8},
        "serving": {"env": {"SCRIPT_GATE": name, **(env or {})}},
        "execution_role_arn": EXECUTION_ROLE,
        "scheduler_role_arn": ROLE,
    }
    return EndpointSpec(**{**fields, **changes})
