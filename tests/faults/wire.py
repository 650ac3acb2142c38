"""An unmodified boto3 whose wire can be told to fail at one call, or to end the program there.

A fault holds for a whole call: botocore's own attempts fail alike, so what is seen is what our code gets once
botocore has given up. Waiting between the attempts, and for answers that do not come, is virtual time.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import boto3
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from botocore.exceptions import ConnectionClosedError, ReadTimeoutError
from botocore.httpsession import URLLib3Session
from botocore.retries import quota, standard

from peagle_sm.aws.session.session import isolated_botocore

Kind = Literal[
    "throttled", "500", "timeout", "denied", "expired token", "response lost", "kill before", "kill after"
]
KINDS: tuple[Kind, ...] = (
    "throttled",
    "500",
    "timeout",
    "denied",
    "expired token",
    "response lost",
    "kill before",
    "kill after",
)
# botocore's default, which the control plane's clients keep.
READ_TIMEOUT_S = 60.0

_JSON = {
    "throttled": (400, "ThrottlingException", "Rate exceeded"),
    "500": (500, "InternalFailure", "We encountered an internal error. Please try again."),
    "denied": (400, "AccessDeniedException", "User is not authorized to perform: {operation}"),
    "expired token": (400, "ExpiredTokenException", "The security token included in the request is expired"),
}
# The query protocol has names of its own for the same refusals (CloudFormation's and STS's common errors).
_QUERY = {
    "throttled": (400, "Throttling", "Rate exceeded"),
    "500": (500, "InternalFailure", "We encountered an internal error. Please try again."),
    "denied": (403, "AccessDenied", "User is not authorized to perform: {operation}"),
    "expired token": (403, "ExpiredToken", "The security token included in the request is expired"),
}


class Killed(BaseException):
    """The program has ended here, as by SIGKILL: nothing of it runs any more."""


@dataclass(frozen=True)
class Fault:
    """What goes wrong at which call: 0 is the first that the use case makes."""

    number: int
    kind: Kind


@dataclass
class Script:
    """One run of a use case: what it has called, and what shall go wrong."""

    fault: Fault | None = None
    elapse: Callable[[float], None] = lambda seconds: None
    calls: list[str] = field(default_factory=list)
    happened: bool = False
    dead: bool = False
    refused: str | None = None
    reached: Callable[[str], None] = lambda call: None
    """Called after each call that was carried out."""

    def begins(self, call: str) -> None:
        if self.dead:
            raise Killed
        self.calls.append(call)
        if self._strikes("kill before"):
            self.dead = True
            raise Killed

    def ended(self) -> None:
        self.reached(self.calls[-1])
        if self._strikes("kill after"):
            self.dead = True
            raise Killed

    def kind_now(self) -> Kind | None:
        """What goes wrong with the present call: a missing permission stays missing, a token expired."""
        fault = self.fault
        if fault is None or fault.number >= len(self.calls):
            return None
        kind, call = fault.kind, self.calls[-1]
        lasting = kind == "expired token" or (kind == "denied" and call == self.calls[fault.number])
        if kind.startswith("kill") or not (lasting or fault.number == len(self.calls) - 1):
            return None
        self.happened = True
        return kind

    def _strikes(self, kind: Kind) -> bool:
        hit = self.fault == Fault(len(self.calls) - 1, kind)
        self.happened |= hit
        return hit


class Wire:
    """A boto3 session, as far as `peagle_sm.aws.Session` asks of one; its clients are made once."""

    profile_name = "default"

    def __init__(self, url: str, region: str = "us-east-1") -> None:
        self.region_name = region
        self.script = Script()
        self._url = url
        self._boto3 = boto3.Session(
            botocore_session=isolated_botocore(),
            aws_access_key_id="local",
            aws_secret_access_key="local",
            region_name=region,
        )
        self._clients: dict[tuple[str, int], Any] = {}
        self._http = URLLib3Session()

    def client(self, service: str, *, region_name: str, config: Config) -> Any:
        attempts = config.retries["total_max_attempts"]  # type: ignore[attr-defined]
        key = (service, attempts)
        if key not in self._clients:
            client = self._boto3.client(  # type: ignore[call-overload]
                service, region_name=region_name, config=config, endpoint_url=self._url
            )
            self._listen(client, attempts)
            self._clients[key] = client
        return self._clients[key]

    def _listen(self, client: Any, attempts: int) -> None:
        events, name = client.meta.events, client.meta.service_model.service_id.hyphenize()
        events.register(f"before-call.{name}", self._begins)
        events.register(f"before-send.{name}", self._sends)
        events.register(f"after-call.{name}", self._ended)
        events.unregister(f"needs-retry.{name}", unique_id=f"retry-config-{name}")
        events.register(f"needs-retry.{name}", _retries(attempts, lambda s: self.script.elapse(s)))

    def _begins(self, model: Any, **_: Any) -> None:
        self.script.begins(f"{model.service_model.signing_name}:{model.name}")

    def _ended(self, **_: Any) -> None:
        self.script.ended()

    def _sends(self, request: Any, **_: Any) -> AWSResponse | None:
        kind = self.script.kind_now()
        if kind is None:
            return None
        if kind == "timeout":
            self.script.elapse(READ_TIMEOUT_S)
            raise ReadTimeoutError(endpoint_url=request.url)
        if kind == "response lost":
            self._http.send(request)
            self.script.reached(self.script.calls[-1])
            raise ConnectionClosedError(endpoint_url=request.url)
        return _refusal(kind, request, self.script.calls[-1])


def _retries(attempts: int, elapse: Callable[[float], None]) -> Callable[..., Any]:
    """botocore's standard mode, but its waiting is virtual."""

    class Backoff(standard.ExponentialBackoff):
        def delay_amount(self, context: Any) -> float:
            elapse(super().delay_amount(context))
            return 0.0

    handler = standard.RetryHandler(
        retry_policy=standard.RetryPolicy(standard.StandardRetryConditions(attempts), Backoff()),
        retry_event_adapter=standard.RetryEventAdapter(),
        # The clients outlive a cell, and no cell may find the quota used up by another.
        retry_quota=standard.RetryQuotaChecker(quota.RetryQuota(initial_capacity=10**9)),  # type: ignore[arg-type]
    )
    return handler.needs_retry


class _Body(io.BytesIO):
    def stream(self, amount: int = 1024, decode_content: bool = False) -> Iterator[bytes]:
        yield self.read()


def _refusal(kind: Kind, request: Any, call: str) -> AWSResponse:
    service, _, _operation = call.partition(":")
    query = service in ("cloudformation", "sts")
    status, code, message = (_QUERY if query else _JSON)[kind]
    message = message.format(operation=call)
    if query:
        text = (
            f"<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error>"
            "<RequestId>fault</RequestId></ErrorResponse>"
        )
        headers = {"Content-Type": "text/xml"}
    else:
        text = f'{{"__type": "{code}", "message": "{message}", "Message": "{message}"}}'
        headers = {"Content-Type": "application/x-amz-json-1.1", "x-amzn-ErrorType": code}
    return AWSResponse(request.url, status, headers, _Body(text.encode()))  # type: ignore[arg-type]
