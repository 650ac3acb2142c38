"""Role, bucket and tokenizer of a managed job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from peagle_sm.core.errors import SpecError
from peagle_sm.measure.benchmark.managed_files import Place, find_place
from tests.measure.managed.making import Cloud

ROLE = "arn:aws:iam::123456789012:role/r"


def cloud(environment: dict[str, str] | None = None, **container: Any) -> Cloud:
    asked = {"Environment": environment or {}, **container}
    return Cloud(model={"ExecutionRoleArn": ROLE, "PrimaryContainer": asked})


def found(cloud: Cloud, **given: Any) -> Place:
    return find_place(cloud.session(), "e", **{"stand_in_weights": False, **given})


def test_all_of_it_is_found_where_the_endpoint_and_the_account_tell_it() -> None:
    world = cloud({"SM_VLLM_MODEL": "org/model"})
    place = found(world)
    assert place == Place(ROLE, "s3://sagemaker-us-east-1-123456789012/peagle-sm/benchmarks", "org/model")
    assert world.buckets == {"sagemaker-us-east-1-123456789012"}
    assert place.channels(world.session(), "s3://bucket/input") == {}


def test_what_is_given_is_taken_and_no_bucket_made() -> None:
    world = Cloud(model=None)
    place = found(world, role_arn="role", s3="s3://mine/there", tokenizer="org/other")
    assert place == Place("role", "s3://mine/there", "org/other")
    assert world.buckets == set()


def test_a_jumpstart_model_is_known_by_the_catalogue() -> None:
    uri = "s3://jumpstart-cache-prod-us-east-1/openai-reasoning/openai-reasoning-gpt-oss-20b/artifacts/"
    place = found(cloud(ModelDataSource={"S3DataSource": {"S3Uri": uri}}))
    assert place.tokenizer == "openai/gpt-oss-20b"


def test_the_stand_in_weights_bring_their_own_tokenizer() -> None:
    world = cloud({"SM_VLLM_MODEL": "/opt/ml/model"})
    place = found(world, stand_in_weights=True)
    assert place.tokenizer == "/opt/ml/input/data/tokenizer"
    assert place.channels(world.session(), "s3://bucket/in") == {"tokenizer": "s3://bucket/in/tokenizer/"}
    names = {uri.rpartition("/")[2] for uri in world.objects}
    assert {"tokenizer.json", "tokenizer_config.json"} <= names
    assert not any("safetensors" in name for name in names)


def test_a_directory_with_a_tokenizer_is_uploaded_and_another_one_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"holds no tokenizer_config.json"):
        found(cloud(), tokenizer=str(tmp_path))
    (tmp_path / "tokenizer_config.json").write_text("{}")
    assert found(cloud(), tokenizer=str(tmp_path)).tokenizer_files == tmp_path


def test_what_is_not_known_is_asked_for() -> None:
    with pytest.raises(SpecError, match="tokenizer of the endpoint's model is not known") as refusal:
        found(cloud({"SM_VLLM_MODEL": "/opt/ml/model"}))
    assert "--tokenizer" in (refusal.value.next_step or "")
    with pytest.raises(SpecError, match="role of endpoint 'e' is not known") as refusal:
        found(Cloud(model=None), tokenizer="org/model")
    assert "--role-arn" in (refusal.value.next_step or "")
    with pytest.raises(SpecError, match="is not an S3 URI"):
        found(cloud(), s3="bucket/there")
