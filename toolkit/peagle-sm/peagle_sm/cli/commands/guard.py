"""`peagle-sm guard`: install, inspect and remove the guard.

`install` shows what the stack creates and costs, asks, and waits for the stack. `uninstall` is refused
while the guard is needed, unless an option overrides that. If another command needs a guard and the region
has none, `with_guard` offers to install it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from peagle_sm.cli.arguments import follower, open_session
from peagle_sm.cli.base import Command, Entry, LazyGroup, State, global_options
from peagle_sm.cli.console import asking, confirmed, emit, need_terminal, note, say
from peagle_sm.cli.terminal import render_fields, render_table
from peagle_sm.core.errors import Declined, GuardMissing
from peagle_sm.core.words import relative, usd, when_to

if TYPE_CHECKING:
    from peagle_sm.aws.control.guard_resources import RegisterEntry
    from peagle_sm.aws.session.session import Session
    from peagle_sm.cli.progress import Follower
    from peagle_sm.core.guard import GuardPrice
    from peagle_sm.service import Pacing
    from peagle_sm.service.guard.installation import InstallPlan, InstallReport, UninstallReport
    from peagle_sm.service.guard.status import GuardStatus, SweepReport


ENTRIES = (
    Entry("install", "commands.guard:install", "Install the guard, or bring it up to date."),
    Entry(
        "status",
        "commands.guard:status",
        "Show the guard's version, last sweep, alarms and endpoints.",
    ),
    Entry("sweep", "commands.guard:sweep", "Make the guard check every endpoint and job now."),
    Entry("uninstall", "commands.guard:uninstall", "Remove the guard from this region."),
)


@click.group(cls=LazyGroup, entries=ENTRIES)
@global_options
def guard() -> None:
    """Install, inspect and remove the guard, which turns off unused endpoints.

    One guard serves all endpoints of peagle-sm in an account and region. It checks them every five minutes
    and turns off those that are idle by their metrics, past their lifetime or over their budget. It sends a
    notification first. It also stops training jobs of peagle-sm that run past their limit.
    """


def _parameter(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not (name and sign):
        raise click.BadParameter(f"found {text!r}; allowed: NAME=VALUE, such as ReserveConcurrency=no")
    return name, value


@click.command(cls=Command)
@click.option(
    "--email", metavar="ADDRESS", help="Address to notify before and after an endpoint is turned off."
)
@click.option(
    "--model-bucket",
    "model_buckets",
    metavar="NAME",
    multiple=True,
    help="Bucket of yours that the endpoints' containers may read models from. May be repeated.",
)
@click.option(
    "--parameter",
    "parameters",
    metavar="NAME=VALUE",
    multiple=True,
    callback=lambda ctx, param, texts: tuple(map(_parameter, texts)),
    help="Another parameter of the guard's template, such as ImageRepository=team/* or EndpointKeyArns=ARN "
    "(`peagle-sm help stacks-guard`). May be repeated.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@global_options
@click.pass_obj
def install(
    state: State,
    email: str | None,
    model_buckets: tuple[str, ...],
    parameters: tuple[tuple[str, str], ...],
    yes: bool,
) -> None:
    """Install the guard, or bring it up to date.

    Options and parameters that you do not give keep the values of the last installation. Run the command
    again after each upgrade of peagle-sm. It does not need Node or the CDK.
    """
    from peagle_sm.service.guard import installation as guard

    need_terminal(state, yes, f"peagle-sm guard status{state.flags}")
    session = open_session(state)
    wanted = dict(parameters or ())
    if email:
        wanted["NoticesEmail"] = email
    if model_buckets:
        wanted["ModelBucketArns"] = guard.bucket_arns(session.region, model_buckets)
    with follower(state) as follow:
        ask = asking(
            state,
            yes,
            "installing",
            render_install_plan,
            lambda plan: f"{'Update' if plan.update else 'Install'} the guard?",
            data=plan_data,
            before=follow.pause,
        )
        report = guard.install(session, wanted, confirm=ask, progress=follow)
    if report is None:
        raise Declined("Nothing was changed: it was not confirmed.", next_step="Run it again and confirm.")
    emit(
        state,
        table=lambda: render_installed(report, session.command_flags()),
        data=report.to_dict,
        names=[report.to_dict()["stack"]],
    )


@click.command(cls=Command)
@global_options
@click.pass_obj
def status(state: State) -> None:
    """Show the guard's version, last sweep, alarms and endpoints.

    Exit code 4 if no guard is installed in this region.
    """
    from peagle_sm.service.guard.status import guard_status

    session = open_session(state)
    state_of_guard = guard_status(session)
    emit(
        state,
        table=lambda: render_guard_status(state_of_guard, session.now()),
        data=state_of_guard.to_dict,
        names=[row.name for row in state_of_guard.endpoints],
    )


@click.command(cls=Command)
@click.option("--dry-run", is_flag=True, help="Only show what the guard would do.")
@global_options
@click.pass_obj
def sweep(state: State, dry_run: bool) -> None:
    """Make the guard check every endpoint and job now.

    Runs the deployed function with the same rules as the scheduled sweep. Without --dry-run it may turn
    endpoints off and stop jobs.
    """
    from peagle_sm.service.guard.status import sweep as run

    session = open_session(state)
    report = run(session, dry_run=dry_run)
    emit(
        state,
        table=lambda: render_sweep(report),
        data=report.to_dict,
        names=[str(row.get("name", "")) for row in report.endpoints],
    )


@click.command(cls=Command)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.option(
    "--yes-leave-endpoints-unguarded",
    "leave_unguarded",
    is_flag=True,
    help="Uninstall although endpoints run: they are then billed until you delete them.",
)
@global_options
@click.pass_obj
def uninstall(state: State, yes: bool, leave_unguarded: bool) -> None:
    """Remove the guard from this region.

    Deletes the guard's stack and the bucket with its package. Refused while endpoints of peagle-sm run, and
    while endpoint stacks import the guard's outputs.
    """
    from peagle_sm.service.guard import installation as guard

    need_terminal(state, yes, f"peagle-sm guard status{state.flags}")
    session = open_session(state)
    with follower(state) as follow:

        def ask(unguarded: Sequence[str]) -> bool:
            follow.pause()
            if unguarded:
                note(state, f"These keep running without guard or lifetime schedule: {', '.join(unguarded)}.")
            return confirmed(state, f"Remove the guard from {session.region}?", yes)

        report = guard.uninstall(session, leave_unguarded=leave_unguarded, confirm=ask, progress=follow)
    if report is None:
        raise Declined("Nothing was changed: it was not confirmed.", next_step="Run it again and confirm.")
    emit(
        state,
        table=lambda: render_uninstalled(report),
        data=report.to_dict,
        names=[report.to_dict()["stack"]],
    )


_COLUMNS = ("endpoint", "state", "idle since", "kept until", "expires")


def render_install_plan(plan: InstallPlan) -> str:
    """Render what will be created, where, and what it costs."""
    fields = [
        ("account", f"{plan.account}, region {plan.region}"),
        ("stack", f"PeagleGuard {plan.version}{' (updates the installed one)' if plan.update else ''}"),
        ("bucket", f"{plan.bucket} (not public, encrypted, versioned, TLS only)"),
        ("creates", "4 Lambdas, 1 table, 1 topic, 1 queue, 1 schedule, 3 alarms, 7 roles"),
        ("notifies", plan.email or "nobody by email; to change this, give --email ADDRESS"),
        ("cost", "nothing: this is the local SageMaker" if plan.local else _cost(plan.price)),
    ]
    return render_fields(fields)


def _cost(price: GuardPrice) -> str:
    sums = [f"  {line.quantity:,.6g} {line.what} x {line.usd_each:.10g} USD" for line in price.lines]
    return "\n".join(
        [
            f"{usd(price.usd_per_month, 'month')}, and {usd(price.per_variant.usd, 'month')} "
            "for each endpoint variant that it watches",
            *sums,
            f"  {price.source}; without free tiers",
        ]
    )


def plan_data(plan: InstallPlan) -> dict[str, Any]:
    """Return the plan for --format json."""
    return {
        "account": plan.account,
        "region": plan.region,
        "bucket": plan.bucket,
        "version": plan.version,
        "update": plan.update,
        "usd_per_month": 0.0 if plan.local else round(plan.price.usd_per_month, 2),
    }


def render_installed(report: InstallReport, flags: str) -> str:
    """Render what was installed, and what remains to do."""
    done = {"created": "installed", "updated": "updated", "unchanged": "already up to date"}[report.action]
    lines = [f"The guard of {report.plan.region} is {done}: version {report.plan.version}."]
    if report.plan.email and report.action == "created":
        lines.append(f"{report.plan.email} gets an email with a link: confirm it to receive notifications.")
    lines.append(f"Check it with `peagle-sm guard status{flags}`.")
    return "\n".join(lines)


def render_uninstalled(report: UninstallReport) -> str:
    """Render what was removed, and which endpoints now run without a guard."""
    lines = [f"The guard of {report.region} is removed."]
    if not report.bucket_removed:
        lines.append("Its bucket was not removed: it does not exist, or it contains other objects.")
    if report.unguarded:
        lines.append(f"Running without a guard: {', '.join(report.unguarded)}.")
    return "\n".join(lines)


def render_guard_status(status: GuardStatus, now: datetime) -> str:
    """Render one guard: its version, what it watches, alarms and warnings."""
    version = status.version or "unknown"
    if not status.current:
        version += f"; this peagle-sm has {status.available}: run `{status.renewal}`"
    notices = [
        f"{notice.endpoint}{'' if notice.confirmed else ' (not confirmed)'}" for notice in status.notices
    ]
    fields = [
        ("guard", f"{status.region}, stack {status.stack_status}"),
        ("version", version),
        ("package", status.package or "deployed by the CDK"),
        ("last sweep", when_to(status.last_sweep_at, now) if status.last_sweep_at else "none yet"),
        ("alarms", "\n".join(f"{alarm.name}: {alarm.state}" for alarm in status.alarms) or "none"),
        ("dead letters", str(status.dead_letters)),
        ("notifies", ", ".join(notices) or "nobody"),
        ("warnings", "\n".join(status.warnings) or "none"),
    ]
    text = render_fields(fields)
    if not status.endpoints:
        return f"{text}\n\nIt watches no endpoints."
    rows = [_row(watched, now) for watched in status.endpoints]
    # Columns that have only dashes are left out, for example `kept until` without leases.
    shown = [at for at in range(len(_COLUMNS)) if any(row[at] != "-" for row in rows)]
    table = render_table([_COLUMNS[at] for at in shown], [[row[at] for at in shown] for row in rows])
    return f"{text}\n\n{table}"


def _row(watched: RegisterEntry, now: datetime) -> tuple[str, ...]:
    state = "paused" if watched.paused else "watched"
    if watched.gone_at is not None:
        state = f"off ({watched.off_by or 'unknown'})" if not watched.paused else "paused"
    kept = watched.keep_until if watched.keep_until and watched.keep_until > now else None
    return (
        watched.name,
        state,
        *(
            "-" if moment is None else relative(moment, now)
            for moment in (watched.quiet_since, kept, watched.expires_at)
        ),
    )


def render_sweep(report: SweepReport) -> str:
    """Render one line for each endpoint and job, and the number of AWS calls."""
    title = f"{'Dry run' if report.dry_run else 'Sweep'} at {report.time}"
    if report.skipped:
        return f"{title}: skipped: {report.skipped}"
    headers = ("endpoint", "status", "evidence", "action", "expires", "owner", "reason")
    rows = [_swept(row) for row in report.endpoints]
    body = render_table(headers, rows) if rows else "no endpoints of peagle-sm"
    calls = ", ".join(f"{name} {count}" for name, count in sorted(report.calls.items()))
    jobs = [[str(row.get(key, "-")) for key in ("name", "action", "reason")] for row in report.jobs]
    if jobs:
        body += "\n\n" + render_table(("job", "action", "reason"), jobs)
    lines = [title, "", body, "", f"AWS calls: {calls or 'none'}"]
    return "\n".join([*lines, *(f"failed: {fault}" for fault in report.faults)])


def _swept(row: Mapping[str, Any]) -> tuple[str, ...]:
    keys = ("name", "status", "evidence", "action", "expires_at", "owner", "reason")
    return tuple("-" if row.get(key) is None else str(row[key]) for key in keys)


Result = TypeVar("Result")


def with_guard(
    state: State,
    session: Session,
    follow: Follower,
    yes: bool,
    action: Callable[[], Result],
    pacing: Pacing | None = None,
) -> Result:
    """Run ``action``; if it lacks a guard, install one and run it again.

    The local SageMaker gets the guard without a prompt, since it costs nothing there. On AWS the guard is
    shown with its price, and installed after a yes on a terminal. --yes answers the command's own prompt
    but not this one, so a script is refused.

    Raises:
        GuardMissing: the guard was not installed; nothing was created.
    """
    try:
        return action()
    except GuardMissing as missing:
        absent = missing.details.get("found_status") is None
        if not absent or not (session.is_local or (not yes and state.stdin_is_tty())):
            raise
        if not _installed(state, session, follow, pacing):
            raise
    return action()


def _installed(state: State, session: Session, follow: Follower, pacing: Pacing | None) -> bool:
    from peagle_sm.service.guard import installation as guard

    def ask(plan: InstallPlan) -> bool:
        follow.pause()
        if plan.local:
            note(
                state, "note: no guard is installed; installing it (it costs nothing in the local SageMaker)"
            )
            return True
        say(
            f"No guard is installed in {plan.region}. The guard turns idle endpoints off; each account and "
            f"region needs one:\n\n{render_install_plan(plan)}\n"
        )
        return confirmed(state, "Install the guard now?", False)

    return guard.install(session, confirm=ask, progress=follow, pacing=pacing) is not None
