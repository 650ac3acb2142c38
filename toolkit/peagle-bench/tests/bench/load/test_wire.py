"""Over real sockets, against the server that knows what it sent."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.credentials import Credentials

from peagle_bench.load import (
    HttpTarget,
    LoadOptions,
    LoadRun,
    LoadStopped,
    SageMakerTarget,
    Target,
    Timeouts,
    WorkItem,
    drive_load,
    measure_point,
    run_quietly,
)
from peagle_bench.load.arrival_times import StampingHandler
from peagle_bench.load.points import make_point
from peagle_bench.results.records import Load, RequestRecord
from peagle_sm.core.errors import SpecError
from tests.bench.scheduled_server import ROOT, Running, scheduled_server

C1, C16 = Load("closed", concurrency=1), Load("closed", concurrency=16)
SHORT = Timeouts(read_s=0.3, total_s=1.5)


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    options = ("--gap-ms", "4", "--ttft-ms", "8", "--natural", "--survival", "0.8,0.5,0.2")
    with scheduled_server(*options) as running:
        yield running


@pytest.fixture(params=["http", "sagemaker"])
def target(request: pytest.FixtureRequest, server: Running) -> Target:
    if request.param == "http":
        return HttpTarget(server.url, arm="a")
    return SageMakerTarget(server.url, "us-east-1", Credentials("AKID", "secret"), "some-endpoint", arm="a")


def prompts(count: int, *, max_tokens: int = 40, **more: Any) -> list[WorkItem]:
    return [
        WorkItem(f"p{n}", {"prompt": f"prompt {n}", "max_tokens": max_tokens, **more}) for n in range(count)
    ]


def one(target: Target, *, timeouts: Timeouts | None = None, **body: Any) -> RequestRecord:
    options = LoadOptions(requests=1, warm_up_requests=0, timeouts=timeouts or Timeouts(), keep_text=True)
    records, _ = measure_point(target, C1, prompts(1, **body), options)
    return records[0]


def test_the_rate_and_the_gaps_are_those_that_the_server_saw(server: Running, target: Target) -> None:
    run: LoadRun = run_quietly(
        lambda: drive_load(target, C16, prompts(200), options=LoadOptions(requests=150, began=0.0))
    )
    point = make_point(run)
    truth = server.truth(run.window.start_s, run.window.end_s)
    assert point.errors == {}
    # At the window's edges one step of the engine may be on its way.
    assert point.output_tokens == pytest.approx(truth["tokens"], abs=2 * 16 * 4)
    gaps = [gap for record in run.records for gap in record.gaps_ms]
    began, ended = min(r.sent_s for r in run.records), max(r.done_s for r in run.records)
    whole = server.truth(began, ended)
    assert len(gaps) == whole["chunks"] - len(run.records)
    # How exact the times are depends on the machine's load: docs/reference/clients-bench.md.
    for record in run.records:
        assert record.first_s is not None
        assert record.last_s is not None
        assert sum(record.gaps_ms) == pytest.approx(1000 * (record.last_s - record.first_s), abs=0.01)


def test_an_answer_is_the_same_by_every_way(server: Running, target: Target) -> None:
    by_stream = one(target, return_token_ids=True)
    chat = WorkItem("p", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 20})
    options = LoadOptions(requests=1, warm_up_requests=0, keep_text=True)
    records, _ = measure_point(target, C1, [chat], options)
    assert (records[0].error, records[0].text is not None and records[0].text.count(" t")) == (
        None,
        records[0].output_tokens,
    )
    again = one(HttpTarget(server.url), return_token_ids=True)
    assert by_stream.output_sha256 == again.output_sha256
    assert by_stream.text == again.text


@pytest.mark.parametrize(
    ("script", "error", "words"),
    [
        ({"fault": "cut", "after": 3}, "StreamError", "broke in the middle"),
        ({"fault": "cut"}, "StreamError", "broke in the middle"),
        ({"fault": "error", "after": 3}, "EngineError", "scheduled fault"),
        ({"fault": "bad-json", "after": 3}, "StreamError", "not JSON"),
        ({"fault": "no-usage"}, "NoUsage", "completion_tokens"),
        ({"fault": "stall", "after": 3}, "Timeout", "nothing arrived for 0.3 s"),
        ({"status": 503, "body": "no room"}, "HTTP 503", "no room"),
    ],
)
def test_what_goes_wrong_is_in_the_record(
    target: Target, script: dict[str, Any], error: str, words: str
) -> None:
    record = one(target, scheduled=script, timeouts=SHORT)
    assert record.error == error
    assert words in (record.error_message or "")
    assert record.chunks == script.get("after", record.chunks)


def test_an_exception_of_the_stream_has_its_name(server: Running) -> None:
    target = SageMakerTarget(server.url, "us-east-1", Credentials("AKID", "secret"), "some-endpoint")
    record = one(target, scheduled={"fault": "exception", "after": 2})
    assert (record.error, record.chunks) == ("ModelStreamError", 2)
    assert record.error_message == "StreamBroken: scheduled fault"


def test_refusals_of_aws_have_their_names(server: Running) -> None:
    target = SageMakerTarget(server.url, "us-east-1", Credentials("AKID", "secret"), "some-endpoint")
    throttled = one(
        target,
        scheduled={
            "status": 429,
            "body": json.dumps({"__type": "ThrottlingException", "message": "slow down"}),
        },
    )
    assert (throttled.error, throttled.error_message) == ("ThrottlingException", "slow down")
    inner = {"error": {"message": "this model's maximum context length is 512 tokens"}}
    model = {"OriginalStatusCode": 400, "OriginalMessage": json.dumps(inner), "message": "x"}
    failure = target.failure(
        424, {"x-amzn-errortype": "ModelError:http://internal"}, json.dumps(model).encode()
    )
    assert failure == ("ModelError", "400: this model's maximum context length is 512 tokens")
    assert target.failure(502, {}, b"<html>") == ("HTTP 502", "<html>")


def test_a_stream_that_takes_too_long_is_ended(server: Running) -> None:
    record = one(HttpTarget(server.url), max_tokens=100_000, timeouts=Timeouts(read_s=5.0, total_s=0.4))
    assert (record.error, record.error_message) == ("Timeout", "the answer was not whole after 0.4 s")
    assert record.chunks > 3


def test_nobody_there_is_told_with_what_there_is() -> None:
    target = HttpTarget("http://127.0.0.1:9")  # "discard": nobody listens
    options = LoadOptions(requests=500, pause_after_error_s=0.0, give_up_after=5)
    with pytest.raises(LoadStopped, match="last 5 requests failed") as stopped:
        measure_point(target, C1, prompts(600), options)
    assert {record.error for record in stopped.value.records} == {"ConnectionFailed"}


def test_leaving_closes_every_connection(server: Running, target: Target) -> None:
    async def part() -> int:
        work = prompts(100, max_tokens=100_000)
        task = asyncio.create_task(drive_load(target, C16, work, options=LoadOptions(seconds=60.0)))
        while await asyncio.to_thread(server.look, "/connections") < 17:  # 16, and this one
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while (left := await asyncio.to_thread(server.look, "/connections")) > 1:
            await asyncio.sleep(0.01)
        return int(left)

    assert run_quietly(part) == 1


def test_ctrl_c_frees_the_connections_and_keeps_what_was_observed(server: Running) -> None:
    program = f"""
import itertools
from peagle_bench.load import HttpTarget, LoadOptions, Silent, WorkItem, measure_point
from peagle_bench.results.records import Load
class Told(Silent):
    def request(self, record):
        print(record.prompt_id, record.error, flush=True)
items = (WorkItem(f"p{{n}}", {{"prompt": n, "max_tokens": 10}}) for n in itertools.count())
load, options = Load("closed", concurrency=4), LoadOptions(seconds=600)
try:
    measure_point(HttpTarget("{server.url}"), load, items, options, observer=Told())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().split()[1] == "None"
        process.send_signal(signal.SIGINT)
        lines = process.stdout.read().splitlines()
    assert (process.returncode, lines[-1]) == (0, "interrupted")
    while server.look("/connections") > 1:
        time.sleep(0.01)


def test_arrivals_are_stamped_by_the_connection_itself(server: Running) -> None:
    """With an aiohttp that has lost the seam, all still works, but costs twice the CPU: notice it here."""
    import aiohttp

    from peagle_bench.load.arrival_times import stamp_arrivals

    async def protocol() -> Any:
        connector = aiohttp.TCPConnector()
        stamp_arrivals(connector, time.perf_counter)
        async with aiohttp.ClientSession(connector=connector) as session:
            body = {"prompt": "x", "stream": True, "max_tokens": 10}
            async with session.post(f"{server.url}/invocations", json=body) as response:
                assert response.connection is not None
                return response.connection.protocol

    assert isinstance(run_quietly(protocol), StampingHandler)


def test_without_the_seam_it_reads_part_by_part(server: Running) -> None:
    import aiohttp

    from peagle_bench.load.http_client import HttpSender

    async def answer() -> Any:
        async with aiohttp.ClientSession(auto_decompress=False) as session:
            sender = HttpSender(session, Timeouts(), time.perf_counter)
            target = HttpTarget(server.url)
            good = await sender.send(target, {"prompt": "x", "max_tokens": 12})
            bad = await sender.send(
                target, {"prompt": "x", "max_tokens": 12, "scheduled": {"fault": "error"}}
            )
            return good, bad

    good, bad = run_quietly(answer)
    assert (good.error, good.text.count(" t")) == (None, good.output_tokens)
    assert bad.error == "EngineError"


@pytest.mark.parametrize("body", [{"prompt": "x", "n": 2}, {"prompt": {1, 2}}])
def test_a_body_that_cannot_be_sent_ends_the_load(server: Running, body: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        measure_point(
            HttpTarget(server.url), C1, [WorkItem("p", body)], LoadOptions(requests=1, warm_up_requests=0)
        )


@pytest.mark.parametrize("address", ["127.0.0.1:8000", "ftp://x", "http://"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(SpecError, match="not a server URL"):
        HttpTarget(address)
