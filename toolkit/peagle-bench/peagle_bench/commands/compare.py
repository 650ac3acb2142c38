"""`peagle-sm compare`: which endpoint is faster, and is that significant.

With --modes it deploys the modes of a spec: price, confirmation, deployment, measurement and clean-up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from peagle_bench import results_file
from peagle_bench.commands.comparison_text import outcome_data, render_estimate, render_outcome
from peagle_bench.commands.options import (
    FILE,
    Numbers,
    max_tokens_option,
    temperature_option,
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
from peagle_bench.commands.regression import (
    RegressionCheck,
    checks_data,
    failure_of_checks,
    refuse_nameless,
    regression_check,
    regression_options,
    render_checks,
    write_record,
)
from peagle_sm.cli.arguments import follower, open_session, read_spec
from peagle_sm.cli.base import Command, State, global_options
from peagle_sm.cli.commands.guard import with_guard
from peagle_sm.cli.console import confirmed, emit, note, show_offer, termination_is_ctrl_c
from peagle_sm.core.errors import Declined, PlanRefused, SpecError

if TYPE_CHECKING:
    from peagle_bench.compare.deployments import Round
    from peagle_bench.compare.measurement import Setup
    from peagle_bench.regression.checks import RecordCheck
    from peagle_bench.results.result_file import Outcome
    from peagle_bench.workloads import Workload
    from peagle_sm.aws.session.session import Session
    from peagle_sm.cli.progress import Follower
    from peagle_sm.core.planning import Plan
    from peagle_sm.core.spec.endpoint_spec import EndpointSpec
    from peagle_sm.core.spec.modes import Mode as SpecMode


@click.command(cls=Command)
@click.argument("arms", metavar="[ARM…]", nargs=-1)
@click.option(
    "--modes",
    metavar="MODE[=K],…",
    help="Deploy these modes of --spec, measure and delete them: none,eagle3=5,p-eagle=7; or all.",
)
@click.option("--spec", "spec_path", type=FILE, help="Spec for --modes.  [default: peagle.yaml]")
@click.option(
    "--deployments",
    type=click.IntRange(min=1, max=20),
    help="With --modes: number of times to deploy each mode, for intervals over deployments.  [default: 1]",
)
@packs_option
@context_option
@workload_option
@click.option(
    "--prompts", type=click.IntRange(min=2), help="Number of prompts of the workload.  [default: all]"
)
@click.option(
    "--concurrency",
    type=Numbers(whole=True),
    default="1",
    help="Requests in flight. At 1 the arms are paired by prompt, above 1 by blocks of time.",
)
@max_tokens_option
@temperature_option
@click.option("--out", "-o", type=FILE, help="Results file.  [default: results/compare-TIME.jsonl]")
@click.option("--html", "page", type=FILE, help="Also write the report as an HTML page to this file.")
@regression_options
@click.option("--unguarded", is_flag=True, help="With --modes: deploy without an installed guard.")
@click.option("--yes", "-y", is_flag=True, help="With --modes: do not ask for confirmation.")
@global_options
@click.pass_obj
def compare(state: State, /, arms: tuple[str, ...], **options: Any) -> None:
    """Compare the speed of endpoints, or of one spec's modes; test for significance.

    ARM is an endpoint's name, NAME/COMPONENT, or the http(s) URL of a vLLM server. LABEL=ARM gives it a name;
    if the label is a mode, the arm must run in that mode. ARM,ARM are several deployments of one arm. All
    arms run at the same time and take turns: prompt by prompt at concurrency 1, in time blocks in ABBA order
    above. The first arm is also compared with itself (A/A test); that ratio should be 1. Each ratio has a 95%
    confidence interval. If the interval contains 1, the result is "no significant difference".

    With --modes none,eagle3,p-eagle, the command shows the price, deploys the modes from a spec, and deletes
    them at the end, also after an error. Use the best K of each mode, chosen with other prompts.

    With --gate RECORD, exit code 9 if a speed-up fell by more than the margin, acceptance fell, or greedy
    answers changed; 10 if that cannot be decided. `peagle-sm help how-to/pipeline` has a pipeline.
    """
    options["seed"] = 0  # the same prompts in the same order in every run
    if options["packs"] is None:
        refuse_context_alone(options)
    else:
        checked_packs(options)  # before anything is deployed
    gate = regression_check(options)
    measure = _deployed if options["modes"] else _existing
    outcome = measure(state, arms, options, gate)
    if options["page"] is not None:
        _write_page(state, options["page"], outcome)
    if options["packs"] is not None:
        _end_of_packs(state, outcome)
    else:
        _end_of_comparison(state, outcome, options["record"], gate)


def _write_page(state: State, path: Path, outcome: Outcome) -> None:
    from peagle_bench.report.page import html_page
    from peagle_sm.aws.files import write_file

    write_file(path, html_page([outcome.results]), parents=True)
    note(state, f"wrote {path}")


def _end_of_packs(state: State, outcome: Outcome) -> None:
    emit(
        state,
        table=lambda: render_packs(outcome),
        data=lambda: packs_data(outcome),
        names=[str(outcome.path)],
    )
    if (failed := failure_of(outcome.results.packs, outcome.path)) is not None:
        raise failed


def _end_of_comparison(
    state: State, outcome: Outcome, record: Path | None, gate: RegressionCheck | None
) -> None:
    """Show a comparison, judge it, and keep it as a record; the errors come after what is shown.

    Raises:
        WorseThanRecord: the run is worse than the record of --gate.
        Undecided: a check of --gate is not decided, or the run cannot be a record.
        SpecError: only the run showed that it cannot be compared with the record, as a URL's K does.
    """
    from peagle_sm.core.errors import Undecided

    checks: list[RecordCheck] = []
    incomparable: SpecError | None = None
    try:
        checks = [] if gate is None else gate.judge(outcome.results)
    except SpecError as error:
        incomparable = error
    emit(
        state,
        table=lambda: (
            render_outcome(outcome) + (f"\n\n{render_checks(gate, checks)}" if gate and checks else "")
        ),
        data=lambda: outcome_data(outcome) | ({"gate": checks_data(gate, checks)} if gate and checks else {}),
        names=[str(outcome.path)],
    )
    if incomparable is not None:
        raise incomparable
    reason = None if record is None else write_record(state, record, outcome)
    failed = None if gate is None else failure_of_checks(gate, checks)
    if failed is not None:
        raise failed
    if reason is not None:
        raise Undecided(
            f"no record was written, since nothing could be judged by it: {reason}",
            next_step="Fix the reason, and measure again.",
            details={"undecided": ["record"]},
        )


Run = Callable[[list["Round"], "Follower", Mapping[str, Any]], "Outcome"]
"""Measures the rounds and writes the results file, whose config is the mapping."""


@dataclass(frozen=True)
class _Work:
    """What a comparison sends: a workload, or workload packs.

    ``setup`` has the requests (of packs, the likely ones); None for packs on existing endpoints. ``settings``
    are those of the results file's header. ``note`` is what the prompts cannot show.
    """

    setup: Setup | None
    run: Callable[[Session | None], Run]
    config: Mapping[str, Any]
    note: str | None
    settings: Mapping[str, Any] = field(default_factory=dict)


def _work(
    state: State, options: dict[str, Any], base: EndpointSpec | None, gate: RegressionCheck | None
) -> _Work:
    if options["packs"] is not None:
        setup = None if base is None else expected_setup(base, options)
        return _Work(setup, lambda session: run_chosen(state, session, options), {}, None)
    from peagle_bench.compare.measurement import setup_of
    from peagle_bench.compare.run import settings_of_run
    from peagle_bench.workloads import few_conversations, load_workload

    workload = load_workload(
        options["workload"],
        seed=options["seed"],
        count=options["prompts"],
        max_tokens=options["max_tokens"],
        temperature=options["temperature"],
        session=lambda: open_session(state),
    )
    setup = setup_of(workload, options["concurrency"])
    config = {name: options[name] for name in ("seed", "max_tokens", "temperature")}
    settings = {**config, **settings_of_run(setup, workload)}
    if gate is not None:
        gate.demand_settings(settings)
    return _Work(
        setup,
        lambda session: _comparing(state, session, setup, workload, options, gate),
        config,
        few_conversations(setup.items),
        settings,
    )


def _comparing(
    state: State,
    session: Session | None,
    setup: Setup,
    workload: Workload,
    options: dict[str, Any],
    gate: RegressionCheck | None,
) -> Run:
    """Return the run of a comparison; SIGTERM ends it like Ctrl-C."""
    from peagle_bench.compare.run import CompareDependencies
    from peagle_bench.compare.run import compare as compared

    def run(rounds: list[Round], follow: Follower, config: Mapping[str, Any]) -> Outcome:
        path = options["out"] or results_file("compare")
        every_s = 5.0 if state.format == "json" else 0.5
        around = CompareDependencies.of(session, follow, seed=options["seed"], every_s=every_s)
        if gate is not None:
            around = replace(around, demand=gate.demand)
        elif options["record"] is not None:
            around = replace(around, demand=refuse_nameless)
        with termination_is_ctrl_c():
            return compared(rounds, setup, workload, path, around, config=config)

    return run


def _existing(
    state: State, texts: tuple[str, ...], options: dict[str, Any], gate: RegressionCheck | None
) -> Outcome:
    from peagle_bench.compare.arms import parse_arms
    from peagle_bench.compare.deployments import existing_rounds
    from peagle_sm.service.progress import Event

    of_modes = {"spec_path": "--spec", "deployments": "--deployments", "unguarded": "--unguarded"}
    if given := [flag for name, flag in of_modes.items() if options[name]]:
        raise SpecError(
            f"{', '.join(given)}: allowed only with --modes",
            next_step="Add --modes, for example --modes none,p-eagle, or leave the option out.",
        )
    arms = parse_arms(texts)
    work = _work(state, options, None, gate)
    opened: list[Session] = []

    def session() -> Session:
        if not opened:
            opened.append(open_session(state))
        return opened[0]

    rounds = existing_rounds(arms, session)
    run = work.run(opened[0] if opened else None)
    with follower(state) as follow:
        if work.note is not None:
            follow(Event("check", work.note))
        return run(rounds, follow, {"arms": list(texts), **work.config})


def _deployed(
    state: State, texts: tuple[str, ...], options: dict[str, Any], gate: RegressionCheck | None
) -> Outcome:
    """Show the price, ask, deploy the modes, measure them and delete them."""
    from peagle_bench.compare.arms import asks_for_all, deployable, named_modes, parse_modes, spec_of
    from peagle_bench.compare.deployments import deployed_rounds, refuse_taken_names
    from peagle_bench.compare.measurement import estimate
    from peagle_bench.regression.record import refuse_modes
    from peagle_sm.service import plan_for
    from peagle_sm.service.inventory.guard_state import require_guard

    if texts:
        raise SpecError(
            f"--modes deploys the arms, but arms were given too: {' '.join(texts)}",
            next_step="Give either endpoints to compare, or --modes with --spec.",
        )
    modes = parse_modes(options["modes"])
    if options["packs"] is not None:
        refuse_without_baseline(list(modes))
    base = read_spec(options["spec_path"] or Path("peagle.yaml"))
    deployments = options["deployments"] or 1
    work = _work(state, options, base, gate)
    assert work.setup is not None  # a spec is known
    session = open_session(state, base.placement.region)
    left_out: Mapping[SpecMode, str] = {}
    if asks_for_all(options["modes"]):
        named = named_modes(options["modes"])
        modes, left_out = deployable(base, modes, named, lambda spec: plan_for(spec, session))
    if gate is not None or options["record"] is not None:
        refuse_modes(list(modes))
    specs = [
        {mode: spec_of(base, mode, k=k, deployment=number) for mode, k in modes.items()}
        for number in range(1, deployments + 1)
    ]
    if not options["unguarded"]:
        with follower(state) as follow:
            with_guard(state, session, follow, options["yes"], lambda: require_guard(session))
    refuse_taken_names(session, [spec.name for each in specs for spec in each.values()])
    plans = _plans(specs[0], session)
    if gate is not None:
        gate.demand_settings(work.settings, plans)
    control = options["packs"] is None
    expected = estimate(plans, work.setup, arms=len(plans) + control, deployments=deployments)
    show_offer(
        state,
        options["yes"],
        render_estimate(plans, expected, work.note, left_out),
        {
            "plan": {
                "endpoints": [plan.names.endpoint for plan in plans],
                **asdict(expected),
                "left_out": dict(left_out),
                "note": work.note,
            }
        },
    )
    names = ", ".join(spec.name for spec in specs[0].values())
    if not confirmed(state, f"Deploy {names}, measure them and delete them?", options["yes"]):
        raise Declined("Nothing was deployed: it was not confirmed.", next_step="Run again and confirm.")
    config = {"modes": list(modes), "deployments": deployments, **work.config}
    config["specs"] = {
        mode: spec.model_dump(mode="json", exclude_unset=True) for mode, spec in specs[0].items()
    }
    with follower(state) as follow:
        rounds = deployed_rounds(specs, session, unguarded=options["unguarded"], progress=follow)
        return work.run(session)(rounds, follow, config)


def _plans(specs: Mapping[SpecMode, EndpointSpec], session: Session) -> list[Plan]:
    """Plan each mode.

    Raises:
        PlanRefused: a plan has an error; if K is too large, the next step is --modes with a smaller K.
    """
    from peagle_sm.service import plan_for

    plans = [plan_for(spec, session) for spec in specs.values()]
    for mode, plan in zip(specs, plans, strict=True):
        try:
            plan.refuse_errors()
        except PlanRefused as error:
            checks = {finding.check for finding in plan.errors()}
            step = f"Give a lower K: --modes …,{mode}=K." if checks == {"trained-depth"} else error.next_step
            raise PlanRefused(
                f"mode {mode}: {error.message}", next_step=step, details=error.details
            ) from error
    return plans
