"""AWS's codes and wording where the control plane refuses a request or an engine fails."""

from __future__ import annotations

import re
from collections.abc import Mapping


class ApiError(Exception):
    """An error answer of the API.

    Attributes:
        code: AWS's error code, for example `ValidationException`.
        message: the text that a client shows.
        status: HTTP status of the answer.
        members: what else the runtime API has in the answer's body.
    """

    def __init__(
        self, code: str, message: str, status: int = 400, *, members: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status
        self.members = dict(members or {})


class NoCapacity(ApiError):
    """An invocation of an inference component that has no copy running."""

    def __init__(self, component: str) -> None:
        # Seen in AWS's guide to scaling to zero, and word for word in its users' reports.
        super().__init__(
            "ValidationError",
            "Inference Component has no capacity to process this request. ApplicationAutoScaling may be "
            "in-progress (if configured) or try to increase the capacity by invoking "
            "UpdateInferenceComponentRuntimeConfig API.",
        )
        self.component = component


def invalid(message: str) -> ApiError:
    """A request that AWS refuses for its content."""
    return ApiError("ValidationException", message)


def not_found(kind: str, arn: str) -> ApiError:
    """`kind` is "model", "endpoint configuration", "endpoint" or "inference component"."""
    return invalid(f'Could not find {kind} "{arn}".')


def already_exists(kind: str, arn: str) -> ApiError:
    """A name already in use. `kind` as in `not_found`."""
    return invalid(f'Cannot create already existing {kind} "{arn}".')


def in_progress(arn: str) -> ApiError:
    """The endpoint is being created, updated, rolled back or deleted."""
    return invalid(f'Cannot update in-progress endpoint "{arn}".')


def components_remain() -> ApiError:
    """The endpoint still hosts inference components."""
    return invalid(
        "Cannot delete endpoint with inference component associated. "
        "Please delete inference component and try it again."
    )


def busy_component(verb: str, arn: str, activity: str) -> ApiError:
    """The component is being created, updated or deleted."""
    return invalid(f'Cannot {verb} inference component "{arn}" while it is in state {activity}.')


def not_local(what: str, instead: str) -> ApiError:
    """Something that AWS has and the local SageMaker does not."""
    return invalid(f"{what} is not implemented by the local SageMaker; {instead}")


FAILURE_REASON_LIMIT = 1024  # FailureReason's maximum length in SageMaker's model

# Seen in aws/sagemaker-python-sdk#787 and awslabs/llm-hosting-container#18.
_NO_PING = (
    "The primary container for {serves} did not pass the ping health check. "
    "Please check CloudWatch logs for this endpoint."
)


def no_ping(serves: str, seconds: float, last_words: str) -> str:
    """The engine runs but did not answer in time."""
    sentence = f"It did not answer /ping within {seconds:.0f} s."
    return _with_words(f"{_NO_PING.format(serves=serves)} {sentence}", last_words)


def no_ping_exited(serves: str, status: int, last_words: str) -> str:
    """The engine ended before it answered."""
    return _with_words(f"{_NO_PING.format(serves=serves)} It exited with status {status}.", last_words)


def no_download(serves: str, seconds: float) -> str:
    """The model's data did not arrive in time; wording assumed."""
    return (
        f"The model data for {serves} was not downloaded within {seconds:.0f} s. "
        "Raise ModelDataDownloadTimeoutInSeconds (up to 3600)."
    )


def launch_failed(serves: str, error: Exception) -> str:
    """The launcher refused: an image or an artifact is missing."""
    step = getattr(error, "next_step", None)
    reason = f"{str(error) or type(error).__name__}{f' {step}' if step else ''}"
    return _limited(f"The primary container for {serves} could not be started: {reason}", "")


def died(serves: str, how: str, last_words: str) -> str:
    """An engine in service died."""
    return _with_words(f"The container of {serves} died: it {how}.", last_words)


def _with_words(sentence: str, last_words: str) -> str:
    words = last_words.strip()
    return _limited(sentence, f" Its last words: {words}" if words else "")


def _limited(sentence: str, words: str) -> str:
    """Shorten the text: keep AWS's sentence and the end of the engine's output, which has the error."""
    room = FAILURE_REASON_LIMIT - len(sentence)
    if len(words) <= room:
        return sentence + words
    marker = " Its last words: … "
    tail = words[len(words) - max(room - len(marker), 0) :]
    cut = re.match(r"[^\n]{0,200}\n", tail) or re.match(r"\S{0,40}\s", tail)
    return (sentence + marker + (tail[cut.end() :] if cut else tail))[:FAILURE_REASON_LIMIT]
