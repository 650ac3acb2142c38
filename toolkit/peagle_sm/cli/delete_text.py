"""What a deletion takes away, and the proof that it is gone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from peagle_sm.cli.words import usd

if TYPE_CHECKING:
    from peagle_sm.service import Deletable, DeleteReport


def render_going(going: Sequence[Deletable], with_logs: bool) -> str:
    """Each endpoint with its state, its price, and every resource that goes with it."""
    lines = ["To be deleted:"]
    for each in going:
        lines.append(f"  {each.name} ({each.status}, {usd(each.usd_per_hour, 'hour')})")
        if each.gone_stack is not None:
            lines.append(f"    left by stack {each.gone_stack}, which no longer exists")
        lines.extend(f"    {resource}" for resource in each.resources)
        if each.log_group is not None:
            lines.append(f"    log-group/{each.log_group}{'' if with_logs else ': stays, unless you say so'}")
    return "\n".join(lines)


def going_data(going: Sequence[Deletable]) -> list[dict[str, Any]]:
    """The same as JSON-able data."""
    return [
        {
            "name": each.name,
            "status": each.status,
            "usd_per_hour": each.usd_per_hour,
            "resources": list(each.resources),
            "log_group": each.log_group,
            "gone_stack": each.gone_stack,
        }
        for each in going
    ]


def render_deleted(report: DeleteReport, flags: str) -> str:
    """Each resource that went, then the proof, and the logs that stay."""
    lines = [f"deleted  {resource}" for resource in report.deleted]
    if report.leftovers:
        lines.extend(f"LEFT     {resource}" for resource in report.leftovers)
    else:
        but = " but the log" if report.logs_kept else ""
        lines.append(f"proven   asked again: nothing of {', '.join(report.names)} is left{but}")
    lines.extend(f"kept     log group {group}" for group in report.logs_kept)
    if report.logs_kept:
        names = " ".join(group.rpartition("/")[2] for group in report.logs_kept)
        command = f"peagle-sm delete {names} --with-logs{flags}"
        lines.append(f"         to delete it too, as a CDK stack of that name would want: `{command}`")
    return "\n".join(lines)
