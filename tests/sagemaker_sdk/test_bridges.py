"""The SDK and peagle-sm on the same endpoints."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.local.serving import Server
from tests.sagemaker_sdk.conftest import Sdk

pytestmark = pytest.mark.slow
NAME = "bridged"
BODY = json.dumps({"prompt": "hi", "script": {"SCRIPT_INVOKE": "chat", "SCRIPT_CHUNKS": 2}})
TEXT = "token0 token1 "


@pytest.fixture(scope="module")
def results(sdk: Sdk, server: Server) -> dict[str, Any]:
    return sdk("bridges", server.status, NAME=NAME, BODY=BODY)


def test_a_local_session_of_the_sdk_reaches_nothing_but_the_local_server(results: dict[str, Any]) -> None:
    assert results["account"] == "123456789012"
    assert results["bucket"] == "sagemaker-us-east-1-123456789012"
    assert results["tried"] == []


def test_the_sdk_reads_an_endpoint_of_peagle_sm(results: dict[str, Any]) -> None:
    assert results["theirs_status"] == "InService"
    assert results["theirs_answered"]


def test_endpoints_are_streamed_by_their_names(results: dict[str, Any]) -> None:
    texts = {name: text for name, text in results.items() if name.startswith("text")}
    assert texts == {"text": TEXT, "text_by_session": TEXT, "text_by_hand": TEXT}


def test_a_token_of_theirs_opens_the_openai_route(results: dict[str, Any]) -> None:
    assert results["by_token"] == 200


def test_deleting_ours_leaves_nothing(results: dict[str, Any], server: Server) -> None:
    sagemaker = server.client("sagemaker")
    assert sagemaker.list_endpoints(NameContains=NAME)["Endpoints"] == []
    assert sagemaker.list_endpoint_configs(NameContains=NAME)["EndpointConfigs"] == []
    assert sagemaker.list_models(NameContains=NAME)["Models"] == []
