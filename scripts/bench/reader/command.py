"""What our stream readers cost beside a bare boto3 loop: CPU a chunk, chunks a second, and the import.

``scripts/bench-reader`` runs it and writes docs/reference/reader-bench.md. The readers take turns in each
round, so that what the machine does befalls all alike; the interval is over rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from peagle_bench.compare.alternating import turn_order
from peagle_bench.results import provenance
from peagle_sm.aws.session.session import LocalTarget, make_session
from peagle_sm.aws.streams import runtime
from peagle_sm.aws.streams.async_stream import AsyncCall, AsyncTokenStream
from peagle_sm.aws.streams.token_stream import Patience
from peagle_sm.core.errors import SpecError
from scripts.bench.job import run_job
from scripts.bench.progress import Reporter
from scripts.bench.reader.page import ImportCost, Reading, page

RAW, OURS, ASYNC, BARE = "raw boto3", "TokenStream", "AsyncTokenStream", "bare aiohttp"
_IMPORTS = (
    "import time; began = time.process_time(); import peagle_sm; {more}"
    "import sys; print((time.process_time() - began) * 1000, 'boto3' in sys.modules)"
)


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="scripts/bench-reader", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="turns of all readers (default 15)")
    parser.add_argument("--chunks", type=int, default=20_000, help="of a stream without gaps (default 20000)")
    parser.add_argument("--paced", type=int, default=2000, help="chunks of a paced stream (default 2000)")
    parser.add_argument("--gap-ms", type=float, default=2.0, help="of a paced stream, mean (default 2)")
    parser.add_argument(
        "--stream",
        type=Path,
        default=Path("toolkit/peagle-sm/tests/aws/recorded/chat-acceptance.sse"),
        help="the recorded stream that is repeated",
    )
    parser.add_argument(
        "--page", type=Path, default=Path("docs/reference/reader-bench.md"), help="the page to write"
    )
    return parser.parse_args(words)


def job(options: argparse.Namespace, reporter: Reporter) -> int:
    """Measure all, print the page and write it.

    Raises:
        SpecError: the recorded stream cannot be read.
    """
    if not options.stream.is_file():
        raise SpecError(f"{options.stream}: there is no such file.", next_step="Give --stream a recording.")
    readings: list[Reading] = []
    before = provenance.load_now()
    with reporter.phase("readers"), _server(options.stream) as url, _readers_at(url) as readers:
        for name in readers:
            readers[name](200, 0.0)  # what Python does once is no chunk's cost
        for turn in range(options.rounds):
            for chunks, gap_ms in ((options.chunks, 0.0), (options.paced, options.gap_ms)):
                for name in turn_order(list(readers), turn):
                    readings.append(_timed(name, readers[name], chunks, gap_ms))
            reporter.say(f"   round {turn + 1} of {options.rounds}, load {provenance.load_now():.1f}")
    text = page(
        readings,
        [_import_cost("import peagle_sm", ""), _import_cost("every public name", _EVERY_NAME)],
        origin=provenance.origin(seed=0),
        load=(before, provenance.load_now()),
        stream=options.stream.name,
        command=" ".join(["scripts/bench-reader", *sys.argv[1:]]),
    )
    options.page.write_text(text, encoding="utf-8")
    print(text)
    return 0


_EVERY_NAME = "[getattr(peagle_sm, name) for name in peagle_sm.__all__]; "


@contextmanager
def _readers_at(url: str) -> Iterator[dict[str, Callable[[int, float], int]]]:
    """Each reads one stream to its end and returns how many chunks it found."""
    import aiohttp

    session = make_session(local=LocalTarget(url))
    runner = asyncio.Runner()
    shared: list[aiohttp.ClientSession] = []
    client = session.runtime_client()

    def body(chunks: int, gap_ms: float) -> bytes:
        return json.dumps({"chunks": chunks, "gap_ms": gap_ms}).encode()

    def raw(chunks: int, gap_ms: float) -> int:
        found = 0
        answer = client.invoke_endpoint_with_response_stream(
            EndpointName="bench", ContentType="application/json", Body=body(chunks, gap_ms)
        )
        for event in answer["Body"]:
            part = event["PayloadPart"]["Bytes"]
            if b'finish_reason":"' not in part:  # the last part holds several events
                json.loads(part[6:])
                found += 1
        return found

    def ours(chunks: int, gap_ms: float) -> int:
        with runtime.stream(session, "bench", body(chunks, gap_ms)) as stream:
            return sum(1 for _ in stream) - 1

    def http() -> aiohttp.ClientSession:
        if not shared:  # boto3 keeps its connections too
            shared.append(aiohttp.ClientSession())
        return shared[0]

    async def bare(chunks: int, gap_ms: float) -> int:
        """Takes the bytes and looks at none of them: what asyncio and aiohttp cost by themselves."""
        path = f"{url}/endpoints/bench/invocations-response-stream"
        async with http().post(path, data=body(chunks, gap_ms)) as response:
            while await response.content.readany():
                pass
        return chunks

    async def read(chunks: int, gap_ms: float) -> int:
        call = AsyncCall(session, "bench", body(chunks, gap_ms), Patience(), http())
        found = -1
        async with AsyncTokenStream(lambda: call.send(None), monotonic=time.monotonic) as stream:
            async for _ in stream:
                found += 1
        return found

    try:
        yield {
            RAW: raw,
            OURS: ours,
            ASYNC: lambda chunks, gap_ms: runner.run(read(chunks, gap_ms)),
            BARE: lambda chunks, gap_ms: runner.run(bare(chunks, gap_ms)),
        }
    finally:
        for each in shared:
            runner.run(each.close())
        runner.close()


def _timed(name: str, reader: Callable[[int, float], int], chunks: int, gap_ms: float) -> Reading:
    began, cpu = time.perf_counter(), time.process_time()
    found = reader(chunks, gap_ms)
    cpu, seconds = time.process_time() - cpu, time.perf_counter() - began
    if found != chunks:
        raise RuntimeError(f"{name} found {found} chunks of {chunks}")
    return Reading(name, gap_ms, chunks, cpu / chunks * 1e6, chunks / seconds)


def _import_cost(what: str, more: str) -> ImportCost:
    spent, boto3 = [], False
    for _ in range(7):
        done = subprocess.run(
            [sys.executable, "-c", _IMPORTS.format(more=more)], capture_output=True, text=True, check=True
        )
        cpu_ms, loaded = done.stdout.split()
        spent.append(float(cpu_ms))
        boto3 = boto3 or loaded == "True"
    return ImportCost(what, tuple(spent), boto3)


@contextmanager
def _server(stream: Path) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "scripts.bench.reader.server", str(stream)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.terminate()
        process.wait()


def main() -> int:
    """Be a command."""
    options = arguments()
    return run_job(lambda reporter: job(options, reporter))


if __name__ == "__main__":
    raise SystemExit(main())
