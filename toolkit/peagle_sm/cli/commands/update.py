"""`peagle-sm update`: what would change and what that costs, a question, then in place or off and on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from peagle_sm.cli.commands.doctor import skip_option
from peagle_sm.cli.confirm import confirmed, need_terminal
from peagle_sm.cli.lazy import Command
from peagle_sm.cli.options import global_options
from peagle_sm.cli.output import emit, note, say, to_json
from peagle_sm.cli.spec_file import given, read_spec, spec_argument
from peagle_sm.cli.state import State

if TYPE_CHECKING:
    from peagle_sm.service import Endpoint, UpdateOffer


@click.command(cls=Command)
@spec_argument
@click.option("--dry-run", is_flag=True, help="Show what would change and what that costs; change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option(
    "--strategy",
    type=click.Choice(("in-place", "off-update-on")),
    help="A second fleet beside the first, or none and no service meanwhile.  [default: the spec's update]",
)
@click.option(
    "--alarm",
    "alarms",
    multiple=True,
    metavar="NAME",
    help="A CloudWatch alarm of yours that undoes an update in place too; may be repeated.",
)
@click.option(
    "--unguarded",
    is_flag=True,
    help="Update without an installed guard: only the lifetime limit ends what is forgotten.",
)
@skip_option
@global_options
@click.pass_obj
def update(
    state: State,
    spec_path: Path,
    dry_run: bool,
    yes: bool,
    strategy: Literal["in-place", "off-update-on"] | None,
    alarms: tuple[str, ...],
    unguarded: bool,
    skip: tuple[str, ...],
) -> None:
    """Bring an endpoint to what its spec says now.

    SPEC is a YAML file (default: peagle.yaml; - reads stdin). What differs comes first, with the price while
    it changes, then a question. In place, a second fleet runs beside the first until it serves, and is paid
    for; requests are answered throughout. If the new engine does not come up, or an alarm goes off, SageMaker
    rolls back: the old config serves on, and the command ends with exit code 7. With off-update-on the
    endpoint is paused, and started with the new spec; if that fails, `peagle-sm resume` brings the old one
    back. Where only tags differ (idle minutes, hours, budget) nothing is started. The lifetime begins anew.
    An update that was killed is taken up by the next one.
    """
    from peagle_sm.cli.commands.deploy import look_first
    from peagle_sm.cli.connect import open_session
    from peagle_sm.cli.deploy_result import emit_ready
    from peagle_sm.cli.guard_offer import with_guard
    from peagle_sm.cli.progress import follower
    from peagle_sm.cli.signals import termination_is_ctrl_c
    from peagle_sm.cli.update_text import question, render_update
    from peagle_sm.core.errors import Declined
    from peagle_sm.service import update as bring_about

    spec = read_spec(spec_path)
    need_terminal(state, yes or dry_run, f"peagle-sm update{given(spec_path)} --dry-run{state.flags}")
    session = open_session(state, spec.placement.region)
    with termination_is_ctrl_c(), follower(state) as follow:

        def ask(offer: UpdateOffer) -> bool:
            follow.pause()
            if dry_run:
                emit(
                    state,
                    table=lambda: render_update(offer),
                    data=offer.to_dict,
                    names=[one.field for one in offer.changes],
                )
                return False
            if state.format == "json":
                click.echo(to_json({"update": offer.to_dict()}, indent=None), err=True)
            elif not yes:  # even with --format quiet: nobody says yes to what was not shown
                say(render_update(offer) + "\n")
            else:
                note(state, render_update(offer) + "\n")
            return confirmed(state, question(offer), yes)

        def attempt() -> Endpoint:
            return bring_about(
                spec,
                session=session,
                strategy=strategy,
                alarms=alarms,
                confirm=ask,
                progress=follow,
                unguarded=unguarded or dry_run,
                preflight=lambda made: look_first(state, session, made, skip),
                skip_checks=skip,
            )

        try:
            endpoint = with_guard(state, session, follow, yes, attempt)
        except Declined:
            if dry_run:
                return
            raise
    emit_ready(state, endpoint.name, endpoint.status, session)
