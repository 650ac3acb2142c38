"""A server that answers each request with a recorded stream, many times over, as fast as it is asked to.

``python -m scripts.bench.reader.server FILE`` prints its port. A request's body is
``{"chunks": N, "gap_ms": G}``: N chunks, one HTTP chunk and one event-stream message each, G ms apart in the
mean (0: as fast as the client reads). The gaps are random, from 0 to 2G. Equal ones keep the streams in step,
or out of step, to their end, and a proxy's cost for a chunk depends on that: comparisons were four times as
noisy.
"""

from __future__ import annotations

import json
import random
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from sagemaker_local.wire import eventstream

_BLOCK = 64  #: chunks that are written at once without a gap


def events_of(recorded: bytes) -> tuple[list[bytes], bytes]:
    """The events of a recorded stream that carry text, and those that end it, each as it was sent."""
    events = [event + b"\n\n" for event in recorded.split(b"\n\n") if event]
    ends = next(
        place for place, event in enumerate(events) if b'"finish_reason":"' in event.replace(b": ", b":")
    )
    return events[1:ends], b"".join(events[ends:])


def http_chunk(payload: bytes) -> bytes:
    """One message of the event stream in one chunk of HTTP."""
    frame = eventstream.payload_part(payload)
    return b"%x\r\n%b\r\n" % (len(frame), frame)


class Handler(BaseHTTPRequestHandler):
    """Sends the stream."""

    protocol_version = "HTTP/1.1"
    middle: tuple[bytes, ...] = ()
    end: bytes = b""

    def do_POST(self) -> None:
        """Answer one request."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", eventstream.CONTENT_TYPE)
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("x-amzn-RequestId", "bench")
        self.end_headers()
        chunks = [self.middle[n % len(self.middle)] for n in range(asked["chunks"])]
        gap_s = asked["gap_ms"] / 1000
        if gap_s:
            due = time.monotonic()
            for chunk in chunks:
                self.wfile.write(chunk)
                due += random.uniform(0, 2 * gap_s)
                time.sleep(max(0.0, due - time.monotonic()))
        else:
            for n in range(0, len(chunks), _BLOCK):
                self.wfile.write(b"".join(chunks[n : n + _BLOCK]))
        self.wfile.write(self.end + b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def main() -> None:
    """Serve until the process is ended."""
    middle, end = events_of(Path(sys.argv[1]).read_bytes())
    Handler.middle, Handler.end = tuple(map(http_chunk, middle)), http_chunk(end)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
