"""`peagle-sm compare`: which endpoint is faster, and is that significant."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from peagle_sm.cli.arguments import open_session, read_spec
from peagle_sm.cli.base import Command, State, global_options
from peagle_sm.cli.commands.measuring.modes import measure_modes, run_comparison
from peagle_sm.cli.commands.measuring.options import (
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
from peagle_sm.cli.console import emit, follower
from peagle_sm.cli.terminal import STAND_IN, show
from peagle_sm.core.errors import SpecError
from peagle_sm.measure import need_packages

if TYPE_CHECKING:
    from peagle_sm.aws.session.session import Session
    from peagle_sm.core.spec.endpoint_spec import EndpointSpec
    from peagle_sm.core.spec.endpoint_spec import Mode as SpecMode
    from peagle_sm.measure.compare.measurement import Setup
    from peagle_sm.measure.results.result_file import Outcome
    from peagle_sm.measure.workloads import Workload


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
@workload_option
@workload_file_option
@click.option(
    "--prompts", type=click.IntRange(min=2), help="Number of prompts of the workload.  [default: all]"
)
@click.option(
    "--concurrency",
    type=Numbers(whole=True),
    default="1",
    show_default=True,
    help="Requests in flight. At 1 the arms are paired by prompt, above 1 by blocks of time.",
)
@click.option(
    "--blocks",
    type=click.IntRange(min=2),
    default=6,
    show_default=True,
    help="Number of time blocks above concurrency 1.",
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
    help="Also compare the first arm with itself (A/A test); the ratio should be 1.  [default: control]",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed for prompts and their order.")
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
    need_packages()
    outcome = _deployed(state, arms, options) if options["modes"] else _existing(state, arms, options)

    emit(
        state,
        table=lambda: render_outcome(outcome),
        data=lambda: outcome_data(outcome),
        names=[str(outcome.path)],
    )


def _existing(state: State, texts: tuple[str, ...], options: dict[str, Any]) -> Outcome:
    from peagle_sm.measure.compare.arms import parse_arms
    from peagle_sm.measure.compare.deployments import existing_rounds

    _refuse_options_of_modes(options)
    arms = parse_arms(texts)
    workload = chosen_workload(options)
    setup = _setup(workload, options)
    opened: list[Session] = []

    def session() -> Session:
        if not opened:
            opened.append(open_session(state))
        return opened[0]

    rounds = existing_rounds(arms, session)
    config = {"arms": list(texts), **_settings(options)}
    with follower(state) as follow:
        opened_session = opened[0] if opened else None
        return run_comparison(state, opened_session, rounds, setup, workload, follow, options, config)


def _deployed(state: State, texts: tuple[str, ...], options: dict[str, Any]) -> Outcome:
    if texts:
        raise SpecError(
            f"--modes deploys the arms, but arms were given too: {' '.join(texts)}",
            next_step="Give either endpoints to compare, or --modes with --spec.",
        )
    base = read_spec(options["spec_path"] or Path("peagle.yaml"))
    specs = _specs(base, options)
    workload = chosen_workload(options)
    setup = _setup(workload, options)
    session = open_session(state, base.placement.region)
    return measure_modes(state, session, specs, setup, workload, options, _settings(options))


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
    from peagle_sm.measure.compare.arms import parse_by_mode, parse_ks, parse_modes, specs_of

    modes = parse_modes(options["modes"])
    ks = parse_ks(options["ks"], modes)
    heads = parse_by_mode("--head", options["heads"], modes)
    uris = parse_by_mode("--head-uri", options["head_uris"], modes)
    return [
        specs_of(base, modes, ks=ks, heads=heads, head_uris=uris, deployment=number)
        for number in range(1, (options["deployments"] or 1) + 1)
    ]


def _setup(workload: Workload, options: dict[str, Any]) -> Setup:
    from peagle_sm.measure.compare.measurement import Setup
    from peagle_sm.measure.results.records import Load

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
    from peagle_sm.measure.report import outcomes

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
    from peagle_sm.measure.load.points import separate_withheld
    from peagle_sm.measure.report.outcomes import verdict
    from peagle_sm.measure.results.result_file import encode

    results = outcome.results
    found = separate_withheld(results.points, results.comparisons)
    return {
        "file": str(outcome.path),
        "stand_in_weights": results.header.stand_in_weights,
        "arms": [encode(arm) for arm in results.arms],
        "points": [encode(point) for point in found.points],
        "comparisons": [
            {**encode(one), "shown": one.ratio.shown, "verdict": verdict(one)} for one in found.comparisons
        ],
        "withheld": [
            {"faster": one.faster, "slower": one.slower, "load": encode(one.load)}
            for one in found.withheld_comparisons
        ],
        "slices": slices_data(results),
        "notes": list(outcome.notes),
    }
