"""The two CreateProcessingJob requests of a preparation, from what was read. Pure.

What each member does is in SageMaker's API reference: CreateProcessingJob, ProcessingS3Input (shards by key),
ProcessingS3Output, ProcessingClusterConfig (instances with disks of their own take no key),
ProcessingStoppingCondition.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from peagle_learn.core.job_names import attempt_name, job_tags
from peagle_learn.core.processing.lines import GENERAL, PROMPTS, SCHEMA
from peagle_learn.core.prompts import TargetTexts
from peagle_learn.core.spec import LearnSpec
from peagle_learn.core.training_request import PENDING_HOURS, SLACK, role_arn, seconds, vpc_config
from peagle_sm.core.resources.resource import Request
from peagle_sm.core.words import Finding

Stage = Literal["read", "split"]
STAGES: tuple[Stage, ...] = ("read", "split")
#: The entry point of the image; `container/Dockerfile.prepare` has the same.
ENTRYPOINT = ("python3", "-P", "-m", "peagle_learn.processing.job")
INPUT, OUTPUT = "/opt/ml/processing/input", "/opt/ml/processing/output"
SETTINGS = "settings"
SETTINGS_FILE = "settings.json"
MOST_INPUTS = 10
"""ProcessingInputs of a job; one of them has the settings."""
_SPARE_GB = 30
_DISKS = re.compile(r"ml\.[a-z]+\d+[a-z]*d[a-z]*\.")
_SIZE = re.compile(r"ml\.([a-z]+)\d+[a-z]*\.(?:(\d*)xlarge|large)")
_GB_PER_CPU = {"c": 2, "m": 4, "r": 8}


@dataclass(frozen=True)
class SourceFacts:
    """One input of the first job: its S3 prefix, a hash of its listing, and its size."""

    uri: str
    digest: str
    bytes: int
    objects: int
    of: str = PROMPTS


@dataclass(frozen=True)
class CpuMachine:
    """CPUs and memory of an instance type of the families c, m and r."""

    cpus: int
    memory_gb: float


def machine_of(instance_type: str) -> CpuMachine | None:
    """Return what an instance type has; None for one that is not of these families.

    >>> machine_of("ml.m5.2xlarge"), machine_of("ml.c6i.large")
    (CpuMachine(cpus=8, memory_gb=32), CpuMachine(cpus=2, memory_gb=4))
    """
    found = _SIZE.fullmatch(instance_type)
    if found is None or found[1] not in _GB_PER_CPU:
        return None
    cpus = 2 if found[2] is None else 4 * int(found[2] or 1)
    return CpuMachine(cpus, cpus * _GB_PER_CPU[found[1]])


def own_disks(instance_type: str) -> bool:
    """Return whether the instances have disks of their own, for which SageMaker takes no key."""
    return _DISKS.match(instance_type) is not None


@dataclass(frozen=True)
class PreparationFacts:
    """What was read for a preparation; prices are USD per hour of one instance, None if unknown."""

    account: str
    region: str
    now: datetime
    local: bool
    sources: tuple[SourceFacts, ...]
    target: TargetTexts
    image: str | None
    role_arn: str | None
    prices: Mapping[Stage, float | None]
    price_source: str
    notes: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = field(default=())

    @property
    def bytes(self) -> int:
        """Bytes of all sources."""
        return sum(each.bytes for each in self.sources)


def prepared_uri(spec: LearnSpec, job: str) -> str:
    """Return the S3 prefix of what a job of a preparation leaves; ends with a slash."""
    return f"{spec.folder}data/prepared/{job}/"


def settings_uri(spec: LearnSpec, base: str) -> str:
    """Return the S3 prefix of the settings of a preparation; ends with a slash."""
    return f"{spec.folder}data/prepared/settings/{base}/"


def settings_of(spec: LearnSpec, facts: PreparationFacts) -> dict[str, Any]:
    """Return what both jobs are told, as JSON types."""
    data, target = spec.data, facts.target
    tokens = None if target.control_tokens is None else sorted(target.control_tokens)
    return {
        "schema": SCHEMA,
        "sources": {each.uri: each.digest for each in facts.sources},
        "prompts": sum(each.of == PROMPTS for each in facts.sources),
        "general": sum(each.of == GENERAL for each in facts.sources),
        "max_tokens": data.max_tokens,
        "held_out": data.held_out,
        "general_trained": data.general_trained,
        "limit": data.limit,
        "seed": data.seed,
        "target": {
            "has_template": target.has_template,
            "control_tokens": tokens,
            "vocab_size": target.vocab_size,
        },
    }


def instances_of(spec: LearnSpec, facts: PreparationFacts, stage: Stage) -> int:
    """Return the instances of a job: to read, not more than there are files."""
    if stage == "split":
        return 1
    files = max((each.objects for each in facts.sources), default=1)
    return max(1, min(spec.data.processing.instance_count, files))


def type_of(spec: LearnSpec, stage: Stage) -> str:
    """Return the instance type of a job."""
    processing = spec.data.processing
    split = processing.split_instance_type if stage == "split" else None
    return split or processing.instance_type


def max_seconds(spec: LearnSpec) -> int:
    """Return the maximum run time of each job."""
    return seconds(spec.data.processing.max_hours)


def processing_request(
    spec: LearnSpec,
    facts: PreparationFacts,
    stage: Stage,
    *,
    base: str,
    attempt: int,
    settings_base: str,
    read_job: str | None = None,
) -> Request:
    """Return the request of a job; ``read_job`` is the first job, whose lines the second one reads."""
    name, train = attempt_name(base, attempt), spec.train
    count = instances_of(spec, facts, stage)
    price = facts.prices[stage]
    deadline = facts.now + timedelta(hours=spec.data.processing.max_hours + PENDING_HOURS) + SLACK
    inputs = [_input(SETTINGS, settings_uri(spec, settings_base), "FullyReplicated")]
    if stage == "read":
        numbers = {PROMPTS: 0, GENERAL: 0}
        for each in facts.sources:
            numbers[each.of] += 1
            inputs.append(_input(f"{each.of}-{numbers[each.of]}", each.uri, "ShardedByS3Key"))
    else:
        inputs.append(_input("lines", prepared_uri(spec, read_job or ""), "FullyReplicated"))
    network: dict[str, Any] = {
        "EnableNetworkIsolation": train.network_isolation,
        "EnableInterContainerTrafficEncryption": False,  # the instances do not talk to each other
    }
    network |= vpc_config(train)
    output: dict[str, Any] = {
        "OutputName": "prepared",
        "S3Output": {
            "S3Uri": prepared_uri(spec, name).rstrip("/"),
            "LocalPath": OUTPUT,
            "S3UploadMode": "EndOfJob",
        },
    }
    outputs: dict[str, Any] = {"Outputs": [output]}
    outputs |= {"KmsKeyId": train.kms_key} if train.kms_key is not None else {}
    parameters = {
        "ProcessingJobName": name,
        "ProcessingInputs": inputs,
        "ProcessingOutputConfig": outputs,
        "ProcessingResources": {"ClusterConfig": _cluster(spec, facts, stage, count)},
        "StoppingCondition": {"MaxRuntimeInSeconds": max_seconds(spec)},
        "AppSpecification": {
            "ImageUri": facts.image,
            "ContainerEntrypoint": list(ENTRYPOINT),
            "ContainerArguments": [stage],
        },
        "NetworkConfig": network,
        "RoleArn": role_arn(spec, facts),
        "Tags": job_tags(spec.name, deadline, None if price is None else price * count, train.tags),
    }
    return Request("sagemaker", "create_processing_job", parameters)


def _input(name: str, uri: str, distribution: str) -> dict[str, Any]:
    return {
        "InputName": name,
        "S3Input": {
            "S3Uri": uri,
            "LocalPath": f"{INPUT}/{name}",
            "S3DataType": "S3Prefix",
            "S3InputMode": "File",
            "S3DataDistributionType": distribution,
            "S3CompressionType": "None",
        },
    }


def _cluster(spec: LearnSpec, facts: PreparationFacts, stage: Stage, count: int) -> dict[str, Any]:
    kind = type_of(spec, stage)
    share = 3 * facts.bytes / count  # its files, packed ones unpacked, and what it writes
    cluster: dict[str, Any] = {
        "InstanceCount": count,
        "InstanceType": kind,
        "VolumeSizeInGB": spec.data.processing.volume_gb or math.ceil(share / 1e9) + _SPARE_GB,
    }
    if spec.train.kms_key is not None and not own_disks(kind):
        cluster["VolumeKmsKeyId"] = spec.train.kms_key
    return cluster
