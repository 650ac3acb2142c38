"""`peagle-sm invoke` against an endpoint of inference components."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Run
from tests.local.serving import Server
from tests.local.test_component_services import Host

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def host(server: Server) -> Host:
    """One component has the endpoint's name, the other answers in more pieces."""
    host = Host(server, "cli-host")
    host.add("cli-host", SCRIPT_INVOKE="sse", SCRIPT_CHUNKS="1")
    host.add("cli-other", SCRIPT_INVOKE="sse", SCRIPT_CHUNKS="2")
    return host


def test_the_component_is_chosen_or_named(peagle: Run, host: Host) -> None:
    chosen = peagle("invoke", host.name, "-p", "x")
    assert (chosen.exit_code, chosen.stdout) == (0, "token0 \n"), chosen.stderr
    named = peagle("invoke", host.name, "-p", "x", "--component", "cli-other")
    assert (named.exit_code, named.stdout) == (0, "token0 token1 \n"), named.stderr


@pytest.mark.parametrize("way", ["--no-stream", "--temperature=0"])
def test_a_component_that_is_not_there_is_exit_code_4_and_the_others_are_named(
    peagle: Run, host: Host, way: str
) -> None:
    result = peagle("invoke", host.name, "-p", "x", "--component", "nope", way)
    assert (result.exit_code, result.stdout) == (4, "")
    assert result.stderr == (
        "error: endpoint 'cli-host' has no inference component 'nope'; it has: cli-host, cli-other.\n"
        "  next: Name one of its components with --component (in Python: component=…).\n"
    )
    document = json.loads(
        peagle("invoke", host.name, "-p", "x", "--component", "nope", "--format", "json").stderr
    )
    assert document["error"]["type"] == "NotFound"
