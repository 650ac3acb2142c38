"""Answers in pages."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import TypeVar

from sagemaker_local.cloudformation.errors import invalid

T = TypeVar("T")

_ROWS = 100


def page(rows: Sequence[T], token: str | None, size: int = _ROWS) -> tuple[list[T], str | None]:
    """Give the page that a token asks for, and the token of the next.

    Raises:
        CloudFormationError: the token is none of ours.
    """
    start = 0 if token is None else _start(token)
    end = start + size
    following = base64.urlsafe_b64encode(f"from {end}".encode()).decode() if end < len(rows) else None
    return list(rows[start:end]), following


def _start(token: str) -> int:
    try:
        return int(base64.urlsafe_b64decode(token).decode().removeprefix("from "))
    except (ValueError, binascii.Error) as error:
        raise invalid("NextToken is invalid") from error
