"""What it costs to keep files in S3. Pure."""

from __future__ import annotations

USD_PER_GB_MONTH = 0.023
SOURCE = (
    "list price of S3 Standard in us-east-1, first 50 TB, November 2026; other regions differ by some percent"
)
_GB = 2**30  # S3 bills binary gigabytes


def usd_per_month(size: int) -> float:
    """USD a month for ``size`` bytes in S3 Standard; incomplete uploads cost the same."""
    return size / _GB * USD_PER_GB_MONTH
