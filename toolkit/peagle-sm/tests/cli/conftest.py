"""The local server with scripted engines, reached by the command line as a user's would be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

from tests.cli.running import run
from tests.local.serving import Server

Run = Callable[..., Result]


@pytest.fixture
def peagle(server: Server, in_empty_folder: Path) -> Iterator[Run]:
    """Runs `peagle-sm … --local-port N` in an empty folder; what is left is deleted afterwards."""
    port = str(server.status.port)

    def call(*arguments: str, **more: str | None) -> Result:
        return run(*arguments, "--local-port", port, **more)  # type: ignore[arg-type]

    yield call
    call("delete", "*", "--yes", "--format", "quiet")


@pytest.fixture
def spec(in_empty_folder: Path) -> Callable[..., str]:
    """Writes peagle.yaml for a scripted engine and returns its path."""

    def write(name: str = "demo", **script: str) -> str:
        environment = {"SCRIPT_INVOKE": "sse", **script}
        lines = [f"    {key}: {value!r}" for key, value in environment.items()]
        text = f"name: {name}\nmodel: tiny-code\nserving:\n  env:\n" + "\n".join(lines) + "\n"
        path = in_empty_folder / f"{name}.yaml"
        path.write_text(text)
        return str(path)

    return write


@pytest.fixture
def deployed(peagle: Run, spec: Callable[..., str]) -> str:
    """An endpoint with a scripted engine, created by the command; its name."""
    result = peagle("deploy", spec(), "--unguarded", "--yes", "--format", "quiet")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "demo\n", "")
    return "demo"
