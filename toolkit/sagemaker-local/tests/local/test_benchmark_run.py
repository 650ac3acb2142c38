"""Running an AI benchmark job: AIPerf's command line, its archive in S3, and the end of its processes."""

from __future__ import annotations

import asyncio
import io
import json
import sys
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sagemaker_local.control.ai_benchmarks import BenchmarkPlan
from sagemaker_local.engine import warden
from sagemaker_local.runtime.benchmark_run import AiperfRunner, command_line

# Stands for AIPerf: writes what it was given and what the job's script says, then exits or stays.
AIPERF = """#!{python}
import json, os, sys, time
from pathlib import Path
options = dict(zip(sys.argv[2::2], sys.argv[3::2]))
output = Path(sys.argv[sys.argv.index("--output-artifact-dir") + 1])
script = json.loads((Path.cwd() / "opt/ml/input/data/script/script.json").read_text())
print("tokens of", os.environ["AWS_REGION"], os.environ["PYTHONPATH"], flush=True)
if "profile" in script:
    (output / "profile_export_aiperf.json").write_text(json.dumps(script["profile"]))
(output / "argv.json").write_text(json.dumps(sys.argv[1:]))
time.sleep(script.get("sleep", 0))
sys.exit(script.get("exit", 0))
"""


@dataclass
class World:
    """A runner, what it stored, printed and started."""

    directory: Path
    script: dict[str, Any] = field(default_factory=dict)
    stored: dict[str, bytes] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    started: list[int] = field(default_factory=list)

    def runner(self) -> AiperfRunner:
        return AiperfRunner(
            python=self._python,
            url="http://localhost:5000",
            region="us-east-1",
            fetch=self._fetch,
            store=self._store,
            on_line=lambda job, line: self.lines.append(f"{job}: {line}"),
            started=lambda pid, name: self.started.append(pid),
        )

    def plan(self, *arguments: str, component: str | None = None) -> BenchmarkPlan:
        return BenchmarkPlan(
            job="j",
            endpoint="e",
            component=component,
            arguments=arguments,
            channels=(("script", "s3://bucket/script.json"),),
            output="s3://bucket/out/",
            root=self.directory / "j",
        )

    def archive(self) -> dict[str, bytes]:
        (stored,) = self.stored.items()
        assert stored[0] == "s3://bucket/out/j/output/output.tar.gz"
        with tarfile.open(fileobj=io.BytesIO(stored[1])) as tar:
            files = {member.name: tar.extractfile(member) for member in tar.getmembers()}
            return {name: file.read() for name, file in files.items() if file is not None}

    async def _python(self, tell: Any) -> Path:
        bin_ = self.directory / "bin"
        bin_.mkdir(exist_ok=True)
        (bin_ / "aiperf").write_text(AIPERF.format(python=sys.executable))
        (bin_ / "aiperf").chmod(0o755)
        return bin_ / "python"

    async def _fetch(self, uri: str, directory: Path) -> None:
        assert uri == "s3://bucket/script.json"
        (directory / "script.json").write_text(json.dumps(self.script))

    async def _store(self, path: Path, uri: str) -> None:
        self.stored[uri] = path.read_bytes()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def profile(good: int, bad: int) -> dict[str, Any]:
    return {"request_count": {"avg": good}, "error_request_count": {"avg": bad}}


async def test_a_job_leaves_its_archive_and_nothing_else(world: World) -> None:
    world.script = {"profile": profile(200, 2)}
    plan = world.plan("--tokenizer", "/opt/ml/input/data/tokenizer", "--concurrency", "4")
    assert await world.runner().run(plan) is None
    files = world.archive()
    assert b"completed" in files["benchmark_summary.txt"]
    assert "failure_reason.txt" not in files
    argv = json.loads(files["argv.json"])
    assert argv[argv.index("--tokenizer") + 1] == f"{plan.root}/opt/ml/input/data/tokenizer"
    assert argv[argv.index("--url") + 1] == "http://localhost:5000/endpoints/e"
    assert world.lines == [f"j: tokens of us-east-1 {plan.root}/plugin"]
    assert not plan.root.exists()


async def test_more_than_one_failure_in_a_hundred_fails_the_job_and_keeps_its_output(world: World) -> None:
    world.script = {"profile": profile(97, 3)}
    reason = await world.runner().run(world.plan())
    assert reason == "AlgorithmError: 3 of 100 requests failed: error rate 3.00% is above 1%"
    assert world.archive()["failure_reason.txt"].decode().strip() == reason


async def test_a_job_without_results_tells_aiperfs_last_words(world: World) -> None:
    world.script = {"exit": 3}
    reason = await world.runner().run(world.plan())
    assert reason is not None
    assert reason.startswith("AlgorithmError: AIPerf ended with exit status 3 and no results:\ntokens of")
    assert "argv.json" in world.archive()


async def test_a_stopped_job_ends_its_processes_and_stores_nothing(world: World) -> None:
    world.script = {"sleep": 60}
    running = asyncio.create_task(world.runner().run(world.plan()))
    while not world.lines:
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert warden.members(world.started[0]) == []
    assert world.stored == {}


def test_a_component_is_named_in_the_url(world: World) -> None:
    line = command_line(world.plan(component="ic"), "http://localhost:5000", Path("out"))
    assert line[line.index("--url") + 1] == "http://localhost:5000/endpoints/e?component=ic"
    assert line[line.index("--model") + 1] == "ic"
