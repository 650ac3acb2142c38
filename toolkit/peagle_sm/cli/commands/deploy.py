"""`peagle-sm deploy`: show the plan and its price, ask, create, and follow until the endpoint serves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from peagle_sm.cli.commands.doctor import skip_option
from peagle_sm.cli.confirm import confirmed, need_terminal
from peagle_sm.cli.lazy import Command
from peagle_sm.cli.options import global_options
from peagle_sm.cli.output import note, say, to_json
from peagle_sm.cli.spec_file import given, read_spec, spec_argument
from peagle_sm.cli.state import State

if TYPE_CHECKING:
    from peagle_sm.aws.session.session import Session
    from peagle_sm.core.plan.plan import Plan
    from peagle_sm.service import Endpoint


@click.command(cls=Command)
@spec_argument
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Print the exact requests as JSON, and create nothing.")
@click.option("--wait/--no-wait", default=True, help="Follow until the endpoint serves.  [default: wait]")
@click.option(
    "--unguarded",
    is_flag=True,
    help="Deploy without an installed guard: only the lifetime limit ends what is forgotten.",
)
@click.option("--verbose", "-v", is_flag=True, help="List each override of the local engine at the end.")
@skip_option
@global_options
@click.pass_obj
def deploy(
    state: State,
    spec_path: Path,
    yes: bool,
    dry_run: bool,
    wait: bool,
    unguarded: bool,
    verbose: bool,
    skip: tuple[str, ...],
) -> None:
    """Create the endpoint of a spec and follow it until it serves.

    SPEC is a YAML file (default: peagle.yaml; - reads stdin). The plan and its price come first, then a
    question. The schedule that deletes the endpoint at the end of its lifetime is made before the endpoint.
    The guard turns idle endpoints off and keeps their hours. Where it is not installed, the command offers to
    install it; --local installs it without a question. With --yes on AWS it must be installed already
    (`peagle-sm guard install`), or --unguarded spelled out.
    Before the question comes the preflight, as `peagle-sm doctor` shows it: nothing is made where it finds
    an error; --skip-check leaves one out.
    A deploy that fails, or that Ctrl-C stops, is cleaned up; what a killed one left is adopted by the next
    deploy of the same spec. Where the endpoint is in service with this spec already, nothing is created, and
    nothing is asked; `peagle-sm update` brings it to another spec.
    """
    from peagle_sm.cli.commands.plan import print_requests, refuse_if_needed
    from peagle_sm.cli.connect import open_session
    from peagle_sm.cli.deploy_result import emit_ready
    from peagle_sm.cli.guard_offer import with_guard
    from peagle_sm.cli.progress import follower
    from peagle_sm.cli.signals import termination_is_ctrl_c
    from peagle_sm.service import deploy as create
    from peagle_sm.service import plan_for
    from peagle_sm.service.planning.preflight import known_ids

    spec = read_spec(spec_path)
    if not dry_run:
        need_terminal(state, yes, f"peagle-sm plan{given(spec_path)}{state.flags}")
    session = open_session(state, spec.placement.region)
    if dry_run:
        known_ids(skip)
        made = plan_for(spec, session, account_from_spec=True)
        print_requests(made)
        refuse_if_needed(made, skip=skip)
        return
    states: list[str] = ["absent"]
    with termination_is_ctrl_c(), follower(state) as follow:

        def ask(made: Plan) -> bool:
            follow.pause()
            _show_plan(state, made, asked=not yes)
            return confirmed(state, question(states[-1], made), yes)

        def attempt() -> Endpoint:
            return create(
                spec,
                session=session,
                confirm=ask,
                progress=follow,
                wait=wait,
                unguarded=unguarded,
                preflight=lambda made: look_first(state, session, made, skip),
                skip_checks=skip,
                surveyed=lambda found: states.append(found.state),
            )

        endpoint = with_guard(state, session, follow, yes, attempt)
    emit_ready(state, endpoint.name, endpoint.status, session, verbose)


def look_first(state: State, session: Session, made: Plan, skip: tuple[str, ...]) -> None:
    """Look before anything is made; what is not in order but does not refuse is told on stderr."""
    from peagle_sm.cli.preflight_text import render_deploy_notes
    from peagle_sm.service.planning.preflight import require_preflight, results_data

    results = require_preflight(session, made, skip=skip)
    told = [each for each in results if each.status in ("warning", "unknown", "skipped")]
    if not told:
        return
    if state.format == "json":
        click.echo(to_json({"preflight": results_data(told)}, indent=None), err=True)
    else:
        note(state, render_deploy_notes(told) + "\n")


def _show_plan(state: State, made: Plan, asked: bool) -> None:
    from peagle_sm.cli.plan_text import plan_data, render_plan

    if state.format == "json":
        click.echo(to_json({"plan": plan_data(made)}, indent=None), err=True)
    elif asked:  # even with --format quiet: nobody says yes to what was not shown
        say(render_plan(made) + "\n")
    else:
        note(state, render_plan(made) + "\n")


def question(found: str, made: Plan) -> str:
    """What a deploy will do, given the state of the endpoint under the name."""
    name, price = made.names.endpoint, _price_words(made)
    questions = {
        "creating": f"Go on with {name}, which an earlier run began to create,{price}?",
        "failed": f"Delete {name}, which has failed, and create it again{price}?",
        "leaving": f"Create {name} again{price}, once its deletion is over?",
    }
    if found in ("live", "settling"):
        return f"{name} is in service with this spec, without a lifetime limit. Arm one?"
    return questions.get(found, f"Create {name}{price}?")


def _price_words(made: Plan) -> str:
    from peagle_sm.cli.words import usd

    return f" for {usd(made.usd_per_hour, 'hour')}" if made.usd_per_hour is not None else " (price unknown)"
