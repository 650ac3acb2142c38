"""The sentences of FailureReason: AWS's own first, then what the engine said itself.

`serves` is what the engine serves, in words: `production variant AllTraffic`.
"""

from __future__ import annotations

import re

FAILURE_REASON_LIMIT = 1024  # FailureReason's maximum length in SageMaker's model

# Seen in aws/sagemaker-python-sdk#787 and awslabs/llm-hosting-container#18.
_NO_PING = (
    "The primary container for {serves} did not pass the ping health check. "
    "Please check CloudWatch logs for this endpoint."
)


def no_ping(serves: str, seconds: float, last_words: str) -> str:
    """The engine runs but did not answer in time."""
    told = f"It did not answer /ping within {seconds:.0f} s."
    return _with_words(f"{_NO_PING.format(serves=serves)} {told}", last_words)


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
    """The launcher refused: an image or an artifact that is not there."""
    reason = str(error) or type(error).__name__
    return _limited(f"The primary container for {serves} could not be started: {reason}", "")


def died(serves: str, how: str, last_words: str) -> str:
    """An engine in service died."""
    return _with_words(f"The container of {serves} died: it {how}.", last_words)


def _with_words(told: str, last_words: str) -> str:
    words = last_words.strip()
    return _limited(told, f" Its last words: {words}" if words else "")


def _limited(told: str, words: str) -> str:
    """Keeps AWS's sentence and the end of the engine's words, where the error stands."""
    room = FAILURE_REASON_LIMIT - len(told)
    if len(words) <= room:
        return told + words
    marker = " Its last words: … "
    tail = words[len(words) - max(room - len(marker), 0) :]
    cut = re.match(r"[^\n]{0,200}\n", tail) or re.match(r"\S{0,40}\s", tail)
    return (told + marker + (tail[cut.end() :] if cut else tail))[:FAILURE_REASON_LIMIT]
