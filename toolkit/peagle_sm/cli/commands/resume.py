"""`peagle-sm resume`: a paused endpoint comes back, its price shown first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from peagle_sm.cli.confirm import confirmed, need_terminal
from peagle_sm.cli.endpoint_name import endpoint_argument
from peagle_sm.cli.lazy import Command
from peagle_sm.cli.options import global_options
from peagle_sm.cli.output import note, say, to_json
from peagle_sm.cli.state import State

if TYPE_CHECKING:
    from peagle_sm.service import ResumeOffer


@click.command(cls=Command)
@endpoint_argument
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option(
    "--unguarded",
    is_flag=True,
    help="Resume without an installed guard: only the lifetime limit ends what is forgotten.",
)
@global_options
@click.pass_obj
def resume(state: State, name: str, yes: bool, unguarded: bool) -> None:
    """Bring a paused endpoint back and follow it until it serves.

    The price comes first, then a question. Its lifetime begins anew: the schedule that ends it is armed
    before the endpoint. A resume that fails, or that Ctrl-C stops, leaves the endpoint paused. An endpoint
    of a stack is turned on by its stack. Without a stack it needs the guard, as `peagle-sm deploy` does, or
    --unguarded spelled out.
    """
    from peagle_sm.cli.connect import open_session
    from peagle_sm.cli.deploy_result import emit_ready
    from peagle_sm.cli.guard_offer import with_guard
    from peagle_sm.cli.pause_text import render_offer
    from peagle_sm.cli.progress import follower
    from peagle_sm.cli.signals import termination_is_ctrl_c
    from peagle_sm.cli.words import usd
    from peagle_sm.service import resume as bring_back
    from peagle_sm.service import status as read_status

    need_terminal(state, yes, f"peagle-sm status {name}{state.flags}")
    session = open_session(state)
    with termination_is_ctrl_c(), follower(state) as follow:

        def ask(offer: ResumeOffer) -> bool:
            follow.pause()
            if state.format == "json":
                click.echo(to_json({"resume": offer.to_dict()}, indent=None), err=True)
            elif not yes:  # even with --format quiet: nobody says yes to what was not shown
                say(render_offer(offer) + "\n")
            else:
                note(state, render_offer(offer) + "\n")
            return confirmed(state, f"Resume {name} for {usd(offer.usd_per_hour, 'hour')}?", yes)

        def attempt() -> ResumeOffer:
            return bring_back(name, session=session, confirm=ask, progress=follow, unguarded=unguarded)

        offer = with_guard(state, session, follow, yes, attempt)
    if offer.is_on:
        note(state, f"{name} is not paused")
    emit_ready(state, name, lambda: read_status(name, session=session), session)
