"""What the simulated AWS answers instead of a result."""

from __future__ import annotations


class AwsFault(Exception):
    """A call that AWS did not carry out; ``code`` is the error code of the service."""

    code = "InternalFailure"


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


class ConditionFailed(AwsFault):
    """The conditional request failed: somebody else wrote the item in between."""

    code = "ConditionalCheckFailedException"


class FunctionDead(AwsFault):
    """A Lambda that does not run."""

    code = "ServiceException"
