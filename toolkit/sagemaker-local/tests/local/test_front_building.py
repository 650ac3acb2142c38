"""The engine's environment is built when the first endpoint needs it, once, and ended with the server."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sagemaker_local.engine.building import build_environment
from sagemaker_local.engine.launch import EngineRequest
from sagemaker_local.engine.launching import LazyLauncher
from sagemaker_local.errors import EngineError
from sagemaker_local.process.state import Process

REQUEST = EngineRequest(name="e-v", image="vllm:0.32.0-cpu", environment={}, root=Path("x"), model_sources=[])


def script(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


async def test_progress_is_passed_on_and_the_python_comes_back() -> None:
    lines: list[str] = []
    started: list[tuple[int, str]] = []
    code = "import sys; print('installing', file=sys.stderr); print('/engine/bin/python')"
    python = await build_environment(
        lines.append, lambda *s: started.append(s), script(code), "engine environment"
    )
    assert python == Path("/engine/bin/python")
    assert lines == ["[peagle-sm local] installing"]
    assert started[0][1] == "engine environment"


async def test_a_failed_build_says_its_last_words() -> None:
    with pytest.raises(EngineError, match="no space left"):
        await build_environment(
            lambda _: None,
            lambda *_: None,
            script("import sys; sys.exit('error: no space left')"),
            "engine environment",
        )


async def test_a_build_that_is_not_wanted_any_more_is_ended() -> None:
    started: list[int] = []
    code = "import sys, time; print('go', file=sys.stderr, flush=True); time.sleep(600)"
    going = asyncio.Event()
    building = asyncio.create_task(
        build_environment(
            lambda _: going.set(), lambda pid, _: started.append(pid), script(code), "engine environment"
        )
    )
    await asyncio.wait_for(going.wait(), 60)
    building.cancel()
    await asyncio.gather(building, return_exceptions=True)
    assert Process.of(started[0]) is None


class OneProcess:
    pid = 42


class Launcher:
    async def launch(self, request: EngineRequest, on_line: Any) -> Any:
        return OneProcess()


async def nothing(uri: str, on_line: Any) -> None:
    """Every file is in S3 already."""


async def test_two_endpoints_wait_for_one_build_and_a_failed_one_is_tried_again() -> None:
    builds: list[str] = []
    release = asyncio.Event()

    async def build(on_line: Any, started: Any, version: str) -> Path:
        builds.append("build")
        await release.wait()
        on_line("ready")
        if len(builds) == 1:
            raise EngineError("no network")
        return Path("python")

    lines: list[str] = []
    written: list[tuple[int, str]] = []
    launcher = LazyLauncher(
        make=lambda python: Launcher(),
        build=build,
        started=lambda *s: written.append(s),
        prepare=nothing,
        versions=("0.32.0",),
    )
    both = [asyncio.create_task(launcher.launch(REQUEST, lines.append)) for _ in range(2)]
    await asyncio.sleep(0)
    release.set()
    results = await asyncio.gather(*both, return_exceptions=True)
    assert [str(result) for result in results] == ["no network", "no network"]
    assert builds == ["build"]
    assert lines == ["ready", "ready"]
    await launcher.launch(REQUEST, lines.append)
    assert builds == ["build", "build"]
    assert written == [(42, "e-v")]
    await launcher.close()


async def test_each_version_has_its_own_environment_and_a_ready_python_is_the_defaults() -> None:
    created: list[Path] = []

    async def build(on_line: Any, started: Any, version: str) -> Path:
        return Path(version)

    def make(python: Path) -> Launcher:
        created.append(python)
        return Launcher()

    launcher = LazyLauncher(
        make=make,
        build=build,
        started=lambda *s: None,
        prepare=nothing,
        versions=("0.32.0", "0.30.0"),
        python=Path("ready"),
    )
    for tag in ("0.32.0-cpu", "0.30.0-cpu", "0.30.0-gpu", "0.30.0-cpu"):
        await launcher.launch(replace(REQUEST, image=f"vllm:{tag}"), lambda line: None)
    assert created == [Path("ready"), Path("0.30.0")]
    await launcher.close()
