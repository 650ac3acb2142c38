"""What a deletion takes away, and the proof that it is gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from peagle_sm.cli.words import usd

if TYPE_CHECKING:
    from peagle_sm.service import Deletable, DeleteReport

Prices = Mapping[str, float | None]


def render_going(going: Sequence[Deletable], prices: Prices) -> str:
    """Each endpoint with its state, its price, and every resource that goes with it."""
    lines = ["To be deleted:"]
    for each in going:
        lines.append(f"  {each.name} ({each.status}, {usd(prices.get(each.name), 'hour')})")
        lines.extend(f"    {resource}" for resource in each.resources)
    return "\n".join(lines)


def going_data(going: Sequence[Deletable], prices: Prices) -> list[dict[str, Any]]:
    """The same as JSON-able data."""
    return [
        {
            "name": each.name,
            "status": each.status,
            "usd_per_hour": prices.get(each.name),
            "resources": list(each.resources),
        }
        for each in going
    ]


def render_deleted(report: DeleteReport) -> str:
    """Each resource that went, then the proof."""
    lines = [f"deleted  {resource}" for resource in report.deleted]
    if report.leftovers:
        lines.extend(f"LEFT     {resource}" for resource in report.leftovers)
    else:
        lines.append(f"proven   asked AWS again: nothing of {', '.join(report.names)} is left")
    return "\n".join(lines)
