"""The ways in which a response stream can fail to be a whole answer; all are `StreamError` (exit code 9).

::

    StreamError
    ├── StreamCut            it ended before the answer did
    ├── StreamStalled        nothing came for too long, or the whole took too long
    ├── StreamDamaged        bytes that no stream of a completion holds: checksum, JSON, UTF-8, shape
    ├── StreamTooLarge       one event, or the answer, is larger than the reader keeps
    ├── ModelStreamFailed    SageMaker ended it with ModelStreamError or InternalStreamFailure
    └── StreamReportedError  the engine reported an error inside it
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peagle_sm.core.errors import SpecError, StreamError

AGAIN = "Send the request again for a whole answer; partial_text in the details holds what came."


class StreamCut(StreamError):
    """The stream ended before the answer did: neither [DONE] nor a finish_reason had come."""


class StreamStalled(StreamError):
    """Nothing came for ``details["read_timeout_s"]``, or no end within ``details["total_timeout_s"]``."""


class StreamDamaged(StreamError):
    """The stream holds what no stream of a completion holds: a bad checksum, no JSON, another shape."""


class StreamTooLarge(StreamError):
    """One event, one message or the whole answer is larger than the reader keeps in memory."""


class ModelStreamFailed(StreamError):
    """SageMaker ended the stream with an exception message.

    ``name`` is ``ModelStreamError`` or ``InternalStreamFailure``; ``error_code`` is the ErrorCode that a
    ModelStreamError carries (``ModelInvocationTimeExceeded``, ``StreamBroken``), empty where there is none.
    """

    def __init__(
        self,
        message: str,
        *,
        name: str = "ModelStreamError",
        error_code: str = "",
        partial_text: str = "",
        request_id: str = "",
        next_step: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep the exception's name and code beside the rest."""
        facts = {"name": name, "error_code": error_code, **(details or {})}
        super().__init__(
            message, partial_text=partial_text, request_id=request_id, next_step=next_step, details=facts
        )
        self.name = name
        self.error_code = error_code


class StreamReportedError(StreamError):
    """The engine reported an error in the middle of its stream, in vLLM's form or OpenAI's."""


def refused_by_engine(status: int, said: str, details: Mapping[str, Any]) -> SpecError:
    """Return the error for a request that the engine refuses with a 4xx, streamed or not."""
    return SpecError(
        f"the engine refuses the request ({status}): {said}",
        next_step="Correct what the message names.",
        details={**details, "original_status_code": status, "original_message": said},
    )


def with_what_came(error: StreamError, text: str, request_id: str) -> StreamError:
    """Return ``error`` with the text and the request's id that its finder did not know."""
    error.partial_text = text
    error.request_id = request_id
    error.next_step = error.next_step or AGAIN
    error.details.update(partial_text=text, request_id=request_id)
    return error
