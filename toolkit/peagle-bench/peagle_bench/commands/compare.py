"""`peagle-sm compare`: which endpoint is faster, and is that significant.

With --modes it deploys the modes of a spec: price, confirmation, deployment, measurement and clean-up.
`reproduce` shares that, so both show the same price and leave nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from peagle_bench import results_file
from peagle_bench.commands.options import (
    FILE,
    Numbers,
    api_option,
    chosen_slices,
    chosen_workload,
    first_turn_option,
    max_tokens_option,
    render_slices,
    repeat_option,
    slices_data,
    slices_option,
    temperature_option,
    workload_file_option,
    workload_option,
)
from peagle_bench.commands.packs import (
    checked_packs,
    context_option,
    expected_setup,
    failure_of,
    packs_data,
    packs_option,
    refuse_context_alone,
    refuse_without_baseline,
    render_packs,
    run_chosen,
)
from peagle_sm.cli.arguments import follower, open_session, read_spec
from peagle_sm.cli.base import Command, State, global_options
from peagle_sm.cli.commands.guard import with_guard
from peagle_sm.cli.commands.planning.plan import refuse_if_needed
from peagle_sm.cli.console import confirmed, emit, show_offer, termination_is_ctrl_c
from peagle_sm.cli.terminal import STAND_IN, render_fields, render_table, show
from peagle_sm.core.errors import Declined, PlanRefused, SpecError
from peagle_sm.core.words import usd

if TYPE_CHECKING:
    from peagle_bench.compare.deployments import Round
    from peagle_bench.compare.measurement import Estimate, Setup
    from peagle_bench.results.result_file import Outcome
    from peagle_bench.workloads import Workload
    from peagle_sm.aws.session.session import Session
    from peagle_sm.cli.progress import Follower
    from peagle_sm.core.planning import Plan
    from peagle_sm.core.spec.endpoint_spec import EndpointSpec
    from peagle_sm.core.spec.endpoint_spec import Mode as SpecMode


@click.command(cls=Command)
@click.argument("arms", metavar="[ARM…]", nargs=-1)
@click.option("--modes", metavar="LIST", help="Deploy these modes of --spec, measure and delete them.")
@click.option("--spec", "spec_path", type=FILE, help="Spec for --modes.  [default: peagle.yaml]")
@click.option(
    "--deployments",
    type=click.IntRange(min=1, max=20),
    help="With --modes: number of times to deploy each mode, for intervals over deployments.  [default: 1]",
)
@click.option(
    "--k", "ks", metavar="MODE=K", multiple=True, help="num_speculative_tokens of a mode. May be repeated."
)
@click.option(
    "--head", "heads", metavar="MODE=ID", multiple=True, help="Draft head of a mode. May be repeated."
)
@click.option(
    "--head-uri",
    "head_uris",
    metavar="MODE=S3URI",
    multiple=True,
    help="S3 prefix of a mode's draft head. May be repeated.",
)
@packs_option
@context_option
@workload_option
@workload_file_option
@click.option(
    "--prompts", type=click.IntRange(min=2), help="Number of prompts of the workload.  [default: all]"
)
@click.option(
    "--concurrency",
    type=Numbers(whole=True),
    default="1",
    help="Requests in flight. At 1 the arms are paired by prompt, above 1 by blocks of time.",
)
@click.option(
    "--blocks", type=click.IntRange(min=2), default=6, help="Number of time blocks above concurrency 1."
)
@repeat_option
@max_tokens_option
@temperature_option
@api_option
@first_turn_option
@slices_option
@click.option(
    "--control/--no-control",
    default=True,
    help="Also compare the first arm with itself (A/A test); the ratio should be 1.",
)
@click.option("--seed", type=int, default=0, help="Seed for prompts and their order.")
@click.option("--out", "-o", type=FILE, help="Results file.  [default: results/compare-TIME.jsonl]")
@click.option("--unguarded", is_flag=True, help="With --modes: deploy without an installed guard.")
@click.option("--yes", "-y", is_flag=True, help="With --modes: do not ask for confirmation.")
@global_options
@click.pass_obj
def compare(state: State, /, arms: tuple[str, ...], **options: Any) -> None:
    """Compare the speed of endpoints, or of one spec's modes; test for significance.

    ARM is an endpoint's name, NAME/COMPONENT, or the http(s) URL of a vLLM server. LABEL=ARM gives it a name;
    if the label is a mode, the arm must run in that mode. ARM,ARM are several deployments of one arm. All
    arms run at the same time and take turns: prompt by prompt at concurrency 1, in time blocks in ABBA order
    above. Each ratio has a 95% confidence interval. If the interval contains 1, the result is "no significant
    difference".

    With --modes none,eagle3,p-eagle, the command shows the price, deploys the modes from a spec, and deletes
    them at the end, also after an error. Use the best K of each mode (--k), chosen with other prompts.
    """
    if options["packs"] is None:
        refuse_context_alone(options)
    else:
        checked_packs(options)  # before anything is deployed
    outcome = _deployed(state, arms, options) if options["modes"] else _existing(state, arms, options)
    if options["packs"] is not None:
        emit(
            state,
            table=lambda: render_packs(outcome),
            data=lambda: packs_data(outcome),
            names=[str(outcome.path)],
        )
        if (failed := failure_of(outcome.results.packs, outcome.path)) is not None:
            raise failed
        return
    emit(
        state,
        table=lambda: render_outcome(outcome),
        data=lambda: outcome_data(outcome),
        names=[str(outcome.path)],
    )


def _existing(state: State, texts: tuple[str, ...], options: dict[str, Any]) -> Outcome:
    from peagle_bench.compare.arms import parse_arms
    from peagle_bench.compare.deployments import existing_rounds
    from peagle_bench.workloads import few_conversations
    from peagle_sm.service.progress import Event

    _refuse_options_of_modes(options)
    arms = parse_arms(texts)
    measured: tuple[Setup, Workload] | None = None
    if options["packs"] is None:
        workload = chosen_workload(state, options)
        measured = _setup(workload, options), workload
    opened: list[Session] = []

    def session() -> Session:
        if not opened:
            opened.append(open_session(state))
        return opened[0]

    rounds = existing_rounds(arms, session)
    reached = opened[0] if opened else None
    run = (
        run_chosen(state, reached, options)
        if measured is None
        else comparing(state, reached, *measured, options)
    )
    config = {"arms": list(texts)} if measured is None else {"arms": list(texts), **_settings(options)}
    with follower(state) as follow:
        if measured is not None and (note := few_conversations(measured[0].items)) is not None:
            follow(Event("check", note))
        return run(rounds, follow, config)


def _deployed(state: State, texts: tuple[str, ...], options: dict[str, Any]) -> Outcome:
    from peagle_bench.compare.arms import parse_modes

    if texts:
        raise SpecError(
            f"--modes deploys the arms, but arms were given too: {' '.join(texts)}",
            next_step="Give either endpoints to compare, or --modes with --spec.",
        )
    if options["packs"] is not None:
        refuse_without_baseline(parse_modes(options["modes"]))
    base = read_spec(options["spec_path"] or Path("peagle.yaml"))
    specs = _specs(base, options)
    if options["packs"] is not None:
        session = open_session(state, base.placement.region)
        run = run_chosen(state, session, options)
        alone = {**options, "control": False}
        return measure_modes(state, session, specs, expected_setup(base, options), run, alone, {})
    workload = chosen_workload(state, options)
    setup = _setup(workload, options)
    session = open_session(state, base.placement.region)
    run = comparing(state, session, setup, workload, options)
    return measure_modes(state, session, specs, setup, run, options, _settings(options))


def _refuse_options_of_modes(options: dict[str, Any]) -> None:
    names = ("spec_path", "deployments", "ks", "heads", "head_uris", "unguarded")
    alone = [name for name in names if options[name]]
    if alone:
        flags = {"spec_path": "--spec", "ks": "--k", "heads": "--head", "head_uris": "--head-uri"}
        raise SpecError(
            f"{', '.join(flags.get(name, '--' + name) for name in alone)}: allowed only with --modes",
            next_step="Add --modes, for example --modes none,p-eagle, or leave the option out.",
        )


def _specs(base: EndpointSpec, options: dict[str, Any]) -> list[dict[SpecMode, EndpointSpec]]:
    from peagle_bench.compare.arms import parse_by_mode, parse_ks, parse_modes, specs_of

    modes = parse_modes(options["modes"])
    ks = parse_ks(options["ks"], modes)
    heads = parse_by_mode("--head", options["heads"], modes)
    uris = parse_by_mode("--head-uri", options["head_uris"], modes)
    return [
        specs_of(base, modes, ks=ks, heads=heads, head_uris=uris, deployment=number)
        for number in range(1, (options["deployments"] or 1) + 1)
    ]


def _setup(workload: Workload, options: dict[str, Any]) -> Setup:
    from peagle_bench.compare.measurement import Setup
    from peagle_bench.results.records import Load

    setup = Setup(
        items=workload.items,
        loads=tuple(Load("closed", concurrency=number) for number in options["concurrency"]),
        blocks=options["blocks"],
        repeat=options["repeat"],
        temperature=workload.temperature,
        slices=chosen_slices(options, workload),
    )
    setup.check()
    return setup


def _settings(options: dict[str, Any]) -> dict[str, Any]:
    return {name: options[name] for name in ("seed", "max_tokens", "temperature", "api", "first_turn_only")}


def render_outcome(outcome: Outcome) -> str:
    """Render the arms, the ratios of all pairs, the ratios by category, and notes."""
    from peagle_bench.report import outcomes

    results = outcome.results
    controls = {arm.name for arm in results.arms if arm.control}
    shown = [one for one in results.points if one.arm not in controls]
    star = "\n(* uncertain: see the note)" if outcomes.is_uncertain(shown) else ""
    texts = {outcomes.temperature_text(point.temperature) for point in results.points}
    legend = (
        "(95% confidence intervals; ratio = acceptance x step time; a factor above 1 favours the first arm; "
        f"temperature {', '.join(sorted(texts))})"
    )
    parts = [
        show(outcomes.arms(results, shown)) + star,
        f"{show(outcomes.ratios(results))}\n{legend}",
        render_slices(results),
        "\n".join(f"note: {note}" for note in _notes(outcome)),
        f"results: {outcome.path}",
    ]
    return "\n\n".join(part for part in parts if part)


def _notes(outcome: Outcome) -> list[str]:
    return [*outcome.notes, *([STAND_IN] if outcome.results.header.stand_in_weights else [])]


def outcome_data(outcome: Outcome) -> dict[str, Any]:
    """Return the same data for --format json."""
    from peagle_bench.load.points import separate_withheld
    from peagle_bench.report.outcomes import verdict
    from peagle_bench.results.result_file import encode

    results = outcome.results
    found = separate_withheld(results.points, results.comparisons)
    return {
        "file": str(outcome.path),
        "stand_in_weights": results.header.stand_in_weights,
        "arms": [encode(arm) for arm in results.arms],
        "points": [encode(point) for point in found.points],
        "comparisons": [
            {**encode(comparison), "shown": comparison.significant, "verdict": verdict(comparison)}
            for comparison in found.comparisons
        ],
        "withheld": [
            {"faster": one.faster, "slower": one.slower, "load": encode(one.load)}
            for one in found.withheld_comparisons
        ],
        "slices": slices_data(results),
        "notes": list(outcome.notes),
    }


Specs = Sequence[Mapping["SpecMode", "EndpointSpec"]]
"""The spec of each mode, for each deployment."""
Run = Callable[[list["Round"], "Follower", Mapping[str, Any]], "Outcome"]
"""Measures the rounds and writes the results file, whose config is the mapping."""


def measure_modes(
    state: State,
    session: Session,
    specs: Specs,
    setup: Setup,
    run: Run,
    options: Mapping[str, Any],
    config: Mapping[str, Any],
) -> Outcome:
    """Show the price, ask, deploy the modes, measure them with ``run`` and delete them.

    ``setup`` is for the estimate. ``options`` are the command's: unguarded, yes, control, seed and out.
    ``config`` is for the results file.

    Raises:
        PlanRefused: a plan has an error, or a name is in use. Nothing was created.
        Declined: the user did not confirm.
        PeagleError: as in `peagle_bench.compare.run.compare`.
    """
    from peagle_bench.compare.deployments import deployed_rounds, refuse_taken_names
    from peagle_bench.workloads import few_conversations
    from peagle_sm.service.inventory.guard_state import require_guard

    if not options["unguarded"]:
        with follower(state) as follow:
            with_guard(state, session, follow, options["yes"], lambda: require_guard(session))
    refuse_taken_names(session, [spec.name for one in specs for spec in one.values()])
    plans = plans_of(specs[0], session)
    found = estimated(plans, specs, setup, options)
    note = None if options.get("packs") else few_conversations(setup.items)
    show_offer(
        state,
        options["yes"],
        render_estimate(plans, found, note),
        {"plan": {**estimate_data(plans, found), "note": note}},
    )
    names = ", ".join(spec.name for spec in specs[0].values())
    if not confirmed(state, f"Deploy {names}, measure them and delete them?", options["yes"]):
        raise Declined("Nothing was deployed: it was not confirmed.", next_step="Run again and confirm.")
    whole = {"modes": list(specs[0]), "deployments": len(specs), **config}
    whole["specs"] = {
        mode: spec.model_dump(mode="json", exclude_unset=True) for mode, spec in specs[0].items()
    }
    with follower(state) as follow:
        rounds = deployed_rounds(specs, session, unguarded=options["unguarded"], progress=follow)
        return run(rounds, follow, whole)


def plans_of(
    specs: Mapping[SpecMode, EndpointSpec], session: Session, *, without_credentials: bool = False
) -> list[Plan]:
    """Plan each mode.

    Raises:
        PlanRefused: a plan has an error; the next step names the command's option.
    """
    from peagle_bench.compare.arms import in_terms_of_the_options
    from peagle_sm.service import plan_for

    plans = [plan_for(spec, session, without_credentials=without_credentials) for spec in specs.values()]
    for mode, made in zip(specs, plans, strict=True):
        try:
            refuse_if_needed(made)
        except PlanRefused as error:
            raise in_terms_of_the_options(error, mode) from error
    return plans


def estimated(plans: Sequence[Plan], specs: Specs, setup: Setup, options: Mapping[str, Any]) -> Estimate:
    """Estimate time and cost of all deployments, with the A/A control if it is measured."""
    from peagle_bench.compare.measurement import estimate

    return estimate(plans, setup, arms=len(plans) + bool(options["control"]), deployments=len(specs))


def comparing(
    state: State, session: Session | None, setup: Setup, workload: Workload, options: Mapping[str, Any]
) -> Run:
    """Return the run of a comparison; SIGTERM ends it like Ctrl-C."""
    from peagle_bench.compare.run import CompareDependencies
    from peagle_bench.compare.run import compare as compared

    def run(rounds: list[Round], follow: Follower, config: Mapping[str, Any]) -> Outcome:
        path = options["out"] or results_file("compare")
        every_s = 5.0 if state.format == "json" else 0.5
        around = CompareDependencies.of(session, follow, seed=options["seed"], every_s=every_s)
        with termination_is_ctrl_c():
            return compared(rounds, setup, workload, path, around, control=options["control"], config=config)

    return run


def render_estimate(plans: Sequence[Plan], estimate: Estimate, note: str | None = None) -> str:
    """Render what --modes deploys, what it is likely to cost, and what the prompts cannot show."""
    rows = [
        (
            plan.names.endpoint,
            plan.spec.speculation.mode,
            usd(plan.usd_per_hour, "hour"),
        )
        for plan in plans
    ]
    times = "" if estimate.deployments == 1 else f", {estimate.deployments} times, one after the other"
    minutes = max(1, round(estimate.minutes))
    about = f"about {minutes} minute{'' if minutes == 1 else 's'}"
    if minutes > 120:
        about = f"about {minutes / 60:.1f} hours"
    fields = [
        ("deploys", f"all of these at the same time{times}; each is deleted after the measurement"),
        ("price", usd(estimate.usd_per_hour, "hour") + " for all of them"),
        ("likely", f"{about}, {usd(estimate.usd)}"),
        ("at most", f"{usd(estimate.most_usd)}, if all of them run until the end of their lifetime"),
        ("price from", "\n".join(estimate.price_sources)),
        *([("note", note)] if note else []),
    ]
    return (
        render_table(("endpoint", "mode", "price"), rows, right=("price",)) + "\n\n" + render_fields(fields)
    )


def estimate_data(plans: Sequence[Plan], found: Estimate) -> dict[str, Any]:
    """Return the same data for --format json."""
    return {"endpoints": [plan.names.endpoint for plan in plans], **asdict(found)}
