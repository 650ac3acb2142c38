"""Errors of the local CloudFormation.

TemplateError         a template, a parameter or a value is not right; the API tells it as ValidationError
CloudFormationError   an answer of the API other than success, with AWS's own code
Interrupted           the server ends; whatever was going on stays as it is
"""

from __future__ import annotations


class TemplateError(Exception):
    """A template cannot be used as it is; the text is what AWS says of it."""


class CloudFormationError(Exception):
    """An error answer of the API."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status


class Interrupted(Exception):
    """The server is shutting down while a stack's operation runs."""


def invalid(message: str) -> CloudFormationError:
    """Return AWS's most common error, a ValidationError."""
    return CloudFormationError("ValidationError", message)


def no_such_stack(name: str) -> CloudFormationError:
    """Return the error for a stack that does not exist."""
    return invalid(f"Stack with id {name} does not exist")
