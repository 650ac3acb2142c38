"""One P-EAGLE endpoint on the real engine: a short request of each client, and traffic recorded for bench.

The clients also try what docs/how-to/clients.md says to use instead. The SageMaker SDK has tests of its own:
tests/sagemaker_sdk/test_real_engine.py.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import openai
import pytest

from peagle_bench.benchmark.acceptance import from_requests
from peagle_bench.workloads import load_workload
from peagle_sm.traffic.reading import read
from sagemaker_local import lifecycle
from sagemaker_local.process import client as client_of_server
from scripts.bench.local_stack import LocalStack
from tests.cli.running import run
from tests.clients.bench import Proxy, job_of
from tests.clients.clients import CLIENTS, Client
from tests.clients.trial import Program
from tests.e2e.tiny_code import spec_of
from tests.local.serving import Server
from tests.traffic.planted import pieces, planted

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.campaign]
NAME = "tiny-p-eagle"
#: Those that are right only if every part happens to hold one event: tests/clients/test_signs.py shows it.
BROKEN = ("boto3",)
RIGHT = [client for client in CLIENTS if client.key not in BROKEN]
Ask = Callable[..., str]


def say(line: str) -> None:
    print(line, file=sys.stderr)


@pytest.fixture(scope="module")
def stack(stack: LocalStack) -> LocalStack:
    """A local SageMaker with one endpoint, P-EAGLE on the small weights."""
    stack.deploy({NAME: spec_of("p-eagle")})
    return stack


@pytest.fixture(scope="module")
def server(stack: LocalStack) -> Server:
    return Server(lifecycle.find_server(stack.port))


@pytest.fixture(scope="module")
def proxy(server: Server) -> Iterator[str]:
    with Proxy(NAME, server.status.port) as proxy:
        yield proxy.url


@pytest.fixture(scope="module")
def answer(server: Server) -> str:
    """What the model says, asked by boto3 for the whole of it."""
    body = {"messages": [{"role": "user", "content": "def add(a, b):"}], "max_tokens": 16, "temperature": 0}
    response = server.client("sagemaker-runtime").invoke_endpoint(
        EndpointName=NAME, ContentType="application/json", Body=json.dumps(body)
    )
    text = json.loads(response["Body"].read())["choices"][0]["message"]["content"]
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
            reading = programs[client.program].read({**job, **more}, warm=False)
            assert (reading["error"], reading["hang"]) == (None, False), reading
            return str(reading["text"])

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


def test_traffic_is_recorded_with_its_acceptance_and_is_a_workload(stack: LocalStack, tmp_path: Path) -> None:
    port = str(stack.port)
    path = tmp_path / "traffic.jsonl"
    command = [sys.executable, "-m", "peagle_sm", "serve", NAME, "--port", "0", "--local-port", port]
    command += ["--record", str(path), "--yes", "--format", "json"]
    secrets = [secret for secret in planted() if len(secret.text) < 100][:20]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        client = openai.OpenAI(base_url=json.loads(process.stdout.readline())["url"], api_key="any")
        for number, secret in enumerate(secrets):
            prompt = f"# {secret.text}\ndef add(a, b):\n"
            if number % 2:
                list(client.completions.create(model=NAME, prompt=prompt, max_tokens=24, stream=True))
            else:
                client.completions.create(model=NAME, prompt=prompt, max_tokens=24, temperature=0)
        # An answer that ends before its caller leaves would be a whole one.
        left = client.completions.create(
            model=NAME,
            prompt="def f():\n",
            max_tokens=2000,
            stream=True,
            extra_body={"ignore_eos": True},
        )
        next(left)
        left.close()
        process.send_signal(signal.SIGINT)
        stderr = process.communicate(timeout=60)[1]
    finally:
        process.kill()
        process.communicate()
    assert json.loads(stderr.splitlines()[-1])["recording"]["recorded"] == len(secrets) + 1
    traffic = read(path)
    text = json.dumps(
        [[record.request, [answer.text for answer in record.answers]] for record in traffic.records]
    )
    assert [secret.name for secret in secrets if any(piece in text for piece in pieces(secret.core))] == []
    outcomes = [record.outcome for record in traffic.records]
    assert (outcomes.count("whole"), outcomes.count("cancelled")) == (len(secrets), 1)
    assert {record.mode for record in traffic.records} == {"p-eagle"}
    acceptance = from_requests(traffic.records)
    assert acceptance is not None
    assert acceptance.per_step is not None
    assert acceptance.per_step > 1
    assert all(record.histogram for record in traffic.records if record.drafts)
    workload = load_workload(str(path))
    assert len(workload.items) == len(secrets) + 1
    size = ("--prompts", "4", "--max-tokens", "8", "--concurrency", "1", "--requests", "4")
    out = ("--out", tmp_path / "bench.jsonl", "--format", "json", "--local-port", port)
    benched = run("bench", NAME, "--workload", str(path), *size, *out)
    assert benched.exit_code in (0, 1), benched.output  # 1: a busy machine, figures withheld
