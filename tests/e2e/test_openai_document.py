"""Every example of docs/how-to/openai.md, run as it stands, against the local server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from sagemaker_local.engine.locked_env import ensure_locked
from sagemaker_local.process import spawn
from tests.local.serving import Server, eventually
from tests.rules.documents import Block, blocks
from tests.rules.files import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.campaign]

NAME = "smollm2-135m-instruct-p-eagle"
TEXT = "token0 token1 token2 token3 token4 "
EXAMPLES = [block for block in blocks("python", "bash") if block.path == Path("docs/how-to/openai.md")]
_PORT = "8000"


@pytest.fixture(scope="module")
def environ(server: Server) -> Iterator[Mapping[str, str]]:
    """An endpoint of the documents' name, and the environment of somebody at a shell."""
    server.create(NAME, SCRIPT_INVOKE="openai")
    server.until(NAME, "InService")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    yield {**os.environ, "PATH": path, "SHELL": "/bin/bash"}
    # Other documents use the name too.
    sagemaker = server.client("sagemaker")
    sagemaker.delete_endpoint(EndpointName=NAME)
    eventually(lambda: not sagemaker.list_endpoints(NameContains=NAME)["Endpoints"])


@pytest.fixture(scope="module")
def variables(environ: Mapping[str, str]) -> Mapping[str, str]:
    """What `peagle-sm openai` sets."""
    command = ["peagle-sm", "openai", NAME, "--local", "--format", "json"]
    opened = json.loads(subprocess.run(command, env=environ, capture_output=True, check=True).stdout)
    return {**environ, "OPENAI_BASE_URL": opened["base_url"], "OPENAI_API_KEY": opened["api_key"]}


@pytest.fixture(scope="module")
def port(environ: Mapping[str, str]) -> Iterator[str]:
    """The proxy, started by the document's own line, on a free port instead of its own."""
    free = str(spawn.free_port())
    (line,) = (block.text for block in EXAMPLES if block.text.startswith("peagle-sm serve"))
    words = ["exec", *line.replace(_PORT, free).split()]
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        ["bash", "-c", " ".join(words)], env=environ, stdout=pipe, stderr=pipe, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == f"http://127.0.0.1:{free}/v1\n"
    yield free
    process.terminate()
    _, log = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "POST /v1/completions 200  tokens 5  AL -" in log
    assert "POST /v1/chat/completions 200 stream  tokens 5  AL -" in log


def langchain() -> str:
    lock = ROOT / "requirements" / "langchain.lock"
    home = ensure_locked(
        "langchain", lock, "about a minute, 135 MB", lambda line: print(line, file=sys.stderr)
    )
    return str(home)


@pytest.mark.parametrize("block", [b for b in EXAMPLES if b.language == "python"], ids=str)
def test_a_python_example(block: Block, variables: Mapping[str, str], port: str) -> None:
    python = langchain() if "langchain" in block.text else sys.executable
    done = subprocess.run(
        [python, "-c", block.text.replace(_PORT, port)],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert TEXT in done.stdout


@pytest.mark.parametrize("block", [b for b in EXAMPLES if b.language == "bash" and "curl" in b.text], ids=str)
def test_a_shell_example(block: Block, environ: Mapping[str, str], port: str) -> None:
    script = f"set -euo pipefail\n{block.text.replace(_PORT, port)}"
    done = subprocess.run(["bash", "-c", script], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert TEXT in done.stdout


def test_all_examples_are_run() -> None:
    assert len([block for block in EXAMPLES if block.language == "python"]) == 5
    assert len([block for block in EXAMPLES if block.language == "bash"]) == 3
