"""Modes that are deployed for a comparison: price, confirmation, deployment, measurement and clean-up.

`compare --modes` and `reproduce` share it, so both show the same price and leave nothing behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from peagle_sm.cli.base import State
from peagle_sm.cli.commands.guard import with_guard
from peagle_sm.cli.commands.planning.plan import refuse_if_needed
from peagle_sm.cli.console import confirmed, follower, show_offer, termination_is_ctrl_c
from peagle_sm.cli.terminal import render_fields, render_table
from peagle_sm.core.errors import Declined, PlanRefused
from peagle_sm.core.words import usd
from peagle_sm.measure import results_file

if TYPE_CHECKING:
    from peagle_sm.aws.session.session import Session
    from peagle_sm.cli.progress import Follower
    from peagle_sm.core.planning import Plan
    from peagle_sm.core.spec.endpoint_spec import EndpointSpec
    from peagle_sm.core.spec.endpoint_spec import Mode as SpecMode
    from peagle_sm.measure.compare.deployments import Round
    from peagle_sm.measure.compare.measurement import Estimate, Setup
    from peagle_sm.measure.results.result_file import Outcome
    from peagle_sm.measure.workloads import Workload

Specs = Sequence[Mapping["SpecMode", "EndpointSpec"]]
"""The spec of each mode, for each deployment."""


def measure_modes(
    state: State,
    session: Session,
    specs: Specs,
    setup: Setup,
    workload: Workload,
    options: Mapping[str, Any],
    config: Mapping[str, Any],
) -> Outcome:
    """Show the price, ask, deploy the modes, measure them in turns and delete them.

    ``options`` are the command's: unguarded, yes, control, seed and out. ``config`` is for the results file.

    Raises:
        PlanRefused: a plan has an error, or a name is in use. Nothing was created.
        Declined: the user did not confirm.
        PeagleError: as in `peagle_sm.measure.compare.run.compare`.
    """
    from peagle_sm.measure.compare.deployments import deployed_rounds, refuse_taken_names
    from peagle_sm.service.inventory.guard_state import require_guard

    if not options["unguarded"]:
        with follower(state) as follow:
            with_guard(state, session, follow, options["yes"], lambda: require_guard(session))
    refuse_taken_names(session, [spec.name for one in specs for spec in one.values()])
    plans = plans_of(specs[0], session)
    found = estimated(plans, specs, setup, options)
    show_offer(state, options["yes"], render_estimate(plans, found), {"plan": estimate_data(plans, found)})
    names = ", ".join(spec.name for spec in specs[0].values())
    if not confirmed(state, f"Deploy {names}, measure them and delete them?", options["yes"]):
        raise Declined("Nothing was deployed: it was not confirmed.", next_step="Run again and confirm.")
    whole = {"modes": list(specs[0]), "deployments": len(specs), **config}
    whole["specs"] = {
        mode: spec.model_dump(mode="json", exclude_unset=True) for mode, spec in specs[0].items()
    }
    with follower(state) as follow:
        rounds = deployed_rounds(specs, session, unguarded=options["unguarded"], progress=follow)
        return run_comparison(state, session, rounds, setup, workload, follow, options, whole)


def plans_of(
    specs: Mapping[SpecMode, EndpointSpec], session: Session, *, account_from_spec: bool = False
) -> list[Plan]:
    """Plan each mode.

    Raises:
        PlanRefused: a plan has an error; the next step names the command's option.
    """
    from peagle_sm.measure.compare.arms import in_terms_of_the_options
    from peagle_sm.service import plan_for

    plans = [plan_for(spec, session, account_from_spec=account_from_spec) for spec in specs.values()]
    for mode, made in zip(specs, plans, strict=True):
        try:
            refuse_if_needed(made)
        except PlanRefused as error:
            raise in_terms_of_the_options(error, mode) from error
    return plans


def estimated(plans: Sequence[Plan], specs: Specs, setup: Setup, options: Mapping[str, Any]) -> Estimate:
    """Estimate time and cost of all deployments, with the A/A control if it is measured."""
    from peagle_sm.measure.compare.measurement import estimate

    return estimate(plans, setup, arms=len(plans) + bool(options["control"]), deployments=len(specs))


def run_comparison(
    state: State,
    session: Session | None,
    rounds: list[Round],
    setup: Setup,
    workload: Workload,
    follow: Follower,
    options: Mapping[str, Any],
    config: Mapping[str, Any],
) -> Outcome:
    """Measure and compare, and write the results file; SIGTERM ends it like Ctrl-C."""
    from peagle_sm.measure.compare.run import CompareDependencies
    from peagle_sm.measure.compare.run import compare as run

    path = options["out"] or results_file("compare")
    every_s = 5.0 if state.format == "json" else 0.5
    around = CompareDependencies.of(session, follow, seed=options["seed"], every_s=every_s)
    with termination_is_ctrl_c():
        return run(rounds, setup, workload, path, around, control=options["control"], config=config)


def render_estimate(plans: Sequence[Plan], found: Estimate) -> str:
    """Render what --modes deploys, and what it is likely to cost."""
    rows = [
        (
            plan.names.endpoint,
            plan.spec.speculation.mode,
            usd(plan.usd_per_hour, "hour"),
        )
        for plan in plans
    ]
    times = "" if found.deployments == 1 else f", {found.deployments} times, one after the other"
    minutes = max(1, round(found.minutes))
    about = f"about {minutes} minute{'' if minutes == 1 else 's'}"
    if minutes > 120:
        about = f"about {minutes / 60:.1f} hours"
    fields = [
        ("deploys", f"all of these at the same time{times}; each is deleted after the measurement"),
        ("price", usd(found.usd_per_hour, "hour") + " for all of them"),
        ("likely", f"{about}, {usd(found.usd)}"),
        ("at most", f"{usd(found.most_usd)}, if all of them run until the end of their lifetime"),
        ("price from", "\n".join(found.price_sources)),
    ]
    return (
        render_table(("endpoint", "mode", "price"), rows, right=("price",)) + "\n\n" + render_fields(fields)
    )


def estimate_data(plans: Sequence[Plan], found: Estimate) -> dict[str, Any]:
    """Return the same data for --format json."""
    return {"endpoints": [plan.names.endpoint for plan in plans], **asdict(found)}
