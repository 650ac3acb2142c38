"""What the simulated AWS answers instead of a result."""

from __future__ import annotations

from botocore.exceptions import ClientError


class AwsFault(ClientError):
    """A call that AWS did not carry out, as boto3 raises it; ``code`` is the error code of the service."""

    code = "InternalFailure"

    def __init__(self, message: str) -> None:
        super().__init__({"Error": {"Code": self.code, "Message": message}}, "Simulated")


class Killed(BaseException):
    """The Lambda reached its timeout: no code of it runs any more, its ``finally`` included."""


class Throttled(AwsFault):
    """Rate exceeded."""

    code = "ThrottlingException"


class AccessDenied(AwsFault):
    """The role may not do this: the tag condition of its policy."""

    code = "AccessDeniedException"


class NoSuchEndpoint(AwsFault):
    """Could not find endpoint."""

    code = "ValidationException"


class DeletionRefused(AwsFault):
    """Cannot update in-progress endpoint, or something of it is still there."""

    code = "ValidationException"


class StackBusy(AwsFault):
    """The stack is in a state in which it takes no update."""

    code = "ValidationError"


class NothingToUpdate(AwsFault):
    """No updates are to be performed."""

    code = "ValidationError"


class NoSuchStack(AwsFault):
    """Stack does not exist."""

    code = "ValidationError"


class NoSuchSchedule(AwsFault):
    """Schedule does not exist."""

    code = "ResourceNotFoundException"


class ScheduleExists(AwsFault):
    """Schedule already exists."""

    code = "ConflictException"
