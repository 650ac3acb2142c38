"""A promoted head's version in the Model Registry: within SageMaker's limits, whatever a training wrote."""

from __future__ import annotations

from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator

from peagle_learn.core.proof import Bound, Proof, ProofEvidence, Ratio, SetEvidence, Thresholds, decide
from peagle_learn.core.registry import MOST_PROPERTIES, check_group, model_package
from peagle_sm.core.errors import SpecError
from sagemaker_local.control.requests import checked

SOURCE = {"S3DataSource": {"S3Uri": "s3://b/t/", "S3DataType": "S3Prefix", "CompressionType": "None"}}
CONTAINER: dict[str, Any] = {
    "Image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/vllm:0.32.0-cpu",
    "ModelDataSource": SOURCE,
    "AdditionalModelDataSources": [{"ChannelName": "draft", **SOURCE}],
    "Environment": {"SM_VLLM_MODEL": "/opt/ml/model"},
    "ContainerMetricsConfig": {"MetricsEndpoints": []},
}
TRAINING = {
    "job": {"name": "team-20261125"},
    "steps": 400,
    "settings": {"learning_rate": 0.0001, "aux_layer_ids": [2, 4, 6], "cod": {"not": "plain"}, "seed": None},
}


def proof() -> Proof:
    found = SetEvidence(24, Ratio(1.101, 1.052, 1.15), Ratio(1.05, 1.0, 1.1), 2.4, 2.64)
    evidence = ProofEvidence(held_out=found, general=found)
    bound = Bound("a" * 64, "s3://b/heads/a/", "d" * 64, "tiny-code", None, "serve", "serve-1", 7)
    wanted = Thresholds()
    return Proof(bound, wanted, evidence, decide(evidence, wanted), "2026-11-25T04:00:00+00:00", "0.1.0")


def valid(request: dict[str, Any]) -> None:
    """Botocore takes it, and it holds every constraint of SageMaker's model."""
    model = botocore.session.get_session().get_service_model("sagemaker")
    shape = model.operation_model("CreateModelPackage").input_shape
    assert shape is not None
    assert not ParamValidator().validate(request, shape).has_errors()
    assert checked("CreateModelPackage", request) == request


def test_the_request_has_image_data_head_and_measurements() -> None:
    request = model_package("heads", proof(), CONTAINER, TRAINING, 3)
    valid(request)
    (container,) = request["InferenceSpecification"]["Containers"]
    assert container == {key: CONTAINER[key] for key in CONTAINER if key != "ContainerMetricsConfig"}
    assert request["ModelApprovalStatus"] == "Approved"
    assert request["CustomerMetadataProperties"] == {
        "head": "a" * 64,
        "head_uri": "s3://b/heads/a/",
        "data": "d" * 64,
        "target": "tiny-code",
        "endpoint": "serve",
        "num_speculative_tokens": "7",
        "proved_at": "2026-11-25T04:00:00+00:00",
        "tool_version": "0.1.0",
        "held_out.prompts": "24",
        "held_out.serving_length": "2.4",
        "held_out.candidate_length": "2.64",
        "held_out.acceptance_ratio": "1.101 from 1.052 to 1.150",
        "held_out.speed_ratio": "1.050 from 1.000 to 1.100",
        "general.prompts": "24",
        "general.serving_length": "2.4",
        "general.candidate_length": "2.64",
        "general.acceptance_ratio": "1.101 from 1.052 to 1.150",
        "general.speed_ratio": "1.050 from 1.000 to 1.100",
        "job": "team-20261125",
        "steps": "400",
        "recipe.learning_rate": "0.0001",
        "recipe.aux_layer_ids": "2 4 6",
    }


def test_one_promotion_has_one_token_and_another_one_another() -> None:
    token = model_package("heads", proof(), CONTAINER, {}, 3)["ClientToken"]
    assert model_package("heads", proof(), CONTAINER, TRAINING, 3)["ClientToken"] == token
    assert model_package("heads", proof(), CONTAINER, {}, 4)["ClientToken"] != token
    assert model_package("other", proof(), CONTAINER, {}, 3)["ClientToken"] != token


@pytest.mark.parametrize(
    "training",
    [
        {"job": "none", "settings": ["x"], "steps": {"a": 1}},
        {"settings": {f"setting{number}": "x" * 400 + "[,]%\n" for number in range(80)}},
        {"job": {"name": "Größe, 漢字 %"}, "settings": {"odd": "", "blank": "  "}},
    ],
)
def test_a_training_that_wrote_anything_stays_within_the_limits(training: dict[str, Any]) -> None:
    request = model_package("heads", proof(), CONTAINER, training, 1)
    valid(request)
    assert len(request["CustomerMetadataProperties"]) <= MOST_PROPERTIES
    assert request["CustomerMetadataProperties"]["head"] == "a" * 64


def test_an_environment_that_is_too_large_is_left_out_as_a_whole_and_named() -> None:
    large = {**CONTAINER, "Environment": {f"A{number}": "x" for number in range(17)}}
    request = model_package("heads", proof(), large, {}, 1)
    valid(request)
    (container,) = request["InferenceSpecification"]["Containers"]
    assert "Environment" not in container
    told = request["CustomerMetadataProperties"]["environment"]
    assert told == "left out: more than 16 variables"


def test_the_group_s_name_is_checked_before_anything_changes() -> None:
    arn = "arn:aws:sagemaker:us-east-1:123456789012:model-package-group/heads"
    assert [check_group(name) for name in ("heads", "a", "A-1", arn)] == ["heads", "a", "A-1", arn]
    for name in ("", "-a", "a-", "a_b", "a" * 64, "arn:aws:s3:::b"):
        with pytest.raises(SpecError, match="--model-package-group: found"):
            check_group(name)
