"""`peagle-sm doctor` and `checks`: run, fix or list the checks before a deploy.

The checks read the account, the spec and this machine.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from peagle_sm.cli.arguments import open_session, read_spec, write_fields
from peagle_sm.cli.base import Command, State, global_options
from peagle_sm.cli.commands.guard import install
from peagle_sm.cli.commands.planning.plan import render_results
from peagle_sm.cli.console import confirmed, emit, note, say
from peagle_sm.cli.terminal import render_table
from peagle_sm.core.errors import CredentialsError, SpecError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peagle_sm.aws.session.session import Session
    from peagle_sm.core.checks import Check
    from peagle_sm.core.checks.base import Result
    from peagle_sm.core.planning import Plan


_DEFAULT = Path("peagle.yaml")

skip_option = click.option(
    "--skip-check",
    "skip",
    metavar="ID",
    multiple=True,
    help="Skip a check; the output says so. May be repeated. `peagle-sm checks` lists the IDs.",
)


@click.command(cls=Command)
@click.argument(
    "spec_path", metavar="[SPEC]", required=False, type=click.Path(path_type=Path, dir_okay=False)
)
@click.option("--fix", is_flag=True, help="Show and apply fixes, after confirmation.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@skip_option
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(1, 600),
    default=30.0,
    help="Seconds for all lookups; a check that takes longer is unknown.",
)
@click.option(
    "--verbose", "-v", is_flag=True, help="Also print reasons, sources, and the checks that passed."
)
@global_options
@click.pass_context
def doctor(
    ctx: click.Context,
    spec_path: Path | None,
    fix: bool,
    yes: bool,
    skip: tuple[str, ...],
    timeout_s: float,
    verbose: bool,
) -> None:
    """Check the account, the spec and this machine.

    SPEC is a YAML file (default: peagle.yaml if it exists; - reads stdin). Without a spec, only credentials,
    guard and this machine are checked. The status of a check is ok, warning, error, or unknown if it could
    not run, for example for lack of a permission, which is named. Exit code 3 if a check has an error; 5 if
    there are no valid credentials. Without a region the checks use us-east-1, as `plan` does, and say so.

    Without --fix, nothing is changed. --fix writes fields into SPEC and offers to run commands; it shows the
    price of those that cost money, and asks first.
    """
    from peagle_sm.core.plan.resolve import DEFAULT_REGION
    from peagle_sm.service.preflight import planned, read_machine, without_session
    from peagle_sm.service.spec_to_plan import plan_without_session

    state: State = ctx.obj
    path = spec_path or (_DEFAULT if _DEFAULT.exists() else None)
    spec = read_spec(path) if path is not None else None
    try:
        session = open_session(state, spec.placement.region if spec else None, DEFAULT_REGION)
    except CredentialsError as error:  # the checks of the spec and of this machine need no session
        offline = plan_without_session(spec, error) if spec else None
        _show(state, without_session(error, offline, read_machine(), skip=skip), verbose)
        return
    plan = planned(session, spec)
    results = _check(session, plan, skip, timeout_s)
    try:
        fixed = fix and _fix(ctx, results, plan, path, yes)
    except SpecError:  # stdin is not a terminal, or a field cannot be written: still print the results
        _print(state, results, verbose)
        raise
    if fixed:
        spec = read_spec(path) if path is not None else None
        plan = planned(session, spec)
        results = _check(session, plan, skip, timeout_s)
    _show(state, results, verbose)


def _check(session: Session, plan: Plan | None, skip: Sequence[str], timeout_s: float) -> tuple[Result, ...]:
    from peagle_sm.service.preflight import preflight, read_machine

    return preflight(session, plan, skip=skip, timeout_s=timeout_s, more={"machine": partial(read_machine)})


def _print(state: State, results: tuple[Result, ...], verbose: bool) -> None:
    from peagle_sm.service.preflight import results_data

    emit(
        state,
        table=lambda: render_results(results, state.flags, verbose=verbose),
        data=lambda: results_data(results),
        names=[f"{each.status} {each.check}" for each in results],
    )


def _show(state: State, results: tuple[Result, ...], verbose: bool) -> None:
    from peagle_sm.service.preflight import PreflightFailed, refuse_errors

    _print(state, results, verbose)
    try:
        refuse_errors(results)
    except (CredentialsError, PreflightFailed) as error:
        # The results were just printed, so the message has only the names.
        names = ", ".join(dict.fromkeys(each.check for each in results if each.status == "error"))
        raise type(error)(
            f"checks with errors: {names}",
            next_step="Fix the errors above, then run `peagle-sm doctor` again.",
            details=error.details,
        ) from None


def _fix(
    ctx: click.Context,
    results: tuple[Result, ...],
    plan: Plan | None,
    path: Path | None,
    yes: bool,
) -> bool:
    """Apply the fixes after confirmation; return whether anything was changed."""
    from peagle_sm.service.preflight import mending, own_buckets

    draft = plan.draft if plan is not None else None
    found = mending(results, draft)
    changed = False
    if found.fields and path is not None and str(path) != "-":
        for name, reason in found.reasons.items():
            click.echo(f"  {name}: {found.fields[name]!r}    ({reason})", err=True)
        if confirmed(ctx.obj, f"Write these fields into {path}?", yes):
            write_fields(path, found.fields)
            changed = True
    if ("guard", "install") in found.commands:
        say("peagle-sm guard install creates the guard and both roles:")
        ctx.invoke(install, yes=yes, model_buckets=own_buckets(draft))
        changed = True
    if not found.fields and not found.commands:
        note(ctx.obj, "there is nothing that --fix can fix")
    return changed


@click.command(cls=Command)
@global_options
@click.pass_obj
def checks(state: State) -> None:
    """List the checks that run before a deploy.

    `peagle-sm doctor` runs all of them. --format json also has the reason, source and remedy of each check;
    `peagle-sm help reference/checks` is the same list to read.
    """
    from peagle_sm.core.checks import ALL_CHECKS

    emit(
        state,
        table=lambda: render_table(
            ("check", "severity", "reads", "--fix", "description"), [_row(each) for each in ALL_CHECKS]
        ),
        data=lambda: [check_data(each) for each in ALL_CHECKS],
        names=[each.id for each in ALL_CHECKS],
    )


def _row(each: Check) -> tuple[str, ...]:
    return each.id, each.severity, each.reads, "yes" if each.fix else "-", each.what


def check_data(each: Check) -> dict[str, Any]:
    """Return one check for --format json."""
    return {
        "id": each.id,
        "severity": each.severity,
        "reads": each.reads,
        "needs_spec": each.needs_spec,
        "what": each.what,
        "why": each.why,
        "source": each.source,
        "url": each.url,
        "remedy": each.remedy,
        "fix": each.fix.what if each.fix else None,
    }
