"""Runs an AI benchmark job as AWS does: AIPerf against the endpoint, its output as one archive in S3."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tarfile
import tempfile
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from sagemaker_local.control.ai_benchmarks import BenchmarkPlan
from sagemaker_local.engine import warden
from sagemaker_local.engine.aiperf_env import plugin_path

ARCHIVE = "output.tar.gz"
_INPUT = "/opt/ml/input/data/"
_PROFILE = "profile_export_aiperf.json"
# AWS marks a job as Failed above this share of failed requests, and keeps its output all the same.
_MOST_ERRORS = 0.01
_LAST_LINES = 12
# AIPerf's shutdown, before its processes are killed.
_GRACE_S = 3.0

OnLine = Callable[[str, str], None]
Started = Callable[[int, str], None]
Python = Callable[[Callable[[str], None]], Awaitable[Path]]
Fetch = Callable[[str, Path], Awaitable[None]]
Store = Callable[[Path, str], Awaitable[None]]


class AiperfRunner:
    """Runs jobs one process group each.

    Args:
        python: gives the Python of AIPerf's environment, building it where needed.
        url: the local server's own address.
        region: that signs the requests.
        fetch: copies an S3 URI into a directory.
        store: copies a file to an S3 URI.
        on_line: gets (job, line) of what a job prints.
        started: gets the id of each process that leads a group, and a name.
    """

    def __init__(
        self,
        *,
        python: Python,
        url: str,
        region: str,
        fetch: Fetch,
        store: Store,
        on_line: OnLine,
        started: Started,
    ) -> None:
        self._python = python
        self._url = url
        self._region = region
        self._fetch = fetch
        self._store = store
        self._on_line = on_line
        self._started = started

    async def run(self, plan: BenchmarkPlan) -> str | None:
        """Run a job; return None, or why it failed. Cancelling ends its processes and stores nothing."""
        shutil.rmtree(plan.root, ignore_errors=True)
        output = plan.root / "output"
        output.mkdir(parents=True)
        try:
            python = await self._python(lambda line: self._on_line(plan.job, line))
            for name, uri in plan.channels:
                directory = plan.root / _INPUT.strip("/") / name
                directory.mkdir(parents=True, exist_ok=True)
                await self._fetch(uri, directory)
            status, tail = await self._aiperf(python, plan, output)
            reason = _failure(status, tail, output)
            await self._keep(plan, output, reason)
        finally:
            shutil.rmtree(plan.root, ignore_errors=True)
        return reason

    async def _aiperf(self, python: Path, plan: BenchmarkPlan, output: Path) -> tuple[int, list[str]]:
        scratch = Path(tempfile.mkdtemp(prefix="peagle-aiperf-"))
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            warden.__file__,
            str(scratch),
            str(python.with_name("aiperf")),
            *command_line(plan, self._url, output),
            env=self._environment(python, plan, scratch),
            cwd=plan.root,
            stdin=asyncio.subprocess.PIPE,  # its closing tells the warden that this server has gone
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            limit=1024 * 1024,
            start_new_session=True,
        )
        self._started(process.pid, f"AI benchmark job {plan.job}")
        tail: deque[str] = deque(maxlen=_LAST_LINES)
        assert process.stdout is not None
        try:
            async for raw in process.stdout:
                line = raw.decode(errors="replace").rstrip()
                if line:
                    tail.append(line)
                    self._on_line(plan.job, line)
            return await process.wait(), list(tail)
        finally:
            # Shielded: a job that is stopped waits for its processes' end, too.
            await asyncio.shield(asyncio.to_thread(warden.end_group, process.pid, _GRACE_S))
            shutil.rmtree(scratch, ignore_errors=True)

    def _environment(self, python: Path, plan: BenchmarkPlan, scratch: Path) -> dict[str, str]:
        """Return the environment without the user's credentials and settings, except Hugging Face's paths."""
        home = plan.root / "home"
        home.mkdir(exist_ok=True)
        kept = {name: value for name, value in os.environ.items() if name.startswith("HF_")}
        return {
            **kept,
            "PATH": f"{python.parent}:{os.environ.get('PATH', os.defpath)}",
            "PYTHONPATH": str(plugin_path(plan.root / "plugin")),
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "COLUMNS": "160",
            "TMPDIR": str(scratch),
            "AWS_REGION": self._region,
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    async def _keep(self, plan: BenchmarkPlan, output: Path, reason: str | None) -> None:
        summary = f"AI benchmark job {plan.job} of endpoint {plan.endpoint}: {reason or 'completed'}\n"
        (output / "benchmark_summary.txt").write_text(summary)
        if reason is not None:
            (output / "failure_reason.txt").write_text(reason + "\n")
        archive = plan.root / ARCHIVE
        await asyncio.to_thread(_pack, output, archive)
        await self._store(archive, f"{plan.output.rstrip('/')}/{plan.job}/output/{ARCHIVE}")


def command_line(plan: BenchmarkPlan, url: str, output: Path) -> list[str]:
    """Return AIPerf's arguments: those of the specification and those of the job."""
    component = f"?component={plan.component}" if plan.component else ""
    folder = f"{plan.root / _INPUT.strip('/')}/"
    return [
        "profile",
        *("--transport", "sagemaker"),
        *("--url", f"{url}/endpoints/{plan.endpoint}{component}"),
        *("--model", plan.component or plan.endpoint),
        *("--endpoint-type", "chat"),
        *("--output-artifact-dir", str(output)),
        *("--ui", "none"),
        "--export-outputs-json",
        "--no-gpu-telemetry",
        "--no-server-metrics",
        *(argument.replace(_INPUT, folder) for argument in plan.arguments),
    ]


def _failure(status: int, tail: list[str], output: Path) -> str | None:
    profile = output / _PROFILE
    if not profile.is_file():
        last = "\n".join(tail)
        return f"AlgorithmError: AIPerf ended with exit status {status} and no results:\n{last}"
    metrics: dict[str, Any] = json.loads(profile.read_text())
    good, bad = _count(metrics, "request_count"), _count(metrics, "error_request_count")
    if bad > _MOST_ERRORS * (good + bad):
        share = 100 * bad / (good + bad)
        return f"AlgorithmError: {bad} of {good + bad} requests failed: error rate {share:.2f}% is above 1%"
    return None if status == 0 else f"AlgorithmError: AIPerf ended with exit status {status}"


def _count(metrics: Mapping[str, Any], name: str) -> int:
    return int(metrics.get(name, {}).get("avg", 0))


def _pack(directory: Path, archive: Path) -> None:
    with tarfile.open(archive, "w:gz") as tar:
        for path in sorted(directory.iterdir()):
            tar.add(path, path.name)
