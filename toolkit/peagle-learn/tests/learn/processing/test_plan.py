"""The requests of the two jobs against botocore's model, and what a plan says and refuses."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import validate_parameters

from peagle_learn.core.processing.plan import PreparationPlan, make_preparation_plan
from peagle_learn.core.processing.requests import (
    ENTRYPOINT,
    STAGES,
    PreparationFacts,
    SourceFacts,
    machine_of,
)
from peagle_learn.core.prompts import TargetTexts
from peagle_learn.core.spec import LONGEST_NAME, LearnSpec
from peagle_sm.core.errors import PlanRefused
from sagemaker_local.runtime.processing_run import image_entrypoint
from scripts.lib.locks import read_pins
from tests.container.test_image_files import CONTAINER, hadolint, of

ROOT = CONTAINER.parent
TEXT = (CONTAINER / "Dockerfile.prepare").read_text(encoding="utf-8")
FACTS = PreparationFacts(
    account="123456789012",
    region="us-east-1",
    now=datetime(2026, 11, 20, tzinfo=UTC),
    local=False,
    sources=(
        SourceFacts("s3://t/p/", "d1", 10_000_000, 9),
        SourceFacts("s3://t/g/", "d2", 1_000_000, 1, "general"),
    ),
    target=TargetTexts(True, frozenset({"<s>"}), 32000),
    image="123456789012.dkr.ecr.us-east-1.amazonaws.com/peagle-prepare@sha256:" + "0" * 64,
    role_arn=None,
    prices={"read": 0.46, "split": 0.46},
    price_source="AWS Price List API",
)


def spec(train: dict[str, Any] | None = None, **processing: Any) -> LearnSpec:
    return LearnSpec(
        name="n" * LONGEST_NAME,
        target={"model": "tiny-code"},
        bucket="s3://b/x",
        data={"prompts": ["s3://t/p"], "processing": {"instance_count": 3, **processing}},
        train=train or {},
    )


def plan(
    facts: PreparationFacts = FACTS, train: dict[str, Any] | None = None, **processing: Any
) -> PreparationPlan:
    return make_preparation_plan(spec(train, **processing), facts)


VPC = {"subnets": ["subnet-1"], "security_groups": ["sg-1"], "kms_key": "key-1", "tags": {"team": "a"}}


@pytest.mark.parametrize("train", [None, VPC, {"network_isolation": False}])
def test_both_requests_are_what_aws_takes(train: dict[str, Any] | None) -> None:
    model = ServiceModel(Loader().load_service_model("sagemaker", "service-2"), "sagemaker")
    shape = model.operation_model("CreateProcessingJob").input_shape
    assert shape is not None
    made = plan(train=train)
    for stage in STAGES:
        sent = made.request(stage, 12, "n").parameters
        validate_parameters(sent, shape)
        assert len(sent["ProcessingJobName"]) <= 63
        assert sent["StoppingCondition"] == {"MaxRuntimeInSeconds": 4 * 3600}
        tags = {each["Key"]: each["Value"] for each in sent["Tags"]}
        assert tags["peagle-sm:deadline"] == "2026-11-21T04:30:00Z"  # a day to wait for instances, unbilled
        assert tags["peagle-sm:managed-by"] == "peagle-sm"
        assert sent["NetworkConfig"]["EnableNetworkIsolation"] is (train != {"network_isolation": False})
        assert sent["RoleArn"] == "arn:aws:iam::123456789012:role/peagle-training-us-east-1"


def test_files_are_shared_by_key_and_all_lines_go_to_one_instance() -> None:
    made = plan(train=VPC)
    read, split = made.requests["read"].parameters, made.requests["split"].parameters
    kinds = [
        (each["InputName"], each["S3Input"]["S3DataDistributionType"]) for each in read["ProcessingInputs"]
    ]
    assert kinds == [
        ("settings", "FullyReplicated"),
        ("prompts-1", "ShardedByS3Key"),
        ("general-1", "ShardedByS3Key"),
    ]
    assert read["ProcessingResources"]["ClusterConfig"]["InstanceCount"] == 3
    assert split["ProcessingResources"]["ClusterConfig"]["InstanceCount"] == 1
    assert split["ProcessingInputs"][1]["S3Input"]["S3Uri"] == (
        read["ProcessingOutputConfig"]["Outputs"][0]["S3Output"]["S3Uri"] + "/"
    )
    for sent in (read, split):
        assert sent["ProcessingOutputConfig"]["KmsKeyId"] == "key-1"
        assert sent["ProcessingResources"]["ClusterConfig"]["VolumeKmsKeyId"] == "key-1"
        assert sent["NetworkConfig"]["VpcConfig"] == {"Subnets": ["subnet-1"], "SecurityGroupIds": ["sg-1"]}
    own = plan(train=VPC, instance_type="ml.m5d.2xlarge").requests["read"].parameters
    assert "VolumeKmsKeyId" not in own["ProcessingResources"]["ClusterConfig"]


def test_the_price_is_that_of_both_jobs_at_their_limit() -> None:
    made = plan()
    assert made.max_usd == pytest.approx((3 * 0.46 + 0.46) * 4)
    made.refuse_errors()
    tags = {each["Key"]: each["Value"] for each in made.requests["read"].parameters["Tags"]}
    assert float(tags["peagle-sm:usd-per-hour"]) == pytest.approx(3 * 0.46)
    assert "at most 7.36 USD" in str(made)


def test_the_guards_deadline_counts_from_the_start_of_each_job() -> None:
    later = FACTS.now + timedelta(hours=4)
    tags = {each["Key"]: each["Value"] for each in plan().request("split", 1, "n", later).parameters["Tags"]}
    assert tags["peagle-sm:deadline"] == "2026-11-21T08:30:00Z"


def test_names_follow_what_is_prepared_and_not_how() -> None:
    one = plan()
    assert one.bases == plan(instance_count=7, max_hours=1).bases
    other = replace(FACTS, sources=(SourceFacts("s3://t/p/", "changed", 1, 1),))
    assert set(one.bases.values()).isdisjoint(plan(other).bases.values())


@pytest.mark.parametrize(
    ("facts", "processing", "said"),
    [
        (replace(FACTS, image=None), {}, "data.processing.image is missing"),
        (replace(FACTS, prices={"read": None, "split": 1.0}), {}, "the price of ml.m5.2xlarge in processing"),
        (FACTS, {"budget_usd": 7.0}, "found 7; the jobs can cost 7.36 USD"),
        (replace(FACTS, sources=FACTS.sources * 5), {}, "found 10 sources; a processing job takes at most 9"),
    ],
)
def test_what_would_fail_or_cost_too_much_is_refused(
    facts: PreparationFacts, processing: dict[str, Any], said: str
) -> None:
    with pytest.raises(PlanRefused) as caught:
        plan(facts, **processing).refuse_errors()
    assert said in caught.value.message
    assert caught.value.next_step


def test_idle_instances_a_small_memory_and_a_short_time_are_said() -> None:
    small = replace(FACTS, sources=(SourceFacts("s3://t/p/", "d", 2_000_000_000, 2),))
    found = {one.check: one.message for one in plan(small, max_hours=0.1).findings}
    assert "2 instances read, not 3" in found["instances"]
    assert "needs about 120 GB of memory; ml.m5.2xlarge has 32 GB" in found["memory"]
    assert "the longer job takes about 0.8 h" in found["time"]
    larger = plan(small, split_instance_type="ml.r5.8xlarge")
    assert "memory" not in {one.check for one in larger.findings}
    assert machine_of("ml.g5.xlarge") is None


def test_a_kms_alias_is_refused_for_the_disks() -> None:
    with pytest.raises(PlanRefused, match="a key's id or its ARN"):
        plan(train={"kms_key": "alias/learn"}).refuse_errors()


def test_the_image_is_pinned_and_starts_what_the_request_names() -> None:
    assert hadolint(TEXT) == []
    assert of("FROM", TEXT) == ["${BASE_IMAGE}"]
    (ran,) = of("RUN", TEXT)
    assert ran.startswith('python3 check_base.py "${BASE_IMAGE}" "${PIP_FLOOR}" pip &&')
    assert "--no-deps --require-hashes --only-binary=:all:" in ran
    assert tuple(image_entrypoint()) == ENTRYPOINT
    copied = [word for text in of("COPY", TEXT) for word in text.split()[:-1] if not word.startswith("--")]
    assert [name for name in copied if not (ROOT / name).exists()] == []
    sent = (CONTAINER / "Dockerfile.prepare.dockerignore").read_text(encoding="utf-8").splitlines()
    assert {line[1:] for line in sent if line.startswith("!")} == set(copied)
    program = "import sys, peagle_learn.processing.job; print(*{name.split('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    ours = {name for name in loaded.stdout.split() if name.startswith(("peagle_", "sagemaker_local"))}
    assert {f"toolkit/{name.replace('_', '-')}/{name}" for name in ours} <= set(copied)


def test_its_packages_are_those_of_the_toolkits_lock() -> None:
    def versions(path: Path) -> dict[str, str]:
        return {pin.key: pin.version for pin in read_pins(path.read_text(encoding="utf-8"))}

    whole = versions(ROOT / "requirements/toolkit.lock")
    mine = versions(CONTAINER / "prepare.lock")
    assert {name: whole[name] for name in mine} == mine
    assert "bc-detect-secrets" in mine
