"""`peagle-sm reproduce`: measure a published table again, and show published and measured side by side.

It is `compare --modes` with the table's set-up: same arms, prices, confirmation, results file and clean-up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from peagle_bench import results_file
from peagle_bench.commands.compare import (
    comparing,
    estimate_data,
    estimated,
    measure_modes,
    outcome_data,
    plans_of,
    render_estimate,
    render_outcome,
)
from peagle_bench.commands.options import COUNT, FILE, RESULTS_FILE, Numbers, workload_file_option
from peagle_sm.cli.arguments import open_session
from peagle_sm.cli.base import Command, State, global_options
from peagle_sm.cli.console import emit, note
from peagle_sm.cli.terminal import render_fields, render_table
from peagle_sm.core.errors import PeagleError, SpecError

if TYPE_CHECKING:
    from peagle_bench.compare.measurement import Setup
    from peagle_bench.compare.published import LinedUp, Reproduction, Scale
    from peagle_bench.published import Published, PublishedTable
    from peagle_bench.results.result_file import Outcome, Results
    from peagle_bench.workloads import Workload
    from peagle_sm.core.spec.endpoint_spec import EndpointSpec
    from peagle_sm.core.spec.endpoint_spec import Mode as SpecMode

_PLACEHOLDER = "s3://your-bucket/published/"
_PROMPTS_OF_AN_ESTIMATE = 80  #: where the source does not state the number of prompts
STAND_INS = (
    "these are the small stand-in weights on this machine's CPU, not the published model. The run shows that "
    "the whole path works. Its figures say nothing about the published ones."
)


@click.command(cls=Command)
@click.argument("name", required=False)
@click.option(
    "--artifacts",
    metavar="S3URI",
    help="S3 prefix below which target and heads are; without it, the commands that copy them are shown.",
)
@click.option(
    "--instance-type", metavar="TYPE", help="Instance type.  [default: as published, or a close one]"
)
@click.option("--image", metavar="URI", help="Image with another vLLM.  [default: the catalogue's]")
@click.option("--modes", metavar="LIST", help="Measure only these modes.  [default: all of the table]")
@click.option(
    "--k", "ks", metavar="MODE=K", multiple=True, help="num_speculative_tokens of a mode. May be repeated."
)
@click.option(
    "--prompts",
    type=click.IntRange(min=2),
    help="Number of prompts.  [default: as published; 8 with --local]",
)
@click.option(
    "--max-tokens",
    type=COUNT,
    help="Maximum output tokens per answer.  [default: as published; 64 with --local]",
)
@click.option(
    "--concurrency",
    type=Numbers(whole=True),
    help="Requests in flight.  [default: as published; up to 2 with --local]",
)
@click.option(
    "--deployments",
    type=click.IntRange(min=1, max=20),
    default=1,
    help="Number of times to deploy each mode, for intervals over deployments.",
)
@workload_file_option
@click.option(
    "--control/--no-control", default=True, help="Also compare the first arm with itself (A/A test)."
)
@click.option("--seed", type=int, default=0, help="Seed for prompts and their order.")
@click.option("--out", "-o", type=FILE, help="Results file.  [default: results/reproduce-NAME-TIME.jsonl]")
@click.option(
    "--results", "results_path", type=RESULTS_FILE, help="Measure nothing; show this results file of NAME."
)
@click.option(
    "--dry-run", is_flag=True, help="Show what it would deploy, and the price; call nothing in AWS."
)
@click.option("--unguarded", is_flag=True, help="Deploy without an installed guard.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@global_options
@click.pass_obj
def reproduce(state: State, /, name: str | None, **options: Any) -> None:
    """Measure a published table again, and show both side by side.

    Without NAME it lists the tables. With one it shows the price, deploys the table's modes with its flags
    and K, measures its prompts at its concurrencies, and deletes the endpoints, as `compare --modes` does.
    Each figure is shown beside the published one, with a 95% interval. What is not as published is listed;
    then no figure is called different.

    With --local it runs on the small stand-in weights, with fewer prompts: a test of the path, not of the
    figures.
    """
    from peagle_bench.published import load_published

    published = load_published()
    if name is None:
        emit(
            state,
            table=lambda: render_tables(published),
            data=lambda: tables_data(published),
            names=published.tables,
        )
        return
    table = published.table(name)
    if options["results_path"] is not None:
        results = _earlier(name, options["results_path"])
        _show(state, published, name, table, results, None)
    elif options["dry_run"]:
        _dry_run(state, name, table, options)
    else:
        outcome = _measured(state, name, table, options)
        _show(state, published, name, table, outcome.results, outcome)


def _earlier(name: str, path: Path) -> Results:
    from peagle_bench.results.result_file import read

    results = read(path)
    found = results.header.config.get("published")
    if found != name:
        raise SpecError(
            f"--results: {path} is of {f'`reproduce {found}`' if found else results.header.command}; "
            f"allowed: a results file of `reproduce {name}`.",
            next_step="Give its file, or leave --results out to measure.",
        )
    return results


def _measured(state: State, name: str, table: PublishedTable, options: dict[str, Any]) -> Outcome:
    from peagle_bench.compare.deployments import refuse_not_staged
    from peagle_bench.compare.published import staging
    from peagle_sm.core.catalog import load_catalog

    modes, ks = _modes_and_ks(table, options)  # first: what was typed wrongly needs no session
    artifacts = None if state.local else _artifacts(name, table, modes, options["artifacts"], state.flags)
    scale = _scale(state, table, options)
    workload = _workload(table, scale, options)
    setup = scale.setup(workload.items)
    session = open_session(state)
    if artifacts is not None:
        refuse_not_staged(session, staging(table, modes, artifacts, load_catalog()))
    else:
        note(state, f"warning: {STAND_INS}\n")
    specs = _specs(name, table, modes, ks, setup, options, artifacts)
    config = {
        "published": name,
        "seed": options["seed"],
        "max_tokens": scale.max_tokens,
        "temperature": 0.0,
        "api": "chat",
        "first_turn_only": table.workload.first_turn_only,
    }
    out = options["out"] or results_file("reproduce", name)
    try:
        asked = {**options, "out": out}
        run = comparing(state, session, setup, workload, asked)
        return measure_modes(state, session, specs, setup, run, asked, config)
    except PeagleError as error:
        if error.details.get("file"):
            step = f"peagle-sm reproduce {name} --results {error.details['file']}"
            error.next_step = f"{error.next_step}; {step}" if error.next_step else step
        raise


def _scale(state: State, table: PublishedTable, options: Mapping[str, Any]) -> Scale:
    from peagle_bench.compare.published import scale_of

    return scale_of(
        table,
        local=state.local,
        prompts=options["prompts"],
        max_tokens=options["max_tokens"],
        concurrency=options["concurrency"],
    )


def _dry_run(state: State, name: str, table: PublishedTable, options: dict[str, Any]) -> None:
    from peagle_bench.compare.published import staging
    from peagle_bench.load import WorkItem
    from peagle_sm.core.catalog import load_catalog

    modes, ks = _modes_and_ks(table, options)
    scale = _scale(state, table, options)
    # The prompts themselves may have to be fetched; their number and length are enough for an estimate.
    count = scale.prompts or _PROMPTS_OF_AN_ESTIMATE
    items = [WorkItem(f"prompt-{number}", {"max_tokens": scale.max_tokens}) for number in range(count)]
    setup = scale.setup(items)
    artifacts = None if state.local else (options["artifacts"] or _PLACEHOLDER).removesuffix("/") + "/"
    session = open_session(state)
    specs = _specs(name, table, modes, ks, setup, options, artifacts)
    plans = plans_of(specs[0], session, without_credentials=True)
    found = estimated(plans, specs, setup, options)
    stage = [] if artifacts is None else list(staging(table, modes, artifacts, load_catalog()).values())
    commands = [f"{each}{state.flags}" for each in dict.fromkeys(stage)]
    copying = "Copy the files first:\n" + "\n".join(f"  {each}" for each in commands)
    parts = [render_set_up(table, ks, setup, scale.max_tokens), render_estimate(plans, found)]
    if artifacts is None:
        parts.insert(0, f"warning: {STAND_INS}")
    emit(
        state,
        table=lambda: "\n\n".join([*parts, *([copying] if commands else [])]),
        data=lambda: {
            "published": name,
            "loads": [load.label for load in setup.loads],
            "prompts": count,
            "max_tokens": scale.max_tokens,
            "stage": commands,
            "specs": {
                mode: spec.model_dump(mode="json", exclude_unset=True) for mode, spec in specs[0].items()
            },
            "plan": estimate_data(plans, found),
        },
        names=[spec.name for spec in specs[0].values()],
    )


def _modes_and_ks(
    table: PublishedTable, options: Mapping[str, Any]
) -> tuple[tuple[SpecMode, ...], dict[SpecMode, int]]:
    from peagle_bench.compare.arms import parse_ks, parse_modes

    modes = parse_modes(options["modes"]) if options["modes"] else table.modes
    strange = [mode for mode in modes if mode not in table.modes]
    if strange:
        raise SpecError(
            f"--modes: found {', '.join(strange)}; this table has {', '.join(table.modes)}.",
            next_step="Leave --modes out, or give two of these.",
        )
    given = parse_ks(options["ks"], modes)
    wanted = {mode: given.get(mode) or table.k[mode] for mode in modes}
    return modes, {mode: k for mode, k in wanted.items() if k is not None}


def _artifacts(
    name: str, table: PublishedTable, modes: Sequence[SpecMode], given: str | None, flags: str
) -> str:
    if given is not None:
        return given.removesuffix("/") + "/"
    from peagle_bench.compare.published import staging
    from peagle_sm.core.catalog import load_catalog

    commands = list(dict.fromkeys(staging(table, modes, _PLACEHOLDER, load_catalog()).values()))
    raise SpecError(
        f"--artifacts: found nothing; the files of {table.model} and its heads must be in S3 first.",
        next_step="\n".join(
            [f"{each}{flags}" for each in commands]
            + [f"peagle-sm reproduce {name} --artifacts {_PLACEHOLDER}{flags}"]
        ),
        details={"stage": commands},
    )


def _workload(table: PublishedTable, scale: Scale, options: Mapping[str, Any]) -> Workload:
    from peagle_bench.workloads import load_workload
    from peagle_bench.workloads.public_datasets import PREPARE_SPEED_BENCH

    wanted = table.workload
    found = load_workload(
        wanted.name,
        seed=options["seed"],
        count=scale.prompts,
        max_tokens=scale.max_tokens,
        api="chat",
        file=options["workload_file"],
        first_turn_only=wanted.first_turn_only,
        category=wanted.category,
        instruction=wanted.instruction,
    )
    if found.hidden:
        whole = found.hidden + found.available
        raise SpecError(
            f"{found.name}: {found.hidden} of {whole} prompts have no text in the public rows, so the "
            "published prompts cannot be sent.",
            next_step=PREPARE_SPEED_BENCH[0].upper() + PREPARE_SPEED_BENCH[1:],
            details={"hidden": found.hidden, "available": found.available},
        )
    return found


def _specs(
    name: str,
    table: PublishedTable,
    modes: Sequence[SpecMode],
    ks: Mapping[SpecMode, int],
    setup: Setup,
    options: Mapping[str, Any],
    artifacts: str | None,
) -> list[dict[SpecMode, EndpointSpec]]:
    from peagle_bench.compare.published import minutes_of_deployment, specs_for, stand_in_specs
    from peagle_sm.core.catalog import load_catalog

    count = options["deployments"]
    if artifacts is None:
        return stand_in_specs(name, modes, ks, load_catalog(), deployments=count)
    return specs_for(
        name,
        table,
        modes,
        ks,
        load_catalog(),
        artifacts=artifacts,
        minutes=minutes_of_deployment(setup, len(modes) + bool(options["control"])),
        deployments=count,
        instance_type=options["instance_type"],
        image=options["image"],
    )


def _show(
    state: State,
    published: Published,
    name: str,
    table: PublishedTable,
    results: Results,
    outcome: Outcome | None,
) -> None:
    from peagle_bench.compare.published import line_up
    from peagle_sm.core.catalog import load_catalog

    found = line_up(table, results, load_catalog())
    weights = results.header.stand_in_weights
    parts = [render_outcome(outcome)] if outcome else []
    emit(
        state,
        table=lambda: "\n\n".join([*parts, render_reproduction(published, table, found, weights)]),
        data=lambda: {
            "published": name,
            **reproduction_data(published, table, found, weights),
            "comparison": outcome_data(outcome) if outcome else None,
        },
        names=[str(outcome.path) if outcome else name],
    )


_TABLES = ("name", "gpu", "k", "c", "figures", "date")


def render_tables(published: Published) -> str:
    """Render the list of published tables."""
    rows = [
        (
            name,
            table.gpu or "-",
            " / ".join(str(table.k.get(mode) or "-") for mode in ("eagle3", "p-eagle")),
            _span(table.concurrency),
            str(len(list(table.rows()))),
            published.sources[table.source].date,
        )
        for name, table in published.tables.items()
    ]
    return (
        render_table(_TABLES, rows, right=("figures",))
        + "\n\n(k: EAGLE-3 / P-EAGLE; c: requests in flight; a dash: not stated, or not in the table)\n"
        "--dry-run shows a table's set-up and price; --format json has the figures and their sources."
    )


def _span(concurrency: Sequence[int]) -> str:
    return str(concurrency[0]) if len(concurrency) == 1 else f"{min(concurrency)} to {max(concurrency)}"


def tables_data(published: Published) -> dict[str, Any]:
    """Return the published tables and their sources for --format json."""
    return {
        "tables": [
            {"name": name, **table.model_dump(mode="json", exclude_none=True)}
            for name, table in published.tables.items()
        ],
        "sources": {name: source.model_dump(mode="json") for name, source in published.sources.items()},
    }


def render_set_up(table: PublishedTable, ks: Mapping[SpecMode, int], setup: Setup, tokens: int) -> str:
    """Render what is measured, for a dry run."""
    depth = ", ".join(f"{mode} K={k}" for mode, k in ks.items())
    size = f"{len(setup.items)} prompts, at most {tokens:,} output tokens each"
    fields = [
        ("published", table.title),
        ("set-up", "; ".join([table.gpu or "GPU not stated", table.precision, depth])),
        ("workload", f"{table.workload.name}, {size}"),
        ("loads", ", ".join(load.label for load in setup.loads)),
    ]
    return render_fields(fields)


_FIGURES = ("figure", "c", "published", "measured", "x", "95% of x", "result")


def render_reproduction(
    published: Published, table: PublishedTable, found: Reproduction, stand_in: bool
) -> str:
    """Render the figures side by side, the set-up's differences and the sources."""
    known = [each for each in found.differences if not each.unstated]
    unstated = [each for each in found.differences if each.unstated]
    rows = [(each.what, each.published, each.measured) for each in known]
    open_rows = [
        f"- {each.what}" + (f" (here: {each.measured})" if each.measured else "") for each in unstated
    ]
    sources = [
        f"{each.title}, {each.date}\n{each.url}\n{each.checked}"
        for each in published.sources_of(table).values()
    ]
    parts = [
        f"Published and measured: {table.title}",
        f"warning: {STAND_INS}" if stand_in else "",
        render_table(_FIGURES, [_row(row) for row in found.rows], right=("published", "measured", "x"))
        + "\n(AL: acceptance length; x: measured over published; "
        + (
            "the set-up is another one, so no figure shows whether the published one can be reproduced)"
            if known
            else "agrees: the published figure is in the measured interval)"
        ),
        "\n".join(f"note: {each}" for each in _reasons(found.rows)),
        render_table(("not as published", "published", "measured"), rows) if rows else "",
        "\n".join(["Not stated by the source, so perhaps different:", *open_rows]) if open_rows else "",
        render_fields([("source" if not number else "", text) for number, text in enumerate(sources)]),
    ]
    return "\n\n".join(part for part in parts if part)


def _reasons(rows: Sequence[LinedUp]) -> list[str]:
    """Return each figure's reason once, with all its concurrencies that were not measured in one line."""
    loads: dict[str, list[str]] = {}
    said: list[str] = []
    for row in rows:
        if row.reason == f"c={row.figure.concurrency} was not measured":
            loads.setdefault(row.figure.label, []).append(str(row.figure.concurrency))
        elif row.reason:
            said.append(f"{row.figure.label}: {row.reason}")
    missing = [f"{label}: not measured at c={', '.join(each)}" for label, each in loads.items()]
    return [*missing, *dict.fromkeys(said)]


def _row(row: LinedUp) -> tuple[str, ...]:
    figure, against = row.figure, row.against
    load = f"{figure.concurrency}" if figure.concurrency else (row.load or "-").removeprefix("c=")
    if row.measured is None or against is None:
        return figure.label, load, figure.text, "-", "-", "-", row.result
    measured = f"{row.measured:,.0f}" if figure.kind == "otps" else f"{row.measured:.2f}"
    between = f"[{against.low:.2f}, {against.high:.2f}]" if row.interval else "-"
    return figure.label, load, figure.text, measured, f"{against.value:.2f}", between, row.result


def reproduction_data(
    published: Published, table: PublishedTable, found: Reproduction, stand_in: bool
) -> dict[str, Any]:
    """Return the same data for --format json."""
    return {
        "title": table.title,
        "stand_in_weights": stand_in,
        "figures": [
            {**asdict(row), "label": row.figure.label, "against": row.against and asdict(row.against)}
            for row in found.rows
        ],
        "differences": [{**asdict(each), "unstated": each.unstated} for each in found.differences],
        "sources": {
            name: source.model_dump(mode="json") for name, source in published.sources_of(table).items()
        },
    }
