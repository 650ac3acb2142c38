"""The kinds of fault, their options, and the operations that each applies to. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

STREAM, INVOKE, OPENAI = "stream", "invoke", "openai"
#: InvokeEndpointWithResponseStream, InvokeEndpoint, and chat completions of the OpenAI route.
OPERATIONS = (STREAM, INVOKE, OPENAI)

#: HTTP status and message of each error of the service: statuses are the model's, messages its descriptions.
SERVICE_ERRORS: Mapping[str, tuple[int, str]] = {
    "InternalFailure": (500, "An internal failure occurred."),
    "ServiceUnavailable": (503, "The service is unavailable. Try your call again."),
    "InternalDependencyException": (
        530,
        "Your request caused an exception with an internal dependency. Contact customer support.",
    ),
    "ModelNotReadyException": (
        429,
        "Either a serverless endpoint variant's resources are still being provisioned, or a multi-model "
        "endpoint is still downloading or loading the target model. Wait and try your request again.",
    ),
}
STREAM_ERROR_CODES = ("StreamBroken", "ModelInvocationTimeExceeded")

_ALL = frozenset(OPERATIONS)
_STREAMS = frozenset({STREAM, OPENAI})


@dataclass(frozen=True)
class Option:
    """One option of a kind: its default, and the allowed values or bounds."""

    default: Any
    choices: tuple[Any, ...] = ()
    least: float | None = None
    most: float | None = None

    def allowed(self) -> str:
        """The allowed values in words."""
        if self.choices:
            return ", ".join(map(str, self.choices))
        if self.least is not None:
            return f"{self.least:g} to {self.most:g}" if self.most is not None else f"{self.least:g} or more"
        return "true or false" if isinstance(self.default, bool) else "text"


@dataclass(frozen=True)
class Kind:
    """One kind of fault."""

    name: str
    does: str
    operations: frozenset[str]
    options: Mapping[str, Option]


_AFTER = Option(1, least=0)
_MESSAGE = Option("A fault added with `peagle-sm local fault`.")

KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            "cut",
            "the connection breaks: in a frame, in an event, between events, or before the first byte",
            _ALL,
            {
                "where": Option("frame", ("frame", "part", "event", "start")),
                "clean": Option(False),
                "after_events": _AFTER,
            },
        ),
        Kind(
            "stall",
            "the answer pauses for some seconds, then continues",
            _ALL,
            {"seconds": Option(30.0, least=0, most=3600), "after_events": _AFTER},
        ),
        Kind(
            "corrupt",
            "bytes are damaged: a frame's prelude, a frame's payload, or garbage between frames",
            _STREAMS,
            {"where": Option("message", ("prelude", "message", "garbage")), "after_events": _AFTER},
        ),
        Kind(
            "split",
            "the same bytes in different chunks: cut at random positions, single bytes, or all in one",
            _STREAMS,
            {"parts": Option("random", ("random", "bytes", "one"))},
        ),
        Kind("utf8-split", "every multi-byte character is split across two chunks", _STREAMS, {}),
        Kind(
            "throttle",
            "ThrottlingException before the model is invoked",
            _ALL,
            {"status": Option(400, (400, 429))},
        ),
        Kind(
            "service-error",
            "an error of the service before the model is invoked",
            _ALL,
            {"code": Option("InternalFailure", tuple(SERVICE_ERRORS))},
        ),
        Kind(
            "model-error",
            "ModelError: the container answers with an error",
            _ALL,
            {"status": Option(500, least=400, most=599), "message": _MESSAGE},
        ),
        Kind(
            "stream-error",
            "the exception ModelStreamError in the stream, with its ErrorCode",
            frozenset({STREAM}),
            {
                "code": Option(STREAM_ERROR_CODES[0], STREAM_ERROR_CODES),
                "message": _MESSAGE,
                "after_events": _AFTER,
            },
        ),
        Kind(
            "internal-stream-failure",
            "the exception InternalStreamFailure in the stream",
            frozenset({STREAM}),
            {"message": _MESSAGE, "after_events": _AFTER},
        ),
        Kind(
            "sse-error",
            "an error event inside the answer, as vLLM reports one, then [DONE]",
            _STREAMS,
            {"message": _MESSAGE, "after_events": _AFTER},
        ),
        Kind(
            "draft-tokens",
            "tokens that were not verified: an event comes twice, as a draft that guessed a repetition",
            _STREAMS,
            {"after_events": _AFTER},
        ),
        Kind(
            "keeps-generating",
            "the engine generates to the end although the client has left the stream",
            _STREAMS,
            {},
        ),
        Kind(
            "no-format",
            "the engine gets the request without response_format, structured_outputs and strict tools",
            _ALL,
            {},
        ),
    )
}
