"""Process that turns exchanges into redacted lines, and its handle.

Searching for secrets takes milliseconds of CPU without releasing Python's lock, so a thread would delay the
streams of the process that it records. A record that takes too long, or that ends the process, is lost
alone.

A frame is its length in 8 bytes and its bytes. A message is a count in 8 bytes and that many requests. A
request has three frames: the exchange as JSON, the body, the answer. Each has one frame in the reply, which
comes at once for all: a line, or ``!`` and the error's name (its message could have a secret).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from typing import IO, Any

from peagle_sm.core.errors import NotFound, PeagleError
from peagle_sm.core.words import install_command
from peagle_sm.traffic.exchange import Exchange

TIMEOUT_S = 30.0  #: for one record; 6 MB of text take about 1 s
TOGETHER_S = 2.0  #: for several, which take milliseconds each
_MEMORY_BYTES = 3 * 1024**3
_SIZE = struct.Struct(">Q")
_NICE = 10


#: An exchange, the request's body, and the answer as it arrived.
Request = tuple[Exchange, bytes, bytes | bytearray]


class RecordLost(PeagleError):
    """A record could not be made; the message has no content of it."""


class Worker:
    """Handle of the process; it starts with the first record and again after a loss."""

    def __init__(
        self,
        command: Sequence[str] = (sys.executable, "-m", "peagle_sm.traffic.worker"),
        *,
        timeout_s: float = TIMEOUT_S,
        together_s: float = TOGETHER_S,
    ) -> None:
        """Take the command that starts it, and the limits for one record and for several together."""
        self._command = tuple(command)
        self._timeout_s = timeout_s
        self._together_s = together_s
        self._process: subprocess.Popen[bytes] | None = None

    def lines(self, requests: Sequence[Request]) -> list[bytes | RecordLost]:
        """Return the redacted line of each request, without its end, or why it cannot be recorded.

        Raises:
            RecordLost: they took too long, or the process ended; retry them one by one.
        """
        limit = self._timeout_s if len(requests) == 1 else self._together_s
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._process = self._start()
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        late = threading.Event()

        def stop() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(limit, stop)
        timer.start()
        try:
            process.stdin.write(_message(requests))
            process.stdin.flush()
            replies = [_frame(process.stdout) for _ in requests]
        except BaseException as error:  # a part of the message may be in the pipe
            self.close()
            if not isinstance(error, OSError | EOFError | ValueError):
                raise
            if late.is_set():
                raise RecordLost(f"the search for secrets took longer than {limit:g} s") from None
            raise RecordLost("the process that searches for secrets ended") from None
        finally:
            timer.cancel()
        return [
            RecordLost(f"the request cannot be recorded: {reply[1:].decode(errors='replace')}")
            if reply.startswith(b"!")
            else reply
            for reply in replies
        ]

    def kill(self) -> None:
        """End the process while another thread asks it; that thread then closes."""
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _start(self) -> subprocess.Popen[bytes]:
        # A session of its own: Ctrl-C in a terminal must not end it before the last records are written.
        return subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def _message(requests: Sequence[Request]) -> bytes:
    parts: list[bytes | bytearray] = [_SIZE.pack(len(requests))]
    for exchange, body, answer in requests:
        for frame in (json.dumps(vars(exchange)).encode(), body, answer):
            parts += (_SIZE.pack(len(frame)), frame)
    return b"".join(parts)


def need_library() -> None:
    """Check that the library that finds secrets is installed, without importing it.

    Raises:
        NotFound: it is not.
    """
    if find_spec("detect_secrets") is None:
        raise NotFound(
            "Recording traffic needs the package bc-detect-secrets, which this Python does not have.",
            next_step=install_command("record"),
        )


def _frame(source: IO[bytes]) -> bytes:
    return _exactly(source, _SIZE.unpack(_exactly(source, _SIZE.size))[0])


def _exactly(source: IO[bytes], size: int) -> bytes:
    data = source.read(size)
    if len(data) < size:
        raise EOFError
    return data


def reply_to(exchange: bytes, body: bytes, answer: bytes) -> bytes:
    """Return the line of one request, or ``!`` and the error's name."""
    from peagle_sm.traffic.exchange import record_of
    from peagle_sm.traffic.records import to_line

    try:
        fields: dict[str, Any] = json.loads(exchange)
        fields["parts"] = tuple(tuple(part) for part in fields["parts"])
        return to_line(record_of(Exchange(**fields), body, answer)).encode()
    except (Exception, RecursionError, MemoryError) as error:
        return b"!" + type(error).__name__.encode()


def main() -> None:
    """Answer requests until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    source, target = sys.stdin.buffer, sys.stdout.buffer
    with contextlib.suppress(EOFError):
        while True:
            count = _SIZE.unpack(_exactly(source, _SIZE.size))[0]
            replies = [reply_to(_frame(source), _frame(source), _frame(source)) for _ in range(count)]
            for reply in replies:
                target.write(_SIZE.pack(len(reply)) + reply)
            target.flush()


if __name__ == "__main__":
    main()
