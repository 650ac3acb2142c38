"""One client, one load, one fresh server: what the client says, and what the server knows."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from peagle_bench.load import (
    HttpTarget,
    LoadOptions,
    LoadRun,
    SageMakerTarget,
    Target,
    WorkItem,
    drive_load,
    run_quietly,
)
from peagle_bench.load.points import make_point
from peagle_bench.results.provenance import load_now
from peagle_bench.results.records import Load
from peagle_sm.core.errors import EngineError, SpecError
from sagemaker_local.engine.aiperf_env import aiperf_version, ensure_aiperf
from sagemaker_local.engine.env import engine_version, ensure_engine
from sagemaker_local.paths import weights_dir

#: Ours with botocore's SigV4Auth, to see what our own signature saves. It runs only if it is named.
BOTOCORE_SIGNS = "ours (SageMaker; botocore signs)"
MAX_TOKENS = 128  #: answers end by themselves at 65 to 128 tokens
_TIMEOUT_S = 600


def requests_for(concurrency: int) -> int:
    """Enough for some seconds at full load, and for at least 5 a place."""
    return max(12, 5 * concurrency, 160 if concurrency > 1 else 0)


@dataclass(frozen=True)
class Said:
    """What a client publishes, and the stretch of CLOCK_MONOTONIC that it speaks of."""

    since: float
    until: float
    otps: float
    itl_p99_ms: float
    ttft_p99_ms: float
    errors: int
    cpu_us_per_chunk: float | None = None
    lag_p99_ms: float | None = None
    ended: float | None = None  #: of the last answer
    whole_run: bool = True  #: tokens by the time from the first request to the last chunk; else of the window


@dataclass(frozen=True)
class Reading:
    """A client's figures beside the server's; ``load`` is the machine's 1-minute load average."""

    client: str
    concurrency: int
    said: Said
    otps: float
    itl_p99_ms: float
    ttft_p99_ms: float
    load: float

    @property
    def otps_error(self) -> float:
        """The client's OTPS over the server's own, less 1."""
        return self.said.otps / self.otps - 1

    @property
    def itl_error(self) -> float:
        """The client's ITL p99 over the true one, less 1."""
        return self.said.itl_p99_ms / self.itl_p99_ms - 1

    @property
    def line(self) -> str:
        """For progress."""
        cpu = "" if self.said.cpu_us_per_chunk is None else f", {self.said.cpu_us_per_chunk:.1f} us/chunk"
        return (
            f"{self.client}: OTPS {self.otps_error:+.2%}, ITL p99 {self.said.itl_p99_ms:.1f} ms"
            f" ({self.itl_error:+.1%}){cpu}; load {self.load:.1f}"
        )


class Bench:
    """The clients that there are, and how to run each."""

    def __init__(self, server: str, gap_ms: float, say: Callable[[str], None], only: Sequence[str]) -> None:
        """Build the environments that are needed; ``only`` these clients, or all.

        Raises:
            SpecError: there is no client of that name.
            EngineError: an environment cannot be built.
        """
        self._server = server
        self._gap_ms = gap_ms
        runners: dict[str, Callable[[str, int], Said]] = {
            "ours (HTTP)": lambda url, places: _ours(HttpTarget(url), places),
            "ours (SageMaker)": lambda url, places: _ours(_sagemaker(url), places),
            BOTOCORE_SIGNS: lambda url, places: _ours(_signed_by_botocore(url), places),
            "vllm bench serve": self._vllm,
            "aiperf": self._aiperf,
        }
        unknown = set(only) - set(runners)
        if unknown:
            raise SpecError(
                f"clients: found {', '.join(sorted(unknown))}; allowed: {', '.join(runners)}.",
                next_step="Correct --clients.",
            )
        chosen = only or [name for name in runners if name != BOTOCORE_SIGNS]
        self._runners = {name: run for name, run in runners.items() if name in chosen}
        self.versions = {"aiohttp": metadata.version("aiohttp"), "uvloop": metadata.version("uvloop")}
        if "vllm bench serve" in self._runners:
            self._engine = ensure_engine(say)
            self.versions["vllm"] = engine_version()
        if "aiperf" in self._runners:
            self._aiperf_python = ensure_aiperf(say)
            self.versions["aiperf"] = aiperf_version()

    @property
    def names(self) -> list[str]:
        """The clients, ours first."""
        return list(self._runners)

    def read(self, name: str, concurrency: int) -> Reading:
        """Run one client against a server of its own.

        Raises:
            EngineError: the client failed, or the server did not start.
        """
        with server(self._server, self._gap_ms) as url:
            said = self._runners[name](url, concurrency)
            truth = _truth(url, said.since, said.until)
            # Latencies are of whole answers, the last of which end after the window.
            latencies = _truth(url, said.since, said.ended or said.until)
        seconds = said.until - said.since
        if said.whole_run:
            seconds = truth["last_chunk_at"] - truth["first_request_at"]
        return Reading(
            name,
            concurrency,
            said,
            otps=truth["tokens"] / seconds,
            itl_p99_ms=latencies["gap_ms"]["p99"],
            ttft_p99_ms=latencies["ttft_ms"]["p99"],
            load=load_now(),
        )

    def floor_us(self, concurrency: int) -> float:
        """CPU a chunk of a client that only counts what its sockets give it: what waking up costs here."""
        with server(self._server, self._gap_ms) as url:
            return run_quietly(lambda: _count_only(url, concurrency))

    def _vllm(self, url: str, concurrency: int) -> Said:
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "result.json"
            _run(
                [
                    str(self._engine),
                    *("-m", "vllm.entrypoints.cli.main", "bench", "serve", "--backend", "openai"),
                    *("--base-url", url, "--endpoint", "/v1/completions", "--model", "scheduled"),
                    *("--tokenizer", str(weights_dir() / "target"), "--dataset-name", "random"),
                    *("--random-input-len", "16", "--random-output-len", str(MAX_TOKENS)),
                    *("--num-prompts", str(requests_for(concurrency)), "--max-concurrency", str(concurrency)),
                    *(
                        "--metric-percentiles",
                        "99",
                        "--percentile-metrics",
                        "ttft,tpot,itl",
                        "--disable-tqdm",
                    ),
                    *("--save-result", "--save-detailed", "--result-filename", str(output)),
                ],
                folder,
                {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"},
            )
            told = json.loads(output.read_text())
        since = min(told["start_times"]) - 0.001  # the test request before it is not counted
        return Said(
            since,
            since + told["duration"] + 1.0,
            told["output_throughput"],
            told["p99_itl_ms"],
            told["p99_ttft_ms"],
            requests_for(concurrency) - told["completed"],
        )

    def _aiperf(self, url: str, concurrency: int) -> Said:
        with tempfile.TemporaryDirectory() as folder:
            since = time.perf_counter()
            _run(
                [
                    str(self._aiperf_python.with_name("aiperf")),
                    *("profile", "--model", "scheduled", "--url", url, "--endpoint-type", "completions"),
                    *("--streaming", "--use-server-token-count", "--concurrency", str(concurrency)),
                    *("--request-count", str(requests_for(concurrency)), "--isl", "16"),
                    *("--osl", str(MAX_TOKENS), "--tokenizer", str(weights_dir() / "target")),
                    *("--ui-type", "none", "--no-gpu-telemetry", "--no-server-metrics"),
                    *("--output-artifact-dir", folder),
                ],
                folder,
                {},
            )
            until = time.perf_counter()
            told = json.loads((Path(folder) / "profile_export_aiperf.json").read_text())
        return Said(
            since,
            until,
            told["output_token_throughput"]["avg"],
            told["inter_chunk_latency"]["p99"],
            told["time_to_first_token"]["p99"],
            int(requests_for(concurrency) - told["request_count"]["avg"]),
        )


def _ours(target: Target, concurrency: int) -> Said:
    count = requests_for(concurrency)
    items = [
        WorkItem(f"p{n}", {"prompt": f"prompt {n} of the benchmark", "max_tokens": MAX_TOKENS})
        for n in range(count)
    ]

    async def measured() -> LoadRun:
        # One request before, as `vllm bench serve` does: what Python does once is no chunk's cost. Then no
        # warm-up, as the others have none: all see the same requests from the first one on.
        first = LoadOptions(requests=1, warm_up_requests=0)
        await drive_load(target, Load("closed", concurrency=1), items[:1], options=first)
        options = LoadOptions(requests=count, warm_up_requests=0, began=0.0)
        return await drive_load(target, Load("closed", concurrency=concurrency), items, options=options)

    run = run_quietly(measured)
    point = make_point(run)
    if point.itl_ms is None or point.ttft_ms is None:
        raise EngineError("our own client got no answer", next_step="look at the server's output above")
    return Said(
        run.window.start_s,
        run.window.end_s,
        point.otps,
        point.itl_ms.p99,
        point.ttft_ms.p99,
        sum(point.errors.values()),
        point.client.cpu_us_per_chunk,
        point.client.lag_p99_ms,
        ended=max(record.done_s for record in run.records),
        whole_run=False,
    )


def _truth(url: str, since: float, until: float) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}/truth?since={since!r}&until={until!r}") as answer:
        told: dict[str, Any] = json.load(answer)
        return told


class _Counting(asyncio.Protocol):
    """Sends one request and counts what comes."""

    parts = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        body = b'{"prompt": "x", "max_tokens": 100000, "stream": true}'
        head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
        transport.write(head + body)  # type: ignore[attr-defined]  # uvloop's transports are of its own class

    def data_received(self, data: bytes) -> None:
        self.parts += 1


async def _count_only(url: str, concurrency: int) -> float:
    loop, port = asyncio.get_running_loop(), int(url.rpartition(":")[2])
    made = [await loop.create_connection(_Counting, "127.0.0.1", port) for _ in range(concurrency)]
    await asyncio.sleep(0.5)  # the first chunks come together with headers
    before, cpu = sum(protocol.parts for _, protocol in made), time.process_time()
    await asyncio.sleep(2.0)
    cpu = time.process_time() - cpu
    parts = sum(protocol.parts for _, protocol in made) - before
    for transport, _ in made:
        transport.abort()
    return cpu / max(parts, 1) * 1e6


def _sagemaker(url: str) -> SageMakerTarget:
    from botocore.credentials import Credentials

    return SageMakerTarget(url, "us-east-1", Credentials("local", "local"), "scheduled")


class _BotocoreSigned(SageMakerTarget):
    def request(self, body: Mapping[str, Any], data: bytes) -> tuple[str, dict[str, str]]:
        """Sign with botocore."""
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest

        url = f"{self.endpoint_url}/endpoints/{self.endpoint_name}/invocations-response-stream"
        signed = AWSRequest("POST", url, {"content-type": "application/json"}, data)
        SigV4Auth(self.credentials, "sagemaker", self.region).add_auth(signed)
        return url, dict(signed.headers.items())


def _signed_by_botocore(url: str) -> SageMakerTarget:
    ours = _sagemaker(url)
    return _BotocoreSigned(ours.endpoint_url, ours.region, ours.credentials, ours.endpoint_name)


@contextlib.contextmanager
def server(module: str, gap_ms: float) -> Iterator[str]:
    """Run a server whose answers end by themselves; yield its URL.

    Raises:
        EngineError: it did not start.
    """
    command = [sys.executable, "-m", module, "--natural", "--gap-ms", str(gap_ms)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            port = process.stdout.readline().strip() if process.stdout is not None else ""
            if not port:
                raise EngineError(
                    f"the server {module} did not start", next_step="run this from the repository's root"
                )
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def _run(command: list[str], folder: str, environ: dict[str, str]) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-20:])
        raise EngineError(
            f"{Path(command[0]).name} ended with {done.returncode}:\n{tail}",
            next_step="run the command by hand, or leave this client out with --clients",
        )
