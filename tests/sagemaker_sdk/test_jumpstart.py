"""The SDK's JumpStart path against the local SageMaker, unmodified, and what is broken in it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.local.serving import Server
from tests.sagemaker_sdk.conftest import Sdk

pytestmark = [pytest.mark.slow, pytest.mark.campaign]
NAME = "by-the-sdk-alone"
BODY = json.dumps({"messages": [{"role": "user", "content": "hi"}], "script": {"SCRIPT_INVOKE": "chat"}})


@pytest.fixture(scope="module")
def found(sdk: Sdk, server: Server) -> dict[str, Any]:
    return sdk("jumpstart", server.status, NAME=NAME, BODY=BODY, BROKEN="yes", OURS="yes")


def test_its_own_path_deploys_and_answers(found: dict[str, Any]) -> None:
    assert found["type"] == "sagemaker.core.resources.Endpoint"
    assert found["status"] == "InService"
    assert "token0" in found["answer"]


def test_p_eagle_is_what_it_deploys(found: dict[str, Any]) -> None:
    container = found["container"]
    assert ":0.18.0-gpu-py312-cu129" in container["Image"]
    config = json.loads(container["Environment"]["SM_VLLM_SPECULATIVE_CONFIG"])
    assert (config["parallel_drafting"], config["num_speculative_tokens"]) == (True, 3)
    assert [source["ChannelName"] for source in container["AdditionalModelDataSources"]] == ["eagle"]


def test_its_stream_crashes_and_ours_reads_the_same_endpoint(found: dict[str, Any]) -> None:
    assert found["stream"] == "AttributeError: 'EventStream' object has no attribute 'get'"
    assert found["ours"] == "token0 token1 token2 token3 token4 "


def test_sts_is_asked_at_its_public_address_whatever_the_environment_says(found: dict[str, Any]) -> None:
    assert found["without_sts"].startswith("EndpointConnectionError: ")
    assert "https://sts.us-east-1.amazonaws.com/" in found["without_sts"]
    assert "sts.us-east-1.amazonaws.com" in found["tried"]


def test_the_eula_is_declined_unless_accepted(found: dict[str, Any]) -> None:
    container = found["container"]
    sources = [container["ModelDataSource"], *container["AdditionalModelDataSources"]]
    assert [one["S3DataSource"]["ModelAccessConfig"] for one in sources] == [{"AcceptEula": False}] * 2


def test_variables_of_ones_own_lose_against_those_of_the_spec(found: dict[str, Any]) -> None:
    environment = found["container"]["Environment"]
    assert environment["SM_VLLM_MAX_MODEL_LEN"] == "8192", "4096 was asked for"
    assert environment["SM_VLLM_SEED"] == "7", "the spec has none"


def test_the_list_of_configurations_names_an_image_that_is_not_deployed(found: dict[str, Any]) -> None:
    assert [":0.34.0-lmi" in uri for uri in found["listed"]] == [True, True]
    assert "/vllm:0.18.0" in found["container"]["Image"]


def test_on_g5_speculation_is_set_for_an_image_that_does_not_read_it(found: dict[str, Any]) -> None:
    assert "/djl-inference:" in found["on_g5"]["Image"]
    assert "SM_VLLM_SPECULATIVE_CONFIG" in found["on_g5"]["Environment"]


def test_deleting_its_endpoint_leaves_configuration_and_model(found: dict[str, Any]) -> None:
    assert found["left"]["endpoints"] == []
    assert found["left"]["configs"] == [NAME]
    assert len(found["left"]["models"]) == 1
