"""`cdk synth` from a lock: the model is what was locked, and nothing is looked up."""

from __future__ import annotations

from pathlib import Path

import pytest

from peagle_sm.core.errors import PlanRefused
from peagle_sm.core.spec.lock import LockedInstance, LockedModel, LockInput, dump_lock
from stacks.specs import StandIns, plan_for, read_context
from tests.core.jumpstart.making import VLLM, a_lock

LOCK = a_lock(
    asked=LockInput(model="gpt-oss-120b"),
    jumpstart=LockedModel(
        model_id="openai-reasoning-gpt-oss-120b", version="9.9.9", config="best", ranking=("best",)
    ),
    instances={"ml.g7e.2xlarge": LockedInstance(image=VLLM, target_uri="s3://pinned/target/")},
)


def test_a_stack_is_made_from_the_lock_beside_its_spec(tmp_path: Path) -> None:
    spec = tmp_path / "peagle.yaml"
    spec.write_text("name: demo\nmodel: gpt-oss-120b\nplacement: {region: us-east-1}\n")
    (unlocked,) = read_context({"spec": str(spec)}).specs
    with pytest.raises(PlanRefused) as caught:
        plan_for(unlocked, "us-east-1", StandIns())
    assert "peagle-sm lock SPEC" in (caught.value.next_step or "")
    (tmp_path / "peagle.lock").write_text(dump_lock(LOCK))
    (locked,) = read_context({"spec": str(tmp_path)}).specs  # a folder: the lock in it is no spec
    plan = plan_for(locked, "us-east-1", StandIns())
    model = next(request for request in plan.requests if request.operation == "create_model").parameters
    assert model["PrimaryContainer"]["Image"] == VLLM
    assert model["PrimaryContainer"]["ModelDataSource"]["S3DataSource"]["S3Uri"] == "s3://pinned/target/"
    with pytest.raises(PlanRefused, match="it is for region us-east-1, but the plan is for eu-west-1"):
        plan_for(
            locked.model_copy(update={"placement": type(locked.placement)(region="eu-west-1")}),
            "eu-west-1",
            StandIns(),
        )


def test_a_lock_of_the_local_server_is_not_read_for_aws(tmp_path: Path) -> None:
    spec = tmp_path / "peagle.yaml"
    spec.write_text("name: demo\nmodel: gpt-oss-120b\n")
    (tmp_path / "peagle.local.lock").write_text(dump_lock(LOCK))
    with pytest.raises(PlanRefused, match="neither in the catalogue nor locked"):
        plan_for(read_context({"spec": str(spec)}).specs[0], "us-east-1", StandIns())
