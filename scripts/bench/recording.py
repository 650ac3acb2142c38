"""What recording costs a stream of `peagle-sm serve`: CPU of the serving process, and of the recording's own.

``scripts/bench-recording`` runs it. Two processes serve the same streams at the same time, so whatever slows
the machine slows both; one of them records to a file. Other processes send and read. Counted is all CPU of
each serving process, its recording's thread included; the process that redacts is counted apart. The two
share one core, and the others have the rest: without that the interval was nearly half as wide again.
Rounds follow each other without a pause, since records are written while other streams run. The interval of
the ratio is over rounds, by a jackknife of its logarithm.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from statistics import fmean

import psutil

from peagle_bench.compare.alternating import turn_order
from peagle_bench.compare.confidence_intervals import ratio
from peagle_bench.results import provenance
from peagle_sm.aws.session.session import LocalTarget, make_session
from peagle_sm.service.serving.proxy import Proxy, start
from peagle_sm.service.serving.upstream import Upstream
from peagle_sm.traffic.file_target import FileTarget
from peagle_sm.traffic.recorder import Recorder, TrafficSource

OFF, ON = "off", "recording"
_READER = """
import concurrent.futures, http.client, sys
port, streams, body = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].encode()
def read():
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", "/v1/chat/completions", body)
    answer = connection.getresponse()
    end = b""
    while part := answer.read1(65536):
        end = (end + part)[-64:]
    assert answer.status == 200 and b"[DONE]" in end, (answer.status, end)
with concurrent.futures.ThreadPoolExecutor(streams) as pool:
    for done in [pool.submit(read) for _ in range(streams)]:
        done.result()
"""


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench-recording", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--rounds", type=int, default=30, help="of both proxies at once (default 30)")
    parser.add_argument("--streams", type=int, default=8, help="of each proxy at a time (default 8)")
    parser.add_argument("--chunks", type=int, default=256, help="of a stream (default 256)")
    parser.add_argument("--gap-ms", type=float, default=4.0, help="between chunks, in the mean (default 4)")
    parser.add_argument("--prompt", type=int, default=4000, help="characters of the prompt (default 4000)")
    return parser.parse_args(words)


def compare(options: argparse.Namespace) -> dict[str, object]:
    """Measure, and return the figures."""
    stream = Path("toolkit/peagle-sm/tests/aws/recorded/chat-acceptance.sse")
    text = (Path("docs/explanation/security.md").read_text() * 4)[: options.prompt]
    body = json.dumps(
        {
            "messages": [{"role": "user", "content": text}],
            "stream": True,
            "chunks": options.chunks,
            "gap_ms": options.gap_ms,
        }
    )
    cores = sorted(os.sched_getaffinity(0))
    spent: dict[str, tuple[float, float]] = {}
    inside: list[float] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        _server(stream) as url,
        _proxy(url, None) as off,
        _proxy(url, Path(folder) / "traffic.jsonl") as on,
    ):
        proxies = {OFF: off, ON: on}
        for turn in range(options.rounds + 2):  # two to warm up
            before, child = _cpu_of(proxies), _redacting_cpu(on)
            order = turn_order((OFF, ON), turn)
            readers = [_reader(proxies[arm].port, options.streams, body) for arm in order]
            _apart(cores, proxies.values())
            if any([reader.wait() for reader in readers]):
                raise SystemExit("a reader failed")
            after = _cpu_of(proxies)
            if turn >= 2:
                spent[str(turn)] = (after[ON] - before[ON], after[OFF] - before[OFF])
                inside.append(_redacting_cpu(on) - child)
        recorded = on.ends()
    per_stream = {
        arm: fmean(row[at] for row in spent.values()) / options.streams * 1000
        for at, arm in enumerate((ON, OFF))
    }
    added = ratio([spent], (1, -1))
    return {
        "rounds": options.rounds,
        "streams_at_a_time_of_each_proxy": options.streams,
        "chunks": options.chunks,
        "prompt_characters": options.prompt,
        "cpu_ms_per_stream": {arm: round(value, 3) for arm, value in per_stream.items()},
        "added_share": [round(each - 1, 4) for each in (added.value, added.low, added.high)],
        "redacting_process_cpu_ms_per_stream": round(fmean(inside) / options.streams * 1000, 3),
        "recorded": recorded,
        "load_average": os.getloadavg(),
        "provenance": provenance.origin(seed=0),
    }


@dataclass
class ServingProcess:
    """A process with one proxy."""

    process: BaseProcess
    pipe: Connection
    port: int

    def cpu_s(self) -> float:
        """Return the CPU seconds of all its threads so far."""
        assert self.process.pid is not None
        # Linux's clock of another process (clock_getcpuclockid), in nanoseconds; /proc has steps of 10 ms.
        return time.clock_gettime(~self.process.pid << 3 | 2)

    def ends(self) -> str:
        """Have it finish its records, and return what it says of them."""
        self.pipe.send("end")
        return str(self.pipe.recv())


@contextmanager
def _proxy(url: str, path: Path | None) -> Iterator[ServingProcess]:
    """Serve in a process of its own, and record to ``path``."""
    spawn = get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_serve, args=(url, path, theirs))
    process.start()
    theirs.close()  # so that a process that fails to start is noticed
    try:
        yield ServingProcess(process, ours, ours.recv())
    finally:
        process.terminate()
        process.join()


def _serve(url: str, path: Path | None, pipe: Connection) -> None:
    recorder = None if path is None else Recorder(FileTarget(path, keep_days=None), TrafficSource("bench"))
    session = make_session(local=LocalTarget(url))
    upstream = Upstream(url, session.region, session.credentials(), "bench")

    async def serve() -> None:
        running = await start(Proxy(upstream, recorder=recorder), "127.0.0.1", 0)
        pipe.send(running.port)
        await asyncio.to_thread(pipe.recv)
        await running.close()

    asyncio.run(serve())
    pipe.send("" if recorder is None else recorder.close().line())


@contextmanager
def _server(stream: Path) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "scripts.bench.reader.server", str(stream)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.terminate()
        process.wait()


def _reader(port: int, streams: int, body: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", _READER, str(port), str(streams), body])


def _apart(cores: Sequence[int], proxies: Iterable[ServingProcess]) -> None:
    """Keep the proxies on the first core, and all other processes of ours on the others."""
    serving = {each.process.pid for each in proxies}
    for process in psutil.Process().children(recursive=True):
        own = cores[:1] if process.pid in serving else cores[1:] or cores
        with suppress(OSError, psutil.Error):  # it has ended
            for thread in process.threads():
                os.sched_setaffinity(thread.id, own)


def _cpu_of(proxies: Mapping[str, ServingProcess]) -> dict[str, float]:
    return {arm: each.cpu_s() for arm, each in proxies.items()}


def _redacting_cpu(proxy: ServingProcess) -> float:
    """Return the CPU seconds of the process that redacts."""
    total = 0.0
    for child in psutil.Process(proxy.process.pid).children():
        with suppress(psutil.Error):
            times = child.cpu_times()
            total += times.user + times.system
    return total


def main() -> int:
    """Print the figures as JSON."""
    print(json.dumps(compare(arguments()), indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
