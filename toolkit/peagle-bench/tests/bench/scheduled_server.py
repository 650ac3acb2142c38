"""A server that streams to a schedule it knows: what a load client says can be held against what was sent.

As a process of its own (`python -m tests.bench.scheduled_server --port 0 …` prints its port); in tests
`with scheduled_server("--gap-ms", "10") as server:`. It speaks SSE on /v1/completions, /v1/chat/completions
and /invocations, and SageMaker's event stream on /endpoints/NAME/invocations-response-stream; also /health,
/ping and /v1/models. GET /truth?since=S&until=U tells what it wrote in that stretch
of CLOCK_MONOTONIC: tokens and chunks.

It writes as an engine does: every ``--gap-ms`` one step, in which every running stream gets one chunk. With
``--survival 0.8,0.5`` a chunk after the first holds 1 + accepted tokens, and usage comes with vLLM's
per-request metrics; otherwise one token. An answer depends on the prompt alone. It has ``max_tokens`` tokens,
or, with ``--natural``, ends by itself at a length between a half and all of them. A body may hold an object
`scheduled`:
    status, body    answer with that status and text
    fault, after    after so many chunks: cut, error, exception, stall, bad-json;
                    at the end: no-usage
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from sagemaker_local.wire import eventstream
from tests.bench.scheduled_stream import Settings, Stream, Truth

ROOT = Path(__file__).resolve().parents[4]


class Connection(asyncio.Protocol):
    """A connection that is kept alive; one request at a time."""

    transport: asyncio.Transport

    def __init__(self, server: Server) -> None:
        self.server = server
        self.closed = False
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self.transport = transport  # type: ignore[assignment]  # uvloop's own class
        self.server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self.server.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, found, rest = self._data.partition(b"\r\n\r\n")
        if not found:
            return
        lines = head.decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])
        }
        length = int(headers.get("content-length", 0))
        if len(rest) >= length:
            self._data = rest[length:]
            method, path, _ = lines[0].split(" ", 2)
            self.server.answer(self, method, path, rest[:length], headers)

    def whole(self, status: int, content: bytes, kind: str = "application/json") -> None:
        head = (
            f"HTTP/1.1 {status} Scheduled\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        self.transport.write(head.encode() + content)

    def begin(self, kind: str) -> None:
        self.transport.write(
            f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        )

    def chunk(self, data: bytes) -> None:
        self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def finish(self) -> None:
        self.transport.write(b"0\r\n\r\n")

    def abort(self) -> None:
        self.transport.abort()


class Server:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.truth = Truth()
        self.connections: set[Connection] = set()
        self._running: list[Stream] = []
        self._loop = asyncio.get_running_loop()
        self._next_step = time.perf_counter()
        self._stepping = False

    def answer(
        self, connection: Connection, method: str, path: str, raw: bytes, headers: dict[str, str]
    ) -> None:
        parts = urlsplit(path)
        if method == "GET":
            self._look(connection, parts.path, parse_qs(parts.query))
            return
        body = json.loads(raw)
        script = body.get("scheduled") or {}
        if "status" in script:
            connection.whole(int(script["status"]), str(script.get("body", "")).encode())
            return
        framed = parts.path.endswith("/invocations-response-stream")
        stream = Stream(connection, self.settings, self.truth, body, framed=framed)
        connection.begin(eventstream.CONTENT_TYPE if framed else "text/event-stream; charset=utf-8")
        self._loop.call_later(self.settings.ttft_s, self._start, stream)

    def _look(self, connection: Connection, path: str, query: dict[str, list[str]]) -> None:
        if path == "/truth":
            since, until = float(query.get("since", ["0"])[0]), float(query.get("until", ["1e12"])[0])
            connection.whole(200, json.dumps(self.truth.between(since, until)).encode())
        elif path == "/v1/models":
            model = {"id": "scheduled", "object": "model", "max_model_len": 32768}
            connection.whole(200, json.dumps({"object": "list", "data": [model]}).encode())
        elif path == "/connections":
            connection.whole(200, json.dumps(len(self.connections)).encode())
        else:
            connection.whole(200 if path in ("/health", "/ping") else 404, b"")

    def _start(self, stream: Stream) -> None:
        self._running.append(stream)
        if not self._stepping:
            self._stepping = True
            self._next_step = time.perf_counter()
            self._step()

    def _step(self) -> None:
        self._running = [stream for stream in self._running if stream.step()]
        if not self._running:
            self._stepping = False
            return
        now = time.perf_counter()
        # A step that the machine delayed delays those after it, as an engine's would.
        self._next_step = max(self._next_step + self.settings.gap_s, now)
        self._loop.call_later(self._next_step - now, self._step)


async def serve(port: int, settings: Settings) -> None:
    loop = asyncio.get_running_loop()
    server = Server(settings)
    listening = await loop.create_server(lambda: Connection(server), "127.0.0.1", port, backlog=2048)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await listening.serve_forever()


def main() -> None:
    import uvloop

    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ttft-ms", type=float, default=20.0)
    parser.add_argument("--gap-ms", type=float, default=10.0)
    parser.add_argument("--natural", action="store_true")
    parser.add_argument("--survival", default="")
    args = parser.parse_args()
    settings = Settings(
        ttft_s=args.ttft_ms / 1000,
        gap_s=args.gap_ms / 1000,
        natural=args.natural,
        survival=tuple(float(share) for share in args.survival.split(",") if share),
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, contextlib.suppress(KeyboardInterrupt):
        runner.run(serve(args.port, settings))


@dataclass(frozen=True)
class Running:
    """A server that runs as a process."""

    url: str
    process: subprocess.Popen[str]

    def look(self, path: str) -> Any:
        """The JSON at ``path``."""
        with urllib.request.urlopen(self.url + path, timeout=30) as response:
            return json.load(response)

    def truth(self, since: float = 0.0, until: float = 1e12) -> dict[str, Any]:
        """What was written in a stretch of CLOCK_MONOTONIC (`time.perf_counter` on Linux)."""
        report: dict[str, Any] = self.look(f"/truth?since={since!r}&until={until!r}")
        return report


@contextlib.contextmanager
def scheduled_server(*options: str) -> Iterator[Running]:
    """Run one with these options of its command line; it ends with the block."""
    command = [sys.executable, "-m", "tests.bench.scheduled_server", *options]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            assert port, "the scheduled server did not start"
            yield Running(f"http://127.0.0.1:{port}", process)
        finally:
            process.kill()


if __name__ == "__main__":
    main()
