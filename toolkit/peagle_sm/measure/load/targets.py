"""Where requests go: a SageMaker endpoint over SigV4, or a bare vLLM over plain HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

from peagle_sm.aws.session.session import USER_AGENT, Session
from peagle_sm.aws.session.wire import error_name, is_remote, json_object, signed_stream_request
from peagle_sm.aws.streams.runtime import BODY_LIMIT_BYTES
from peagle_sm.core.errors import SpecError
from peagle_sm.measure.records import ArmRecord

_SAYS_ERROR_BYTES = 500


class Target(Protocol):
    """One side of a measurement, as the client needs it."""

    @property
    def arm(self) -> str:
        """The name that its records carry."""

    @property
    def framed(self) -> bool:
        """Whether answers come as ``application/vnd.amazon.eventstream`` around server-sent events."""

    @property
    def remote(self) -> bool:
        """Whether it is on another machine, where proxies and certificates of the environment apply."""

    def request(self, body: Mapping[str, Any], data: bytes) -> tuple[str, dict[str, str]]:
        """Return the URL to post ``data`` to, and the headers."""

    def failure(self, status: int, headers: Mapping[str, str], content: bytes) -> tuple[str, str]:
        """Return the name and the message of an answer with an error status."""


@dataclass(frozen=True)
class SageMakerTarget:
    """An endpoint of SageMaker (or of the local one), asked for a response stream.

    ``credentials`` are botocore's (``get_frozen_credentials``), so that expiring ones renew themselves.
    ``utc`` gives the time of the signature as seconds since 1970.
    """

    endpoint_url: str
    region: str
    credentials: Any
    endpoint_name: str
    component: str | None = None
    arm: str = ""
    utc: Callable[[], float] = field(default=time.time, compare=False)
    framed: bool = True

    def __post_init__(self) -> None:
        if not self.arm:
            object.__setattr__(self, "arm", self.component or self.endpoint_name)

    @property
    def remote(self) -> bool:
        """Whether calls leave this machine."""
        return is_remote(self.endpoint_url)

    def request(self, body: Mapping[str, Any], data: bytes) -> tuple[str, dict[str, str]]:
        """Sign a call of InvokeEndpointWithResponseStream.

        Raises:
            SpecError: the body is larger than SageMaker takes.
        """
        if len(data) > BODY_LIMIT_BYTES:
            raise SpecError(
                f"a request body has {len(data):,} bytes; allowed: {BODY_LIMIT_BYTES:,} (SageMaker's limit).",
                next_step="Take the prompt out of the workload, or shorten it.",
            )
        return signed_stream_request(
            endpoint_url=self.endpoint_url,
            region=self.region,
            keys=self.credentials.get_frozen_credentials(),
            endpoint=self.endpoint_name,
            component=self.component,
            body=data,
            utc=self.utc(),
        )

    def failure(self, status: int, headers: Mapping[str, str], content: bytes) -> tuple[str, str]:
        """Name an error as AWS does (``ThrottlingException``, ``ModelError`` …)."""
        told = json_object(content)
        name = error_name(headers, told) or f"HTTP {status}"
        original = told.get("OriginalMessage") or told.get("Message") or told.get("message")
        message = _engine_words(str(original)) if original else _excerpt(content)
        code = told.get("OriginalStatusCode")
        return name, f"{code}: {message}" if code else message


@dataclass(frozen=True)
class HttpTarget:
    """A bare vLLM (or any server of OpenAI's API).

    ``path`` None: ``/v1/chat/completions`` for a body with ``messages``, ``/v1/completions`` otherwise.
    ``headers``: for example ``{"authorization": "Bearer …"}``.
    """

    base_url: str
    path: str | None = None
    arm: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    framed: bool = False

    def __post_init__(self) -> None:
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SpecError(
                f"{self.base_url!r} is no address of a server; allowed: http://HOST:PORT or https://HOST.",
                next_step="Give the address that the server prints when it starts.",
            )
        if not self.arm:
            object.__setattr__(self, "arm", self.base_url)

    @property
    def remote(self) -> bool:
        """Whether calls leave this machine."""
        return is_remote(self.base_url)

    def request(self, body: Mapping[str, Any], data: bytes) -> tuple[str, dict[str, str]]:
        """Choose the path by the kind of body."""
        path = self.path or ("/v1/chat/completions" if "messages" in body else "/v1/completions")
        headers = {"content-type": "application/json", "user-agent": USER_AGENT, **self.headers}
        return self.base_url.rstrip("/") + path, headers

    def failure(self, status: int, headers: Mapping[str, str], content: bytes) -> tuple[str, str]:
        """Name an error by its status; the message is the server's."""
        told = json_object(content)
        if not told:
            return f"HTTP {status}", _excerpt(content)
        return f"HTTP {status}", _engine_words(json.dumps(told))


def make_target(session: Session | None, arm: ArmRecord) -> SageMakerTarget | HttpTarget:
    """Return the target of ``arm``: its ``endpoint`` is a name, or a URL where its transport is "http".

    Raises:
        SpecError: a URL that is none, or an endpoint of SageMaker without a session.
        CredentialsError: the session has no credentials.
    """
    if arm.transport == "http":
        return HttpTarget(arm.endpoint, arm=arm.name)
    if session is None:
        raise SpecError(
            f"{arm.endpoint!r} is an endpoint of SageMaker, and there is no session to reach it.",
            next_step="Give an address (http://…), or an AWS session.",
        )
    client = session.client("sagemaker-runtime")
    return SageMakerTarget(
        client.meta.endpoint_url,
        session.region,
        session.credentials(),
        arm.endpoint,
        arm.component,
        arm.name,
    )


def _engine_words(message: str) -> str:
    """The message inside an engine's JSON error, else the text itself, cut to a readable length."""
    told = json_object(message.encode())
    inner = told.get("error", told)
    if isinstance(inner, dict) and inner.get("message"):
        message = str(inner["message"])
    elif isinstance(inner, str):
        message = inner
    return message[:_SAYS_ERROR_BYTES]


def _excerpt(content: bytes) -> str:
    return content[:_SAYS_ERROR_BYTES].decode(errors="replace")
