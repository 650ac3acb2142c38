"""Role, bucket and tokenizer of a managed job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from peagle_bench.benchmark.managed_files import JobResources, find_job_resources
from peagle_sm.core.errors import SpecError
from tests.bench.managed.making import Cloud

ROLE = "arn:aws:iam::123456789012:role/r"


def cloud(environment: dict[str, str] | None = None, **container: Any) -> Cloud:
    asked = {"Environment": environment or {}, **container}
    return Cloud(model={"ExecutionRoleArn": ROLE, "PrimaryContainer": asked})


def found(cloud: Cloud, **given: Any) -> JobResources:
    return find_job_resources(cloud.session(), "e", **{"stand_in_weights": False, **given})


def test_all_of_it_is_found_where_the_endpoint_and_the_account_tell_it() -> None:
    world = cloud({"SM_VLLM_MODEL": "org/model"})
    resources = found(world)
    assert resources == JobResources(
        ROLE, "s3://sagemaker-us-east-1-123456789012/peagle-sm/benchmarks", "org/model"
    )
    assert world.buckets == {"sagemaker-us-east-1-123456789012"}
    assert resources.channels(world.session(), "s3://bucket/input") == {}


def test_the_guard_s_role_is_refused_before_anything_is_made() -> None:
    world = Cloud(
        model={"ExecutionRoleArn": f"{ROLE[:-1]}peagle-execution-us-east-1", "PrimaryContainer": {}}
    )
    with pytest.raises(SpecError, match="peagle-execution-us-east-1") as refusal:
        found(world, tokenizer="org/model")
    for needed in ("--role-arn", "sagemaker:InvokeEndpoint", "s3:PutObject"):
        assert needed in (refusal.value.next_step or "")
    assert world.buckets == set()
    assert found(world, tokenizer="org/model", role_arn=ROLE).role_arn == ROLE


def test_what_is_given_is_taken_and_no_bucket_made() -> None:
    world = Cloud(model=None)
    resources = found(world, role_arn="role", s3="s3://mine/there", tokenizer="org/other")
    assert resources == JobResources("role", "s3://mine/there", "org/other")
    assert world.buckets == set()


def test_a_jumpstart_model_is_known_by_the_catalogue() -> None:
    uri = "s3://jumpstart-cache-prod-us-east-1/openai-reasoning/openai-reasoning-gpt-oss-20b/artifacts/"
    resources = found(cloud(ModelDataSource={"S3DataSource": {"S3Uri": uri}}))
    assert resources.tokenizer == "openai/gpt-oss-20b"


def test_the_stand_in_weights_bring_their_own_tokenizer() -> None:
    world = cloud({"SM_VLLM_MODEL": "/opt/ml/model"})
    resources = found(world, stand_in_weights=True)
    assert resources.tokenizer == "/opt/ml/input/data/tokenizer"
    assert resources.channels(world.session(), "s3://bucket/in") == {"tokenizer": "s3://bucket/in/tokenizer/"}
    names = {uri.rpartition("/")[2] for uri in world.objects}
    assert {"tokenizer.json", "tokenizer_config.json"} <= names
    assert not any("safetensors" in name for name in names)


def test_a_directory_with_a_tokenizer_is_uploaded_and_another_one_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"has no tokenizer_config.json"):
        found(cloud(), tokenizer=str(tmp_path))
    (tmp_path / "tokenizer_config.json").write_text("{}")
    assert found(cloud(), tokenizer=str(tmp_path)).tokenizer_files == tmp_path


def test_what_is_not_known_is_asked_for() -> None:
    with pytest.raises(SpecError, match="tokenizer of the endpoint's model is unknown") as refusal:
        found(cloud({"SM_VLLM_MODEL": "/opt/ml/model"}))
    assert "--tokenizer" in (refusal.value.next_step or "")
    with pytest.raises(SpecError, match="role of endpoint 'e' is unknown") as refusal:
        found(Cloud(model=None), tokenizer="org/model")
    assert "--role-arn" in (refusal.value.next_step or "")
    with pytest.raises(SpecError, match="is not an S3 URI"):
        found(cloud(), s3="bucket/there")
