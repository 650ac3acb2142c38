"""An engine's processes: started, watched, ended together, whoever ends first. With a stand-in for vLLM."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sagemaker_local.engine import warden
from sagemaker_local.engine.launch import EngineLauncher, EngineProcess, EngineRequest, LaunchError
from tests.local import stand_in_server

IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/vllm:0.30.0-gpu"


async def fetch(uri: str, directory: Path) -> None:
    """As the server does from its S3: one bucket with one model in it."""
    if uri == "s3://bucket/broken/":
        raise FileNotFoundError("no such bucket")
    if uri == "s3://bucket/model/":
        (directory / "config.json").write_text('{"max_position_embeddings": 512}')


class Bench:
    """Starts engines in a directory and stops them all afterwards."""

    def __init__(self, directory: Path) -> None:
        self.lines: list[str] = []
        self._directory = directory
        self._engines: list[EngineProcess] = []
        self._found = stand_in_server.install(directory / "package")

    async def start(
        self, mode: str = "", *, image: str = IMAGE, source: str = "s3://bucket/model/", **environment: str
    ) -> EngineProcess:
        request = EngineRequest(
            name="e",
            image=image,
            environment={**self._found, "STAND_IN": mode, **environment},
            root=self._directory / "root",
            model_sources=[("/opt/ml/model", source)],
        )
        engine = await EngineLauncher(Path(sys.executable), fetch).launch(request, self.lines.append)
        self._engines.append(engine)
        return engine

    async def healthy(self, mode: str = "", **environment: str) -> EngineProcess:
        engine = await self.start(mode, **environment)
        async with asyncio.timeout(30):
            while not await engine.ping():
                assert engine.exited is None, self.lines
                await asyncio.sleep(0.05)
        return engine

    async def close(self) -> None:
        for engine in self._engines:
            await engine.stop()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    await bench.close()


def environment_of(engine: EngineProcess) -> dict[str, str]:
    with urllib.request.urlopen(f"{engine.url}/environment", timeout=10) as response:
        environment: dict[str, str] = json.load(response)
    return environment


async def test_it_starts_as_a_container_would_and_stops_without_a_trace(bench: Bench, tmp_path: Path) -> None:
    engine = await bench.healthy(SM_VLLM_MAX_MODEL_LEN="4096", ANY="/opt/ml/model/x")
    environment = environment_of(engine)
    scratch = Path(environment["TMPDIR"])
    assert environment["ANY"] == f"{tmp_path}/root/opt/ml/model/x"
    assert not [name for name in environment if name.startswith(("AWS_", "PEAGLE_SM_LOCAL"))]
    assert scratch.is_dir()
    started = next(line for line in bench.lines if line.startswith("stand-in started"))
    argv = json.loads(started.partition("{")[1] + started.partition("{")[2])["argv"]
    assert argv[:4] == ["--port", "8080", "--model", f"{tmp_path}/root/opt/ml/model"]
    assert argv[argv.index("--max-model-len") + 1] == "512"
    assert f"http://127.0.0.1:{argv[len(argv) - argv[::-1].index('--port')]}" == engine.url
    assert "max_model_len: 512 instead of 4096, the model's context length" in engine.overrides
    assert f"peagle-sm local override: {engine.overrides[0]}" in bench.lines
    assert (engine.engine_version, engine.image_version) == ("0.32.0", "0.30.0")
    assert len(engine.processes()) == 3  # the warden, the server, its child
    await engine.stop()
    assert engine.processes() == []
    assert engine.exited == 128 + signal.SIGTERM
    assert not scratch.exists()
    await engine.stop()


async def test_a_crash_at_start_is_noticed_and_explained(bench: Bench) -> None:
    engine = await bench.start("crash")
    async with asyncio.timeout(20):
        assert await engine.wait() == 1
    assert engine.exited == 1
    assert engine.processes() == [], "the child must not outlive the server"
    assert engine.last_words() == "ValueError: the head's weights do not fit"
    assert not await engine.ping()


async def test_a_sudden_death_is_noticed_and_takes_the_others_along(bench: Bench) -> None:
    engine = await bench.healthy("late-death")
    async with asyncio.timeout(10):
        assert await engine.wait() == 128 + signal.SIGSEGV
    assert engine.processes() == []


async def test_who_ignores_sigterm_is_killed(bench: Bench) -> None:
    engine = await bench.healthy("stubborn")
    before = time.monotonic()
    await engine.stop()
    assert engine.processes() == []
    assert engine.exited == 128 + signal.SIGKILL
    assert time.monotonic() - before >= warden.TERM_GRACE_S


async def test_a_killed_warden_leaves_nothing(bench: Bench) -> None:
    engine = await bench.healthy()
    os.kill(engine.pid, signal.SIGKILL)
    async with asyncio.timeout(10):
        assert await engine.wait() == 128 + signal.SIGKILL
    assert engine.processes() == []


async def test_a_killed_server_takes_its_engines_along(bench: Bench, tmp_path: Path) -> None:
    program = f"""
        import asyncio, sys
        from pathlib import Path
        sys.path[:0] = {sys.path!r}
        from sagemaker_local.engine.launch import EngineLauncher, EngineRequest
        async def fetch(uri, directory): (directory / "f").write_text("")
        async def main():
            request = EngineRequest("e", {IMAGE!r}, {stand_in_server.install(tmp_path / "package")!r},
                                    Path({str(tmp_path / "other")!r}), [("/opt/ml/model", "s3://b/m/")])
            engine = await EngineLauncher(Path(sys.executable), fetch).launch(request, lambda line: None)
            while not await engine.ping():
                await asyncio.sleep(0.05)
            print(engine.pid, flush=True)
            await asyncio.sleep(600)
        asyncio.run(main())
    """
    server = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        group = int(await asyncio.to_thread(server.stdout.readline))
        assert len(warden.members(group)) == 3
    finally:
        server.kill()
        server.communicate()
    async with asyncio.timeout(warden.TERM_GRACE_S + 10):
        while warden.members(group):
            await asyncio.sleep(0.1)


@pytest.mark.parametrize(
    ("image", "source", "message"),
    [
        ("1.dkr.ecr.us-east-1.amazonaws.com/djl-inference:0.36.0", "s3://bucket/model/", "'djl-inference'"),
        ("1.dkr.ecr.us-east-1.amazonaws.com/vllm:0.1.0-cpu", "s3://bucket/model/", "engines: 0.32.0-cpu, "),
        (IMAGE, "s3://bucket/nothing/", "no objects at s3://bucket/nothing/ .to be mounted"),
        (IMAGE, "s3://bucket/broken/", "cannot download s3://bucket/broken/ for /opt/ml/model: no such"),
    ],
)
async def test_what_cannot_be_launched_is_refused(
    bench: Bench, image: str, source: str, message: str
) -> None:
    with pytest.raises(LaunchError, match=message):
        await bench.start(image=image, source=source)


def test_members_are_found_by_session_too() -> None:
    leader = subprocess.Popen(
        [sys.executable, "-c", "import os, time; os.fork() or os.setpgid(0, 0); time.sleep(600)"],
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 10
        while len(warden.members(leader.pid)) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(warden.members(leader.pid)) == 2
    finally:
        left = warden.end_group(leader.pid, grace_s=0)
        leader.wait()
    assert left == []
