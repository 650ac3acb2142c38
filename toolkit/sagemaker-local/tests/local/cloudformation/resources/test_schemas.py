"""What AWS's schemas allow, and that the shipped copy is theirs."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

import stacks.schemas
from sagemaker_local.cloudformation.resources.schemas import PATH, allowed_properties, unsupported_property
from sagemaker_local.cloudformation.resources.types import HANDLERS, ResourceTypes

SOURCE = {"S3DataSource": {"S3Uri": "s3://b/p/", "S3DataType": "S3Prefix", "CompressionType": "None"}}


def test_the_draft_head_s_channel_is_refused_in_a_model_as_cloudformation_refuses_it() -> None:
    container = {"Image": "i", "ModelDataSource": SOURCE, "Environment": {"ANY": "thing"}}
    assert unsupported_property("AWS::SageMaker::Model", {"PrimaryContainer": container}) is None
    draft = {**container, "AdditionalModelDataSources": [{"ChannelName": "eagle", **SOURCE}]}
    refused: tuple[dict[str, Any], ...] = (
        {"AdditionalModelDataSources": []},
        {"PrimaryContainer": draft},
        {"Containers": [container, draft]},
    )
    for properties in refused:
        assert unsupported_property("AWS::SageMaker::Model", properties) == "AdditionalModelDataSources"


@pytest.mark.parametrize(
    ("type_name", "name"),
    [
        ("AWS::SageMaker::EndpointConfig", "CrossRegionTrafficConfig"),
        ("AWS::SageMaker::Endpoint", "EndpointArn"),  # read-only
        ("AWS::Lambda::Function", "Layer"),
    ],
)
def test_unknown_and_read_only_properties_are_refused(type_name: str, name: str) -> None:
    assert unsupported_property(type_name, {name: []}) == name


def test_custom_resources_take_any_property() -> None:
    assert allowed_properties("Custom::PeagleModel") is None
    assert unsupported_property("AWS::CloudFormation::CustomResource", {"Anything": 1}) is None


def test_immutable_properties_come_from_the_schemas() -> None:
    types = ResourceTypes()
    model = types.immutable("AWS::SageMaker::Model")
    assert "PrimaryContainer" in model
    assert "Tags" not in model
    assert types.immutable("Custom::X") == frozenset()
    assert types.handler("AWS::EC2::Instance") is None


def test_every_handler_has_a_schema() -> None:
    assert [name for name in HANDLERS if not allowed_properties(name)] == [
        "AWS::CloudFormation::CustomResource"
    ]


@pytest.mark.slow
def test_the_shipped_schemas_are_what_the_script_makes(root: Path) -> None:
    path = root / "scripts" / "lib" / "cfn_schemas.py"
    spec = importlib.util.spec_from_file_location("cfn_schemas", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.text() == PATH.read_text()
    assert script.text_for_the_stacks() == stacks.schemas.PATH.read_text()
