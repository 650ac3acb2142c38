"""CloudFormation gets exactly one answer, whatever happens."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from peagle_guard.cfn_response import Made, ProviderError, put, respond

EVENT = {
    "RequestType": "Create",
    "ResponseURL": "https://answers.example/1",
    "StackId": "stack-id",
    "RequestId": "request-id",
    "LogicalResourceId": "Lifetime",
}


@dataclass
class FakeContext:
    left_ms: int = 120_000
    log_stream_name: str = "2026/11/16/[$LATEST]1"

    def get_remaining_time_in_millis(self) -> int:
        return self.left_ms


class Answers:
    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def __call__(self, url: str, body: bytes) -> None:
        assert url == EVENT["ResponseURL"]
        self.sent.append(json.loads(body))


def test_success_carries_the_id_and_the_attributes() -> None:
    answers = Answers()
    respond(EVENT, FakeContext(), lambda: Made("made-1", {"ModelArn": "arn"}), "not-created:x", answers)
    assert answers.sent == [
        {
            "Status": "SUCCESS",
            "Reason": "",
            "PhysicalResourceId": "made-1",
            "StackId": "stack-id",
            "RequestId": "request-id",
            "LogicalResourceId": "Lifetime",
            "NoEcho": False,
            "Data": {"ModelArn": "arn"},
        }
    ]


def test_an_exception_is_a_failure_with_its_reason_and_a_failed_update_keeps_its_id() -> None:
    answers = Answers()

    def work() -> Made:
        raise ProviderError("x" * 5000)

    respond(EVENT, FakeContext(), work, "not-created:x", answers)
    update = {**EVENT, "RequestType": "Update", "PhysicalResourceId": "made-1"}
    respond(update, FakeContext(), work, "not-created:x", answers)
    sent, updated = answers.sent
    assert updated["PhysicalResourceId"] == "made-1"
    assert (sent["Status"], sent["PhysicalResourceId"]) == ("FAILED", "not-created:x")
    assert sent["Reason"].startswith("ProviderError: xxx")
    assert "log stream" in sent["Reason"]
    assert len(json.dumps(sent)) < 4096


def test_a_function_whose_time_is_up_answers_before_it_is_ended_and_only_once() -> None:
    answers, answered = Answers(), threading.Event()

    def send(url: str, body: bytes) -> None:
        answers(url, body)
        answered.set()

    def work() -> Made:
        assert answered.wait(30)
        return Made("made-1")

    respond(EVENT, FakeContext(left_ms=10_000), work, "not-created:x", send)
    assert [(sent["Status"], sent["Reason"][:22]) for sent in answers.sent] == [
        ("FAILED", "the function timed out")
    ]


def test_the_answer_is_put_with_an_empty_content_type() -> None:
    got: list[tuple[str, str | None, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.path, self.headers["Content-Type"], body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = HTTPServer(("localhost", 0), Handler)
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    put(f"http://localhost:{server.server_port}/answer?signature=1", b"{}")
    thread.join(10)
    server.server_close()
    assert got == [("/answer?signature=1", "", b"{}")]
