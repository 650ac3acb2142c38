"""Whether two answers of AWS mean the same endpoint. Pure.

ListEndpoints and DescribeEndpoint may round a time differently, and ARNs of endpoints come in lower case from
some APIs. An endpoint of the same name that was created later is another endpoint.
"""

from __future__ import annotations

from datetime import datetime, timedelta

_ROUNDING = timedelta(seconds=1)


def same_time(one: datetime | None, other: datetime | None) -> bool:
    """Return whether two timestamps of one resource are equal to the second; None equals nothing."""
    return one is not None and other is not None and abs(one - other) <= _ROUNDING


def arn_key(arn: str) -> str:
    """Return an ARN in the case by which endpoints are compared."""
    return arn.lower()


def same_arn(one: str, other: str) -> bool:
    """Return whether two ARNs mean the same endpoint."""
    return arn_key(one) == arn_key(other)
