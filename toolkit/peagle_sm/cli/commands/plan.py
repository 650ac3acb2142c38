"""`peagle-sm plan`: what a spec would create, whether it fits, and what it costs. Creates nothing."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from peagle_sm.cli.lazy import Command
from peagle_sm.cli.options import global_options
from peagle_sm.cli.output import emit, to_json
from peagle_sm.cli.spec_file import read_spec, spec_argument
from peagle_sm.cli.state import State

if TYPE_CHECKING:
    from peagle_sm.aws.session.session import Session
    from peagle_sm.core.checks.preflight import Result
    from peagle_sm.core.plan.plan import Plan


@click.command(cls=Command)
@spec_argument
@click.option("--dry-run", is_flag=True, help="Print the exact requests as JSON, and nothing else.")
@click.option("--stack", is_flag=True, help="Plan for `cdk deploy`, which carries scaling and updates too.")
@click.option(
    "--preflight", is_flag=True, help="Also look at the account, as `deploy` does before it begins."
)
@global_options
@click.pass_obj
def plan(state: State, spec_path: Path, dry_run: bool, stack: bool, preflight: bool) -> None:
    """Show what a spec would create, and what it costs.

    SPEC is a YAML file (default: peagle.yaml; - reads stdin). Nothing is created. A finding of severity
    "error" ends with exit code 3. A spec that names its roles needs no credentials: the account is theirs.
    """
    from peagle_sm.cli.connect import open_session
    from peagle_sm.cli.plan_text import plan_data, render_plan
    from peagle_sm.service import plan_for

    spec = read_spec(spec_path)
    session = open_session(state, spec.placement.region)
    made = plan_for(spec, session, stack=stack, account_from_spec=True)
    results = _preflight(session, made) if preflight and not made.refused else ()
    if dry_run:
        print_requests(made)
    else:
        emit(
            state,
            table=lambda: render_plan(made) + _results_text(results, state.flags),
            data=lambda: plan_data(made) | _results_data(results),
            names=[made.names.endpoint],
        )
    refuse_if_needed(made, shown=state.format == "table" and not dry_run)
    if results:
        from peagle_sm.service.planning.preflight import refuse_errors

        refuse_errors(results)


def _preflight(session: Session, made: Plan) -> tuple[Result, ...]:
    """What the account says; what the plan itself says stands in its findings."""
    from peagle_sm.core.checks import SPEC_CHECKS
    from peagle_sm.service.planning.preflight import preflight

    findings = {each.id for each in SPEC_CHECKS}
    return tuple(each for each in preflight(session, made) if each.check not in findings)


def _results_text(results: tuple[Result, ...], flags: str) -> str:
    from peagle_sm.cli.preflight_text import render_results

    return f"\n\n{render_results(results, flags, verbose=True)}" if results else ""


def _results_data(results: tuple[Result, ...]) -> dict[str, Any]:
    from peagle_sm.service.planning.preflight import results_data

    return {"preflight": results_data(results)} if results else {}


def print_requests(made: Plan) -> None:
    """The requests as a JSON array on stdout, whatever the format."""
    from peagle_sm.cli.plan_text import requests_data

    click.echo(to_json(requests_data(made)))


def refuse_if_needed(made: Plan, shown: bool = False, skip: Collection[str] = ()) -> None:
    """End with exit code 3 when a finding forbids the deploy; ``skip`` as `deploy` takes it.

    Raises:
        PlanRefused: with the findings of severity "error" in its message, or their names alone when the
            plan was `shown`, since people have just read them there.
    """
    from dataclasses import asdict

    from peagle_sm.core.errors import PlanRefused
    from peagle_sm.service.planning.planning import errors_of

    errors = errors_of(made, skip)
    if not errors:
        return
    details = {"findings": [asdict(finding) for finding in errors]}
    if shown:
        names = ", ".join(dict.fromkeys(finding.check for finding in errors))
        raise PlanRefused(
            f"the plan is refused: {names}",
            next_step="do what its findings say, and plan again",
            details=details,
        )
    raise PlanRefused(
        "the plan is refused:\n" + "\n".join(f"{finding.check}: {finding.message}" for finding in errors),
        next_step=errors[0].next_step or None,
        details=details,
    )
