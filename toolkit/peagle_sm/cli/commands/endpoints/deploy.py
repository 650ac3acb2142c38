"""`peagle-sm deploy` and `update`: create an endpoint from its spec, or change it.

Both show the plan and its price, ask, and follow the endpoint until it is in service. An update is either
in place or stop-and-start.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from peagle_sm.cli.arguments import given, read_spec, spec_argument
from peagle_sm.cli.base import Command, State, global_options
from peagle_sm.cli.commands.planning.doctor import skip_option
from peagle_sm.cli.console import confirmed, emit, need_terminal, note, say, to_json
from peagle_sm.cli.endpoint_status import when
from peagle_sm.cli.terminal import render_fields
from peagle_sm.core.words import usd

if TYPE_CHECKING:
    from peagle_sm.aws.session.session import Session
    from peagle_sm.core.plan.payloads import Change
    from peagle_sm.core.plan.plan import Plan
    from peagle_sm.service import Endpoint, UpdateOffer


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
    from peagle_sm.cli.arguments import open_session
    from peagle_sm.cli.commands.guard import with_guard
    from peagle_sm.cli.commands.planning.plan import print_requests, refuse_if_needed
    from peagle_sm.cli.console import termination_is_ctrl_c
    from peagle_sm.cli.endpoint_status import emit_ready
    from peagle_sm.cli.progress import follower
    from peagle_sm.service import deploy as create
    from peagle_sm.service import plan_for
    from peagle_sm.service.preflight import known_ids

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
    from peagle_sm.cli.commands.planning.plan import render_deploy_notes
    from peagle_sm.service.preflight import require_preflight, results_data

    results = require_preflight(session, made, skip=skip)
    told = [each for each in results if each.status in ("warning", "unknown", "skipped")]
    if not told:
        return
    if state.format == "json":
        click.echo(to_json({"preflight": results_data(told)}, indent=None), err=True)
    else:
        note(state, render_deploy_notes(told) + "\n")


def _show_plan(state: State, made: Plan, asked: bool) -> None:
    from peagle_sm.cli.commands.planning.rendering import plan_data, render_plan

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
    from peagle_sm.core.words import usd

    return f" for {usd(made.usd_per_hour, 'hour')}" if made.usd_per_hour is not None else " (price unknown)"


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
    from peagle_sm.cli.arguments import open_session
    from peagle_sm.cli.commands.guard import with_guard
    from peagle_sm.cli.console import termination_is_ctrl_c
    from peagle_sm.cli.endpoint_status import emit_ready
    from peagle_sm.cli.progress import follower
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
            return confirmed(state, update_question(offer), yes)

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


_LONGEST_VALUE = 60


def render_update(offer: UpdateOffer) -> str:
    """What differs, what the way there costs, and the new end of its life."""
    changed = "\n".join(_change(one) for one in offer.changes) or "nothing that the spec names"
    fields = [
        (
            "update",
            f"{offer.name}: config {offer.old_config} -> {offer.config}" if offer.fleet else offer.name,
        ),
        ("changes", changed),
        ("how", _how(offer)),
        ("price", f"{usd(offer.usd_per_hour, 'hour')} afterwards ({offer.price_source})"),
        ("meanwhile", _meanwhile(offer)),
        ("undone by", _undone_by(offer)),
        ("lifetime", _lifetime(offer)),
    ]
    return render_fields([(name, value) for name, value in fields if value])


def update_question(offer: UpdateOffer) -> str:
    """What is asked."""
    if not offer.fleet:
        return f"Update {offer.name}?"
    stops = "" if offer.strategy == "in-place" else " It does not answer meanwhile."
    return f"Update {offer.name} {offer.strategy}?{stops}"


def _change(one: Change) -> str:
    return f"{one.field}: {_short(one.before)} -> {_short(one.after)}"


def _short(value: str | None) -> str:
    if value is None:
        return "(none)"
    return value if len(value) <= _LONGEST_VALUE else value[: _LONGEST_VALUE - 1] + "…"


def _how(offer: UpdateOffer) -> str:
    if not offer.fleet:
        return "tags and lifetime only: nothing is started"
    if offer.strategy == "in-place":
        return "in-place: a second fleet beside the first, which serves until the new one does"
    if offer.is_off:
        return "off-update-on: it is off already, and starts with the new config"
    return "off-update-on: it is turned off, and does not serve until the new config does"


def _meanwhile(offer: UpdateOffer) -> str:
    if not offer.second_fleet_hours:
        return ""
    price = usd(offer.second_fleet_usd_per_hour, "hour")
    most = ""
    if offer.second_fleet_usd_per_hour is not None:
        most = f", at most {usd(offer.second_fleet_usd_per_hour * offer.second_fleet_hours)}"
    return f"{price} on top while both fleets run ({offer.second_fleet_hours:g} h at the most{most})"


def _undone_by(offer: UpdateOffer) -> str:
    if not offer.alarms:
        return ""
    # AWS's guide, "Auto-rollback configuration and monitoring".
    rights = "the execution role needs cloudwatch:DescribeAlarms; the guard's has it"
    return f"alarm {', '.join(offer.alarms)} ({rights})"


def _lifetime(offer: UpdateOffer) -> str:
    before = f", before: {when(offer.expired_at)}" if offer.expired_at else ""
    return f"deleted at {when(offer.expires_at)} whatever happens{before}"
