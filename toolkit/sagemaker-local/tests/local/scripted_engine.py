"""A small real HTTP engine that does as its environment says, for faults a real engine cannot be made to do.

As a process: `python scripted_engine.py --port N`. In tests: `ScriptedLauncher()` starts one for each launch.

Environment (all optional):
    SCRIPT_PING            seconds until /ping answers 200 (503 before), or `never`. Default 0.
    SCRIPT_SICK_AFTER      seconds after which /ping answers 503 for ever.
    SCRIPT_EXIT_AFTER      seconds after which it prints SCRIPT_EXIT_LINE and exits with SCRIPT_EXIT_CODE.
    SCRIPT_EXIT_LINE       default `RuntimeError: scripted failure`.
    SCRIPT_EXIT_CODE       default 1.
    SCRIPT_INVOKE          what /invocations does:
        plain              200, JSON that repeats the request (default)
        sse                200, SCRIPT_CHUNKS server-sent events, SCRIPT_CHUNK_DELAY s apart, and [DONE]
        chat               like sse, in the form of chat completions, with a finish reason and the usage
        openai             chat completions or completions by what is asked: like chat, or whole. With
                           SCRIPT_TEMPLATE `none` it refuses chats as vLLM does without a template
        say                200 with SCRIPT_BODY to the letter: server-sent events where it begins with `data:`
        status:NNN         that status with SCRIPT_BODY
        replay             200 with the bytes of the file SCRIPT_FILE, a recorded stream
        cut                like sse, but the connection breaks after SCRIPT_CHUNKS events
        stall              like sse, but after SCRIPT_CHUNKS events it says nothing for SCRIPT_STALL seconds
        hang               says nothing at all for SCRIPT_STALL seconds, then 200
    SCRIPT_CHUNKS, SCRIPT_CHUNK_DELAY, SCRIPT_STALL, SCRIPT_BODY   defaults 5, 0, 30, `{"error": "scripted"}`
    SCRIPT_GATE            no process at all: see gated_engine.py
    SCRIPT_VERSION         repeated in the answer of `plain`, to tell engines apart.
POST /script/ready makes /ping answer 200 whatever SCRIPT_PING says, /script/sick 503, and /script/exit ends
the process as SCRIPT_EXIT_AFTER would: tests that tell it when are not at the mercy of a busy machine.
GET /metrics counts in scripted:dropped_total the streams whose reader left before their end.
A request whose JSON body has an object `script` overrides the environment for that request.
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from sagemaker_local.engine.launch import EngineRequest
    from tests.local.gated_engine import GatedEngine

BORN = time.monotonic()
NO_TEMPLATE = (  # vLLM 0.32: vllm/renderers/hf.py
    "As of transformers v4.44, default chat template is no longer allowed, so you must provide a chat "
    "template if the tokenizer does not define one."
)


def age() -> float:
    return time.monotonic() - BORN


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    script: Mapping[str, str] = os.environ
    told: ClassVar[set[str]] = set()
    dropped: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        if self.path == "/ping":
            self._whole(200 if self._healthy() else 503, b"")
        elif self.path == "/metrics":
            text = (
                f'vllm:num_requests_running{{engine="0"}} 0.0\nscripted:dropped_total {len(self.dropped)}\n'
            )
            self._whole(200, text.encode(), "text/plain; version=0.0.4")
        else:
            self._whole(404, b"not found")

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path.startswith("/script/"):
            self.told.add(self.path.removeprefix("/script/"))
            self._whole(200, b"{}")
            if "exit" in self.told:
                leave()
            return
        script = dict(self.script) | self._override(raw)
        how = script.get("SCRIPT_INVOKE", "plain")
        if how == "plain":
            self._plain(raw, script)
        elif how == "hang":
            time.sleep(float(script.get("SCRIPT_STALL", "30")))
            self._plain(raw, script)
        elif how == "openai":
            self._answer(raw, script)
        elif how == "say":
            encode = script.get("SCRIPT_BODY", "").encode()
            self._whole(
                200, encode, "text/event-stream" if encode.startswith(b"data:") else "application/json"
            )
        elif how == "replay":
            self._whole(200, Path(script["SCRIPT_FILE"]).read_bytes(), "text/event-stream; charset=utf-8")
        elif how.startswith("status:"):
            body = script.get("SCRIPT_BODY", '{"error": "scripted"}').encode()
            self._whole(int(how.removeprefix("status:")), body)
        else:
            try:
                self._stream(how, script)
            except ConnectionError:  # whoever asked has left
                self.dropped.append(how)
                self.close_connection = True

    def _healthy(self) -> bool:
        if "sick" in self.told or age() >= float(self.script.get("SCRIPT_SICK_AFTER", "inf")):
            return False
        ready = self.script.get("SCRIPT_PING", "0")
        return "ready" in self.told or (ready != "never" and age() >= float(ready))

    def _override(self, raw: bytes) -> dict[str, str]:
        with suppress(ValueError):
            parsed = json.loads(raw)
            if isinstance(parsed, dict) and isinstance(parsed.get("script"), dict):
                return {key: str(value) for key, value in parsed["script"].items()}
        return {}

    def _plain(self, raw: bytes, script: Mapping[str, str]) -> None:
        answer = {
            "path": self.path,
            "body": raw.decode(errors="replace"),
            "headers": {key.lower(): value for key, value in self.headers.items()},
            "version": script.get("SCRIPT_VERSION", ""),
            "pid": os.getpid(),
        }
        self._whole(200, json.dumps(answer).encode())

    def _answer(self, raw: bytes, script: Mapping[str, str]) -> None:
        document = json.loads(raw)
        if "messages" in document and script.get("SCRIPT_TEMPLATE") == "none":
            self._whole(400, json.dumps({"error": {"message": NO_TEMPLATE, "code": 400}}).encode())
            return
        if document.get("stream"):
            self._stream("chat" if "messages" in document else "sse", script)
            return
        count = int(script.get("SCRIPT_CHUNKS", "5"))
        text = "".join(f"token{number} " for number in range(count))
        message = (
            {"message": {"role": "assistant", "content": text}} if "messages" in document else {"text": text}
        )
        usage = {"prompt_tokens": 7, "completion_tokens": count, "total_tokens": 7 + count}
        kind = "chat.completion" if "messages" in document else "text_completion"
        choice = {"index": 0, "finish_reason": "length", **message}
        whole = {"id": "1", "object": kind, "created": 0, "model": "m", "choices": [choice], "usage": usage}
        self._whole(200, json.dumps(whole).encode())

    def _whole(self, status: int, body: bytes, content_type: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, how: str, script: Mapping[str, str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(int(script.get("SCRIPT_CHUNKS", "5"))):
            self._event(how, f"token{number} ")
            time.sleep(float(script.get("SCRIPT_CHUNK_DELAY", "0")))
        if how == "cut":
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        if how == "stall":
            time.sleep(float(script.get("SCRIPT_STALL", "30")))
        if how == "chat":
            chunks = int(script.get("SCRIPT_CHUNKS", "5"))
            self._event(how, "", finish_reason="length")
            usage = {"prompt_tokens": 7, "completion_tokens": chunks, "total_tokens": 7 + chunks}
            last = {"object": "chat.completion.chunk", "choices": [], "usage": usage}
            self._chunk(f"data: {json.dumps(last)}\n\n".encode())
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _event(self, how: str, text: str, **more: object) -> None:
        message = {"delta": {"content": text}} if how == "chat" else {"text": text}
        kind = {"object": "chat.completion.chunk"} if how == "chat" else {}
        event = {**kind, "choices": [{"index": 0, **message, **more}]}
        self._chunk(f"data: {json.dumps(event)}\n\n".encode())

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        return


def exit_on_time() -> None:
    after = os.environ.get("SCRIPT_EXIT_AFTER")
    if after is None:
        return
    time.sleep(max(float(after) - age(), 0))
    leave()


def leave() -> None:
    print(os.environ.get("SCRIPT_EXIT_LINE", "RuntimeError: scripted failure"), flush=True)
    os._exit(int(os.environ.get("SCRIPT_EXIT_CODE", "1")))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    print(f"scripted engine {os.getpid()} on port {port}", flush=True)
    threading.Thread(target=exit_on_time, daemon=True).start()
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


class ScriptedProcess:
    """One scripted engine, as `EngineProcess` is one real one."""

    engine_version = "scripted"
    image_version = "scripted"

    def __init__(
        self, process: asyncio.subprocess.Process, port: int, on_line: Callable[[str], None]
    ) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.started_at = datetime.now(UTC)
        self.overrides = ["scripted: no model is loaded"]
        self._process = process
        self._port = port
        self._lines: list[str] = []
        self._on_line = on_line
        self._reading = asyncio.create_task(self._read())

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exited(self) -> int | None:
        if not self._reading.done():
            return None
        code = self._process.returncode
        return code if code is None or code >= 0 else 128 - code

    async def ping(self) -> bool:
        try:
            async with asyncio.timeout(2):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                try:
                    writer.write(b"GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                    return (await reader.readline()).split()[1:2] == [b"200"]
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return False

    async def tell(self, what: str) -> None:
        """`ready`, `sick` or `exit`; waits until the engine listens."""
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                break
            except OSError:
                assert self.exited is None, f"the engine has exited: {self.last_words()}"
                await asyncio.sleep(0.02)
        writer.write(f"POST /script/{what} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        with suppress(ConnectionError):
            await reader.read()
        writer.close()

    def last_words(self, n: int = 15) -> str:
        return "\n".join(self._lines[-n:])

    def kill(self) -> None:
        """The accident of a test: SIGKILL from outside."""
        os.killpg(self.pid, signal.SIGKILL)

    async def stop(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        await self._process.wait()
        await self._reading

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for raw in self._process.stdout:
            line = raw.decode(errors="replace").rstrip("\n")
            self._lines.append(line)
            self._on_line(line)


class ScriptedLauncher:
    """Launches scripted engines; the model's environment is the script.

    ``usual`` is the script of what the environment leaves open, for commands that write their own spec.

    Args:
        before: awaited before each process is started, with the request; raise or wait there for faults of
            the launch itself (an unknown image, a missing artifact, a slow download).
    """

    usual: ClassVar[dict[str, str]] = {}

    def __init__(self, before: "Callable[[EngineRequest], Awaitable[None]] | None" = None) -> None:
        self._before = before
        self.requests: list[EngineRequest] = []
        self.processes: list[ScriptedProcess] = []

    async def launch(
        self, request: "EngineRequest", on_line: Callable[[str], None]
    ) -> "ScriptedProcess | GatedEngine":
        self.requests.append(request)
        if self._before is not None:
            await self._before(request)
        if "SCRIPT_GATE" in request.environment:
            from tests.local.gated_engine import GatedEngine

            return GatedEngine(request.environment, on_line)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-S",
            str(Path(__file__)),
            "--port",
            str(port),
            env={"PATH": os.environ.get("PATH", os.defpath), **self.usual, **request.environment},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        started = ScriptedProcess(process, port, on_line)
        self.processes.append(started)
        return started

    @property
    def running(self) -> list[ScriptedProcess]:
        return [process for process in self.processes if process.exited is None]


if __name__ == "__main__":
    main()
