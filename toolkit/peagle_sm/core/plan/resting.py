"""What an endpoint goes on costing while it is off."""

from __future__ import annotations


def rest_costs(stack: str | None, usd_per_hour: float | None) -> str:
    """Return what is paid while it is off, in words; ``usd_per_hour`` is its price while on, 0 locally.

    Config and model of an endpoint without a stack are free. A stack keeps a key (1 USD a month), alarms
    (0.10 USD for each metric that they look at) and a dashboard (3 USD beyond the account's first three):
    docs/how-to/stacks.md, from AWS's public list of November 2026.
    """
    if stack is None or usd_per_hour == 0:
        return "it costs nothing"
    return f"no instance is billed; the key, alarms and dashboard of {stack} cost a few USD a month"
