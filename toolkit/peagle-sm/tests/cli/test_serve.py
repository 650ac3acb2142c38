"""`peagle-sm serve` as a process: what it says, and how Ctrl-C ends it."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest
from click.testing import Result

from tests.local.openai_client import QUESTION, script
from tests.local.serving import Server

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def endpoint(server: Server) -> str:
    return server.deploy()


@contextmanager
def served(server: Server, endpoint: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "peagle_sm", "serve", endpoint, "--port", "0", *options]
    command += ["--local-port", str(server.status.port)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_it_serves_until_ctrl_c_and_lets_a_stream_end(server: Server, endpoint: str) -> None:
    with served(server, endpoint) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        url = process.stdout.readline().strip()
        lines = [process.stderr.readline().strip() for _ in range(3)]
        assert lines == [
            f"{endpoint}: price unknown; NO lifetime schedule",
            f'OPENAI_BASE_URL={url}  model "{endpoint}"  OPENAI_API_KEY: any value (keys are not checked)',
            "Ctrl-C ends the proxy after the requests in flight; the endpoint stays on and is billed",
        ]
        client = openai.OpenAI(base_url=url, api_key="any", max_retries=0)
        stream = iter(
            client.chat.completions.create(
                model=endpoint,
                messages=QUESTION,
                stream=True,
                extra_body=script(SCRIPT_INVOKE="chat", SCRIPT_CHUNKS=20, SCRIPT_CHUNK_DELAY=0.03),
            )
        )
        next(stream)
        process.send_signal(signal.SIGINT)
        assert "waiting for 1 requests in flight" in process.stderr.readline()
        assert len(list(stream)) == 21
        assert process.wait(20) == 0
        assert "POST /v1/chat/completions 200 stream  tokens 20  AL -" in process.stderr.read()


def test_json_names_the_url_and_the_process(server: Server, endpoint: str) -> None:
    with served(server, endpoint, "--format", "json") as process:
        assert process.stdout is not None
        document: dict[str, Any] = json.loads(process.stdout.readline())
        assert document["pid"] == process.pid
        assert document["model"] == endpoint
        assert document["status"] == "InService"
        assert openai.OpenAI(base_url=document["url"], api_key="x").models.list().data[0].id == endpoint
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_a_taken_port_and_an_endpoint_that_is_not_there(peagle: Run, endpoint: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = peagle("serve", endpoint, "--port", port)
    assert done.exit_code == 2
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
    assert peagle("serve", "nowhere").exit_code == 4


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "", "192.0.2.7", "2001:db8::7", "a-name-of-nobody.invalid"]
)
def test_a_host_that_others_reach_needs_a_key_or_a_word(peagle: Run, host: str) -> None:
    done = peagle("serve", "demo", "--host", host)
    assert done.exit_code == 2
    assert "Give --api-key KEY" in done.stderr


def test_an_empty_key_is_refused(peagle: Run) -> None:
    done = peagle("serve", "demo", "--api-key", "")
    assert done.exit_code == 2
    assert "--api-key" in done.stderr


def test_an_open_proxy_is_warned_of(peagle: Run, endpoint: str) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = peagle("serve", endpoint, "--host", "0.0.0.0", "--api-key", "k", "--port", port)
    assert "warning: listening on 0.0.0.0, not on loopback: anyone with the key" in done.stderr
