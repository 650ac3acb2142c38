"""endpoint.openai(): a ready client, with a new token for each request."""

from __future__ import annotations

import subprocess
import sys

import openai
import pytest

from peagle_sm.service import Endpoint, connect
from peagle_sm.service.lifecycle.endpoint import openai_base_url
from tests.local.openai_client import QUESTION, script
from tests.local.serving import Server, local_session


@pytest.fixture(scope="module")
def endpoint(server: Server) -> Endpoint:
    return connect(server.deploy(), session=local_session(server))


def test_a_client_is_ready_to_chat(endpoint: Endpoint) -> None:
    client = endpoint.openai()
    stream = client.chat.completions.create(
        model="", messages=QUESTION, stream=True, extra_body=script(SCRIPT_INVOKE="chat", SCRIPT_CHUNKS=2)
    )
    assert [c.choices[0].delta.content for c in stream if c.choices] == ["token0 ", "token1 ", ""]
    assert str(client.base_url) == f"{openai_base_url(endpoint.session, endpoint.name)}/"


async def test_so_is_one_for_asyncio(endpoint: Endpoint) -> None:
    async with endpoint.async_openai() as client:
        stream = await client.chat.completions.create(
            model="", messages=QUESTION, stream=True, extra_body=script(SCRIPT_INVOKE="chat", SCRIPT_CHUNKS=2)
        )
        assert [c.choices[0].delta.content async for c in stream if c.choices] == ["token0 ", "token1 ", ""]


def test_each_request_has_a_token_of_its_own_and_outlives_the_one_before(
    server: Server, endpoint: Endpoint
) -> None:
    from sagemaker_local.process.client import advance_clock

    client = endpoint.openai()
    client.chat.completions.create(model="", messages=QUESTION)
    advance_clock(server.status.port, 16 * 60)  # a token lasts 15 minutes
    client.chat.completions.create(model="", messages=QUESTION)


def test_options_are_the_client_s_own(endpoint: Endpoint) -> None:
    client = endpoint.openai(max_retries=0, timeout=3.0)
    assert (client.max_retries, client.timeout) == (0, 3.0)
    assert endpoint.openai().timeout == openai.Timeout(490, connect=10)


def test_a_component_goes_into_the_address(endpoint: Endpoint) -> None:
    client = endpoint.openai(component="arm-1", max_retries=0)
    assert str(client.base_url).endswith(f"/endpoints/{endpoint.name}/inference-components/arm-1/openai/v1/")
    with pytest.raises(openai.BadRequestError, match="not allowed"):
        client.chat.completions.create(model="", messages=QUESTION)


def test_without_the_package_it_is_said_what_to_install() -> None:
    program = """
import sys
sys.modules["openai"] = None
from peagle_sm.service.lifecycle.endpoint import _sdk
try:
    _sdk()
except Exception as error:
    print(type(error).__name__, error.exit_code, error, error.next_step)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "NotFound 4 The OpenAI client needs the package openai, which is not installed here. "
        "pip install 'aiohttp>=3.10,<4' 'openai>=2,<4'\n"
    )
