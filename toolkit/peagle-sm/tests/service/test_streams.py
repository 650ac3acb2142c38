"""Streams over HTTP against the local SageMaker's faults: exact, or the error of that fault."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from peagle_sm.aws.session.session import LocalTarget, make_session
from peagle_sm.core.errors import (
    ModelStreamFailed,
    NotFound,
    PeagleError,
    ServiceFault,
    SpecError,
    StreamCut,
    StreamDamaged,
    StreamError,
    StreamReportedError,
    StreamStalled,
)
from peagle_sm.service import Endpoint
from sagemaker_local.process import client
from tests.local.serving import Server, eventually, local_session

pytestmark = pytest.mark.slow

TEXT = "token0 token1 token2 token3 "
Read = Callable[..., str]
Add = Callable[..., None]


@pytest.fixture(scope="module")
def endpoint(server: Server) -> Endpoint:
    session = local_session(server)
    return Endpoint(server.deploy(), session)


@pytest.fixture
def add(server: Server, endpoint: Endpoint) -> Iterator[Add]:
    """Sets a fault on the endpoint; the faults of a test go with it."""
    ids: list[str] = []

    def call(kind: str, **options: Any) -> None:
        added = client.add_fault(server.status.port, {"kind": kind, "endpoint": endpoint.name, **options})
        ids.append(added["id"])

    yield call
    for each in client.faults(server.status.port):
        if each["id"] in ids:
            client.clear_faults(server.status.port, [each["id"]])


def _body(how: str = "chat", chunks: int = 4, delay_s: float = 0.0) -> dict[str, Any]:
    script = {"SCRIPT_INVOKE": how, "SCRIPT_CHUNKS": chunks, "SCRIPT_CHUNK_DELAY": delay_s, "SCRIPT_STALL": 2}
    return {"messages": [{"role": "user", "content": "x"}], "script": script}


@pytest.fixture(params=["stream", "astream"])
def read(request: pytest.FixtureRequest, endpoint: Endpoint) -> Read:
    """Reads one answer with one of the readers."""

    def plain(**options: Any) -> str:
        with endpoint.stream(**options) as stream:
            text = "".join(chunk.text for chunk in stream)
        assert stream.completion.text == text
        assert stream.summary.request_id
        return text

    async def on_asyncio(**options: Any) -> str:
        async with endpoint.astream(**options) as stream:
            text = "".join([chunk.text async for chunk in stream])
        assert stream.completion.text == text
        assert stream.summary.request_id
        return text

    return plain if request.param == "stream" else lambda **options: asyncio.run(on_asyncio(**options))


def test_a_whole_answer(read: Read) -> None:
    assert read(body=_body()) == TEXT


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("split", {"parts": "random", "seed": 3}),
        ("split", {"parts": "bytes"}),
        ("split", {"parts": "one"}),
        ("utf8-split", {}),
        ("stall", {"seconds": 0.1}),
    ],
)
def test_what_changes_the_parts_changes_no_answer(
    read: Read, add: Add, kind: str, options: dict[str, Any]
) -> None:
    add(kind, operation="stream", **options)
    assert read(body=_body()) == TEXT


@pytest.mark.parametrize(
    ("kind", "options", "error", "words"),
    [
        ("cut", {"where": "frame", "clean": True}, StreamCut, "in the middle of a message"),
        ("cut", {"where": "event", "clean": True}, StreamCut, "ended before the answer was complete"),
        ("cut", {"where": "frame"}, StreamCut, "connection broke"),
        ("cut", {"where": "event"}, StreamCut, "connection broke"),
        ("corrupt", {"where": "prelude"}, StreamDamaged, "Checksum"),
        ("corrupt", {"where": "message"}, StreamDamaged, "Checksum"),
        ("corrupt", {"where": "garbage"}, StreamDamaged, "damaged"),
        ("sse-error", {"message": "out of memory"}, StreamReportedError, "out of memory"),
        ("stream-error", {"code": "StreamBroken"}, ModelStreamFailed, "ModelStreamError: StreamBroken"),
        ("internal-stream-failure", {}, ModelStreamFailed, "InternalStreamFailure"),
    ],
)
def test_each_fault_is_an_error_of_its_own_with_the_text_before_it(
    read: Read, add: Add, kind: str, options: dict[str, Any], error: type[StreamError], words: str
) -> None:
    add(kind, operation="stream", after_events=2, **options)
    with pytest.raises(error, match=words) as caught:
        read(body=_body())
    assert caught.value.partial_text == "token0 token1 "
    assert len(caught.value.request_id) == 36
    assert caught.value.details["partial_text"] == "token0 token1 "


@pytest.mark.parametrize("code", ["StreamBroken", "ModelInvocationTimeExceeded"])
def test_a_model_stream_error_keeps_its_code(read: Read, add: Add, code: str) -> None:
    add("stream-error", operation="stream", after_events=1, code=code)
    with pytest.raises(ModelStreamFailed) as caught:
        read(body=_body())
    assert (caught.value.name, caught.value.error_code) == ("ModelStreamError", code)
    assert caught.value.details["error_code"] == code


def test_silence_in_mid_stream_ends_in_time(read: Read, add: Add) -> None:
    add("stall", operation="stream", after_events=2, seconds=30)
    began = time.monotonic()
    with pytest.raises(StreamStalled, match=r"no bytes for 0\.3 s") as caught:
        read(body=_body(), read_timeout_s=0.3)
    assert caught.value.partial_text == "token0 token1 "
    assert time.monotonic() - began < 20


def test_silence_before_the_first_byte_ends_in_time(read: Read) -> None:
    with pytest.raises(StreamStalled, match=r"no bytes for 0\.3 s") as caught:
        read(body=_body("hang"), read_timeout_s=0.3)
    assert caught.value.partial_text == ""


@pytest.mark.parametrize("delay_s", [0.05, 60.0])
def test_an_answer_that_takes_too_long_ends_in_time(read: Read, delay_s: float) -> None:
    """A stream that trickles never trips a limit on silence."""
    with pytest.raises(StreamStalled, match=r"did not end within 2(\.0)? s") as caught:
        read(body=_body(chunks=100, delay_s=delay_s), total_timeout_s=2.0)
    assert caught.value.partial_text.startswith("token0 ")


def test_errors_before_the_stream_are_those_of_invoke(endpoint: Endpoint, read: Read, add: Add) -> None:
    for options, kind, words in (
        ({"status": 400, "message": "bad K"}, SpecError, r"refuses the request \(400\): bad K"),
        ({"status": 507, "message": "out of memory"}, ServiceFault, r"failed \(507\): out of memory"),
    ):
        add("model-error", operation="stream", times=1, **options)
        with pytest.raises(kind, match=words):
            read(body=_body())
    add("throttle", operation="stream", times=1)
    with pytest.raises(ServiceFault) as caught:
        read(body=_body())
    assert str(caught.value).endswith(": ThrottlingException")  # AWS gives no message
    assert caught.value.code == "ThrottlingException"
    assert caught.value.request_id


def test_an_endpoint_that_is_not_there(endpoint: Endpoint) -> None:
    absent = Endpoint("nobody-here", endpoint.session)
    with pytest.raises(NotFound, match="nobody-here"):
        absent.stream(prompt="x")
    with pytest.raises(NotFound, match="nobody-here"):
        asyncio.run(_first(absent, prompt="x"))


async def _first(endpoint: Endpoint, **options: Any) -> str:
    async with endpoint.astream(**options) as stream:
        async for chunk in stream:
            return chunk.text
    return ""


def test_a_request_that_was_refused_is_not_sent_again(endpoint: Endpoint, add: Add) -> None:
    add("throttle", operation="stream", times=1)

    async def twice() -> None:
        stream = endpoint.astream(_body())
        for _ in range(2):
            with pytest.raises(ServiceFault, match="ThrottlingException"):
                await anext(stream)

    asyncio.run(twice())


def test_nobody_listens() -> None:
    nowhere = Endpoint("demo", make_session(local=LocalTarget("http://127.0.0.1:9")))
    with pytest.raises(ServiceFault, match="no answer"):
        nowhere.stream(prompt="x")
    with pytest.raises(ServiceFault, match="no answer"):
        asyncio.run(_first(nowhere, prompt="x"))


@pytest.mark.parametrize("times", [{"read_timeout_s": 0}, {"total_timeout_s": -1.0}])
def test_a_time_that_is_none(endpoint: Endpoint, times: dict[str, Any]) -> None:
    for ask in (endpoint.stream, endpoint.astream):
        with pytest.raises(SpecError, match="allowed: seconds above 0"):
            ask(prompt="x", **times)


def _dropped(endpoint: Endpoint) -> int:
    line = next(line for line in endpoint.metrics().splitlines() if line.startswith("scripted:dropped"))
    return int(line.split()[1])


LONG = _body(chunks=100_000, delay_s=0.02)


def test_a_stream_that_is_closed_ends_the_request_in_the_engine(endpoint: Endpoint) -> None:
    before = _dropped(endpoint)
    with endpoint.stream(LONG) as stream:
        assert next(stream).text == "token0 "
    assert list(stream) == []
    with pytest.raises(PeagleError, match="not ended"):
        _ = stream.summary
    eventually(lambda: _dropped(endpoint) == before + 1)


def test_an_engine_that_keeps_generating_does_not_notice_that_its_client_left(
    endpoint: Endpoint, add: Add
) -> None:
    """With the fault the engine's stream is read to its end, so it is dropped by nobody."""
    add("keeps-generating", times=1)
    before = _dropped(endpoint)
    with endpoint.stream(_body(chunks=50, delay_s=0.02)) as stream:
        assert next(stream).text == "token0 "
    with endpoint.stream(LONG) as stream:  # the fault is spent: this one is noticed
        next(stream)
    eventually(lambda: _dropped(endpoint) > before)
    assert _dropped(endpoint) == before + 1


def test_a_task_that_is_cancelled_ends_the_request_in_the_engine(endpoint: Endpoint) -> None:
    before = _dropped(endpoint)

    async def cancelled() -> None:
        started = asyncio.Event()

        async def read() -> None:
            async for _ in endpoint.astream(LONG):
                started.set()

        task = asyncio.create_task(read())
        await started.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert task.cancelled()

    asyncio.run(cancelled())
    eventually(lambda: _dropped(endpoint) == before + 1)


def test_another_thread_closes_a_read_that_is_blocked(endpoint: Endpoint, add: Add) -> None:
    add("stall", operation="stream", after_events=1, seconds=60)
    stream = endpoint.stream(_body())
    next(stream)
    rows: list[BaseException] = []

    def read() -> None:
        try:
            next(stream)
        except (StreamError, StopIteration) as error:
            rows.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    time.sleep(0.1)  # so that it waits; where it does not yet, it finds the stream closed
    stream.close()
    reader.join(20)
    assert not reader.is_alive()
    assert isinstance(rows[0], StreamCut | StopIteration)


def test_many_streams_are_read_at_once(endpoint: Endpoint) -> None:
    async def several() -> list[str]:
        return await asyncio.gather(*(_text(endpoint.astream(_body())) for _ in range(12)))

    assert asyncio.run(several()) == [TEXT] * 12


async def _text(stream: AsyncIterator[Any]) -> str:
    return "".join([chunk.text async for chunk in stream])


def test_a_timeout_of_one_s_own_ends_a_stream_too(endpoint: Endpoint) -> None:
    before = _dropped(endpoint)

    async def impatient() -> None:
        async with asyncio.timeout(0.3):
            await _text(endpoint.astream(LONG))

    with pytest.raises(TimeoutError):
        asyncio.run(impatient())
    eventually(lambda: _dropped(endpoint) == before + 1)
