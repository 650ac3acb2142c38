"""`peagle-sm openai`: lines that a shell evaluates, and nothing secret anywhere else."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import openai
import pytest
from click.testing import Result

from peagle_sm.cli.commands.endpoints.openai_api import cost_line
from tests.local.openai_client import QUESTION
from tests.local.serving import Server

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def endpoint(server: Server) -> str:
    return server.deploy()


def test_what_it_prints_is_all_that_the_sdk_needs(peagle: Run, endpoint: str, server: Server) -> None:
    done = peagle("openai", endpoint, environ={"SHELL": "/bin/bash"})
    assert done.exit_code == 0
    url, key = (shlex.split(line)[1].partition("=") for line in done.stdout.splitlines())
    assert url[::2] == ("OPENAI_BASE_URL", f"{server.url}/endpoints/{endpoint}/openai/v1")
    assert key[0] == "OPENAI_API_KEY"
    client = openai.OpenAI(base_url=url[2], api_key=key[2], max_retries=0)
    client.chat.completions.create(model="", messages=QUESTION)
    assert key[2] not in done.stderr
    assert done.stderr.splitlines() == [
        done.stderr.splitlines()[0],
        'model: leave it empty ("" in the request); the URL already selects the endpoint and its one model',
        "served: chat completions only; for tools that need a model name, /v1/models or /v1/completions, "
        f"run: peagle-sm serve {endpoint} --local-port {server.status.port}",
    ]
    assert done.stderr.startswith("the token expires at 20")


def test_json_has_the_same_and_the_end(peagle: Run, endpoint: str) -> None:
    document = json.loads(peagle("openai", endpoint, "--format", "json", "--hours", "2").stdout)
    assert document["endpoint"] == endpoint
    assert document["model"] == ""
    assert document["api_key"].startswith("sagemaker-api-key-")
    left = datetime.fromisoformat(document["expires_at"]) - datetime.now(UTC)
    assert timedelta(hours=1.9) < left <= timedelta(hours=2)


def test_a_component_is_in_the_address(peagle: Run, endpoint: str) -> None:
    document = json.loads(peagle("openai", endpoint, "--component", "a", "--format", "json").stdout)
    assert document["base_url"].endswith(f"/endpoints/{endpoint}/inference-components/a/openai/v1")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["nowhere"], 4, "endpoint 'nowhere' does not exist"),
        (["nowhere", "--hours", "13"], 2, "found 13; allowed: a second to 12 hours"),
        (["nowhere", "--hours", "0"], 2, "found 0; allowed: a second to 12 hours"),
    ],
)
def test_refusals_print_no_token(peagle: Run, arguments: list[str], code: int, says: str) -> None:
    done = peagle("openai", *arguments)
    assert done.exit_code == code
    assert says in done.stderr
    assert done.stdout == ""


def test_the_price_and_the_end_are_told_together() -> None:
    end = datetime(2026, 11, 22, 8, tzinfo=UTC)
    assert (
        cost_line(4.2, end) == "4.20 USD/hour while it is on; deleted at 2026-11-22 08:00 UTC even if in use"
    )
    assert cost_line(None, None) == "price unknown; NO lifetime schedule"
