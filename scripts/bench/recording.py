"""What recording costs a stream of `peagle-sm serve`: CPU of the serving process, and of the recording's own.

``scripts/bench-recording`` runs it. Two proxies in this process serve the same streams at the same time, so
whatever slows the machine slows both; one of them records to a file. Other processes send and read. Counted
is the CPU of each proxy's thread, with that of the recording's thread; the process that redacts is counted
apart. This process keeps one core, and the others have the rest: without that the interval was nearly half
as wide again. Rounds follow each other without a pause, since records are written while other streams run.
The interval of the ratio is over rounds, by a jackknife of its logarithm.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import fmean

import psutil

from peagle_sm.aws.session.session import LocalTarget, make_session
from peagle_sm.measure.compare.alternating import turn_order
from peagle_sm.measure.compare.confidence_intervals import ratio
from peagle_sm.service.serving.proxy import Proxy, Running, start
from peagle_sm.service.serving.upstream import Upstream
from peagle_sm.traffic.file_target import FileTarget
from peagle_sm.traffic.recorder import Recorder, TrafficSource

OFF, ON = "off", "recording"
_READER = """
import http.client, json, sys, threading
port, streams, body = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].encode()
def read():
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", "/v1/chat/completions", body)
    answer = connection.getresponse()
    while answer.read1(65536):
        pass
threads = [threading.Thread(target=read) for _ in range(streams)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
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
    stream = Path("tests/aws/recorded/chat-acceptance.sse")
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
        _proxies(url, Path(folder) / "traffic.jsonl") as (ports, threads, recorder),
    ):
        for turn in range(options.rounds + 2):  # two to warm up
            before, child = _cpu_of(threads), _children_cpu()
            order = turn_order((OFF, ON), turn)
            readers = [_reader(ports[arm], options.streams, body) for arm in order]
            _apart(cores)
            if any([reader.wait() for reader in readers]):
                raise SystemExit("a reader failed")
            after = _cpu_of(threads)
            if turn >= 2:
                spent[str(turn)] = (after[ON] - before[ON], after[OFF] - before[OFF])
                inside.append(_children_cpu() - child)
        summary = recorder.close()
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
        "recorded": summary.line(),
        "load_average": os.getloadavg(),
        "cpus": os.cpu_count(),
    }


@contextmanager
def _proxies(url: str, path: Path) -> Iterator[tuple[dict[str, int], dict[str, list[int]], Recorder]]:
    """Serve with both proxies; yields their ports, the clocks of their threads' CPU, and the recorder."""
    session = make_session(local=LocalTarget(url))
    known = set(threading.enumerate())
    recorder = Recorder(FileTarget(path, keep_days=None), TrafficSource("bench"))
    (writer,) = set(threading.enumerate()) - known
    running: dict[str, Running] = {}
    loops = {arm: asyncio.new_event_loop() for arm in (OFF, ON)}
    serving = {arm: threading.Thread(target=loop.run_forever) for arm, loop in loops.items()}
    try:
        for arm, used in ((OFF, None), (ON, recorder)):
            serving[arm].start()
            upstream = Upstream(url, session.region, session.credentials(), "bench")
            started = start(Proxy(upstream, recorder=used), "127.0.0.1", 0)
            running[arm] = asyncio.run_coroutine_threadsafe(started, loops[arm]).result(30)
        threads = {OFF: [serving[OFF]], ON: [serving[ON], writer]}
        clocks = {
            arm: [time.pthread_getcpuclockid(thread.ident) for thread in own if thread.ident is not None]
            for arm, own in threads.items()
        }
        yield {arm: each.port for arm, each in running.items()}, clocks, recorder
    finally:
        for arm, each in running.items():
            asyncio.run_coroutine_threadsafe(each.close(), loops[arm]).result(30)
        for arm, loop in loops.items():
            if serving[arm].is_alive():
                loop.call_soon_threadsafe(loop.stop)
                serving[arm].join()


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


def _apart(cores: Sequence[int]) -> None:
    """Keep this process on the first core, and its children on the others."""
    os.sched_setaffinity(0, cores[:1])
    for child in psutil.Process().children():
        with suppress(OSError):  # it has ended
            os.sched_setaffinity(child.pid, cores[1:] or cores)


def _cpu_of(clocks: Mapping[str, Sequence[int]]) -> dict[str, float]:
    """Return the CPU seconds of each proxy's threads so far."""
    return {arm: sum(map(time.clock_gettime, own)) for arm, own in clocks.items()}


def _children_cpu() -> float:
    """Return the CPU seconds of the process that redacts."""
    total = 0.0
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if "peagle_sm.traffic.worker" in child.cmdline():
                times = child.cpu_times()
                total += times.user + times.system
    return total


def main() -> int:
    """Print the figures as JSON."""
    print(json.dumps(compare(arguments()), indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
