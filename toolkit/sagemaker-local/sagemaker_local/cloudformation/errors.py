"""Errors of the local CloudFormation.

TemplateError   a template, a parameter or a value is not right; the API tells it as ValidationError
Interrupted     the server ends; whatever was going on stays as it is
"""

from __future__ import annotations

from sagemaker_local.control.errors import ApiError


class TemplateError(Exception):
    """A template cannot be used as it is; the text is what AWS says of it."""


class Interrupted(Exception):
    """The server is shutting down while a stack's operation runs."""


def invalid(message: str) -> ApiError:
    """Return AWS's most common error, a ValidationError."""
    return ApiError("ValidationError", message)


def no_such_stack(name: str) -> ApiError:
    """Return the error for a stack that does not exist."""
    return invalid(f"Stack with id {name} does not exist")
