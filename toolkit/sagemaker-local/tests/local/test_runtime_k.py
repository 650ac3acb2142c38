"""K by request in the real engine, for both heads (container/plugins/peagle_runtime_k).

Four engines in one process of the engine's own Python; see runtime_k_check.py.
"""

import json
from typing import Any

import pytest

from sagemaker_local.paths import weights_dir
from tests.local.engine_program import run_in_engine

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.campaign]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    home = tmp_path_factory.mktemp("home")
    text = run_in_engine(home, "-m", "tests.local.runtime_k_check", weights_dir())
    document: dict[str, Any] = json.loads(text)
    return document


@pytest.mark.parametrize("head", ["p-eagle", "eagle3"])
def test_k_7_by_request_is_a_real_k_7(report: dict[str, Any], head: str) -> None:
    assert report[head]["real"]["vllm:spec_decode_num_drafts"] > 20
    assert report[head]["by request"] == report[head]["real"]
    assert report[head]["tokens"]


@pytest.mark.parametrize("head", ["p-eagle", "eagle3"])
def test_requests_of_different_k_share_a_batch_and_answer_as_the_target_does(
    report: dict[str, Any], head: str
) -> None:
    assert report[head]["mixture"]
    assert report[head]["none"]


@pytest.mark.parametrize("head", ["p-eagle", "eagle3"])
def test_a_k_that_cannot_be_had_is_refused_and_the_engine_goes_on(report: dict[str, Any], head: str) -> None:
    for message in report[head]["refused"]:
        assert "vllm_xargs.num_speculative_tokens: found" in message
        assert "allowed: 0 to 9" in message
    assert report[head]["afterwards"]
