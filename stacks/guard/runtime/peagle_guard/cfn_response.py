"""Responses to CloudFormation: every custom resource request gets exactly one, whatever happens.

Without a response CloudFormation waits for an hour.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

# CloudFormation takes at most 4096 bytes of answer.
_LONGEST_REASON = 1000
_TRIES = 4
# Before Lambda ends the function at its time limit, the answer must be out.
_RESERVE_S = 10.0

Send = Callable[[str, bytes], None]


class Context(Protocol):
    """Lambda's context of an invocation."""

    @property
    def log_stream_name(self) -> str:
        """Log stream of this invocation."""

    def get_remaining_time_in_millis(self) -> int:
        """Return the time left until the timeout, in milliseconds."""


@dataclass(frozen=True)
class Made:
    """Result of a provider: physical id and attributes for GetAtt."""

    physical_id: str
    attributes: Mapping[str, str] = field(default_factory=dict)


class ProviderError(Exception):
    """Error of a provider; the message is for the stack's events."""


def respond(
    event: Mapping[str, Any],
    context: Context,
    work: Callable[[], Made],
    failed_id: str,
    send: Send | None = None,
) -> None:
    """Do the work and answer CloudFormation, also when the work raises or runs out of time.

    ``failed_id`` is the physical id to answer with when a creation failed: CloudFormation will ask for the
    deletion of just that.
    """
    once = _Once(event, context, failed_id, send or put)
    timer = _watch(once, context)
    try:
        result = work()
    except Exception as error:
        # Any error: a request without a response blocks the stack for an hour.
        once.failed(f"{type(error).__name__}: {error}")
    else:
        once.answer("SUCCESS", result.physical_id, result.attributes)
    finally:
        timer.cancel()


def put(url: str, body: bytes) -> None:
    """PUT the answer to the address that CloudFormation gave, which is signed for an empty content type."""
    for attempt in range(_TRIES):
        # The address comes from CloudFormation itself, in the request that is being answered.
        request = urllib.request.Request(url, data=body, method="PUT", headers={"Content-Type": ""})
        try:
            with urllib.request.urlopen(request, timeout=10):
                return
        except OSError:
            if attempt == _TRIES - 1:
                raise
            time.sleep(2.0**attempt)


class _Once:
    """Responder that responds only once: both the work and the timeout may try."""

    def __init__(self, event: Mapping[str, Any], context: Context, failed_id: str, send: Send) -> None:
        self._event = event
        self._context = context
        # A failed update keeps its id, or CloudFormation would take it for a replacement.
        self._failed_id = str(event.get("PhysicalResourceId") or failed_id)
        self._send = send
        self._lock = threading.Lock()
        self._answered = False

    def failed(self, reason: str) -> None:
        where = f"(log stream {self._context.log_stream_name})"
        self.answer("FAILED", self._failed_id, {}, f"{reason[:_LONGEST_REASON]} {where}")

    def answer(self, status: str, physical_id: str, data: Mapping[str, str], reason: str = "") -> None:
        with self._lock:
            if self._answered:
                return
            self._answered = True
        body = {
            "Status": status,
            "Reason": reason,
            "PhysicalResourceId": physical_id,
            "StackId": self._event["StackId"],
            "RequestId": self._event["RequestId"],
            "LogicalResourceId": self._event["LogicalResourceId"],
            "NoEcho": False,
            "Data": dict(data),
        }
        print(json.dumps(body))
        self._send(str(self._event["ResponseURL"]), json.dumps(body).encode())


def _watch(once: _Once, context: Context) -> threading.Timer:
    left_s = max(context.get_remaining_time_in_millis() / 1000 - _RESERVE_S, 0.0)
    timer = threading.Timer(left_s, once.failed, ["the function timed out"])
    timer.daemon = True
    timer.start()
    return timer
