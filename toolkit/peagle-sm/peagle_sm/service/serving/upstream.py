"""Connection of the proxy to its endpoint: signed requests, streams, errors.

Errors have the format of OpenAI's API: ``{"error": {"message", "type", "param", "code"}}``. `Relay` converts
SageMaker's response stream to the engine's server-sent events, byte for byte. It passes only whole events,
so that a cut event never looks like the end of an answer; `Endpoint.stream` uses the same parser. Only
`Upstream` and `open_http` do I/O.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp
from yarl import URL

from peagle_sm.aws.session.session import CONNECT_TIMEOUT_S, RUNTIME_READ_TIMEOUT_S, Session
from peagle_sm.aws.session.signing import (
    certificates,
    current_keys,
    end_with_its_connection,
    error_name,
    is_remote,
    json_object,
    signed_invocation,
)
from peagle_sm.aws.streams.answers import FinishedAnswers, acceptance_of, engine_error
from peagle_sm.aws.streams.decoding import Document, EventReader
from peagle_sm.aws.streams.framing import MAX_EVENT_BYTES, FrameDecoder
from peagle_sm.core.errors import (
    CredentialsError,
    PeagleError,
    StreamCut,
    StreamDamaged,
    StreamError,
    StreamTooLarge,
)
from peagle_sm.core.slice_values import LABEL_HEADER

#: Retry-After in seconds; AWS gives none. Throttling is short, a start from zero instances takes long.
THROTTLED_S = 1
STARTING_S = 30

_THROTTLED = ("throttl", "toomanyrequests", "requestlimitexceeded", "modelnotready")
_CREDENTIALS = (
    "AccessDenied",
    "Expired",
    "IncompleteSignature",
    "InvalidClientTokenId",
    "InvalidSignature",
    "MissingAuthentication",
    "SignatureDoesNotMatch",
    "UnrecognizedClient",
)


@dataclass(frozen=True)
class Problem:
    """One error answer: HTTP status, OpenAI's fields, and Retry-After."""

    status: int
    message: str
    type: str
    code: str | None = None
    param: str | None = None
    retry_after_s: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> bytes:
        """Return the JSON of the answer."""
        fields = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return json.dumps({"error": fields}, ensure_ascii=False).encode()

    def event(self) -> bytes:
        """Return the event that ends a stream; OpenAI clients raise it as an error."""
        return b"event: error\ndata: " + self.body() + b"\n\n"

    def all_headers(self) -> dict[str, str]:
        """Return the headers of the answer, with Retry-After if a retry may help."""
        headers = dict(self.headers)
        if self.retry_after_s is not None:
            headers["Retry-After"] = str(self.retry_after_s)
        return headers


def invalid(message: str, status: int = 400, code: str | None = None) -> Problem:
    """Return the error for an invalid request, which is not sent."""
    return Problem(status, message, "invalid_request_error", code)


def unavailable(message: str, status: int = 502, code: str = "endpoint_unreachable") -> Problem:
    """Return the error for a missing answer from SageMaker."""
    return Problem(status, message, "server_error", code)


def of_stream(error: StreamError) -> Problem:
    """Return the error for a stream that failed after its start."""
    reported = error.details.get("engine_error")
    if isinstance(reported, Mapping):
        return of_document(reported)
    return Problem(
        502,
        f"{error.message.rstrip('.')}. The text so far is not the whole answer.",
        "server_error",
        "stream_broken",
    )


def of_document(fields: Mapping[str, Any], status: int | None = None) -> Problem:
    """Return the error that the engine wrote as JSON; its ``code`` may be the status."""
    code = fields.get("code")
    if status is None:
        status = code if type(code) is int and 400 <= code <= 599 else 502
    kind = "invalid_request_error" if status < 500 else "server_error"
    return Problem(
        status,
        str(fields.get("message") or json.dumps(dict(fields), ensure_ascii=False)),
        str(fields.get("type") or kind),
        _text(code) or "model_error",
        _text(fields.get("param")),
    )


def gave_up(reason: str) -> Problem:
    """Return the error for an answer that the engine aborted for ``reason``."""
    return Problem(
        502, f"The engine aborted the answer: finish_reason {reason!r}.", "server_error", "model_error"
    )


def of_error(error: PeagleError) -> Problem:
    """Return the error for a failure on this side, mostly missing credentials."""
    message = f"{error.message} {error.next_step or ''}".rstrip()
    if isinstance(error, CredentialsError):
        return Problem(403, message, "permission_error", "aws_credentials")
    return Problem(502, message, "server_error", "proxy_error")


def of_aws(status: int, headers: Mapping[str, str], content: bytes) -> Problem:
    """Convert an error answer of SageMaker Runtime to OpenAI's API.

    An engine's error keeps the engine's status and message. Throttling is 429, a missing endpoint is 404, a
    component without a copy is 503; 429 and 503 have Retry-After.
    """
    document = json_object(content)
    name = error_name(headers, document)
    message = (
        str(document.get("Message") or document.get("message") or "") or f"SageMaker answers {status} {name}"
    )
    passed = {"x-amzn-RequestId": headers["x-amzn-RequestId"]} if "x-amzn-RequestId" in headers else {}
    if name == "ModelError" or "OriginalStatusCode" in document:
        return _of_engine(document, message, passed)
    lowered = message.lower()
    if any(word in name.lower() for word in _THROTTLED) or status == 429:
        return Problem(429, message, "rate_limit_error", name, None, THROTTLED_S, passed)
    if name.startswith(_CREDENTIALS):
        return Problem(403, message, "permission_error", name, None, None, passed)
    if "has no capacity" in lowered:
        return Problem(503, message, "server_error", "no_capacity", None, STARTING_S, passed)
    if "not found" in lowered or "could not find" in lowered:
        return Problem(404, message, "invalid_request_error", "endpoint_not_found", None, None, passed)
    if status >= 500:
        return Problem(status if status < 512 else 502, message, "server_error", name, None, None, passed)
    return Problem(status, message, "invalid_request_error", name or None, None, None, passed)


def _of_engine(answer: Mapping[str, Any], message: str, passed: Mapping[str, str]) -> Problem:
    status = answer.get("OriginalStatusCode")
    original = str(answer.get("OriginalMessage") or "")
    if not isinstance(status, int) or not 400 <= status <= 599:  # 0: the container did not answer in time
        return Problem(504, original or message, "server_error", "engine_timeout", headers=passed)
    document = json_object(original.encode())
    fields = engine_error(document) or document or {"message": original or message}
    return replace(of_document(fields, status), headers=passed)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


#: `stream_options` that ask vLLM for a stream's usage.
USAGE = {"include_usage": True, "continuous_usage_stats": False}


def asking_for_usage(raw: bytes, document: Mapping[str, Any]) -> bytes | None:
    """Return a request as it came, with `USAGE` added; None if it has to be written anew.

    To write a long prompt anew costs CPU. ``document`` is what ``raw`` says.
    """
    if "stream_options" in document or json.detect_encoding(raw) != "utf-8":
        return None
    return raw.rstrip()[:-1] + b', "stream_options": ' + json.dumps(USAGE).encode() + b"}"


#: A blank line: two line ends, each LF, CRLF or CR. The groups are atomic, since CRLF is one line end.
_BLANK_LINE = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_OTHER_FORM = (AttributeError, TypeError, ValueError)


class Relay:
    """Converter of a response stream's parts to whole events, byte for byte.

    Attributes:
        problem: the error that ended the stream early; None without one. The event that contains it is not
            passed on.
        tokens: the engine's count of output tokens; None if not reported.
        acceptance_length: tokens per target step; None if not reported.
    """

    def __init__(
        self,
        *,
        answers: int = 1,
        framed: bool = True,
        hides_usage: bool = False,
        max_event_bytes: int = MAX_EVENT_BYTES,
    ) -> None:
        """Take the number of requested answers; each needs a finish_reason.

        ``answers`` is the number of prompts times n. ``framed``: the events are inside messages of
        ``application/vnd.amazon.eventstream``. ``hides_usage``: the client did not ask for the usage, so its
        event is read and not passed on.
        """
        self._hides_usage = hides_usage
        self._frames = FrameDecoder() if framed else None
        self._reader = EventReader(framed=False, max_event_bytes=max_event_bytes)
        self._rest = b""
        self._max = max_event_bytes
        self._answers = FinishedAnswers(answers)
        self.problem: StreamError | None = None
        self.tokens: int | None = None
        self.acceptance_length: float | None = None

    def feed(self, part: bytes) -> bytes:
        """Return the events that ``part`` completes; none after a `problem`."""
        if self.problem is not None:
            return b""
        if self._frames is None:
            return self._events(part)
        payloads, broken = self._frames.take(part)
        passed = b"".join(map(self._events, payloads))
        if broken is not None:
            self.broke(f"The stream broke: {broken}.")
        return passed

    def finish(self) -> bytes:
        """Return the remaining events at the stream's end; set `problem` if it was cut."""
        if self.problem is not None:
            return b""
        if self._reader.done:
            return self._rest
        if self._frames is not None and not self._frames.is_whole:
            self.problem = StreamCut("The stream was cut in the middle of a message.")
            return b""
        left = self._reader.feed(self._rest)  # some servers omit the last blank line
        left += self._reader.finish(finished=True)
        if not self._take_all(left):
            return b""
        if not self.is_answer:
            self.problem = StreamCut(
                f"The stream ended before the answer did: {self._answers.missing} of "
                f"{self._answers.expected} answers have no finish_reason, and no [DONE] came."
            )
            return b""
        return b"" if self._is_hidden(left) else self._rest

    @property
    def is_answer(self) -> bool:
        """Return whether all answers have arrived in full."""
        if self.problem is not None:
            return False
        return self._reader.done or self._answers.are_whole

    def broke(self, why: str) -> None:
        """Record that the connection failed; after [DONE] that has no effect."""
        if not self._reader.done and self.problem is None:
            self.problem = StreamCut(why)

    def _events(self, payload: bytes) -> bytes:
        if self.problem is not None:
            return b""
        data = self._rest + payload
        start = 0
        passed: list[bytes] = []
        for blank in _BLANK_LINE.finditer(data, max(0, len(self._rest) - 3)):
            event = data[start : blank.end()]
            documents = self._reader.feed(event)
            if not self._take_all(documents):
                self._rest = b""
                return b"".join(passed)
            if not self._is_hidden(documents):
                passed.append(event)
            start = blank.end()
        self._rest = data[start:]
        if len(self._rest) > self._max:
            self.problem = StreamTooLarge(f"An event of the stream is larger than {self._max:,} bytes.")
            self._rest = b""
        return b"".join(passed)

    def _is_hidden(self, documents: list[Document]) -> bool:
        """Return whether an event is the usage alone, for a client that did not ask for it."""
        if not self._hides_usage or not documents or not documents[0].get("usage"):
            return False  # without a generator: nearly every event ends here
        return all(one.get("usage") and not one["choices"] for one in documents)

    def _take_all(self, documents: list[Document]) -> bool:
        """Process parsed events; return False after a problem."""
        try:
            for document in documents:
                self._take(document)
        except _OTHER_FORM as error:
            self.problem = StreamDamaged(f"The stream has an event that is not a completion: {error!r}")
            return False
        problem = self._reader.problem
        if problem is None and self._reader.done and self._answers.finished and self._answers.unfinished:
            unfinished = ", ".join(map(str, sorted(self._answers.unfinished)))
            problem = StreamCut(f"[DONE] came before the finish_reason of answer {unfinished}.")
        self.problem = problem
        return problem is None

    def _take(self, document: Document) -> None:
        self._answers.take(document)
        tokens, length = figures_of(document)
        self.tokens = self.tokens if tokens is None else tokens
        self.acceptance_length = self.acceptance_length if length is None else length


def figures_of(document: Mapping[str, Any]) -> tuple[int | None, float | None]:
    """Return the output tokens and acceptance length of an answer; None if absent."""
    usage = document.get("usage")
    tokens = usage.get("completion_tokens") if isinstance(usage, Mapping) else None
    try:
        acceptance = acceptance_of(document)
    except (AttributeError, KeyError, TypeError, ValueError):
        acceptance = None  # another engine's format; the answer is still passed on
    return (
        tokens if isinstance(tokens, int) else None,
        None if acceptance is None else acceptance.acceptance_length,
    )


_MOST_ATTRIBUTES = 1024  #: characters of CustomAttributes (API reference of InvokeEndpoint)
#: SageMaker keeps idle connections longer than this; a new one costs a TLS handshake.
_KEEP_ALIVE_S = 20.0


@dataclass(frozen=True)
class Upstream:
    """One endpoint, or one of its inference components.

    ``credentials`` are botocore's, which refresh themselves.
    """

    endpoint_url: str
    region: str
    credentials: Any
    endpoint: str
    component: str | None = None

    @classmethod
    def of(cls, session: Session, endpoint: str, component: str | None) -> Upstream:
        """Create it with the address and credentials of a session.

        Raises:
            CredentialsError: the session has no credentials.
        """
        url = session.client("sagemaker-runtime").meta.endpoint_url
        return cls(url, session.region, session.credentials(), endpoint, component)

    @asynccontextmanager
    async def send(
        self, http: aiohttp.ClientSession, body: bytes, *, streamed: bool, labels: str | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Invoke with ``body``; leaving early closes the connection, and so the work.

        ``labels`` reach the gate, which counts by them; a text that SageMaker would refuse is left out.

        Raises:
            CredentialsError: the credentials have expired and could not be refreshed.
            aiohttp.ClientError: no answer came.
        """
        has_labels = labels and labels.isascii() and len(labels) <= _MOST_ATTRIBUTES
        url, headers = signed_invocation(
            self.endpoint_url,
            self.region,
            await current_keys(self.credentials),
            self.endpoint,
            self.component,
            body,
            streamed=streamed,
            headers={LABEL_HEADER: str(labels)} if has_labels else {},
        )
        async with http.post(URL(url, encoded=True), data=body, headers=headers) as answer:
            end_with_its_connection(answer)
            yield answer


def open_http(endpoint_url: str) -> aiohttp.ClientSession:
    """Return the connections to SageMaker; close them after use."""
    remote = is_remote(endpoint_url)
    connector = aiohttp.TCPConnector(
        limit=0, keepalive_timeout=_KEEP_ALIVE_S if remote else 2.0, ssl=certificates() if remote else True
    )
    timeout = aiohttp.ClientTimeout(
        total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=RUNTIME_READ_TIMEOUT_S
    )
    return aiohttp.ClientSession(
        connector=connector, timeout=timeout, auto_decompress=False, trust_env=remote
    )
