"""`peagle-sm packs`, and workload packs in `compare`: the list, the run and the scorecard."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from peagle_bench import results_file
from peagle_sm.cli.base import Command, State, global_options
from peagle_sm.cli.console import emit, termination_is_ctrl_c
from peagle_sm.cli.terminal import render_fields, show

if TYPE_CHECKING:
    from peagle_bench.compare.deployments import Round
    from peagle_bench.compare.measurement import Setup
    from peagle_bench.load import WorkItem
    from peagle_bench.packs.pack import Pack
    from peagle_bench.packs.run import PackOptions
    from peagle_bench.results.records import PackRecord
    from peagle_bench.results.result_file import Outcome
    from peagle_sm.aws.session.session import Session
    from peagle_sm.cli.progress import Follower
    from peagle_sm.core.errors import PeagleError
    from peagle_sm.core.spec.endpoint_spec import EndpointSpec

packs_option = click.option(
    "--packs",
    metavar="LIST",
    help="Run workload packs instead of a workload, separated by commas, or all: see `peagle-sm packs`.",
)
context_option = click.option(
    "--context",
    type=click.IntRange(min=64),
    help="With packs: longest prompt and answer in tokens.  [default: the model's context]",
)


@click.command(cls=Command)
@global_options
@click.pass_obj
def packs(state: State) -> None:
    """List the workload packs: what each shows, and what it needs.

    A pack has prompts of one kind of traffic, and a judge that passes or fails an endpoint. `peagle-sm
    compare PLAIN FAST --packs all` runs them beside an endpoint without speculation.
    """
    from peagle_bench.packs import PACKS, load_pack

    loaded = [load_pack(name) for name in PACKS]
    emit(
        state,
        table=lambda: "\n\n".join(_described(pack) for pack in loaded),
        data=lambda: [pack_data(pack) for pack in loaded],
        names=[pack.name for pack in loaded],
    )


def _described(pack: Pack) -> str:
    fields = [
        ("shows", pack.shows),
        ("passes", pack.passes),
        ("finds", pack.finds),
        ("needs", "; ".join(pack.needs)),
    ]
    width = 80 - max(len(name) for name, _ in fields) - 2
    lines = [(name, "\n".join(textwrap.wrap(text, width))) for name, text in fields]
    return f"{pack.name}\n{render_fields(lines)}"


def pack_data(pack: Pack) -> dict[str, Any]:
    """Return a pack for --format json."""
    return {
        "name": pack.name,
        "shows": pack.shows,
        "passes": pack.passes,
        "finds": pack.finds,
        "needs": list(pack.needs),
        "least_context": pack.least_context,
    }


#: Options of a comparison that a pack decides itself.
_OF_COMPARISONS = (
    "workload",
    "max_tokens",
    "temperature",
    "concurrency",
)


def refuse_context_alone(options: Mapping[str, Any]) -> None:
    """Refuse --context without packs.

    Raises:
        SpecError: it was given, and no pack was.
    """
    from peagle_sm.core.errors import SpecError

    if options["context"] is not None:
        raise SpecError(
            "--context is for workload packs, and none was given",
            next_step="give a pack, or leave --context out; a workload's lengths are its prompts'",
        )


def checked_packs(options: Mapping[str, Any]) -> list[Pack]:
    """Return the packs of --packs.

    Raises:
        SpecError: an unknown pack, or an option that does not go with packs.
    """
    from peagle_bench.packs import chosen_packs
    from peagle_sm.core.errors import SpecError

    context = click.get_current_context()
    unset = (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP, None)
    given = [name for name in _OF_COMPARISONS if context.get_parameter_source(name) not in unset]
    if given:
        words = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise SpecError(
            f"{words} cannot be used with --packs: a pack decides its requests itself",
            next_step=f"leave out {words}; --prompts and --context set a pack's size",
        )
    return chosen_packs(options["packs"])


def refuse_without_baseline(modes: Sequence[str]) -> None:
    """Refuse --modes that deploy no endpoint for packs to compare with.

    Raises:
        SpecError: no mode is none.
    """
    from peagle_sm.core.errors import SpecError

    if "none" not in modes:
        given = ",".join(modes)
        raise SpecError(
            f"packs compare with an endpoint without speculation, and --modes {given} deploys none",
            next_step=f"give --modes none,{given}",
        )


def options_of(options: Mapping[str, Any]) -> PackOptions:
    """Return the size of the packs."""
    from peagle_bench.packs.run import PackOptions

    return PackOptions(seed=options["seed"], units=options["prompts"], context=options["context"])


def expected_setup(base: EndpointSpec, options: Mapping[str, Any]) -> Setup:
    """Return the requests that the packs are likely to send, for the estimate of --modes.

    The endpoints do not exist yet, so lengths in tokens are guessed from the characters.
    """
    from peagle_bench.compare.measurement import Setup
    from peagle_bench.load import WorkItem
    from peagle_bench.packs.pack import Make, PackNotMeasured, ServedModel
    from peagle_bench.results.records import Load
    from peagle_bench.workloads import size_of
    from peagle_sm.core.own_models import catalog_for

    context = base.serving.max_model_len or catalog_for(base).model(base.model_name).max_context or 8192
    model = ServedModel(
        min(context, options["context"] or context),
        False,
        lambda body: range(size_of(WorkItem("", body)) // 4),
    )
    items: list[WorkItem] = []
    for pack in checked_packs(options):
        try:
            items += pack.make(Make(model, options["seed"], options["prompts"])).items
        except PackNotMeasured:
            continue
    return Setup(tuple(items), (Load("closed", concurrency=1),))


def run_chosen(
    state: State, session: Session | None, options: Mapping[str, Any]
) -> Callable[[list[Round], Follower, Mapping[str, Any]], Outcome]:
    """Return the run of the packs of --packs; SIGTERM ends it like Ctrl-C."""
    from peagle_bench.benchmark.acceptance import metrics_page
    from peagle_bench.compare.run import CompareDependencies
    from peagle_bench.packs.run import PackDependencies, run_packs
    from peagle_bench.verify.engines import engine_of

    chosen = checked_packs(options)

    def run(rounds: list[Round], follow: Follower, config: Mapping[str, Any]) -> Outcome:
        path = options["out"] or results_file("packs")
        every_s = 5.0 if state.format == "json" else 0.5
        around = PackDependencies(
            CompareDependencies.of(session, follow, seed=options["seed"], every_s=every_s),
            lambda arm: engine_of(session, arm),
            lambda arm: metrics_page(session, arm),
        )
        with termination_is_ctrl_c():
            return run_packs(rounds, chosen, path, options_of(options), around, config=config)

    return run


def render_packs(outcome: Outcome) -> str:
    """Render a row for each pack and arm, then examples of failures and notes."""
    from peagle_bench.report import tables
    from peagle_bench.report.merging import view_of

    results = outcome.results
    table = tables.packs(view_of([results]))
    notes = [f"{record.pack}: {note}" for record in results.packs for note in record.notes]
    notes += results.header.notes
    examples = [
        f"- {record.pack}, {record.arm}: {example}" for record in results.packs for example in record.examples
    ]
    parts = [
        *([] if table is None else ["\n".join([show(table), *examples]), f"{table.title}."]),
        "\n".join(f"note: {note}" for note in dict.fromkeys(notes)),
        f"results: {outcome.path}",
    ]
    return "\n\n".join(part for part in parts if part)


def packs_data(outcome: Outcome) -> dict[str, Any]:
    """Return the same data for --format json."""
    from peagle_bench.report.verdict import scored

    results = outcome.results
    return {
        "file": str(outcome.path),
        **results.header.target_data(),
        "scored": scored(results.packs),
        "packs": scorecard_data(results.packs),
    }


def scorecard_data(records: Sequence[PackRecord]) -> list[dict[str, Any]]:
    """Return the rows of the scorecard with a word for the result."""
    from dataclasses import asdict

    from peagle_bench.report.tables import PACK_RESULTS

    return [{**asdict(record), "result": PACK_RESULTS[record.passed].lower()} for record in records]


def failure_of(records: Sequence[PackRecord], path: Path) -> PeagleError | None:
    """Return the error that ends the command; None if no pack failed."""
    from peagle_sm.core.errors import PackFailed

    failed = list(dict.fromkeys(record.pack for record in records if record.passed is False))
    if not failed:
        return None
    return PackFailed(
        f"a workload pack failed: {', '.join(failed)}",
        next_step=f"peagle-sm report {path} --html packs.html shows each check; `peagle-sm help how-to/packs`"
        " says what a failure means",
        details={"failed": failed, "file": str(path)},
    )
