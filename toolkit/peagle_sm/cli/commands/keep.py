"""`peagle-sm keep`: an endpoint stays for a while, idle or not; its end and its price are shown first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from peagle_sm.cli.confirm import confirmed
from peagle_sm.cli.endpoint_name import complete_endpoint, name_from_spec
from peagle_sm.cli.lazy import Command
from peagle_sm.cli.options import global_options
from peagle_sm.cli.output import emit, note, say, to_json
from peagle_sm.cli.state import State

if TYPE_CHECKING:
    from datetime import timedelta

    from peagle_sm.service import Lease


@click.command(cls=Command)
@click.argument("words", nargs=-1, metavar="[NAME] DURATION", shell_complete=complete_endpoint)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@global_options
@click.pass_context
def keep(ctx: click.Context, words: tuple[str, ...], yes: bool) -> None:
    """Keep an endpoint for a while, idle or not, and move the end of its life.

    DURATION counts from now: 90m, 2h, 1d. The guard does not turn the endpoint off for being idle, or at the
    end of its hours, before then; where its lifetime would end earlier, the schedules that end it move too.
    Nothing is shortened. The budget holds all the same. For work that begins again and again, renew it.
    Without NAME it is the endpoint of ./peagle.yaml.
    """
    from peagle_sm.cli.connect import open_session
    from peagle_sm.cli.pause_text import render_kept, render_lease
    from peagle_sm.service import keep as renew

    state = ctx.ensure_object(State)
    if not 1 <= len(words) <= 2:
        raise click.UsageError(f"found {len(words)} arguments; allowed: [NAME] DURATION.", ctx=ctx)
    wanted = _length(words[-1])
    name = words[0] if len(words) == 2 else name_from_spec(ctx)
    session = open_session(state)

    def ask(lease: Lease) -> bool:
        if state.format == "json":
            click.echo(to_json({"keep": lease.to_dict()}, indent=None), err=True)
        elif not yes:  # even with --format quiet: nobody says yes to what was not shown
            say(render_lease(lease) + "\n")
        else:
            note(state, render_lease(lease) + "\n")
        return confirmed(state, f"Keep {name}?", yes)

    lease = renew(name, wanted, session=session, confirm=ask)
    emit(state, table=lambda: render_kept(lease), data=lease.to_dict, names=[name])


def _length(text: str) -> timedelta:
    from datetime import timedelta

    from peagle_sm.cli.words import parse_duration

    try:
        return timedelta(seconds=parse_duration(text))
    except (ValueError, OverflowError) as error:
        raise click.BadParameter(str(error), param_hint="DURATION") from error
