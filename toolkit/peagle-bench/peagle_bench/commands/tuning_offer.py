"""What both kinds of `tune` do before they measure: the price, the question, the guard."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from peagle_sm.cli.arguments import follower
from peagle_sm.cli.base import State
from peagle_sm.cli.commands.guard import with_guard
from peagle_sm.cli.console import confirmed, note, termination_is_ctrl_c, to_json
from peagle_sm.core.errors import Declined

if TYPE_CHECKING:
    from peagle_bench.tune.estimate import Estimate
    from peagle_sm.aws.session.session import Session
    from peagle_sm.cli.progress import Follower
    from peagle_sm.core.planning import Plan

Result = TypeVar("Result")


def run_offered(
    state: State,
    session: Session,
    options: Mapping[str, Any],
    plans: Mapping[str, Plan],
    cost: Estimate,
    before: Callable[[str], str],
    declined: Declined,
    run: Callable[[Follower, float], Result],
) -> Result | None:
    """Show the price, ask and run; with --dry-run print the requests, and return None.

    ``before`` renders what will be measured, from the source of the price. ``run`` gets the follower and the
    least seconds between two of its events.

    Raises:
        PlanRefused: a plan has an error.
        Declined: ``declined``, if it was not confirmed.
    """
    from peagle_sm.service.inventory.guard_state import require_guard

    for plan in plans.values():
        plan.refuse_errors()
    if options["dry_run"]:
        requests = {arm: [vars(request) for request in plan.requests] for arm, plan in plans.items()}
        click.echo(to_json(requests))
        return None
    note(state, before(next(iter(plans.values())).price_source) + "\n")
    if not confirmed(state, f"Continue ({cost.words()})?", options["yes"]):
        raise declined
    with termination_is_ctrl_c(), follower(state) as follow:
        if not options["unguarded"]:
            with_guard(state, session, follow, options["yes"], lambda: require_guard(session))
        return run(follow, 5.0 if state.format == "json" else 0.5)
