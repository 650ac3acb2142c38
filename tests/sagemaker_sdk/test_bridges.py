"""Sessions and endpoints of the SDK, converted both ways."""

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
def found(sdk: Sdk, server: Server) -> dict[str, Any]:
    return sdk("bridges", server.status, NAME=NAME, BODY=BODY)


def test_a_local_session_of_the_sdk_reaches_nothing_but_the_local_server(found: dict[str, Any]) -> None:
    assert found["account"] == "123456789012"
    assert found["bucket"] == "sagemaker-us-east-1-123456789012"
    assert found["tried"] == []


def test_sessions_survive_the_way_there_and_back(found: dict[str, Any]) -> None:
    assert found["local_again"] == [True, True]
    assert found["own_sdk_session"] is True


def test_an_endpoint_of_ours_becomes_one_of_theirs(found: dict[str, Any]) -> None:
    assert found["theirs"] == "sagemaker.core.resources.Endpoint"
    assert found["theirs_status"] == "InService"
    assert found["theirs_answered"]


def test_endpoints_of_theirs_are_streamed(found: dict[str, Any]) -> None:
    assert found["local_from_theirs"] is True
    assert {name: text for name, text in found.items() if name.startswith("text")} == {
        "text": TEXT,
        "text_by_session": TEXT,
        "text_by_environment": TEXT,
        "text_by_hand": TEXT,
    }
    assert found["own_session"] is True


def test_a_token_of_theirs_opens_the_openai_route(found: dict[str, Any]) -> None:
    assert found["by_token"] == 200


def test_deleting_ours_leaves_nothing(found: dict[str, Any], server: Server) -> None:
    sagemaker = server.client("sagemaker")
    assert sagemaker.list_endpoints(NameContains=NAME)["Endpoints"] == []
    assert sagemaker.list_endpoint_configs(NameContains=NAME)["EndpointConfigs"] == []
    assert sagemaker.list_models(NameContains=NAME)["Models"] == []
