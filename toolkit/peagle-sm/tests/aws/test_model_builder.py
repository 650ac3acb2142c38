"""A ModelBuilder of the SageMaker SDK as a spec: what is taken over, and what is refused with its reason.

The class here has the attributes of the SDK's own, which tests/sagemaker_sdk builds specs from as well.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pytest

from peagle_sm.aws.session.sagemaker_sdk import is_builder, spec_from_builder
from peagle_sm.core.errors import SpecError
from peagle_sm.core.spec.own_model import OwnModel

ROLE = "arn:aws:iam::123456789012:role/execution"
GPT_OSS = "openai-reasoning-gpt-oss-20b"


class Mode(Enum):
    LOCAL_CONTAINER = 2
    SAGEMAKER_ENDPOINT = 3


@dataclass
class ModelBuilder:
    model: Any = GPT_OSS
    role_arn: str | None = ROLE
    image_uri: str | None = None
    env_vars: dict[str, str] = field(default_factory=dict)
    instance_type: str | None = "ml.g7e.2xlarge"
    instance_count: int | None = 1
    model_version: str | None = "*"
    config_name: str | None = None
    accept_eula: bool | None = False
    vpc_config: dict[str, list[str]] | None = None
    mode: Mode = Mode.SAGEMAKER_ENDPOINT
    hub_name: str | None = None
    resource_requirements: Any = None
    model_kms_key: str | None = None
    built_model: Any = None


def test_what_is_a_builder() -> None:
    assert is_builder(ModelBuilder())
    assert not is_builder({"model": GPT_OSS, "env_vars": {}})
    assert not is_builder("peagle.yaml")


def test_a_model_that_the_catalogue_does_not_have_is_given_as_a_spec_has_it() -> None:
    builder = ModelBuilder(model="meta-vlm-llama-4-scout", instance_type="ml.p5.48xlarge")
    for model, source in (
        ({"name": "scout.mine", "jumpstart": "meta-vlm-llama-4-scout"}, "jumpstart"),
        ({"name": "scout.mine", "config": "team/scout"}, "container"),
        (OwnModel(name="scout.mine", config="team/scout"), "container"),
    ):
        spec = spec_from_builder(builder, model=model, speculation={"mode": "none"})
        assert (spec.name, spec.model_name, spec.source) == ("scout-mine", "scout.mine", source)
        assert spec.own_model is not None
        assert spec.placement.instance_types == ["ml.p5.48xlarge"]
    with pytest.raises(SpecError) as caught:
        spec_from_builder(builder)
    assert "model=" in str(caught.value.next_step)


def test_all_that_a_spec_has_is_taken_over() -> None:
    builder = ModelBuilder(
        instance_count=2,
        model_version="3.38.0",
        config_name="lmi-optimized",
        accept_eula=True,
        image_uri="763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm:0.30.0",
        vpc_config={"Subnets": ["subnet-1"], "SecurityGroupIds": ["sg-1"]},
        env_vars={
            "SM_VLLM_TENSOR_PARALLEL_SIZE": "2",
            "SM_VLLM_DATA_PARALLEL_SIZE": "4",
            "SM_VLLM_MAX_MODEL_LEN": "4096",
            "SM_VLLM_SEED": "7",
            "SM_VLLM_SPECULATIVE_CONFIG": json.dumps(
                {"method": "eagle3", "num_speculative_tokens": 5, "parallel_drafting": True}
            ),
        },
    )
    spec = spec_from_builder(builder, name="mine", tags={"team": "search"})
    assert spec.model_dump(mode="json", exclude_defaults=True) == {
        "name": "mine",
        "model": "gpt-oss-20b",
        "source": "jumpstart",
        "speculation": {"num_speculative_tokens": 5},
        "serving": {
            "tensor_parallel_size": 2,
            "data_parallel_size": 4,
            "max_model_len": 4096,
            "env": {"SM_VLLM_SEED": "7"},
        },
        "placement": {"instance_types": ["ml.g7e.2xlarge"], "instance_count": 2},
        "security": {"vpc": {"subnet_ids": ["subnet-1"], "security_group_ids": ["sg-1"]}},
        "tags": {"team": "search"},
        "execution_role_arn": ROLE,
        "image": "763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm:0.30.0",
        "accept_eula": True,
    }


def test_what_is_left_out_is_the_specs_own() -> None:
    spec = spec_from_builder(ModelBuilder(role_arn=None, instance_type=None, instance_count=None))
    assert (spec.name, spec.speculation.mode, spec.placement.instance_types) == ("gpt-oss-20b", "p-eagle", [])


def test_fields_that_are_given_go_before_the_builders() -> None:
    spec = spec_from_builder(ModelBuilder(), placement={"instance_types": ["ml.p5.48xlarge"]})
    assert spec.placement.instance_types == ["ml.p5.48xlarge"]


@pytest.mark.parametrize(
    ("drafting", "mode"),
    [({"parallel_drafting": True}, "p-eagle"), ({}, "eagle3"), ({"method": "eagle3"}, "eagle3")],
)
def test_the_mode_is_read_from_the_speculative_config(drafting: dict[str, Any], mode: str) -> None:
    variables = {"SM_VLLM_SPECULATIVE_CONFIG": json.dumps(drafting)}
    assert spec_from_builder(ModelBuilder(env_vars=variables)).speculation.mode == mode


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": "huggingface-llm-gemma"}, "found 'huggingface-llm-gemma'; allowed: a JumpStart id"),
        ({"model": object()}, "allowed: a JumpStart id"),
        ({"model_version": "1.0.0"}, "found '1.0.0'; allowed: 3.38.0, or left out"),
        ({"config_name": "lmi"}, "found 'lmi'; allowed: lmi-optimized, or left out"),
        ({"mode": Mode.LOCAL_CONTAINER}, "found LOCAL_CONTAINER; allowed: SAGEMAKER_ENDPOINT"),
        ({"hub_name": "private"}, "hub_name: found 'private'"),
        ({"resource_requirements": {"memory": 1}}, "resource_requirements: found"),
        ({"model_kms_key": "key"}, "model_kms_key: found 'key'"),
        ({"built_model": object()}, "found one after build()"),
        ({"env_vars": {"SM_VLLM_MAX_MODEL_LEN": "many"}}, "found 'many'; allowed: a whole number"),
        ({"env_vars": {"SM_VLLM_SPECULATIVE_CONFIG": "{method:eagle3}"}}, "allowed: a JSON object of vLLM"),
        (
            {"env_vars": {"SM_VLLM_SPECULATIVE_CONFIG": '{"method": "ngram"}'}},
            "allowed: a JSON object of vLLM",
        ),
    ],
)
def test_what_a_spec_cannot_say_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as refusal:
        spec_from_builder(ModelBuilder(**change))
    assert said in refusal.value.message
    assert refusal.value.next_step


def test_a_near_miss_is_named() -> None:
    with pytest.raises(SpecError, match="Did you mean"):
        spec_from_builder(ModelBuilder(model="openai-reasoning-gpt-oss-20"))
