"""Errors that this package raises on purpose; callers show them to the user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class LocalError(Exception):
    """Base class: ``str()`` is the message, ``next_step`` the next step or None.

    ``details`` carries what was found and what is allowed, for programs.
    """

    def __init__(
        self, message: str, *, next_step: str | None = None, details: Mapping[str, Any] | None = None
    ) -> None:
        """Set message, next step and facts; Python also shows the next step below a traceback (PEP 678)."""
        super().__init__(message)
        self.message = message
        self.next_step = next_step
        self.details = dict(details or {})
        if next_step:
            self.add_note(f"next: {next_step}")


class InvalidRequest(LocalError):
    """An argument, a fault or a request is invalid."""


class CannotWrite(InvalidRequest):
    """A file or folder of a server's state cannot be written."""


class NotFound(LocalError):
    """No such server, endpoint or fault."""


class EngineError(LocalError):
    """A server or an engine, or the environment of one, could not be created or does not answer."""
