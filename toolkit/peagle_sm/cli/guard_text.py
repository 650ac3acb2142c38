"""The guard's commands in words and tables."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from peagle_sm.cli.status_text import when_to
from peagle_sm.cli.table import render_fields, render_table
from peagle_sm.cli.words import relative, usd

if TYPE_CHECKING:
    from peagle_sm.aws.control.watch import Watched
    from peagle_sm.core.guard.price import GuardPrice
    from peagle_sm.service.guard.installation import InstallPlan, InstallReport, UninstallReport
    from peagle_sm.service.guard.status import GuardStatus, SweepReport

_COLUMNS = ("endpoint", "state", "quiet since", "kept until", "expires")


def render_install_plan(plan: InstallPlan) -> str:
    """What will be made, where, and what it costs."""
    fields = [
        ("account", f"{plan.account}, region {plan.region}"),
        ("stack", f"PeagleGuard {plan.version}{', in place of the one there' if plan.update else ''}"),
        ("bucket", f"{plan.bucket} (closed to the public, encrypted, versioned, TLS only)"),
        ("makes", "4 Lambdas, 1 table, 1 topic, 1 queue, 1 schedule, 3 alarms, 7 roles"),
        ("notices", plan.email or "to nobody by mail; give --email ADDRESS"),
        ("cost", "nothing: this is the local SageMaker" if plan.local else _cost(plan.price)),
    ]
    return render_fields(fields)


def _cost(price: GuardPrice) -> str:
    sums = [f"  {line.quantity:,.6g} {line.what} x {line.usd_each:.10g} USD" for line in price.lines]
    return "\n".join(
        [
            f"{usd(price.usd_per_month, 'month')}, and {usd(price.per_variant.usd, 'month')} "
            "for each variant of an endpoint that it watches",
            *sums,
            f"  {price.source}; free tiers not counted",
        ]
    )


def plan_data(plan: InstallPlan) -> dict[str, Any]:
    """The plan for --format json."""
    return {
        "account": plan.account,
        "region": plan.region,
        "bucket": plan.bucket,
        "version": plan.version,
        "update": plan.update,
        "usd_per_month": 0.0 if plan.local else round(plan.price.usd_per_month, 2),
    }


def render_installed(report: InstallReport, flags: str) -> str:
    """What stands now, and what is left to do."""
    done = {"created": "installed", "updated": "updated", "unchanged": "up to date already"}[report.action]
    lines = [f"The guard of {report.plan.region} is {done}: version {report.plan.version}."]
    if report.plan.email and report.action == "created":
        lines.append(f"{report.plan.email} gets a mail with a link: notices come once it is confirmed.")
    lines.append(f"Look at it with `peagle-sm guard status{flags}`.")
    return "\n".join(lines)


def render_uninstalled(report: UninstallReport) -> str:
    """What is gone, and what runs on."""
    lines = [f"The guard of {report.region} is removed."]
    if not report.bucket_removed:
        lines.append("Its bucket was not removed: it is not there, or holds what is not the guard's.")
    if report.unguarded:
        lines.append(f"Running without a guard: {', '.join(report.unguarded)}.")
    return "\n".join(lines)


def render_guard_status(found: GuardStatus, now: datetime, flags: str) -> str:
    """One guard: what is installed, how it is, what it knows."""
    version = found.version or "unknown"
    if not found.current:
        version += f"; this peagle-sm brings {found.available}: run `peagle-sm guard install{flags}`"
    notices = [f"{one.endpoint}{'' if one.confirmed else ' (not confirmed)'}" for one in found.notices]
    fields = [
        ("guard", f"{found.region}, stack {found.stack_status}"),
        ("version", version),
        ("package", found.package or "deployed by the CDK"),
        ("last sweep", when_to(found.last_sweep_at, now) if found.last_sweep_at else "none yet"),
        ("alarms", "\n".join(f"{one.name}: {one.state}" for one in found.alarms) or "none"),
        ("dead letters", str(found.dead_letters)),
        ("notices to", ", ".join(notices) or "nobody"),
        ("warnings", "\n".join(found.warnings) or "none"),
    ]
    text = render_fields(fields)
    if not found.endpoints:
        return f"{text}\n\nIt knows no endpoints."
    rows = [_row(one, now) for one in found.endpoints]
    # A column of dashes says nothing: without leases, for example, none is kept.
    shown = [at for at in range(len(_COLUMNS)) if any(row[at] != "-" for row in rows)]
    table = render_table([_COLUMNS[at] for at in shown], [[row[at] for at in shown] for row in rows])
    return f"{text}\n\n{table}"


def _row(one: Watched, now: datetime) -> tuple[str, ...]:
    state = "paused" if one.paused else "watched"
    if one.gone_at is not None:
        state = f"off ({one.off_by or 'unknown'})" if not one.paused else "paused"
    kept = one.keep_until if one.keep_until and one.keep_until > now else None
    return (
        one.name,
        state,
        *(
            "-" if moment is None else relative(moment, now)
            for moment in (one.quiet_since, kept, one.expires_at)
        ),
    )


def render_sweep(report: SweepReport) -> str:
    """One line for each endpoint, and what the sweep asked of AWS."""
    title = f"{'Dry run' if report.dry_run else 'Sweep'} at {report.time}"
    if report.skipped:
        return f"{title}: nothing was looked at: {report.skipped}"
    headers = ("endpoint", "status", "evidence", "action", "expires", "owner", "reason")
    rows = [_swept(row) for row in report.endpoints]
    body = render_table(headers, rows) if rows else "no endpoints of peagle-sm"
    calls = ", ".join(f"{name} {count}" for name, count in sorted(report.calls.items()))
    lines = [title, "", body, "", f"AWS calls: {calls or 'none'}"]
    return "\n".join([*lines, *(f"failed: {fault}" for fault in report.faults)])


def _swept(row: Mapping[str, Any]) -> tuple[str, ...]:
    keys = ("name", "status", "evidence", "action", "expires_at", "owner", "reason")
    return tuple("-" if row.get(key) is None else str(row[key]) for key in keys)
