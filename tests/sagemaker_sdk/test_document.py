"""The examples of docs/how-to/sagemaker-sdk.md, run as they stand in the SDK's environment."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import peagle_sm
from peagle_sm.aws.session.session import LocalTarget
from tests.local.serving import Server
from tests.rules.documents import blocks
from tests.sagemaker_sdk.conftest import Sdk

pytestmark = [pytest.mark.slow, pytest.mark.campaign]
NAME = "smollm2-135m-instruct-p-eagle"
TEXT = "token0 token1 token2 token3 token4 "
PAGE = Path("docs/how-to/sagemaker-sdk.md")
EXAMPLES = [
    block.text for block in blocks("python") if block.path == PAGE and not block.text.startswith("# SDK v2\n")
]


@pytest.fixture(scope="module")
def said(sdk: Sdk, server: Server) -> list[str]:
    spec = {"name": NAME, "model": "tiny-code", "serving": {"env": {"SCRIPT_INVOKE": "openai"}}}
    place = LocalTarget.from_status(server.status.to_dict())
    # The last example deletes it, so `peagle-sm` must have made it.
    peagle_sm.deploy(spec, local=place, yes=True, unguarded=True, progress=lambda event: None)
    result: dict[str, Any] = sdk(
        "document",
        server.status,
        EXAMPLES=json.dumps(EXAMPLES),
        XDG_STATE_HOME=os.environ["XDG_STATE_HOME"],
    )
    assert result["tried"] == []
    return list(result["said"])


def test_streaming_their_endpoint(said: list[str]) -> None:
    assert said[0].startswith(TEXT)


def test_giving_ours_back(said: list[str]) -> None:
    assert said[1] == "InService\n"


def test_their_own_path(said: list[str]) -> None:
    assert "messages" in said[2]


def test_after_moving_over(said: list[str]) -> None:
    assert said[-1] == f"{TEXT}\n{TEXT}"


def test_every_example_is_one_of_these() -> None:
    assert len(EXAMPLES) == 5
