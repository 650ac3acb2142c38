"""Inference components by OpenAI's clients: through the route and through the proxy."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from peagle_sm.core.errors import SpecError
from peagle_sm.service import Endpoint
from tests.local.openai_client import QUESTION, script
from tests.local.serving import Server, local_session
from tests.local.test_component_services import Host
from tests.service.serving.proxies import serving

ANSWER = script(SCRIPT_INVOKE="openai", SCRIPT_CHUNKS=1)


@pytest.fixture(scope="module")
def host(server: Server) -> Iterator[Host]:
    host = Host(server, "by-openai")
    host.add("by-openai-arm")
    yield host
    host.delete("by-openai-arm")


@pytest.fixture
def endpoint(server: Server, host: Host) -> Endpoint:
    return Endpoint(host.name, local_session(server))


def answer_of(client: openai.OpenAI) -> str | None:
    answer = client.chat.completions.create(model="", messages=QUESTION, extra_body=ANSWER)
    return answer.choices[0].message.content


def test_a_named_component_answers_on_the_route(endpoint: Endpoint) -> None:
    assert answer_of(endpoint.openai(component="by-openai-arm")) == "token0 "


def test_which_one_is_not_guessed(endpoint: Endpoint) -> None:
    with pytest.raises(SpecError, match="allowed: by-openai-arm"):
        endpoint.openai()


def test_one_without_a_copy_says_so_as_aws_does(endpoint: Endpoint, host: Host, server: Server) -> None:
    host.scale("by-openai-arm", 0)
    with pytest.raises(openai.BadRequestError, match="no capacity") as raised:
        answer_of(endpoint.openai(component="by-openai-arm", max_retries=0))
    assert raised.value.code == "validation_error"
    with serving(server, host.name, "by-openai-arm") as proxy:
        with pytest.raises(openai.InternalServerError, match="no capacity") as no_capacity:
            answer_of(proxy.client())
        assert no_capacity.value.response.headers["Retry-After"] == "30"
    host.scale("by-openai-arm", 1)


def test_the_proxy_asks_a_component_and_is_called_by_its_name(server: Server, host: Host) -> None:
    with serving(server, host.name, "by-openai-arm") as proxy:
        assert [model.id for model in proxy.client().models.list()] == ["by-openai-arm"]
        assert answer_of(proxy.client()) == "token0 "
