"""The request of `learn train` against AWS's public documentation: the dry run, and what arrives over HTTP.

`faults_of` knows nothing of the toolkit: it reads SageMaker's service model as botocore ships it, and
the rules that stand only in its text. Quotations are from the API reference and the developer guide.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from peagle_learn import train as learning
from peagle_learn.aws.jobs import describe_job, job_names
from peagle_learn.core.spec import LearnSpec
from peagle_learn.core.training_plan import LearnPlan, make_training_plan
from peagle_learn.core.training_request import TrainingFacts
from peagle_sm.aws.session.session import Session
from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.resources.resource import Request
from tests.cli.running import run
from tests.core.support import breaches
from tests.learn.conftest import WEIGHTS

Make = Callable[..., LearnSpec]
EBS, NVME, GPUS = "ml.c7i.2xlarge", "ml.g6e.2xlarge", "ml.p5en.48xlarge"
# EC2 user guide, "Instance store volumes" (types with NVMe SSD volumes), of the families that are used here.
HAVE_INSTANCE_STORE = {EBS: False, NVME: True, GPUS: True}
KEY_ID = "1234abcd-12ab-34cd-56ef-1234567890ab"
KEY_ARN = f"arn:aws:kms:us-east-1:111122223333:key/{KEY_ID}"
IN_A_VPC = {"subnets": ["subnet-0123456789abcdef0"], "security_groups": ["sg-0123456789abcdef0"]}


def faults_of(request: dict[str, Any]) -> list[str]:
    """Return all that AWS refuses of a CreateTrainingJob request, and what the project's own rules forbid."""
    sent = Request("sagemaker", "create_training_job", request)
    return [*breaches(sent), *_against_text(request)]


def _against_text(request: dict[str, Any]) -> Iterator[str]:
    resources, stopping = request["ResourceConfig"], request["StoppingCondition"]
    key = resources.get("VolumeKmsKeyId")
    if HAVE_INSTANCE_STORE[resources["InstanceType"]]:
        if key is not None:
            yield "You can't request a VolumeKmsKeyId when using an instance type with local storage"
    elif not resources.get("VolumeSizeInGB"):
        yield "EBS-only storage option: you must define the size of EBS volume through VolumeSizeInGB"
    # "The VolumeKmsKeyId can be in any of the following formats": KMS Key ID, ARN of a KMS Key.
    if key is not None and not re.fullmatch(
        r"[0-9a-f-]{36}|arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/\S+", key
    ):
        yield f"VolumeKmsKeyId is {key}: neither a key's id nor its ARN"
    wait, longest = stopping.get("MaxWaitTimeInSeconds"), stopping["MaxRuntimeInSeconds"]
    if request["EnableManagedSpotTraining"] != (wait is not None):
        yield "MaxWaitTimeInSeconds is of managed Spot training, which needs it"
    if wait is not None and wait < longest:
        yield "MaxWaitTimeInSeconds must be equal to or greater than MaxRuntimeInSeconds"
    if longest > 28 * 86_400:
        yield "MaxRuntimeInSeconds: the maximum value is 28 days"
    # "The containers can't make any outbound network calls, even to other AWS services such as Amazon S3":
    # all that a job reads is a channel, all that it leaves lies where SageMaker itself copies it from.
    if any("s3://" in value for value in request["HyperParameters"].values()) or "Environment" in request:
        yield "the container would have to fetch something itself"
    if request["CheckpointConfig"]["LocalPath"] != "/opt/ml/checkpoints":
        yield "CheckpointConfig: the default directory is /opt/ml/checkpoints/"
    if resources.get("KeepAlivePeriodInSeconds"):
        yield "this project: a warm pool is billed after the job"
    if request["EnableInterContainerTrafficEncryption"] != (resources["InstanceCount"] > 1):
        yield "this project: several instances encrypt what they send each other"


def test_the_checker_finds_what_aws_refuses(local: Session, folder: Path, make_spec: Make) -> None:
    sound = learning.plan_training(make_spec(), local, folder).request.parameters
    assert faults_of(sound) == []
    for change in (
        {"ResourceConfig": {"InstanceType": EBS, "InstanceCount": 1}},
        {"ResourceConfig": {"InstanceType": NVME, "InstanceCount": 1, "VolumeKmsKeyId": KEY_ID}},
        {"ResourceConfig": {**sound["ResourceConfig"], "VolumeKmsKeyId": "alias/mine"}},
        {"ResourceConfig": {**sound["ResourceConfig"], "KeepAlivePeriodInSeconds": 60}},
        {"ResourceConfig": {**sound["ResourceConfig"], "InstanceCount": 2}},
        {"StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 60}},
        {"StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxPendingTimeInSeconds": 60}},
        {"EnableManagedSpotTraining": True},
        {"OutputDataConfig": {**sound["OutputDataConfig"], "KmsKeyId": "a key"}},
        {"Environment": {"HF_TOKEN": "x"}},
    ):
        assert faults_of({**sound, **change}), change


COMBINATIONS = [
    {"instance_type": kind, "instance_count": count, "spot": spot, "network_isolation": alone, **vpc, **key}
    for kind, count, spot, alone, vpc, key in itertools.product(
        (EBS, NVME, GPUS),
        (1, 3),
        (False, True),
        (True, False),
        ({}, IN_A_VPC),
        ({}, {"kms_key": KEY_ID}, {"kms_key": KEY_ARN}),
    )
]


def planned(facts: TrainingFacts, spec: LearnSpec) -> LearnPlan:
    """The plan of a spec with the facts of another: what was read, but for the instance."""
    kind = str(spec.train.instance_type)
    return make_training_plan(
        spec, replace(facts, instance_type=kind, instance=load_catalog().instances[kind])
    )


def test_aws_takes_every_combination_and_each_setting_is_where_it_belongs(
    local: Session, folder: Path, make_spec: Make
) -> None:
    facts = learning.plan_training(make_spec(), local, folder).facts
    for train in COMBINATIONS:
        plan = planned(facts, make_spec(**train))
        request = plan.request.parameters
        assert faults_of(request) == [], train
        assert plan.errors == [], train
        given, resources = make_spec(**train).train, request["ResourceConfig"]
        assert resources["InstanceCount"] == given.instance_count
        assert request["EnableNetworkIsolation"] is given.network_isolation
        assert request["OutputDataConfig"].get("KmsKeyId") == given.kms_key
        on_disk = None if HAVE_INSTANCE_STORE[resources["InstanceType"]] else given.kms_key
        assert resources.get("VolumeKmsKeyId") == on_disk
        vpc = request.get("VpcConfig", {"Subnets": [], "SecurityGroupIds": []})
        assert (vpc["Subnets"], vpc["SecurityGroupIds"]) == (given.subnets, given.security_groups)
        by_name = {one.check: one.message for one in plan.findings}
        # Nobody is left to believe that a key encrypts disks that take none.
        assert ("encrypts the head alone" in by_name.get("kms-key", "")) == bool(
            given.kms_key and not on_disk
        )
        assert ("UDP 500" in by_name.get("network", "")) == bool(given.subnets and given.instance_count > 1)


def test_what_aws_would_refuse_is_an_error_before_anything_is_created(
    local: Session, folder: Path, make_spec: Make
) -> None:
    """The service model names two formats for a volume's key; OutputDataConfig takes an alias, too."""
    facts = learning.plan_training(make_spec(), local, folder).facts
    (alias,) = planned(facts, make_spec(instance_type=EBS, kms_key="alias/mine")).errors
    assert alias.check == "kms-key"
    assert "'alias/mine'" in alias.message
    assert planned(facts, make_spec(instance_type=NVME, kms_key="alias/mine")).errors == []
    sized = planned(facts, make_spec(instance_type=NVME, volume_gb=500))
    assert "VolumeSizeInGB" not in sized.request.parameters["ResourceConfig"]
    assert [one.severity for one in sized.findings if one.check == "volume"] == ["warning"]


def front_door(local: Session, folder: Path, name: str, train: dict[str, Any], *words: str) -> Result:
    document = {
        "name": name,
        "target": {"model": "tiny-code", "uri": f"{WEIGHTS}target/"},
        "head": f"{WEIGHTS}p-eagle/",
        "bucket": "s3://learn-tests/requests",
        "train": {
            "training": "training.tokens.jsonl",
            "validation": "validation.tokens.jsonl",
            **train,
        },
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(document))
    return run("learn", "train", path, *words, *local.command_flags().split(), "--format", "json")


@pytest.mark.parametrize(
    "train",
    [
        {"instance_type": EBS, "kms_key": KEY_ARN, **IN_A_VPC},
        {"instance_type": EBS, "instance_count": 2, "kms_key": KEY_ID, "spot": True, **IN_A_VPC},
        {"instance_type": NVME, "instance_count": 2, "kms_key": "alias/mine", "network_isolation": False},
    ],
)
def test_what_the_dry_run_prints_is_what_arrives(
    local: Session, folder: Path, request: pytest.FixtureRequest, train: dict[str, Any]
) -> None:
    name = f"arrives-{request.node.callspec.id.replace('train', '')}"
    dry = front_door(local, folder, name, train, "--dry-run")
    assert dry.exit_code == 0, dry.output
    printed = json.loads(dry.stdout)["request"]
    sent = front_door(local, folder, name, train, "--yes", "--unguarded")
    assert sent.exit_code == 0, sent.output
    job = describe_job(local, printed["TrainingJobName"])
    assert job is not None
    assert job.instances == train.get("instance_count", 1)
    arrived = {member: job.raw[member] for member in printed if member != "Tags"}
    tags = local.api("sagemaker").list_tags(ResourceArn=job.arn)["Tags"]
    assert arrived == {member: value for member, value in printed.items() if member != "Tags"}
    # The deadline is counted from the moment of the plan.
    assert [one["Key"] for one in tags] == [one["Key"] for one in printed["Tags"]]


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ({"instance_type": EBS, "kms_key": "alias/mine"}, "a key's id or its ARN"),
        ({"subnets": ["subnet-1"]}, "security_groups: found []"),
        ({"subnets": ["subnet 1"], "security_groups": ["sg-1"]}, "subnets"),
        ({"instance_count": 0}, "instance_count: found 0"),
        ({"max_wait_hours": 9}, "max_wait_hours: found 9 with spot: false"),
        ({"spot": True, "max_hours": 2, "max_wait_hours": 1}, "allowed: 2 or more"),
        ({"kms_key": "a key"}, "kms_key"),
    ],
)
def test_the_front_door_tells_what_aws_would_refuse(
    local: Session, folder: Path, train: dict[str, Any], message: str
) -> None:
    for words in (("--dry-run",), ("--yes", "--unguarded")):
        refused = front_door(local, folder, "refused", train, *words)
        assert refused.exit_code not in (0, 1), refused.output
        assert message in refused.output
    assert list(job_names(local, "refused-")) == []
