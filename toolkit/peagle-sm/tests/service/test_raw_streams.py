"""Streams, also on asyncio, and `serve` against bytes that no HTTP library would send."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import threading
import time
from typing import Any

import openai
import pytest

from peagle_sm.aws.session.session import LocalTarget, make_session
from peagle_sm.core.errors import StreamCut, StreamStalled
from peagle_sm.service import Endpoint
from sagemaker_local.wire import eventstream
from tests.local.openai_client import QUESTION
from tests.local.serving import Server
from tests.service.raw_server import CHUNKED, HEAD, chunk, raw_server
from tests.service.serving.proxies import serving

EVENT = b'data: {"choices": [{"index": 0, "delta": {"content": "a"}}]}\n\n'
PATIENT_S = 60.0


def endpoint_at(url: str) -> Endpoint:
    return Endpoint("demo", make_session(local=LocalTarget(url)))


class Malformed:
    """An event; once it has been read, a malformed chunk; then it waits for the client to leave."""

    def __init__(self, *, close: bool) -> None:
        self.read = threading.Event()
        self._close = close

    def __call__(self, connection: socket.socket) -> None:
        connection.sendall(CHUNKED + chunk(eventstream.payload_part(EVENT)))
        self.read.wait(PATIENT_S)
        connection.sendall(b"ZZZ\r\nbad\r\n")
        if not self._close:
            connection.recv(1)  # until the client leaves


@pytest.mark.parametrize("close", [False, True])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_malformed_chunk_ends_a_stream_at_once(asynchronous: bool, close: bool) -> None:
    say = Malformed(close=close)

    def read() -> None:
        with endpoint_at(url).stream(prompt="x", read_timeout_s=PATIENT_S) as stream:
            assert next(stream).text == "a"
            say.read.set()
            next(stream)

    async def aread() -> None:
        async with endpoint_at(url).astream(prompt="x", read_timeout_s=PATIENT_S) as stream:
            assert (await anext(stream)).text == "a"
            say.read.set()
            await anext(stream)

    with raw_server(say) as url:
        began = time.monotonic()
        with pytest.raises(StreamCut) as caught:
            asyncio.run(aread()) if asynchronous else read()
        assert caught.value.partial_text == "a"
        assert time.monotonic() - began < PATIENT_S / 2


@pytest.mark.slow
@pytest.mark.parametrize("close", [False, True])
def test_a_malformed_chunk_ends_a_stream_of_serve_at_once(server: Server, close: bool) -> None:
    say = Malformed(close=close)
    with raw_server(say) as url, serving(server, "demo", url=url) as proxy:
        began = time.monotonic()
        stream: Any = proxy.client().chat.completions.create(model="", messages=QUESTION, stream=True)
        chunks = [next(stream)]
        say.read.set()
        with pytest.raises(openai.APIError, match="connection to SageMaker broke"):
            chunks.extend(stream)
        assert len(chunks) == 1
        assert time.monotonic() - began < PATIENT_S / 2


class Trickling:
    """A response of which a byte comes at a time, and which has no end for as long as the client is there."""

    def __init__(self, begin: bytes) -> None:
        self.over = threading.Event()
        self._begin = begin

    def __call__(self, connection: socket.socket) -> None:
        connection.sendall(self._begin)
        until = time.monotonic() + PATIENT_S
        while time.monotonic() < until and not self.over.wait(0.02):
            connection.sendall(b"x")


BEGINNINGS = {"status": b"HTTP/1.1 200 ", "name": HEAD, "value": HEAD + b"X-Long: "}


@pytest.mark.parametrize("begin", BEGINNINGS)
@pytest.mark.parametrize("asynchronous", [False, True])
def test_headers_that_trickle_count_towards_the_total(asynchronous: bool, begin: str) -> None:
    async def aread() -> None:
        async with endpoint_at(url).astream(prompt="x", total_timeout_s=0.5) as stream:
            await anext(stream)

    def read() -> None:
        endpoint_at(url).stream(prompt="x", total_timeout_s=0.5)

    trickling = Trickling(BEGINNINGS[begin])
    with raw_server(trickling) as url:
        began = time.monotonic()
        with pytest.raises(StreamStalled, match=r"did not end within 0\.5 s") as caught:
            asyncio.run(aread()) if asynchronous else read()
        assert caught.value.details["total_timeout_s"] == 0.5
        assert time.monotonic() - began < PATIENT_S / 2
        trickling.over.set()


class Endless:
    """Events without end; ``left`` is set when the client has closed the connection."""

    def __init__(self) -> None:
        self.left = threading.Event()

    def __call__(self, connection: socket.socket) -> None:
        connection.sendall(CHUNKED + chunk(eventstream.payload_part(EVENT)))
        connection.settimeout(PATIENT_S)
        with contextlib.suppress(ConnectionError):
            while connection.recv(1024):
                pass  # the request's body may come after its head
        self.left.set()


def test_a_stream_that_is_dropped_after_break_closes_its_connection() -> None:
    endless = Endless()

    async def read() -> None:
        async for chunk_read in endpoint_at(url).astream(prompt="x", read_timeout_s=PATIENT_S):
            assert chunk_read.text == "a"
            break

    async def aread() -> bool:
        await read()
        gc.collect()
        return await asyncio.to_thread(endless.left.wait, PATIENT_S / 4)  # while the program goes on

    with raw_server(endless) as url:
        assert asyncio.run(aread())
