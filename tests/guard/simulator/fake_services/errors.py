"""What the simulated AWS answers instead of a result."""

from __future__ import annotations

from botocore.exceptions import ClientError


class AwsFault(ClientError):
    """A call that AWS did not carry out, as boto3 raises it, with the service's error code."""

    def __init__(self, message: str, code: str = "InternalFailure") -> None:
        super().__init__({"Error": {"Code": code, "Message": message}}, "Simulated")


class Refused(AwsFault):
    """SageMaker cannot do it now: something is in progress, or something of the endpoint still exists."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "ValidationException")


class NothingToUpdate(AwsFault):
    """CloudFormation has no update to perform."""

    def __init__(self) -> None:
        super().__init__("No updates are to be performed.", "ValidationError")


class Killed(BaseException):
    """The Lambda reached its timeout: no code of it runs any more, its ``finally`` included."""
