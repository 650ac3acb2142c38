"""The gate before a small ASGI application that counts its drafts as vLLM does. Real: test_real_gate.py."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from peagle_gate.asgi import App, Gate, Message, Receive, Send
from peagle_gate.asgi import ask as ask_application

SPECULATIVE = '{"model": "", "num_speculative_tokens": 3, "parallel_drafting": true}'
CHAT = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 5}


class Engine:
    """Answers the routes of an engine; what each request adds to the metrics is given."""

    def __init__(
        self, drafts: int = 40, accepted: tuple[int, ...] = (30, 25, 20), template: bool = True
    ) -> None:
        self.drafts, self.accepted, self.template = drafts, accepted, template
        self.asked: list[dict[str, Any]] = []
        self.hold = asyncio.Event()
        self.hold.set()
        self.broken = False

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        if scope["path"] == "/metrics":
            await self._send(send, 500 if self.broken else 200, self._metrics())
        elif scope["method"] == "POST":
            await self.hold.wait()
            request = json.loads((await receive())["body"])
            if "messages" in request and not self.template:
                await self._send(send, 400, "no chat template")
            else:
                self.asked.append(request)
                await self._send(send, 200, "answer")
        else:
            await self._send(send, 200, "")

    def _metrics(self) -> str:
        n = len(self.asked)
        lines = [f"vllm:generation_tokens_total {n * 128}", f"vllm:request_success_total {n}"]
        lines.append(f"vllm:spec_decode_num_drafts_total {n * self.drafts}")
        name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
        lines += [f'{name}{{position="{at}"}} {n * count}' for at, count in enumerate(self.accepted)]
        return "\n".join(lines)

    async def _send(self, send: Send, status: int, text: str) -> None:
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": text.encode()})


@contextmanager
def process_settings(arguments: list[str], environment: dict[str, str]) -> Iterator[None]:
    """What the gate reads when the server makes it: this process's arguments and environment."""
    argv, before = sys.argv, dict(os.environ)
    sys.argv = ["server", *arguments]
    os.environ.update(environment)
    try:
        yield
    finally:
        sys.argv = argv
        os.environ.clear()
        os.environ.update(before)


class Client:
    """Asks a gate as the server would."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.interrupted = asyncio.Event()

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        status, content = await ask_application(self.gate, {}, method, path, body)
        return status, content.decode()

    async def ping(self) -> tuple[int, str]:
        return await self.ask("GET", "/ping")

    async def settled(self) -> tuple[int, str]:
        async with asyncio.timeout(10):
            while (answer := await self.ping())[1].find("starting") >= 0:
                await asyncio.sleep(0.005)
        return answer


@asynccontextmanager
async def serving(engine: App, *arguments: str, **environment: str) -> Any:
    """A gate whose application has started; ended afterwards, with its tasks and its signal handlers."""
    with process_settings(list(arguments), environment):
        gate = Gate(engine, sleep=lambda _: asyncio.sleep(0.005))
    queue: asyncio.Queue[Message] = asyncio.Queue()
    started = asyncio.Event()

    async def send(message: Message) -> None:
        started.set()

    loop = asyncio.get_running_loop()
    client = Client(gate)
    loop.add_signal_handler(signal.SIGINT, client.interrupted.set)  # as vLLM's own, which then drains
    lifespan = asyncio.create_task(gate({"type": "lifespan"}, queue.get, send))
    await queue.put({"type": "lifespan.startup"})
    await started.wait()
    try:
        yield client
    finally:
        await queue.put({"type": "lifespan.shutdown"})
        await lifespan
        for task in list(gate._tasks):
            task.cancel()
        loop.remove_signal_handler(signal.SIGTERM)
        loop.remove_signal_handler(signal.SIGINT)


DRAFTING = ("--speculative-config", SPECULATIVE)


async def test_ping_waits_for_the_canary_and_requests_do_not() -> None:
    engine = Engine()
    engine.hold.clear()
    async with serving(engine, *DRAFTING) as client:
        status, text = await client.ping()
        assert status == 503
        assert json.loads(text)["error"]["message"] == "starting: the canary has not finished"
        engine.hold.set()
        assert (await client.settled())[0] == 200
    assert len(engine.asked) == 20
    assert all(request["temperature"] == 0 for request in engine.asked)


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        (Engine(accepted=(36, 2, 0)), "parallel drafting ineffective"),
        (Engine(drafts=0, accepted=()), "speculation is off: 2560 tokens and no draft"),
    ],
)
async def test_an_ineffective_head_keeps_the_endpoint_out_with_the_reason(
    engine: Engine, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    async with serving(engine, *DRAFTING) as client:
        status, text = await client.settled()
    assert status == 503
    assert words in json.loads(text)["error"]["message"]
    assert words in capfd.readouterr().err


def with_table(*rows: list[int], head: str = "") -> tuple[str, str]:
    config = {**json.loads(SPECULATIVE), "model": head, "num_speculative_tokens_per_batch_size": rows}
    return "--speculative-config", json.dumps(config)


@pytest.mark.parametrize(
    ("engine", "table"),
    [
        (Engine(drafts=0, accepted=()), with_table([1, 4, 0], [5, 9, 3])),  # no drafts, as the table says
        (Engine(accepted=(36, 0, 0)), with_table([1, 4, 1], [5, 9, 3])),  # no second token is drafted
    ],
)
async def test_a_table_that_drafts_little_is_not_taken_for_a_fault(
    engine: Engine, table: tuple[str, str]
) -> None:
    async with serving(engine, *table) as client:
        assert (await client.settled())[0] == 200


async def test_a_table_does_not_hide_a_head_that_does_not_work() -> None:
    async with serving(Engine(accepted=(36, 2, 0)), *with_table([1, 4, 3], [5, 9, 0])) as client:
        assert "parallel drafting ineffective" in (await client.settled())[1]


async def test_with_a_table_the_canary_stays_within_its_first_row(tmp_path: Any) -> None:
    profile = {"survival": [0.8, 0.7, 0.6, 0.5, 0.4], "prompts": ["mine"] * 12}
    (tmp_path / "canary.json").write_text(json.dumps(profile))
    engine = Engine(accepted=(32, 28, 0))  # the first row drafts two tokens
    busy: list[int] = []
    most = 0

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        nonlocal most
        if scope.get("method") != "POST":
            await engine(scope, receive, send)
            return
        busy.append(1)
        most = max(most, len(busy))
        await asyncio.sleep(0.002)
        await engine(scope, receive, send)
        busy.pop()

    async with serving(app, *with_table([1, 2, 2], [3, 9, 3], head=str(tmp_path))) as client:
        assert (await client.settled())[0] == 200, "compared with the profile's first two positions"
    assert most == 2


async def test_an_engine_that_does_not_answer_the_canary_is_unhealthy() -> None:
    engine = Engine()
    engine.broken = True
    async with serving(engine, *DRAFTING) as client:
        assert "/metrics answered 500" in (await client.settled())[1]


async def test_a_model_without_a_chat_template_is_asked_to_complete() -> None:
    engine = Engine(template=False)
    async with serving(engine, *DRAFTING, PEAGLE_GATE_CANARY_PROMPTS="3") as client:
        assert (await client.settled())[0] == 200
    assert [sorted(request) for request in engine.asked] == [
        ["ignore_eos", "max_tokens", "prompt", "temperature"]
    ] * 3


async def test_a_head_is_asked_its_own_prompts(tmp_path: Any) -> None:
    profile = {"survival": [0.99, 0.98, 0.97], "prompts": ["mine"] * 6}
    (tmp_path / "canary.json").write_text(json.dumps(profile))
    config = json.dumps({**json.loads(SPECULATIVE), "model": str(tmp_path)})
    engine = Engine(accepted=(24, 20, 18))
    async with serving(engine, "--speculative-config", config) as client:
        assert "misses its own profile" in (await client.settled())[1]
    assert {request["messages"][0]["content"] for request in engine.asked} == {"mine"}


async def test_without_speculation_or_with_no_prompts_it_is_healthy_at_once() -> None:
    async with serving(Engine()) as client:
        assert await client.ping() == (200, "")
    async with serving(Engine(), *DRAFTING, PEAGLE_GATE_CANARY_PROMPTS="0") as client:
        assert await client.ping() == (200, "")


async def test_limits_and_closed_routes() -> None:
    engine = Engine()
    async with serving(engine, PEAGLE_GATE_MAX_BODY_BYTES="200") as client:
        assert await client.ask("POST", "/invocations", CHAT) == (200, "answer")
        status, text = await client.ask("POST", "/invocations", {**CHAT, "n": 99})
        assert status == 400
        assert json.loads(text)["error"]["param"] == "n"
        assert (await client.ask("POST", "/invocations", {"prompt": "x" * 300}))[0] == 413
        for path in ("/pause", "/update_weights", "/docs", "/v1/load_lora_adapter", "/tokenize", "/ping/.."):
            assert (await client.ask("POST", path, {}))[0] == 404, path
    assert engine.asked == [CHAT]


async def test_what_is_no_json_is_refused_before_the_engine() -> None:
    engine = Engine()
    async with serving(engine) as client:
        for body in (b"{", b"[" * 100_000, b"\xff"):
            assert (await _raw(client.gate, body))[0] == 400
    assert engine.asked == []


async def _raw(gate: Gate, *parts: bytes) -> tuple[int, bytes]:
    messages: list[Message] = [
        {"type": "http.request", "body": part, "more_body": part is not parts[-1]} for part in parts
    ]
    sent: list[Message] = []

    async def receive() -> Message:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await gate({"type": "http", "method": "POST", "path": "/invocations"}, receive, send)
    return (sent[0]["status"], sent[1]["body"]) if sent else (0, b"")


async def test_a_body_in_parts_is_put_together_and_one_that_breaks_off_is_dropped() -> None:
    engine = Engine()
    async with serving(engine) as client:
        text = json.dumps(CHAT).encode()
        assert (await _raw(client.gate, text[:9], text[9:]))[0] == 200
        assert await _raw(client.gate, text[:9], b"") == (400, (await _raw(client.gate, text[:9]))[1])
    assert engine.asked == [CHAT]


async def test_sigterm_turns_it_unhealthy_lets_requests_finish_and_takes_no_more() -> None:
    engine = Engine()
    async with serving(engine) as client:
        engine.hold.clear()
        running = asyncio.create_task(client.ask("POST", "/invocations", CHAT))
        await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(5):
            await client.interrupted.wait()
        assert (await client.ping())[0] == 503
        status, text = await client.ask("POST", "/invocations", CHAT)
        assert status == 503
        assert "SIGTERM" in text
        engine.hold.set()
        assert await running == (200, "answer")


async def test_the_canary_is_no_traffic_and_metrics_that_fail_come_back(
    capfd: pytest.CaptureFixture[str],
) -> None:
    engine = Engine()
    async with serving(engine, *DRAFTING, PEAGLE_GATE_NAMESPACE="peagle-sm/t") as client:
        assert (await client.settled())[0] == 200
        await asyncio.sleep(0.05)
        assert capfd.readouterr().out == ""
        engine.broken = True
        out = err = ""
        async with asyncio.timeout(10):
            while "unavailable" not in err:
                await asyncio.sleep(0.01)
                err += capfd.readouterr().err
        await asyncio.sleep(0.05)  # so that it fails more than once
        engine.broken = False
        await client.ask("POST", "/invocations", CHAT)
        async with asyncio.timeout(10):
            while not out:
                await asyncio.sleep(0.01)
                seen = capfd.readouterr()
                out, err = out + seen.out, err + seen.err
    line = json.loads(out)
    assert line["_aws"]["CloudWatchMetrics"][0]["Namespace"] == "peagle-sm/t"
    assert line["AcceptanceLength"] > 1
    assert err.count("drafting metrics unavailable: CanaryError: /metrics answered 500") == 1
