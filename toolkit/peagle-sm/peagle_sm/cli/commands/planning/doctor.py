"""`peagle-sm doctor`: check the account, the spec and this machine before a deploy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from peagle_sm.cli.arguments import open_session, read_spec
from peagle_sm.cli.base import Command, State, global_options
from peagle_sm.cli.commands.planning.plan import render_results
from peagle_sm.cli.console import emit
from peagle_sm.core.errors import CredentialsError

if TYPE_CHECKING:
    from peagle_sm.core.checks.base import Result


_DEFAULT = Path("peagle.yaml")

skip_option = click.option(
    "--skip-check",
    "skip",
    metavar="ID",
    multiple=True,
    help="Skip a check; the output says so. May be repeated. `peagle-sm help checks` lists the IDs.",
)


@click.command(cls=Command)
@click.argument(
    "spec_path", metavar="[SPEC]", required=False, type=click.Path(path_type=Path, dir_okay=False)
)
@click.option(
    "--verbose", "-v", is_flag=True, help="Also print reasons, sources, and the checks that passed."
)
@global_options
@click.pass_obj
def doctor(state: State, spec_path: Path | None, verbose: bool) -> None:
    """Check the account, the spec and this machine.

    SPEC is a YAML file (default: peagle.yaml if it exists; - reads stdin). Without a spec, only credentials,
    guard and this machine are checked. The status of a check is ok, warning, error, or unknown if it could
    not run, for example for lack of a permission, or within 30 seconds. Exit code 3 if a check has an error;
    5 if there are no valid credentials. Without a region the checks use us-east-1, as `plan` does, and say
    so. Nothing is changed: each error has a next step.
    """
    from peagle_sm.core.plan.resolve import DEFAULT_REGION
    from peagle_sm.service.preflight import planned, preflight, read_machine, without_session
    from peagle_sm.service.spec_to_plan import plan_without_session

    path = spec_path or (_DEFAULT if _DEFAULT.exists() else None)
    spec = read_spec(path) if path is not None else None
    try:
        session = open_session(state, spec.placement.region if spec else None, DEFAULT_REGION)
    except CredentialsError as error:  # the checks of the spec and of this machine need no session
        offline = plan_without_session(spec, error) if spec else None
        _show(state, without_session(error, offline, read_machine()), verbose)
        return
    _show(state, preflight(session, planned(session, spec), more={"machine": read_machine}), verbose)


def _show(state: State, results: tuple[Result, ...], verbose: bool) -> None:
    from peagle_sm.service.preflight import PreflightFailed, refuse_errors, results_data

    emit(
        state,
        table=lambda: render_results(results, state.flags, verbose=verbose),
        data=lambda: results_data(results),
        names=[f"{result.status} {result.check}" for result in results],
    )
    try:
        refuse_errors(results)
    except (CredentialsError, PreflightFailed) as error:
        # The results were just printed, so the message has only the names.
        names = ", ".join(dict.fromkeys(result.check for result in results if result.status == "error"))
        raise type(error)(
            f"checks with errors: {names}",
            next_step="Fix the errors above, then run `peagle-sm doctor` again.",
            details=error.details,
        ) from None
