"""`peagle-sm compare`: which of several endpoints, or modes, is faster, and whether that is significant."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from peagle_sm.cli.confirm import confirmed
from peagle_sm.cli.lazy import Command
from peagle_sm.cli.measuring_options import (
    FILE,
    Numbers,
    api_option,
    chosen_workload,
    first_turn_option,
    max_tokens_option,
    repeat_option,
    temperature_option,
    workload_file_option,
    workload_option,
)
from peagle_sm.cli.options import global_options
from peagle_sm.cli.output import emit, note, say, to_json
from peagle_sm.cli.state import State
from peagle_sm.measure.needs import need_packages, results_file

if TYPE_CHECKING:
    from peagle_sm.aws.session.session import Session
    from peagle_sm.cli.progress import Follower
    from peagle_sm.core.spec.endpoint_spec import EndpointSpec
    from peagle_sm.core.spec.endpoint_spec import Mode as SpecMode
    from peagle_sm.measure.compare.contest import Setup
    from peagle_sm.measure.compare.rounds import Round
    from peagle_sm.measure.compare.run import Around, Outcome
    from peagle_sm.measure.records import ArmRecord
    from peagle_sm.measure.workloads import Workload


@click.command(cls=Command)
@click.argument("arms", metavar="[ARM…]", nargs=-1)
@click.option("--modes", metavar="LIST", help="Deploy these modes of --spec, measure and delete them.")
@click.option("--spec", "spec_path", type=FILE, help="What --modes deploys.  [default: peagle.yaml]")
@click.option(
    "--deployments",
    type=click.IntRange(min=1, max=20),
    help="With --modes: number of times to deploy each mode, for intervals over deployments.  [default: 1]",
)
@click.option("--k", "ks", metavar="MODE=K", multiple=True, help="A mode's num_speculative_tokens.")
@click.option("--head", "heads", metavar="MODE=ID", multiple=True, help="A mode's draft head.")
@workload_option
@workload_file_option
@click.option("--prompts", type=click.IntRange(min=2), help="How many of its prompts.  [default: all]")
@click.option(
    "--concurrency",
    type=Numbers(whole=True),
    default="1",
    show_default=True,
    help="Requests in flight: 1 is paired by prompt, more are compared by blocks of time.",
)
@click.option(
    "--blocks", type=click.IntRange(min=2), default=6, show_default=True, help="Blocks above concurrency 1."
)
@repeat_option
@max_tokens_option
@temperature_option
@api_option
@first_turn_option
@click.option(
    "--control/--no-control",
    default=True,
    help="Ask the first arm twice: an A/A pair, whose ratio is 1.  [default: control]",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Chooses prompts and their order.")
@click.option("--out", "-o", type=FILE, help="The results file.  [default: results/compare-TIME.jsonl]")
@click.option("--unguarded", is_flag=True, help="With --modes: deploy without an installed guard.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before --modes deploys.")
@global_options
@click.pass_obj
def compare(state: State, /, arms: tuple[str, ...], **options: Any) -> None:
    """Compare endpoints, or modes of one spec: which is faster, and is that significant.

    ARM is an endpoint's name, NAME/COMPONENT, or the http(s) address of a bare vLLM; LABEL=ARM names it (a
    mode as the label is checked), ARM,ARM are deployments of the same thing. All arms are up together and
    take turns: prompt by prompt at concurrency 1, by blocks of time in ABBA order above. Each ratio comes
    with its 95% interval; one that holds 1 reads "no difference shown".

    With --modes none,eagle3,p-eagle the arms are deployed from a spec after their price was shown, and
    deleted however it ends. Each mode should run its own best K (--k), chosen on other prompts.
    """
    need_packages()
    outcome = _deployed(state, arms, options) if options["modes"] else _existing(state, arms, options)
    from peagle_sm.cli.compare_text import outcome_data, render_outcome

    emit(
        state,
        table=lambda: render_outcome(outcome),
        data=lambda: outcome_data(outcome),
        names=[str(outcome.path)],
    )


def _existing(state: State, texts: tuple[str, ...], options: dict[str, Any]) -> Outcome:
    from peagle_sm.cli.progress import follower
    from peagle_sm.measure.compare.arms import parse_arms
    from peagle_sm.measure.compare.rounds import existing_rounds

    _refuse_options_of_modes(options)
    arms = parse_arms(texts)
    workload = chosen_workload(options)
    setup = _setup(workload, options)
    opened: list[Session] = []

    def session() -> Session:
        from peagle_sm.cli.connect import open_session

        if not opened:
            opened.append(open_session(state))
        return opened[0]

    rounds = existing_rounds(arms, session)
    config = {"arms": list(texts), **_settings(options)}
    with follower(state) as follow:
        around = _around(state, opened[0] if opened else None, follow, options)
        return _compare(rounds, setup, workload, around, options, config)


def _deployed(state: State, texts: tuple[str, ...], options: dict[str, Any]) -> Outcome:
    from peagle_sm.cli.connect import open_session
    from peagle_sm.cli.guard_offer import with_guard
    from peagle_sm.cli.progress import follower
    from peagle_sm.cli.spec_file import read_spec
    from peagle_sm.core.errors import Declined, SpecError
    from peagle_sm.measure.compare.fleet import refuse_taken_names
    from peagle_sm.measure.compare.rounds import deployed_rounds
    from peagle_sm.service.guard.guarding import require_guard

    if texts:
        raise SpecError(
            f"--modes deploys the arms, and {' '.join(texts)} were given too.",
            next_step="Give endpoints to compare, or --modes with --spec.",
        )
    base = read_spec(options["spec_path"] or Path("peagle.yaml"))
    specs = _specs(base, options)
    workload = chosen_workload(options)
    setup = _setup(workload, options)
    session = open_session(state, base.placement.region)
    if not options["unguarded"]:
        with follower(state) as follow:
            with_guard(state, session, follow, options["yes"], lambda: require_guard(session))
    refuse_taken_names(session, [spec.name for one in specs for spec in one.values()])
    _show_price(state, session, specs, setup, options)
    names = ", ".join(spec.name for spec in specs[0].values())
    if not confirmed(state, f"Deploy {names}, measure and delete them?", options["yes"]):
        raise Declined("Nothing was deployed: it was not confirmed.", next_step="Run again and confirm.")
    config = {"modes": list(specs[0]), "deployments": len(specs), **_settings(options)}
    config["specs"] = {
        mode: spec.model_dump(mode="json", exclude_unset=True) for mode, spec in specs[0].items()
    }
    with follower(state) as follow:
        rounds = deployed_rounds(specs, session, unguarded=options["unguarded"], progress=follow)
        around = _around(state, session, follow, options)
        return _compare(rounds, setup, workload, around, options, config)


def _refuse_options_of_modes(options: dict[str, Any]) -> None:
    from peagle_sm.core.errors import SpecError

    alone = [name for name in ("spec_path", "deployments", "ks", "heads", "unguarded") if options[name]]
    if alone:
        flags = {"spec_path": "--spec", "ks": "--k", "heads": "--head"}
        raise SpecError(
            f"{', '.join(flags.get(name, '--' + name) for name in alone)}: only with --modes, which deploys.",
            next_step="Add for example --modes none,p-eagle, or leave it out.",
        )


def _specs(base: EndpointSpec, options: dict[str, Any]) -> list[dict[SpecMode, EndpointSpec]]:
    from peagle_sm.measure.compare.modes import parse_by_mode, parse_ks, parse_modes, specs_of

    modes = parse_modes(options["modes"])
    ks = parse_ks(options["ks"], modes)
    heads = parse_by_mode("--head", options["heads"], modes)
    count = options["deployments"] or 1
    return [specs_of(base, modes, ks=ks, heads=heads, deployment=number) for number in range(1, count + 1)]


def _setup(workload: Workload, options: dict[str, Any]) -> Setup:
    from peagle_sm.measure.compare.contest import Setup
    from peagle_sm.measure.records import Load

    setup = Setup(
        items=workload.items,
        loads=tuple(Load("closed", concurrency=number) for number in options["concurrency"]),
        blocks=options["blocks"],
        repeat=options["repeat"],
        temperature=workload.temperature,
    )
    setup.check()
    return setup


def _settings(options: dict[str, Any]) -> dict[str, Any]:
    return {name: options[name] for name in ("seed", "max_tokens", "temperature", "api", "first_turn_only")}


def _show_price(
    state: State,
    session: Session,
    specs: list[dict[SpecMode, EndpointSpec]],
    setup: Setup,
    options: dict[str, Any],
) -> None:
    from peagle_sm.cli.commands.plan import refuse_if_needed
    from peagle_sm.cli.compare_text import estimate_data, render_estimate
    from peagle_sm.core.errors import PlanRefused
    from peagle_sm.measure.compare.estimate import estimate
    from peagle_sm.measure.compare.modes import in_terms_of_the_options
    from peagle_sm.service import plan_for

    plans = [plan_for(spec, session) for spec in specs[0].values()]
    for mode, made in zip(specs[0], plans, strict=True):
        try:
            refuse_if_needed(made)
        except PlanRefused as error:
            raise in_terms_of_the_options(error, mode) from error
    arms = len(plans) + bool(options["control"])
    found = estimate(plans, setup, arms=arms, deployments=len(specs))
    if state.format == "json":
        click.echo(to_json({"plan": estimate_data(plans, found)}, indent=None), err=True)
    elif options["yes"]:
        note(state, render_estimate(plans, found) + "\n")
    else:  # even with --format quiet: nobody says yes to what was not shown
        say(render_estimate(plans, found) + "\n")


def _around(state: State, session: Session | None, follow: Follower, options: dict[str, Any]) -> Around:
    from peagle_sm.measure.bench_counters import engine_source
    from peagle_sm.measure.compare.run import Around
    from peagle_sm.measure.endpoint_arm import look_at
    from peagle_sm.measure.load import make_target
    from peagle_sm.measure.provenance import origin

    def look(arm: ArmRecord) -> str | None:
        return look_at(session, arm)

    def drafts_of(arm: ArmRecord) -> bool | None:
        # Of an endpoint of SageMaker the mode is read from its model; of a bare server it is only claimed.
        source = engine_source(session, arm) if arm.transport == "http" else None
        return source.drafts if source is not None else None

    return Around(
        progress=follow,
        target_of=lambda arm: make_target(session, arm),
        look=look,
        drafts_of=drafts_of,
        provenance=lambda: origin(options["seed"]),
        every_s=5.0 if state.format == "json" else 0.5,
    )


def _compare(
    rounds: list[Round],
    setup: Setup,
    workload: Workload,
    around: Around,
    options: dict[str, Any],
    config: dict[str, Any],
) -> Outcome:
    from peagle_sm.cli.signals import termination_is_ctrl_c
    from peagle_sm.measure.compare.run import compare as run

    path = options["out"] or results_file("compare")
    with termination_is_ctrl_c():
        return run(rounds, setup, workload, path, around, control=options["control"], config=config)
