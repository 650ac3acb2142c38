"""What recording costs a stream of `peagle-sm serve`: CPU of the serving process, and of the recording's own.

``scripts/bench-recording`` runs it. Two proxies in this process, one of which records to a file, take turns
on streams that another process sends and a third one reads. The CPU is that of this process, the recording's
thread included and the measuring one left out; the process that redacts is counted apart. The interval is
over rounds.
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import fmean, stdev

import psutil

from peagle_sm.aws.session.session import LocalTarget, make_session
from peagle_sm.measure.compare.alternating import turn_order
from peagle_sm.measure.compare.confidence_intervals import t_quantile
from peagle_sm.service.serving.proxy import Proxy, Running, start
from peagle_sm.service.serving.upstream import Upstream
from peagle_sm.traffic.file_target import FileTarget
from peagle_sm.traffic.recorder import Recorder, TrafficSource
from sagemaker_local.wire import eventstream
from scripts.bench.reader.server import events_of

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
    parser.add_argument("--rounds", type=int, default=30, help="turns of both proxies (default 30)")
    parser.add_argument("--streams", type=int, default=8, help="at a time (default 8)")
    parser.add_argument("--chunks", type=int, default=256, help="of a stream (default 256)")
    parser.add_argument("--gap-ms", type=float, default=4.0, help="between chunks (default 4)")
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
    spent: dict[str, list[float]] = {OFF: [], ON: []}
    inside: list[float] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        _server(stream) as url,
        _proxies(url, Path(folder) / "traffic.jsonl") as (ports, recorder),
    ):
        for turn in range(options.rounds + 2):  # two to warm up
            for arm in turn_order((OFF, ON), turn):
                before, child = _serving_cpu(), _children_cpu()
                _read(ports[arm], options.streams, body)
                while recorder.held:
                    time.sleep(0.01)
                if turn >= 2:
                    spent[arm].append(_serving_cpu() - before)
                    if arm == ON:
                        inside.append(_children_cpu() - child)
        summary = recorder.close()
    per_stream = {arm: fmean(values) / options.streams * 1000 for arm, values in spent.items()}
    shares = [on / off - 1 for on, off in zip(spent[ON], spent[OFF], strict=True)]
    half = t_quantile(len(shares) - 1) * stdev(shares) / len(shares) ** 0.5
    mean = fmean(shares)
    alone = _alone(stream, body, options.chunks)
    return {
        "recording_alone_cpu_ms_per_stream": round(alone, 3),
        "recording_alone_share": round(alone / per_stream[OFF], 4),
        "rounds": options.rounds,
        "streams_at_a_time": options.streams,
        "chunks": options.chunks,
        "prompt_characters": options.prompt,
        "cpu_ms_per_stream": {arm: round(value, 3) for arm, value in per_stream.items()},
        "added_share": [round(mean, 4), round(mean - half, 4), round(mean + half, 4)],
        "redacting_process_cpu_ms_per_stream": round(fmean(inside) / options.streams * 1000, 3),
        "recorded": summary.line(),
        "load_average": os.getloadavg(),
        "cpus": os.cpu_count(),
    }


def _alone(stream: Path, body: str, chunks: int, streams: int = 200) -> float:
    """Return the CPU milliseconds of this process for recording a stream, without any proxy: little noise."""
    middle, end = events_of(stream.read_bytes())
    parts = [eventstream.payload_part(middle[number % len(middle)]) for number in range(chunks)]
    parts.append(eventstream.payload_part(end))
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(FileTarget(Path(folder) / "t.jsonl", keep_days=None), TrafficSource("bench"))
        for number in range(streams + 1):
            if number == 1:  # the first one starts the process
                before = time.process_time()
            recording = recorder.begin(body.encode(), streamed=True, framed=True)
            assert recording is not None
            for part in parts:
                recording.add(part)
            recording.end()
            while recorder.held:
                time.sleep(0.002)
        spent = time.process_time() - before
        recorder.close()
    return spent / streams * 1000


@contextmanager
def _proxies(url: str, path: Path) -> Iterator[tuple[dict[str, int], Recorder]]:
    session = make_session(local=LocalTarget(url))
    recorder = Recorder(FileTarget(path, keep_days=None), TrafficSource("bench"))
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    running: dict[str, Running] = {}
    try:
        for arm, used in ((OFF, None), (ON, recorder)):
            upstream = Upstream(url, session.region, session.credentials(), "bench")
            started = start(Proxy(upstream, recorder=used), "127.0.0.1", 0)
            running[arm] = asyncio.run_coroutine_threadsafe(started, loop).result(30)
        yield {arm: each.port for arm, each in running.items()}, recorder
    finally:
        for each in running.values():
            asyncio.run_coroutine_threadsafe(each.close(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


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


def _read(port: int, streams: int, body: str) -> None:
    subprocess.run([sys.executable, "-c", _READER, str(port), str(streams), body], check=True)


def _serving_cpu() -> float:
    """Return the CPU seconds of this process without this thread, which starts readers and waits."""
    return time.process_time() - time.thread_time()


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
