"""Errors that peagle-sm raises on purpose, with their exit codes; `EXIT_CODES` explains them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

LOGIN_STEP = "Log in again (`aws sso login`, or new keys) and check with `aws sts get-caller-identity`."
"""Next step of expired or refused credentials."""


class PeagleError(Exception):
    """Base of all deliberate errors; ``next_step`` is what the user can do.

    ``str()`` is the message. ``details`` has machine-readable facts for ``--format json``.
    """

    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        message: str,
        *,
        next_step: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.__notes__: list[str] = []
        self._next_step: str | None = None
        self.next_step = next_step
        self.details: dict[str, Any] = dict(details or {})

    def __str__(self) -> str:
        return self.message

    @property
    def next_step(self) -> str | None:
        """What the user can do; Python also shows it below a traceback (PEP 678)."""
        return self._next_step

    @next_step.setter
    def next_step(self, step: str | None) -> None:
        kept = [note for note in self.__notes__ if note != f"next: {self._next_step}"]
        self.__notes__ = [*kept, f"next: {step}"] if step else kept
        self._next_step = step


class SpecError(PeagleError):
    """A spec, an argument or a request body is invalid."""

    exit_code = 2


class PlanRefused(PeagleError):
    """The plan has at least one error; ``details["findings"]`` lists all findings."""

    exit_code = 3


class NotFound(PeagleError):
    """The requested endpoint, resource, server or log does not exist."""

    exit_code = 4


class CredentialsError(PeagleError):
    """Missing or expired credentials, no region, or a missing permission."""

    exit_code = 5


class ServiceFault(PeagleError):
    """AWS returned an error, or the network failed."""

    exit_code = 6

    def __init__(
        self,
        message: str,
        *,
        operation: str = "",
        code: str = "",
        request_id: str = "",
        next_step: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message, next_step=next_step, details=details)
        self.operation = operation
        self.code = code
        self.request_id = request_id


class EndpointFailed(PeagleError):
    """The endpoint failed or was rolled back, and was cleaned up."""

    exit_code = 7


class BillableLeft(PeagleError):
    """Something billable may be left, see ``details["resources"]`` and ``next_step``."""

    exit_code = 8


class StreamError(PeagleError):
    """A response stream was cut or failed; ``partial_text`` is the text so far."""

    exit_code = 6

    def __init__(
        self,
        message: str,
        *,
        partial_text: str = "",
        request_id: str = "",
        next_step: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message, next_step=next_step, details=details)
        self.partial_text = partial_text
        self.request_id = request_id


class EngineError(PeagleError):
    """A local engine or the local server could not be built or started."""

    exit_code = 7


class GuardMissing(PeagleError):
    """No guard works in the account and region, and ``unguarded`` is False."""

    exit_code = 3


class OutputsDiffer(PeagleError):
    """`verify`: answers differ from the target's, by ``details["failed"]`` checks."""

    exit_code = 9


class Undecided(PeagleError):
    """`verify`, `compare --gate`: none failed, but ``details["undecided"]`` had too little data."""

    exit_code = 10


class LockStale(PeagleError):
    """`lock --check`: no lock, or one that would change, see ``details["changes"]``."""

    exit_code = 9


class Declined(PeagleError):
    """The user declined a prompt: nothing was created, changed or deleted."""

    exit_code = 3


class WaitTimeout(PeagleError):
    """`wait`: a timeout; ``details["status"]`` is the endpoint's status."""

    exit_code = 10


class PackFailed(PeagleError):
    """`bench`, `compare`: workload packs failed, see ``details["failed"]``."""

    exit_code = 9


class WorseThanRecord(PeagleError):
    """`compare --gate`: a mode is worse than in the record, see ``details["failed"]``."""

    exit_code = 9


class AcceptanceFell(PeagleError):
    """`acceptance`: the acceptance length fell, in the slices of ``details["slices"]``."""

    exit_code = 9


class NotOffered(PeagleError):
    """`learn prove`: the head is not offered, for ``details["reasons"]``."""

    exit_code = 9


class TrainingFailed(PeagleError):
    """`learn`: the training job failed or was stopped; nothing is billed any more."""

    exit_code = 7


class Interrupted(PeagleError):
    """The user stopped the command with Ctrl-C."""

    exit_code = 130


EXIT_CODES: dict[int, str] = {
    0: "success",
    1: "an error of peagle-sm itself",
    2: "a spec, an argument or a request body is invalid, or a file cannot be read or written",
    3: "refused: the plan or the preflight has an error, no guard is installed, peagle-sm did not create the"
    " resource, or you declined a confirmation prompt",
    4: "the requested endpoint, resource, server, log or Python package does not exist",
    5: "no or expired credentials, no region, or a missing permission",
    6: "AWS returned an error, the network failed, or a response stream was cut or contained an error",
    7: "the endpoint, a job, a local engine or the local server failed, or an update was rolled back; nothing"
    " that the command created is billed any more",
    8: "something billable may be left: the message has its name and the command that deletes it",
    9: "a check failed: verify (the answers are not the target's own), lock --check (the lock would change),"
    " a workload pack, acceptance (it fell in a slice), compare --gate (slower than the record, acceptance"
    " fell, or answers changed), learn prove (the head is not offered)",
    10: "not decided: verify or compare --gate had too little data for a check, compare --record had too"
    " little for a record, or wait ended at its timeout",
    130: "interrupted by Ctrl-C",
}


AGAIN = "Send the request again for a whole answer; details.partial_text has the text so far."


class StreamCut(StreamError):
    """The stream ended early, without [DONE] and without a finish_reason."""


class StreamStalled(StreamError):
    """A timeout: ``details["read_timeout_s"]`` or ``details["total_timeout_s"]``."""


class StreamDamaged(StreamError):
    """The stream has a wrong checksum, invalid JSON, or an unknown format."""


class StreamTooLarge(StreamError):
    """One event, one message or the whole answer is larger than the limit."""


class ModelStreamFailed(StreamError):
    """SageMaker ended the stream with an exception message.

    ``name`` is ``ModelStreamError`` or ``InternalStreamFailure``; ``error_code`` is the ErrorCode of a
    ModelStreamError (``ModelInvocationTimeExceeded``, ``StreamBroken``), empty without one.
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
        facts = {"name": name, "error_code": error_code, **(details or {})}
        super().__init__(
            message, partial_text=partial_text, request_id=request_id, next_step=next_step, details=facts
        )
        self.name = name
        self.error_code = error_code


class StreamReportedError(StreamError):
    """The engine reported an error in its stream, in vLLM's format or OpenAI's."""


class NoChatTemplate(SpecError):
    """The engine refuses a chat, since the model has no chat template."""


def refused_by_engine(status: int, answer: str, details: Mapping[str, Any]) -> SpecError:
    """Return the error for a request that the engine refuses with a 4xx."""
    lacks_template = "must provide a chat template" in answer  # vllm/renderers/hf.py at 0.32.0
    return (NoChatTemplate if lacks_template else SpecError)(
        f"the engine refuses the request ({status}): {answer}",
        next_step="Send a text to continue: `peagle-sm invoke NAME -p TEXT`."
        if lacks_template
        else "Correct the request as the engine's message says.",
        details={**details, "original_status_code": status, "original_message": answer},
    )


def with_what_came(error: StreamError, text: str, request_id: str) -> StreamError:
    """Return ``error`` with the text so far and the request's id."""
    error.partial_text = text
    error.request_id = request_id
    error.next_step = error.next_step or AGAIN
    error.details.update(partial_text=text, request_id=request_id)
    return error
