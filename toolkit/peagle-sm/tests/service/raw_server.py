"""A server on a raw socket in the place of SageMaker Runtime: it answers with the very bytes of a test."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.amazon.eventstream\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
Say = Callable[[socket.socket], None]


def chunk(data: bytes) -> bytes:
    """One chunk of HTTP's transfer coding."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


@contextmanager
def raw_server(say: Say) -> Iterator[str]:
    """Run ``say`` for each connection, once its request has come; yield the server's address."""
    listening = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def answer(connection: socket.socket) -> None:
        with closing(connection), suppress(OSError):  # the client has left
            received = b""
            while b"\r\n\r\n" not in received:
                received += connection.recv(65536)
            say(connection)

    def accept() -> None:
        with suppress(OSError):  # closed
            while True:
                connection, _ = listening.accept()
                threads.append(threading.Thread(target=answer, args=(connection,), daemon=True))
                threads[-1].start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        with suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        accepting.join(30)
        for thread in threads:
            thread.join(30)
