"""`peagle-sm plan` and `lock`: a spec's resources and cost, its JumpStart lock.

`plan` creates nothing. It runs the preflight checks; `deploy` and `doctor` render their results with the
functions here. `lock` writes what JumpStart resolves the spec to, shows what changed, or checks the lock.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from peagle_sm.cli.arguments import open_session, read_spec, spec_argument
from peagle_sm.cli.base import Command, State, global_options
from peagle_sm.cli.console import emit, note, to_json
from peagle_sm.core.display import text
from peagle_sm.core.errors import LockStale, SpecError

if TYPE_CHECKING:
    from peagle_sm.core.checks.base import Result
    from peagle_sm.core.planning import Plan
    from peagle_sm.service.jumpstart_lock import Locking


@click.command(cls=Command)
@spec_argument
@click.option("--dry-run", is_flag=True, help="Print only the exact requests, as JSON.")
@click.option("--stack", is_flag=True, help="Plan for `cdk deploy`, which also applies update settings.")
@global_options
@click.pass_obj
def plan(state: State, spec_path: Path, dry_run: bool, stack: bool) -> None:
    """Show what a spec would create, and what it would cost.

    SPEC is a YAML file (default: peagle.yaml; - reads stdin). Nothing is created, and no AWS account is
    needed: without a region or credentials the plan has us-east-1 and a placeholder account, and says so.
    `peagle-sm doctor` also checks the account. Exit code 3 if a finding has the severity "error".
    """
    from peagle_sm.core.plan.resolve import DEFAULT_REGION
    from peagle_sm.service import plan_for

    spec = read_spec(spec_path)
    session = open_session(state, spec.placement.region, DEFAULT_REGION)
    planned = plan_for(spec, session, stack=stack, without_credentials=True)
    if dry_run:
        print_dry_run(state, planned)
    else:
        emit(state, table=lambda: str(planned), data=planned.to_dict, names=[planned.names.endpoint])
    planned.refuse_errors(shown=state.format == "table")


def print_dry_run(state: State, plan: Plan, skip: Collection[str] = ()) -> None:
    """Print the requests as a JSON array on stdout, with any --format, and the warnings on stderr.

    ``skip`` are the checks that --skip-check names.

    Raises:
        PlanRefused: a finding has the severity "error".
    """
    click.echo(to_json(plan.to_dict()["requests"]))
    for assumption in plan.context.assumed:
        note(state, f"note: {assumption}")
    plan.refuse_errors(skip)
    for finding in plan.findings:
        if finding.severity == "warning" and finding.check not in skip:
            step = f"\n  next: {finding.next_step}" if finding.next_step else ""
            note(state, f"warning: {finding.check}: {finding.message}{step}")


@click.command(cls=Command)
@spec_argument
@click.option("--upgrade", is_flag=True, help="Lock JumpStart's newest version, and show what changes.")
@click.option(
    "--check",
    is_flag=True,
    help="Show what would change; write nothing. Exit code 9 if the lock would change.",
)
@click.option("--config", metavar="NAME", help="JumpStart config.  [default: the best one with a head]")
@global_options
@click.pass_obj
def lock(state: State, spec_path: Path, upgrade: bool, check: bool, config: str | None) -> None:
    """Pin what JumpStart resolves a spec to; check or upgrade the lock.

    SPEC is a YAML file (default: peagle.yaml). The lock is written beside it: peagle.lock, or with --local
    peagle.local.lock. It pins version, image, files, environment and licence, with the hash of AWS's
    document. plan, deploy and cdk synth read the lock instead of JumpStart.

    The locked version stays the same until you give --upgrade.
    """
    from peagle_sm.cli.commands.planning.rendering import lock_data, render_lock
    from peagle_sm.service.jumpstart_lock import make_lock, resolves_by_jumpstart, write_lock
    from peagle_sm.service.own_models import with_own_entries
    from peagle_sm.service.spec_to_plan import load_spec

    if str(spec_path) == "-":
        raise SpecError(
            "SPEC: found -; allowed: a file, since the lock is written beside it",
            next_step="Save the spec as peagle.yaml.",
        )
    spec = with_own_entries(load_spec(spec_path, locks=False), spec_path.parent)
    if not resolves_by_jumpstart(spec):
        nothing = f"{spec.name}: nothing to lock: with source container the spec has its own image and files"
        emit(state, table=lambda: nothing, data=lambda: {"path": None, "written": False}, names=[])
        return
    session = open_session(state, spec.placement.region)
    locking = make_lock(spec, spec_path, session, upgrade=upgrade, config=config)
    if locking.unreadable:
        note(state, f"replaced: {locking.unreadable}")
    written = locking.stale and not check
    if written:
        write_lock(locking)
    emit(
        state,
        table=lambda: render_lock(locking, written=written),
        data=lambda: lock_data(locking, written=written),
        names=[str(locking.path)],
    )
    if check:
        _refuse_if_stale(state, locking, str(spec_path))


def _refuse_if_stale(state: State, locking: Locking, spec_path: str) -> None:
    if not locking.stale:
        return
    fields = [change.field for change in locking.changes]
    what = "does not exist" if locking.before is None else f"is stale: {len(fields)} fields would change"
    raise LockStale(
        f"{locking.path} {what}",
        next_step=f"Run `peagle-sm lock{state.flags} {spec_path}`, review the changes, and commit the lock.",
        details={"path": str(locking.path), "changes": fields},
    )


# A command that lacks --local, --region or --profile.
_COMMAND = re.compile(
    r"`(peagle-sm (?!local |models|checks|init|schema)(?:(?!--local|--region|--profile)[^`])*)`"
)


def render_results(results: Sequence[Result], flags: str = "", *, verbose: bool = False) -> str:
    """Render the failed checks, worst first, with next steps.

    ``verbose`` adds reasons, sources and the passed checks. ``flags`` are added to suggested commands, so
    that they have the same target.
    """
    from peagle_sm.service.preflight import Checkup

    shown = _COMMAND.sub(rf"`\1{flags}`", text(Checkup(tuple(results)).card(verbose)))
    return shown if verbose else f"{shown}\n(--verbose: all checks, with sources)"


def render_deploy_notes(results: Sequence[Result]) -> str:
    """Render the warnings of the preflight that do not stop a deploy."""
    lines = [f"  {result.status.ljust(7)}  {result.check}: {result.message}" for result in results]
    return "\n".join(["Preflight", *lines, "  for all checks and next steps, run: peagle-sm doctor"])
