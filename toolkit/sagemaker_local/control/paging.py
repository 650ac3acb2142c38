"""The List operations: filter, sort, and pages of 10 with an opaque token."""

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from .errors import invalid
from .records import Record

DEFAULT_PAGE = 10  # ListEndpointsInput$MaxResults: "This value defaults to 10."

R = TypeVar("R", bound=Record)


def page(
    rows: Iterable[R], request: Mapping[str, Any], summary: Callable[[R], dict[str, Any]]
) -> tuple[list[dict[str, Any]], str | None]:
    """One page of summaries and the token of the next page, None on the last.

    The token names the last row of this page, so rows that come or go between two pages neither repeat nor
    hide the others.

    Raises:
        ApiError: the token is not one of ours.
    """
    key = _SORT_KEYS[request.get("SortBy", "CreationTime")]
    descending = request.get("SortOrder", "Descending") == "Descending"
    wanted = sorted((row for row in rows if _wanted(row, request)), key=key, reverse=descending)
    if "NextToken" in request:
        after = _decoded(request["NextToken"])
        try:
            wanted = [row for row in wanted if (key(row) < after if descending else key(row) > after)]
        except TypeError:
            raise _bad_token() from None
    size = request.get("MaxResults", DEFAULT_PAGE)
    shown = wanted[:size]
    token = _encoded(key(shown[-1])) if len(wanted) > size else None
    return [summary(row) for row in shown], token


def _by_time(row: Record) -> tuple[Any, ...]:
    return (row.created.timestamp(), row.number)


def _by_name(row: Record) -> tuple[Any, ...]:
    return (row.name, row.number)


def _by_status(row: Record) -> tuple[Any, ...]:
    return (getattr(row, "status", ""), row.number)


_SORT_KEYS: dict[str, Callable[[Record], tuple[Any, ...]]] = {
    "CreationTime": _by_time,
    "Name": _by_name,
    "Status": _by_status,
}


def _wanted(row: Record, request: Mapping[str, Any]) -> bool:
    return (
        request.get("NameContains", "").lower() in row.name.lower()
        and _in_time(row.created, request.get("CreationTimeAfter"), request.get("CreationTimeBefore"))
        and _in_time(
            row.modified, request.get("LastModifiedTimeAfter"), request.get("LastModifiedTimeBefore")
        )
        and ("StatusEquals" not in request or getattr(row, "status", None) == request["StatusEquals"])
    )


def _in_time(moment: datetime, after: float | str | None, before: float | str | None) -> bool:
    return (after is None or moment >= _moment(after)) and (before is None or moment < _moment(before))


def _moment(value: float | str) -> datetime:
    """A timestamp of the JSON protocol: epoch seconds, or ISO 8601 from a hand-written client."""
    try:
        if isinstance(value, str):
            parsed = datetime.fromisoformat(value)
            return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
        return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        raise invalid(f"Invalid timestamp '{value}': expected epoch seconds or ISO 8601.") from None


def _encoded(key: tuple[Any, ...]) -> str:
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode()


def _decoded(token: str) -> tuple[Any, ...]:
    try:
        value = json.loads(base64.urlsafe_b64decode(token.encode()))
    except (ValueError, binascii.Error):
        raise _bad_token() from None
    if not isinstance(value, list):
        raise _bad_token()
    return tuple(value)


def _bad_token() -> Exception:
    return invalid("Invalid NextToken: use the token of the previous answer, unchanged.")
