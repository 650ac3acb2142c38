"""`peagle-sm guard install`: show what it makes and costs, ask, and follow the stack until it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from peagle_sm.cli.confirm import confirmed
from peagle_sm.cli.lazy import Command
from peagle_sm.cli.options import global_options
from peagle_sm.cli.output import emit, say
from peagle_sm.cli.state import State

if TYPE_CHECKING:
    from peagle_sm.service.guard.installation import InstallPlan


@click.command(cls=Command)
@click.option(
    "--email", metavar="ADDRESS", help="Address that is notified before and after an endpoint is turned off."
)
@click.option(
    "--model-bucket",
    "model_buckets",
    metavar="NAME",
    multiple=True,
    help="A bucket of yours that the endpoints' containers may read models from; may be given again.",
)
@click.option(
    "--endpoint-key",
    "endpoint_keys",
    metavar="ARN",
    multiple=True,
    help="A KMS key of your endpoints' volumes or model buckets; may be given again.",
)
@click.option("--encryption-key", metavar="ARN", help="A KMS key for what the guard itself keeps.")
@click.option(
    "--image-repository",
    metavar="NAME",
    help="Your own ECR repository that endpoints run images from; a * at its end is allowed.",
)
@click.option(
    "--reserve-concurrency/--no-reserve-concurrency",
    default=None,
    help="Whether two functions run alone by Lambda's own rule; no where the quota leaves none to reserve.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@global_options
@click.pass_obj
def install(
    state: State,
    email: str | None,
    model_buckets: tuple[str, ...],
    endpoint_keys: tuple[str, ...],
    encryption_key: str | None,
    image_repository: str | None,
    reserve_concurrency: bool | None,
    yes: bool,
) -> None:
    """Install the guard, or bring it up to date.

    What is not given stays as the last installation had it. Run it again after every upgrade of peagle-sm.
    Needs no Node and no CDK.
    """
    from peagle_sm.cli.confirm import need_terminal
    from peagle_sm.cli.connect import open_session
    from peagle_sm.cli.guard_text import plan_data, render_install_plan, render_installed
    from peagle_sm.cli.output import to_json
    from peagle_sm.cli.progress import follower
    from peagle_sm.service.guard import installation as guard

    need_terminal(state, yes, f"peagle-sm guard status{state.flags}")
    session = open_session(state)
    settings = guard.GuardSettings(
        email=email,
        model_buckets=model_buckets or None,
        endpoint_keys=endpoint_keys or None,
        encryption_key=encryption_key,
        image_repository=image_repository,
        reserve_concurrency=reserve_concurrency,
    )
    with follower(state) as follow:

        def ask(plan: InstallPlan) -> bool:
            follow.pause()
            if state.format == "json":
                click.echo(to_json({"installing": plan_data(plan)}, indent=None), err=True)
            elif state.format == "table" or not yes:
                say(render_install_plan(plan) + "\n")
            return confirmed(state, f"{'Update' if plan.update else 'Install'} the guard?", yes)

        report = guard.install(session, settings, confirm=ask, progress=follow)
    if report is None:
        from peagle_sm.core.errors import Declined

        raise Declined("Nothing was changed: it was not confirmed.", next_step="Run it again and confirm.")
    emit(
        state,
        table=lambda: render_installed(report, session.command_flags()),
        data=report.to_dict,
        names=[report.to_dict()["stack"]],
    )
