"""Invoking an endpoint of inference components, over HTTP: which one is asked, and what it costs to know."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import pytest

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import NotFound, ServiceFault, SpecError
from peagle_sm.service import Endpoint
from tests.local.serving import Server
from tests.local.test_component_services import Host

pytestmark = pytest.mark.slow


def _says(text: str) -> dict[str, str]:
    """The environment of an engine that always answers so, in one piece."""
    answer = {"choices": [{"index": 0, "text": text, "finish_reason": "stop"}]}
    return {"SCRIPT_INVOKE": "status:200", "SCRIPT_BODY": json.dumps(answer)}


@pytest.fixture(scope="module")
def host(server: Server) -> Host:
    """An endpoint with two components, one of them of its own name."""
    host = Host(server, "asked")
    for component in ("asked", "asked-other"):
        host.add(component, **_says(component))
    return host


@pytest.fixture
def calls(local: Session) -> Counter[str]:
    """How often each operation was sent."""
    seen: Counter[str] = Counter()

    def count(model: Any, **_: Any) -> None:
        seen[model.name] += 1

    for service in ("sagemaker", "sagemaker-runtime"):
        local.client(service).meta.events.register("before-call", count)
    return seen


def _streamed(endpoint: Endpoint, **how: Any) -> str:
    script = {"SCRIPT_INVOKE": "sse", "SCRIPT_CHUNKS": "2"}
    with endpoint.stream(prompt="x", script=script, **how) as stream:
        return "".join(chunk.text for chunk in stream)


def test_an_endpoint_that_runs_a_model_costs_no_call_beyond_the_invocation(
    server: Server, local: Session, calls: Counter[str]
) -> None:
    endpoint = Endpoint(server.deploy(**_says("plain")), local)
    assert endpoint.invoke(prompt="x").text == "plain"
    assert _streamed(endpoint) == "token0 token1 "
    assert calls == {"InvokeEndpoint": 1, "InvokeEndpointWithResponseStream": 1}


def test_the_component_of_the_endpoints_own_name_is_asked_and_looked_up_once(
    host: Host, local: Session, calls: Counter[str]
) -> None:
    endpoint = Endpoint(host.name, local)
    assert [endpoint.invoke(prompt="x").text for _ in range(3)] == ["asked"] * 3
    assert _streamed(endpoint) == "token0 token1 "
    assert calls == {
        "InvokeEndpoint": 4,  # the first is refused for want of a name
        "ListInferenceComponents": 1,
        "InvokeEndpointWithResponseStream": 1,
    }


def test_a_stream_on_asyncio_finds_the_component_too(host: Host, local: Session, calls: Counter[str]) -> None:
    endpoint = Endpoint(host.name, local)
    script = {"SCRIPT_INVOKE": "chat", "SCRIPT_CHUNKS": "2"}

    async def streamed() -> str:
        async with endpoint.astream(prompt="x", script=script) as stream:
            return "".join([chunk.text async for chunk in stream])

    assert asyncio.run(streamed()) == "token0 token1 "
    assert endpoint.invoke(prompt="x").text == "asked"  # learnt once, for both
    assert calls == {"InvokeEndpointWithResponseStream": 2, "ListInferenceComponents": 1, "InvokeEndpoint": 1}


def test_a_named_component_is_asked_without_looking(host: Host, local: Session, calls: Counter[str]) -> None:
    endpoint = Endpoint(host.name, local)
    assert endpoint.invoke(prompt="x", component="asked-other").text == "asked-other"
    assert _streamed(endpoint, component="asked-other") == "token0 token1 "
    assert calls == {"InvokeEndpoint": 1, "InvokeEndpointWithResponseStream": 1}
    assert endpoint.invoke(prompt="x").text == "asked"  # what was named once is not kept


def test_without_a_component_of_its_name_the_caller_must_choose(server: Server, local: Session) -> None:
    crowd = Host(server, "crowd")
    with pytest.raises(ServiceFault, match="'crowd' needs an inference component and has none yet"):
        Endpoint("crowd", local).invoke(prompt="x")
    for component in ("crowd-b", "crowd-a"):
        crowd.add(component, **_says(component))
    with pytest.raises(SpecError, match=r"none of them has .*allowed: crowd-a, crowd-b") as caught:
        Endpoint("crowd", local).invoke(prompt="x")
    assert "--component, for example crowd-a" in (caught.value.next_step or "")


def test_a_component_that_is_not_there_is_told_with_those_that_are(host: Host, local: Session) -> None:
    with pytest.raises(NotFound, match="'asked' has no inference component 'nope'; it has: asked, asked-o"):
        Endpoint(host.name, local).invoke(prompt="x", component="nope")


def test_a_component_named_for_an_endpoint_that_runs_a_model(server: Server, local: Session) -> None:
    name = server.deploy()
    with pytest.raises(SpecError, match=f"'{name}' has no inference components: found") as caught:
        Endpoint(name, local).invoke(prompt="x", component="x")
    assert "Leave --component out" in (caught.value.next_step or "")


def test_a_component_at_zero_copies_says_to_send_again(server: Server, local: Session) -> None:
    scaling = {"Status": "ENABLED", "MinInstanceCount": 0, "MaxInstanceCount": 1}
    dozer = Host(server, "dozer", ManagedInstanceScaling=scaling)
    dozer.add("dozer")
    dozer.scale("dozer", 0)
    with pytest.raises(ServiceFault, match="'dozer' of endpoint 'dozer' has no copy") as caught:
        Endpoint("dozer", local).invoke(prompt="x")
    assert "send it again in a few minutes" in (caught.value.next_step or "")
    assert caught.value.request_id
