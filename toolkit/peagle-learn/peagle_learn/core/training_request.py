"""The CreateTrainingJob request of a plan, from what was read. Pure.

What each member does, and what AWS refuses, is in SageMaker's API reference: CreateTrainingJob,
ResourceConfig, StoppingCondition, VpcConfig, CheckpointConfig. `tests/learn/test_requests.py` reads them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from peagle_learn.core.job_names import job_tags, metric_definitions
from peagle_learn.core.price import TrainingPrice
from peagle_learn.core.recipes import HeadSizes, Recipe
from peagle_learn.core.rules import HeadShape, TargetShape
from peagle_learn.core.spec import LearnSpec
from peagle_sm.core.catalog import InstanceEntry
from peagle_sm.core.guard import TRAINING_ROLE_PREFIX
from peagle_sm.core.plan.tags_and_schedules import partition
from peagle_sm.core.resources.resource import Request
from peagle_sm.core.served_target import ServedTarget
from peagle_sm.core.words import Finding

PENDING_HOURS = 24
"""A job on demand may wait this long for capacity, unbilled; then SageMaker, or the guard, ends it."""
SLACK = timedelta(minutes=30)
"""The guard's deadline of a job is this much after the job's own limits."""
_SPARE_GB = 30


def training_role(region: str) -> str:
    """Return the name of the role that the stack PeagleTraining creates."""
    return f"{TRAINING_ROLE_PREFIX}{region}"


@dataclass(frozen=True)
class ChannelFacts:
    """One channel of data: its S3 prefix, a hash of its content, and its sizes; None if not counted.

    A document is one line; documents of one conversation count as one conversation. ``checked`` says what of
    large data was read before the job. ``files`` are this machine's, which are sent to the prefix once the
    job is confirmed.
    """

    uri: str
    digest: str
    bytes: int
    tokens: int | None = None
    documents: int | None = None
    conversations: int | None = None
    checked: str = ""
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class TrainingFacts:
    """What was read for a plan.

    ``recipe`` has the real sizes of target and head where their files were read; ``head_uri`` is None for a
    head from nothing. ``sizes`` and ``head`` are what the trainer compares settings with; None if unknown.
    ``data_is_to_come``: `learn data` will store it before the job, so missing data is not an error.
    """

    account: str
    region: str
    now: datetime
    local: bool
    recipe: Recipe
    target_uri: str | None
    target_digest: str
    target_bytes: int
    head_uri: str | None
    head_digest: str
    training: ChannelFacts | None
    validation: ChannelFacts | None
    instance_type: str
    instance: InstanceEntry | None
    price: TrainingPrice
    image: str | None
    role_arn: str | None
    target: ServedTarget = field(default_factory=ServedTarget)
    findings: tuple[Finding, ...] = ()
    sizes: TargetShape | None = None
    head: HeadShape | None = None
    data_is_to_come: bool = False

    @property
    def channels(self) -> dict[str, ChannelFacts]:
        """Return the channels of data that exist, by name."""
        both = {"training": self.training, "validation": self.validation}
        return {name: channel for name, channel in both.items() if channel is not None}


def text(value: Any) -> str:
    """Return a hyperparameter as SageMaker has it: a string."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(str, value)) + "]"
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def artifact_uri(spec: LearnSpec, job: str) -> str:
    """Return where SageMaker puts a job's head."""
    return f"{spec.folder}jobs/{job}/output/model.tar.gz"


def training_request(
    spec: LearnSpec, facts: TrainingFacts, values: Mapping[str, Any], head: HeadSizes, base: str
) -> Request:
    """Return the request of a job's first attempt."""
    train = spec.train
    request: dict[str, Any] = {
        "TrainingJobName": base,
        "AlgorithmSpecification": {
            "TrainingImage": facts.image,
            "TrainingInputMode": "File",
            "MetricDefinitions": metric_definitions(head.depths),
        },
        "RoleArn": role_arn(spec, facts),
        "HyperParameters": {name: text(value) for name, value in values.items()},
        "InputDataConfig": list(_channels(spec, facts)),
        "OutputDataConfig": {"S3OutputPath": f"{spec.folder}jobs"},
        "ResourceConfig": _resources(spec, facts),
        "StoppingCondition": _stopping(spec, facts),
        "CheckpointConfig": {
            "S3Uri": f"{spec.folder}checkpoints/{base}",
            "LocalPath": "/opt/ml/checkpoints",
        },
        "EnableManagedSpotTraining": train.spot,
        "EnableNetworkIsolation": train.network_isolation,
        "EnableInterContainerTrafficEncryption": train.instance_count > 1,
        "Tags": job_tags(spec.name, deadline(spec, facts.now), facts.price.usd_per_hour, train.tags),
    }
    if train.kms_key is not None:
        request["OutputDataConfig"]["KmsKeyId"] = train.kms_key
    if train.subnets:
        vpc = {"Subnets": list(train.subnets), "SecurityGroupIds": list(train.security_groups)}
        request["VpcConfig"] = vpc
    return Request("sagemaker", "create_training_job", request)


def channel_dict(channel: ChannelFacts) -> dict[str, Any]:
    """Return a channel's place and sizes as plain JSON types."""
    return {name: value for name, value in asdict(channel).items() if name not in ("digest", "files")}


def role_arn(spec: LearnSpec, facts: TrainingFacts) -> str:
    """Return a job's role: the spec's, the local server's, or that of the stack PeagleTraining."""
    stack = f"arn:{partition(facts.region)}:iam::{facts.account}:role/{training_role(facts.region)}"
    return spec.train.execution_role_arn or facts.role_arn or stack


def out_of_reach(spec: LearnSpec, facts: TrainingFacts, parameters: Mapping[str, str]) -> dict[str, str]:
    """Return what the role of the stack PeagleTraining may not use, by the field of learn.yaml.

    ``parameters`` are the stack's. The role uses its prefix alone, and reads JumpStart's models.
    """
    own = f"s3://{parameters.get('Bucket', '')}/{parameters.get('Prefix', '')}/"
    read = [own, *(f"s3://jumpstart-{kind}cache-prod-{facts.region}/" for kind in ("", "private-"))]
    used = {"target.uri": facts.target_uri, "head": facts.head_uri}
    used |= {f"train.{name}": channel.uri for name, channel in facts.channels.items()}
    unreachable = {} if spec.folder.startswith(own) else {"bucket": spec.bucket}
    return unreachable | {name: uri for name, uri in used.items() if uri and not uri.startswith(tuple(read))}


def _channels(spec: LearnSpec, facts: TrainingFacts) -> list[dict[str, Any]]:
    named = {
        "target": facts.target_uri,
        "head": facts.head_uri,
        "training": facts.training.uri if facts.training else None,
        "validation": facts.validation.uri if facts.validation else None,
    }
    channels = []
    for name, uri in named.items():
        if uri is None:
            continue
        source: dict[str, Any] = {
            "S3DataType": "S3Prefix",
            "S3Uri": uri,
            "S3DataDistributionType": "FullyReplicated",
        }
        if name == "target" and spec.target.accept_eula:
            source["ModelAccessConfig"] = {"AcceptEula": True}
        channels.append({"ChannelName": name, "DataSource": {"S3DataSource": source}})
    return channels


def _resources(spec: LearnSpec, facts: TrainingFacts) -> dict[str, Any]:
    train = spec.train
    # No KeepAlivePeriodInSeconds: a warm pool would be billed after the job.
    resources: dict[str, Any] = {"InstanceType": facts.instance_type, "InstanceCount": train.instance_count}
    if not own_disks(facts):  # SageMaker attaches no volume to these, and refuses a key for their own disks
        resources["VolumeSizeInGB"] = train.volume_gb or _volume_gb(facts)
        if train.kms_key is not None:
            resources["VolumeKmsKeyId"] = train.kms_key
    return resources


def own_disks(facts: TrainingFacts) -> bool:
    """Return whether the instances have disks of their own, which take neither a size nor a key."""
    return facts.instance is not None and facts.instance.local_storage


def _volume_gb(facts: TrainingFacts) -> int:
    data = sum(channel.bytes for channel in (facts.training, facts.validation) if channel)
    # A checkpoint has the head with its states; two exist at once, and the head in model/.
    head = facts.recipe.head.parameters(facts.recipe.target) * 16 * 3
    return math.ceil((facts.target_bytes + 2 * data + head) / 1e9) + _SPARE_GB


def seconds(hours: float) -> int:
    """Return a limit in whole seconds, at least 1."""
    return max(1, int(hours * 3600))


def _stopping(spec: LearnSpec, facts: TrainingFacts) -> dict[str, int]:
    train = spec.train
    stopping = {"MaxRuntimeInSeconds": seconds(train.max_hours)}
    if train.spot:
        stopping["MaxWaitTimeInSeconds"] = seconds(wait_hours(spec))
    elif facts.instance is not None and facts.instance.gpu_count:
        stopping["MaxPendingTimeInSeconds"] = seconds(PENDING_HOURS)  # of accelerated instances only
    return stopping


def wait_hours(spec: LearnSpec) -> float:
    """Return the hours that a spot job may wait and train."""
    return spec.train.max_wait_hours or 2 * spec.train.max_hours


def deadline(spec: LearnSpec, now: datetime) -> datetime:
    """Return when the guard stops a job that is sent ``now``; SageMaker's own limits end it before."""
    hours = wait_hours(spec) if spec.train.spot else spec.train.max_hours + PENDING_HOURS
    return now + timedelta(hours=hours) + SLACK
