"""One short request of each client to the real engine; what docs/how-to/clients.md says to use instead, too.

The SageMaker SDK has tests of its own: tests/sagemaker_sdk/test_real_engine.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import openai
import pytest

from sagemaker_local.process import client as client_of_server
from scripts.bench.comparison import spec_of
from scripts.bench.local_stack import LocalStack
from tests.clients.bench import Proxy, job_of
from tests.clients.clients import CLIENTS, Client
from tests.clients.trial import Program
from tests.local.serving import Server

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.campaign]
NAME = "tiny-p-eagle"
#: Those that are right only if every part happens to hold one event: tests/clients/test_signs.py shows it.
BROKEN = ("boto3",)
RIGHT = [client for client in CLIENTS if client.key not in BROKEN]
Ask = Callable[..., str]


def say(line: str) -> None:
    print(line, file=sys.stderr)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A local SageMaker with one endpoint, P-EAGLE on the small weights."""
    from sagemaker_local import lifecycle

    with LocalStack(say) as stack:
        stack.deploy({NAME: spec_of("p-eagle")})
        port = int((stack.session.local_url or "").rpartition(":")[2])
        yield Server(lifecycle.find_server(port))
        assert stack.delete_all() == []


@pytest.fixture(scope="module")
def proxy(server: Server) -> Iterator[str]:
    with Proxy(NAME, server.status.port) as proxy:
        yield proxy.url


@pytest.fixture(scope="module")
def answer(server: Server) -> str:
    """What the model says, asked by boto3 for the whole of it."""
    body = {"messages": [{"role": "user", "content": "def add(a, b):"}], "max_tokens": 16, "temperature": 0}
    told = server.client("sagemaker-runtime").invoke_endpoint(
        EndpointName=NAME, ContentType="application/json", Body=json.dumps(body)
    )
    text = json.loads(told["Body"].read())["choices"][0]["message"]["content"]
    assert text
    return str(text)


@pytest.fixture(scope="module")
def ask(server: Server, proxy: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Asks with one client, and gives the text. A program that runs is asked again."""
    programs: dict[str, Program] = {}

    with ExitStack() as stack:

        def call(client: Client, **more: Any) -> str:
            if client.program not in programs:
                home = tmp_path_factory.mktemp(client.program)
                program = Program(client.program, client.python(say), home, server.url)
                programs[client.program] = stack.enter_context(program)
            job = job_of(client, server, NAME) | ({"openai_url": proxy} if client.way == "serve" else {})
            found = programs[client.program].read({**job, **more}, warm=False)
            assert (found["error"], found["hang"]) == (None, False), found
            return str(found["text"])

        yield call


def client(key: str) -> Client:
    return next(each for each in CLIENTS if each.key == key)


@pytest.mark.parametrize("client", RIGHT, ids=[client.key for client in RIGHT])
def test_a_client_streams_the_models_answer(client: Client, ask: Ask, answer: str) -> None:
    assert ask(client) == answer


@pytest.mark.parametrize("instead", ["whole", "openai"])
def test_litellm_is_right_without_a_stream_and_on_the_openai_route(
    instead: str, ask: Ask, answer: str
) -> None:
    assert ask(client("litellm"), instead=instead) == answer


def test_strands_is_right_on_the_openai_route(ask: Ask, answer: str) -> None:
    assert ask(client("strands"), instead="openai") == answer


def test_the_aws_cli_gets_the_models_answer(
    aws_program: Path, server: Server, answer: str, tmp_path: Path
) -> None:
    body = {"messages": [{"role": "user", "content": "def add(a, b):"}], "max_tokens": 16, "temperature": 0}
    words = ["--endpoint-name", NAME, "--content-type", "application/json", "--body", json.dumps(body)]
    subprocess.run(
        [aws_program, "sagemaker-runtime", "invoke-endpoint", *words, "answer.json"],
        cwd=tmp_path,
        env={
            "AWS_ENDPOINT_URL": server.url,
            "AWS_DEFAULT_REGION": server.status.region,
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
            "HOME": str(tmp_path),
            "PATH": os.defpath,
        },
        capture_output=True,
        check=True,
    )
    told = json.loads((tmp_path / "answer.json").read_text())
    assert told["choices"][0]["message"]["content"] == answer


@pytest.mark.parametrize("streamed", [False, True])
def test_the_responses_api_gives_the_answer_of_a_chat(proxy: str, answer: str, streamed: bool) -> None:
    client = openai.OpenAI(base_url=proxy, api_key="any", max_retries=0)
    asked: dict[str, Any] = {
        "model": "",
        "input": "def add(a, b):",
        "max_output_tokens": 16,
        "temperature": 0,
    }
    if streamed:
        events = list(client.responses.create(**asked, stream=True))
        assert events[-1].type in ("response.completed", "response.incomplete")
        assert "".join(each.delta for each in events if each.type == "response.output_text.delta") == answer
        told = events[-1].response
    else:
        told = client.responses.create(**asked)
    assert told.output_text == answer
    assert told.usage is not None
    assert 0 < told.usage.output_tokens <= 16


@pytest.mark.parametrize("events", [1, 3, 5])
def test_a_cut_stream_of_two_answers_of_the_real_engine_raises(
    server: Server, proxy: str, events: int
) -> None:
    """Between two events, with a proper end: nothing but the finish reasons shows it."""
    client = openai.OpenAI(base_url=proxy, api_key="any", max_retries=0)
    fault = {"kind": "cut", "where": "event", "clean": True, "endpoint": NAME, "times": 1}
    client_of_server.add_fault(server.status.port, {**fault, "after_events": events})
    with pytest.raises(openai.APIError, match="2 of 2 answers have no finish_reason"):
        list(
            client.completions.create(
                model="",
                prompt="def add(a, b):",
                max_tokens=64,
                n=2,
                stream=True,
                extra_body={"ignore_eos": True},
            )
        )
