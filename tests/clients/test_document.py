"""Every example of docs/how-to/clients.md, run against the local server with a recorded stream."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.clients.bench import RECORDED, recorded_text
from tests.clients.clients import CLIENTS
from tests.local.serving import Server
from tests.rules.documents import Block, blocks

pytestmark = [pytest.mark.slow, pytest.mark.campaign]

NAME = "smollm2-135m-instruct-p-eagle"
EXAMPLES = [block for block in blocks("python", "bash") if block.path == Path("docs/how-to/clients.md")]
PYTHON = [block for block in EXAMPLES if block.language == "python"]


@pytest.fixture(scope="module")
def endpoint(server: Server) -> str:
    return server.deploy(SCRIPT_INVOKE="replay", SCRIPT_FILE=str(RECORDED))


@pytest.fixture(scope="module")
def environ(server: Server, endpoint: str) -> Mapping[str, str]:
    """What the page says to set, and what `peagle-sm openai` sets."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    environ = {**os.environ, "PATH": path, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    (exports,) = (block.text for block in EXAMPLES if "export AWS_ENDPOINT_URL" in block.text)
    stdout = subprocess.run(
        ["bash", "-c", f"set -e\n{exports}\npeagle-sm openai {endpoint} --local --format json; env -0"],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    openai, end = json.JSONDecoder().raw_decode(stdout)
    exported = dict(line.split("=", 1) for line in stdout[end:].strip().split("\0") if line)
    return {**exported, "OPENAI_BASE_URL": openai["base_url"], "OPENAI_API_KEY": openai["api_key"]}


def python_for(block: Block) -> str:
    for client in CLIENTS:
        if client.lock is not None and re.search(
            rf"^(import|from) {client.lock}\b", block.text, re.MULTILINE
        ):
            return str(client.python(print))
    return sys.executable


def fault_before(block: Block) -> str | None:
    """The line that sets the fault which an example is to meet."""
    before = EXAMPLES[EXAMPLES.index(block) - 1]
    return before.text if before.text.startswith("peagle-sm local fault add") else None


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_a_python_example(block: Block, endpoint: str, environ: Mapping[str, str]) -> None:
    fault = fault_before(block)
    if fault is not None:
        words = ["bash", "-c", fault.replace(NAME, endpoint)]
        subprocess.run(words, env=environ, capture_output=True, check=True)
    done = subprocess.run(
        [python_for(block), "-c", block.text.replace(NAME, endpoint)],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    promised = re.search(r"# prints (.*)", block.text)
    assert (promised is None) == (fault is None)
    if promised:
        assert done.stdout.strip() == promised[1]
    else:
        assert recorded_text() in done.stdout


def test_all_examples_are_run() -> None:
    assert len(PYTHON) == 5
    assert len([block for block in PYTHON if fault_before(block)]) == 1
