"""Every error that peagle-sm raises on purpose, with its exit code.

::

    PeagleError (1)
    ├── SpecError (2)          a spec, an argument or a request body is not acceptable
    ├── PlanRefused (3)        the plan has a finding of severity "error"
    ├── NotFound (4)           the endpoint, resource, server or log asked for does not exist
    ├── CredentialsError (5)   no or expired credentials, no region, or a missing permission
    ├── ServiceFault (6)       AWS answered with a fault, or did not answer
    ├── EndpointFailed (7)     the endpoint did not come up, or rolled back; it was cleaned up
    ├── BillableLeft (8)       something billable may remain
    ├── StreamError (9)        a response stream was cut or carried an error
    │   ├── StreamCut            it ended before the answer did
    │   ├── StreamStalled        nothing came for too long, or the whole took too long
    │   ├── StreamDamaged        invalid bytes: checksum, JSON, UTF-8 or shape
    │   ├── StreamTooLarge       one event, or the answer, is larger than the reader keeps
    │   ├── ModelStreamFailed    SageMaker ended it with ModelStreamError or InternalStreamFailure
    │   └── StreamReportedError  the engine reported an error inside it
    ├── EngineError (10)       a local engine or server could not start
    ├── GuardMissing (11)      no guard is installed that would turn an idle endpoint off
    ├── OutputsDiffer (12)     verify: the answers are not the target's own
    ├── Undecided (13)         verify: nothing is wrong, and a check could not be decided
    ├── LockStale (14)         lock --check: the lock is not what it would be if it were written now
    ├── Declined (15)          a confirmation prompt was answered with no
    ├── WaitTimeout (16)       wait: the endpoint was not ready, or not gone, in time
    └── Interrupted (130)      stopped by Ctrl-C
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class PeagleError(Exception):
    """Base of all deliberate errors: ``str()`` is the message, ``next_step`` says what to do.

    ``details`` carries machine-readable facts for ``--format json``.
    """

    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        message: str,
        *,
        next_step: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep the message, the remedy and the facts."""
        super().__init__(message)
        self.message = message
        self.__notes__: list[str] = []
        self._next_step: str | None = None
        self.next_step = next_step
        self.details: dict[str, Any] = dict(details or {})

    def __str__(self) -> str:
        """Return the message alone."""
        return self.message

    @property
    def next_step(self) -> str | None:
        """What to do; Python shows it below a traceback too, as a note (PEP 678)."""
        return self._next_step

    @next_step.setter
    def next_step(self, step: str | None) -> None:
        kept = [note for note in self.__notes__ if note != f"next: {self._next_step}"]
        self.__notes__ = [*kept, f"next: {step}"] if step else kept
        self._next_step = step


class SpecError(PeagleError):
    """A spec, an argument or a request body that is not acceptable as written."""

    exit_code = 2


class PlanRefused(PeagleError):
    """The plan has at least one finding of severity "error"; ``details["findings"]`` lists them."""

    exit_code = 3


class NotFound(PeagleError):
    """The endpoint, resource, server or log asked for does not exist."""

    exit_code = 4


class CredentialsError(PeagleError):
    """No credentials, expired credentials, no region, or a permission that is missing."""

    exit_code = 5


class ServiceFault(PeagleError):
    """AWS answered with a fault, or the network did not let it answer."""

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
        """Keep which call failed (``operation``), AWS's own ``code`` and its ``request_id``."""
        super().__init__(message, next_step=next_step, details=details)
        self.operation = operation
        self.code = code
        self.request_id = request_id


class EndpointFailed(PeagleError):
    """The endpoint did not come up, or rolled back; what it left was cleaned up."""

    exit_code = 7


class BillableLeft(PeagleError):
    """Something billable may remain: ``details["resources"]`` names it, ``next_step`` removes it."""

    exit_code = 8


class StreamError(PeagleError):
    """A response stream was cut or carried an error; ``partial_text`` is what had arrived."""

    exit_code = 9

    def __init__(
        self,
        message: str,
        *,
        partial_text: str = "",
        request_id: str = "",
        next_step: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep the text that had arrived and the request's id."""
        super().__init__(message, next_step=next_step, details=details)
        self.partial_text = partial_text
        self.request_id = request_id


class EngineError(PeagleError):
    """A local engine or the local server could not be built or started."""

    exit_code = 10


class GuardMissing(PeagleError):
    """No guard works in the account and region, and ``unguarded`` was not spelled out."""

    exit_code = 11


class OutputsDiffer(PeagleError):
    """`verify` found answers that are not the target's own; ``details["failed"]`` names the checks."""

    exit_code = 12


class Undecided(PeagleError):
    """`verify` found nothing wrong, but could not decide the checks of ``details["undecided"]``."""

    exit_code = 13


class LockStale(PeagleError):
    """`lock --check` found no lock, or one that would change; ``details["changes"]`` names the fields."""

    exit_code = 14


class Declined(PeagleError):
    """A confirmation prompt was answered with no: nothing was created, changed or deleted."""

    exit_code = 15


class WaitTimeout(PeagleError):
    """`wait`: the endpoint did not reach the awaited state in time; ``details["status"]`` is its status."""

    exit_code = 16


class Interrupted(PeagleError):
    """Stopped by Ctrl-C."""

    exit_code = 130


EXIT_CODES: dict[int, str] = {
    0: "success",
    1: "an error of peagle-sm itself",
    2: "a spec, an argument or a request body is not acceptable, or a file cannot be read or written",
    3: "the plan is refused: it or the preflight has an error, or what it names belongs to somebody else",
    4: "the endpoint, resource, server, log or Python package asked for does not exist",
    5: "no or expired credentials, no region, or a missing permission",
    6: "AWS answered with a fault, or the network failed",
    7: "the endpoint did not come up or rolled back; what the command created was cleaned up",
    8: "something billable may remain: the message names it and the command that removes it",
    9: "a response stream was cut or carried an error",
    10: "a local engine or the local server could not start",
    11: "no guard is installed, and --unguarded was not given",
    12: "verify: a check failed: the answers are not the target's own",
    13: "verify: no check failed, and at least one could not be decided",
    14: "lock --check: the lock is not there, or is stale",
    15: "a confirmation prompt was answered with no; nothing was changed",
    16: "wait: the endpoint was not in service (with --deleted: not gone) in time",
    130: "interrupted by Ctrl-C",
}


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
