"""`peagle-sm deploy` and `update`: create an endpoint from a spec, or change it.

Both show the plan and its price, ask, and follow the endpoint until it is in service. An update is either
in place or stop-and-start.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from peagle_sm.cli.arguments import (
    follower,
    given,
    open_session,
    read_spec,
    spec_argument,
    unguarded_option,
    yes_option,
)
from peagle_sm.cli.base import Command, State, global_options
from peagle_sm.cli.commands.endpoints.status import emit_ready
from peagle_sm.cli.commands.guard import with_guard
from peagle_sm.cli.commands.planning.doctor import skip_option
from peagle_sm.cli.commands.planning.plan import print_dry_run, render_deploy_notes
from peagle_sm.cli.console import asking, emit, need_terminal, note, termination_is_ctrl_c, to_json
from peagle_sm.cli.terminal import render_fields
from peagle_sm.core.errors import Declined
from peagle_sm.core.words import usd, when

if TYPE_CHECKING:
    from peagle_sm.aws.session.session import Session
    from peagle_sm.core.planning import Plan
    from peagle_sm.service import Endpoint, UpdateOffer


@click.command(cls=Command)
@spec_argument
@yes_option
@click.option("--dry-run", is_flag=True, help="Print the exact requests as JSON; create nothing.")
@click.option("--wait/--no-wait", default=True, help="Wait until the endpoint is in service.")
@unguarded_option
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
    skip: tuple[str, ...],
) -> None:
    """Create an endpoint from a spec and wait until it is in service.

    SPEC is a YAML file (default: peagle.yaml; - reads stdin). The command runs the same checks as
    `peagle-sm doctor` and stops if one finds an error. Then it shows the plan with its price and asks for
    confirmation. The schedule that deletes the endpoint at the end of its lifetime is created first.

    The guard turns idle endpoints off and applies their hours. If it is not installed, the command offers to
    install it; with --local it installs it without asking. With --yes on AWS, it must be installed already
    (`peagle-sm guard install`), unless you give --unguarded.

    If the deploy fails, or if you stop it with Ctrl-C, it deletes what it created. After a killed deploy, the
    next one of the same spec continues with the resources that exist. If the endpoint is already in service
    with this spec, nothing is created and you are not asked. To change its spec, use `peagle-sm update`.
    """
    from peagle_sm.core.plan.resolve import DEFAULT_REGION
    from peagle_sm.service import deploy as create
    from peagle_sm.service import plan_for
    from peagle_sm.service.preflight import known_ids

    spec = read_spec(spec_path)
    if not dry_run:
        need_terminal(state, yes, f"peagle-sm plan{given(spec_path)}{state.flags}")
    session = open_session(state, spec.placement.region, DEFAULT_REGION if dry_run else None)
    if dry_run:
        known_ids(skip)
        plan = plan_for(spec, session, without_credentials=True)
        print_dry_run(state, plan, skip)
        return
    states: list[str] = ["absent"]
    with termination_is_ctrl_c(), follower(state) as follow:
        ask: Callable[[Plan], bool] = asking(
            state, yes, "plan", str, lambda plan: question(states[-1], plan), before=follow.pause
        )

        def attempt() -> Endpoint:
            return create(
                spec,
                session=session,
                confirm=ask,
                progress=follow,
                wait=wait,
                unguarded=unguarded,
                preflight=lambda plan: check_first(state, session, plan, skip),
                skip_checks=skip,
                surveyed=lambda endpoint: states.append(endpoint.state),
            )

        endpoint = with_guard(state, session, follow, yes, attempt)
    emit_ready(state, endpoint.name, endpoint.status, session)


def check_first(state: State, session: Session, plan: Plan, skip: tuple[str, ...]) -> None:
    """Run the preflight checks; print warnings, unknown and skipped checks on stderr."""
    from peagle_sm.service.preflight import require_preflight, results_data

    results = require_preflight(session, plan, skip=skip)
    notable = [result for result in results if result.status in ("warning", "unknown", "skipped")]
    if not notable:
        return
    if state.format == "json":
        click.echo(to_json({"preflight": results_data(notable)}, indent=None), err=True)
    else:
        note(state, render_deploy_notes(notable) + "\n")


def _hourly(plan: Plan) -> str:
    return usd(plan.usd_per_hour, "hour", at_most=plan.price_at_most)


def question(state: str, plan: Plan) -> str:
    """Return the confirmation prompt for the state of an endpoint with this name."""
    name = plan.names.endpoint
    price = " (price unknown)" if plan.usd_per_hour is None else f" for {_hourly(plan)}"
    questions = {
        "creating": f"An earlier run began to create {name}. Continue{price}?",
        "failed": f"{name} has failed. Delete it and create it again{price}?",
        "leaving": f"{name} is being deleted. Create it again afterwards{price}?",
    }
    if state in ("live", "settling"):
        return f"{name} is in service with this spec, but has no lifetime schedule. Create the schedule?"
    return questions.get(state, f"Create {name}{price}?")


@click.command(cls=Command)
@spec_argument
@click.option("--dry-run", is_flag=True, help="Show what would change and what that costs; change nothing.")
@yes_option
@click.option(
    "--strategy",
    type=click.Choice(("in-place", "off-update-on")),
    help="How to replace the instances; see above.  [default: the spec's update]",
)
@click.option(
    "--alarm",
    "alarms",
    multiple=True,
    metavar="NAME",
    help="Also roll back an in-place update on this CloudWatch alarm of yours. May be repeated.",
)
@unguarded_option
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
    """Update an endpoint to its spec as it is now.

    SPEC is a YAML file (default: peagle.yaml; - reads stdin). The command shows what differs and what the
    update costs, then asks for confirmation. The lifetime starts again. If only tags differ (idle minutes,
    hours, budget), no instance is started. If an update was killed, run it again to continue it.

    in-place starts a second fleet beside the first; you pay for both until the new one is in service.
    Requests are answered throughout. If the new engine does not start, or an alarm goes off, SageMaker rolls
    back: the old config stays in service, and the command ends with exit code 7.

    off-update-on pauses the endpoint and starts it with the new spec. It is not in service meanwhile. If the
    start fails, `peagle-sm resume` starts the old config.
    """
    from peagle_sm.service import update as bring_about

    spec = read_spec(spec_path)
    need_terminal(state, yes or dry_run, f"peagle-sm update{given(spec_path)} --dry-run{state.flags}")
    session = open_session(state, spec.placement.region)
    with termination_is_ctrl_c(), follower(state) as follow:

        def ask(offer: UpdateOffer) -> bool:
            if dry_run:
                follow.pause()
                emit(
                    state,
                    table=lambda: render_update(offer),
                    data=offer.to_dict,
                    names=[change.field for change in offer.changes],
                )
                return False
            return asking(state, yes, "update", render_update, update_question, before=follow.pause)(offer)

        def attempt() -> Endpoint:
            return bring_about(
                spec,
                session=session,
                strategy=strategy,
                alarms=alarms,
                confirm=ask,
                progress=follow,
                unguarded=unguarded or dry_run,
                preflight=lambda plan: check_first(state, session, plan, skip),
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
    """Render the changes, the strategy, its cost, and the new end of the lifetime."""
    changes = [
        f"{change.field}: {_short(change.before)} -> {_short(change.after)}" for change in offer.changes
    ]
    fields = [
        (
            "update",
            f"{offer.name}: config {offer.old_config} -> {offer.config}" if offer.fleet else offer.name,
        ),
        ("changes", "\n".join(changes) or "no field of the spec"),
        ("how", _how(offer)),
        ("canary", _canary(offer)),
        ("price", f"{usd(offer.usd_per_hour, 'hour')} afterwards ({offer.price_source})"),
        ("meanwhile", _meanwhile(offer)),
        ("rollback on", _rollback_alarms(offer)),
        ("lifetime", _lifetime(offer)),
    ]
    return render_fields([(name, value) for name, value in fields if value])


def update_question(offer: UpdateOffer) -> str:
    """Return the confirmation prompt of an update."""
    if not offer.fleet:
        return f"Update {offer.name}?"
    stops = "" if offer.strategy == "in-place" else " It is not in service meanwhile."
    return f"Update {offer.name} {offer.strategy}?{stops}"


def _short(value: str | None) -> str:
    if value is None:
        return "(none)"
    return value if len(value) <= _LONGEST_VALUE else value[: _LONGEST_VALUE - 1] + "…"


def _how(offer: UpdateOffer) -> str:
    if not offer.fleet:
        return "tags and lifetime only: nothing is started"
    if offer.strategy == "in-place":
        return "in-place: a second fleet starts; the first one serves until the second is in service"
    if offer.is_off:
        return "off-update-on: it is already off, and starts with the new config"
    return "off-update-on: it is turned off, and is not in service until the new config is"


def _canary(offer: UpdateOffer) -> str:
    if offer.canary is None:
        return ""
    return (
        f"{offer.canary.percent}% of the second fleet, at least one instance, serves first for"
        f" {offer.canary.seconds / 60:g} min"
    )


def _meanwhile(offer: UpdateOffer) -> str:
    if not offer.second_fleet_hours:
        return ""
    price = usd(offer.second_fleet_usd_per_hour, "hour")
    most = ""
    if offer.second_fleet_usd_per_hour is not None:
        most = f" or {usd(offer.second_fleet_usd_per_hour * offer.second_fleet_hours)}"
    return f"{price} extra while both fleets run (at most {offer.second_fleet_hours:g} h{most})"


def _rollback_alarms(offer: UpdateOffer) -> str:
    if not offer.alarms:
        return ""
    # AWS's guide, "Auto-rollback configuration and monitoring".
    rights = "the execution role needs cloudwatch:DescribeAlarms; the guard's role has it"
    return f"alarm {', '.join(offer.alarms)} ({rights})"


def _lifetime(offer: UpdateOffer) -> str:
    before = f" (before: {when(offer.expired_at)})" if offer.expired_at else ""
    return f"deleted at {when(offer.expires_at)} even if in use{before}"
