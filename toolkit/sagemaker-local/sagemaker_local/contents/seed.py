"""Initial contents of a local AWS: two roles, buckets, the small stand-in weights, and heads of SmolLM2.

The stand-in weights are in a bucket of our own and, for JumpStart's models, also at the addresses in their
specs. So the unmodified JumpStart path works offline, with answers of the stand-in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sagemaker_local.engine.env import engine_locks
from sagemaker_local.other_services.moto import Moto
from sagemaker_local.other_services.stores import Artifacts, Roles

_AWS_IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm:0.30.0-gpu-py312-cu130-ubuntu24.04-sagemaker"
_CPU_IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/vllm:{}-cpu"
_TRAINER_IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/peagle-trainer:cpu"

PREFIXES = {
    "smollm2-135m-instruct/eagle3": "smollm2-135m-instruct-heads/eagle3/",
    "smollm2-135m-instruct/p-eagle": "smollm2-135m-instruct-heads/p-eagle/",
    "target": "tiny-code/target/",
    "eagle3": "tiny-code/eagle3/",
    "p-eagle": "tiny-code/p-eagle/",
}
"""Prefix in our own bucket by folder of the shipped weights.

Heads are not below their target's prefix: an engine that loads the target gets all that is there.
"""


@dataclass(frozen=True)
class Address:
    """S3 address of one folder of the shipped weights."""

    part: str
    bucket: str
    prefix: str

    @property
    def uri(self) -> str:
        """The S3 URI, ending in a slash."""
        return f"s3://{self.bucket}/{self.prefix}"


@dataclass(frozen=True)
class Seeded:
    """Result of the seed; ``artifacts`` is empty if the weights are missing, as ``weights`` says."""

    role_arn: str
    scheduler_role_arn: str
    artifacts: Mapping[str, str]
    weights: str
    image_uris: Mapping[str, str] = field(default_factory=lambda: image_uris())


def image_uris() -> dict[str, str]:
    """Return images by name; ``vllm-cpu`` is the default engine, ``vllm-cpu:0.30.0`` that version of vLLM.

    ``peagle-trainer`` is the image of training jobs.
    """
    versions = list(engine_locks())
    named = {f"vllm-cpu:{version}": _CPU_IMAGE.format(version) for version in versions}
    return {
        "vllm": _AWS_IMAGE,
        "vllm-cpu": _CPU_IMAGE.format(versions[0]),
        **named,
        "peagle-trainer": _TRAINER_IMAGE,
    }


def own_addresses(region: str) -> list[Address]:
    """Addresses of the weights in our own bucket."""
    return [Address(part, f"peagle-sm-local-{region}", prefix) for part, prefix in PREFIXES.items()]


def seed(moto: Moto, weights: Path, further: list[Address]) -> Seeded:
    """Create roles and buckets and upload the weights, here and at ``further`` addresses. Blocks."""
    roles, artifacts = Roles(moto), Artifacts(moto)
    role = roles.make(
        "peagle-sm-local-execution",
        "sagemaker.amazonaws.com",
        ["s3:GetObject", "s3:ListBucket", "s3:PutObject", "logs:*", "cloudwatch:PutMetricData", "ecr:*"],
    )
    scheduler_role = roles.make(
        "peagle-sm-local-scheduler",
        "scheduler.amazonaws.com",
        ["sagemaker:DeleteEndpoint", "sagemaker:DescribeEndpoint", "sqs:SendMessage"],
    )
    own = own_addresses(moto.region)
    for bucket in {address.bucket for address in [*own, *further]}:
        artifacts.make_bucket(bucket)
    missing = [part for part in PREFIXES if not files_of(weights / part)]
    for address in [*own, *further]:
        if address.part not in missing:
            artifacts.upload(files_of(weights / address.part), address.bucket, address.prefix)
    return Seeded(
        role_arn=role,
        scheduler_role_arn=scheduler_role,
        artifacts={address.part: address.uri for address in own if address.part not in missing},
        weights=_words(missing),
    )


def files_of(directory: Path) -> list[tuple[str, Path]]:
    """Return name below the folder and path of each file."""
    if not directory.is_dir():
        return []
    paths = sorted(path for path in directory.rglob("*") if path.is_file())
    return [(path.relative_to(directory).as_posix(), path) for path in paths]


def _words(missing: list[str]) -> str:
    if not missing:
        return "SmolLM2-135M-Instruct with two draft heads; small stand-in weights for JumpStart and tests"
    return f"shipped weights missing: {', '.join(missing)}; see PEAGLE_SM_WEIGHTS"
