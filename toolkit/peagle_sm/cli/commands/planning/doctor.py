"""`peagle-sm doctor` and `checks`: run or list the checks before a deploy, and fix faults.

The checks read the account, the spec and this machine.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from peagle_sm.cli.arguments import read_spec
from peagle_sm.cli.base import Command, State, global_options
from peagle_sm.cli.console import emit, note, say
from peagle_sm.cli.terminal import render_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peagle_sm.aws.session.session import Session
    from peagle_sm.core.checks import Check
    from peagle_sm.core.checks.base import Result
    from peagle_sm.core.errors import PeagleError
    from peagle_sm.core.plan.plan import Plan


_DEFAULT = Path("peagle.yaml")

skip_option = click.option(
    "--skip-check",
    "skip",
    metavar="ID",
    multiple=True,
    help="Leave a check out, and say so; may be given again. `peagle-sm checks` lists them.",
)


@click.command(cls=Command)
@click.argument(
    "spec_path", metavar="[SPEC]", required=False, type=click.Path(path_type=Path, dir_okay=False)
)
@click.option("--fix", is_flag=True, help="Fix what can be fixed; shows what it would do, and asks.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@skip_option
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(1, 600),
    default=30.0,
    show_default=True,
    help="Seconds for everything that is looked up; what takes longer is unknown.",
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

    Nothing is created. SPEC is a YAML file (default: peagle.yaml where there is one; - reads stdin). Without
    one, credentials, guard and this machine are looked at. A check is ok, warning, error, or unknown where it
    could not look; the missing permission is then named. An error ends with exit code 3, or 5 where nobody is
    logged in. --fix writes fields into SPEC and offers commands; what costs shows its price and asks.
    """
    from peagle_sm.cli.arguments import open_session
    from peagle_sm.core.errors import CredentialsError, SpecError
    from peagle_sm.service.preflight import planned

    state: State = ctx.obj
    path = spec_path or (_DEFAULT if _DEFAULT.exists() else None)
    spec = read_spec(path) if path is not None else None
    try:
        session = open_session(state, spec.placement.region if spec else None)
    except CredentialsError as error:  # without a region the machine can be checked all the same
        _show(state, _of_the_machine(error, skip), verbose)
        return
    plan = planned(session, spec)
    results = _look(session, plan, skip, timeout_s)
    try:
        mended = fix and _mend(ctx, results, session, plan, path, yes)
    except SpecError:  # nobody can answer, or the fields do not fit: what was found is told all the same
        _tell(state, results, verbose)
        raise
    if mended:
        spec = read_spec(path) if path is not None else None
        plan = planned(session, spec)
        results = _look(session, plan, skip, timeout_s)
    _show(state, results, verbose)


def _of_the_machine(error: PeagleError, skip: Sequence[str]) -> tuple[Result, ...]:
    from peagle_sm.service.preflight import machine_only, read_machine

    return machine_only(error, read_machine(), skip=skip)


def _look(session: Session, plan: Plan | None, skip: Sequence[str], timeout_s: float) -> tuple[Result, ...]:
    from peagle_sm.service.preflight import preflight, read_machine

    return preflight(session, plan, skip=skip, timeout_s=timeout_s, more={"machine": partial(read_machine)})


def _tell(state: State, results: tuple[Result, ...], verbose: bool) -> None:
    from peagle_sm.cli.commands.planning.plan import render_results
    from peagle_sm.service.preflight import results_data

    emit(
        state,
        table=lambda: render_results(results, state.flags, verbose=verbose),
        data=lambda: results_data(results),
        names=[f"{each.status} {each.check}" for each in results],
    )


def _show(state: State, results: tuple[Result, ...], verbose: bool) -> None:
    from peagle_sm.core.errors import CredentialsError
    from peagle_sm.service.preflight import PreflightFailed, refuse_errors

    _tell(state, results, verbose)
    try:
        refuse_errors(results)
    except (CredentialsError, PreflightFailed) as error:
        # What was just shown is not told twice.
        names = ", ".join(dict.fromkeys(each.check for each in results if each.status == "error"))
        raise type(error)(
            f"checks in error: {names}",
            next_step="Fix the errors above, then run `peagle-sm doctor` again.",
            details=error.details,
        ) from None


def _mend(
    ctx: click.Context,
    results: tuple[Result, ...],
    session: Session,
    plan: Plan | None,
    path: Path | None,
    yes: bool,
) -> bool:
    """Whether anything was changed."""
    from peagle_sm.cli.commands.guard import install
    from peagle_sm.cli.console import confirmed
    from peagle_sm.service.preflight import draft_of, mending, own_buckets

    draft = draft_of(plan) if plan is not None else None
    found = mending(results, draft)
    changed = False
    if found.fields and path is not None and str(path) != "-":
        for name, reason in found.reasons.items():
            click.echo(f"  {name}: {found.fields[name]!r}    ({reason})", err=True)
        if confirmed(ctx.obj, f"Write {len(found.fields)} field(s) into {path}?", yes):
            _write(path, found.fields)
            changed = True
    if ("guard", "install") in found.commands:
        say("peagle-sm guard install makes the guard and both roles:")
        ctx.invoke(install, yes=yes, model_buckets=own_buckets(draft))
        changed = True
    if not found.fields and not found.commands:
        note(ctx.obj, "there is nothing that --fix can mend")
    return changed


def _write(path: Path, fields: dict[str, object]) -> None:
    from peagle_sm.core.files import write_file
    from peagle_sm.core.spec.editing import edit_spec

    write_file(path, edit_spec(path.read_text(encoding="utf-8"), fields, str(path)))


@click.command(cls=Command)
@global_options
@click.pass_obj
def checks(state: State) -> None:
    """List what is checked before a deploy.

    `doctor` runs them all. --format json has of each what it looks for, why, who says so, how to fix it.
    docs/reference/checks.md is the same to read.
    """
    from peagle_sm.core.checks import ALL_CHECKS

    emit(
        state,
        table=lambda: render_table(
            ("check", "at worst", "looks at", "fix", "what"), [_row(each) for each in ALL_CHECKS]
        ),
        data=lambda: [check_data(each) for each in ALL_CHECKS],
        names=[each.id for each in ALL_CHECKS],
    )


def _row(each: Check) -> tuple[str, ...]:
    return each.id, each.severity, each.reads, "yes" if each.fix else "-", each.what


def check_data(each: Check) -> dict[str, Any]:
    """One check as JSON-able data."""
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
