"""NextToken: a token belongs to one operation and its filters, as on AWS. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from typing import Any

# What may differ between two pages of one list.
_FREE = ("NextToken", "MaxResults")


def bound(operation: str, request: Mapping[str, Any], token: str) -> str:
    """Return the token of the next page, bound to the operation and the filters of this one."""
    return base64.urlsafe_b64encode(json.dumps([_mark(operation, request), token]).encode()).decode()


def unbound(operation: str, request: Mapping[str, Any]) -> str | None:
    """Return the token in a request's NextToken; None if it is another call's, or not from `bound`."""
    try:
        mark, token = json.loads(base64.urlsafe_b64decode(str(request["NextToken"]).encode()))
    except (ValueError, TypeError, binascii.Error):
        return None
    return token if mark == _mark(operation, request) and isinstance(token, str) else None


def _mark(operation: str, request: Mapping[str, Any]) -> str:
    filters = {key: value for key, value in request.items() if key not in _FREE}
    text = json.dumps([operation, filters], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
