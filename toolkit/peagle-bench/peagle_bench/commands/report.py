"""`peagle-sm report`: results files as text, HTML or Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from peagle_bench.commands.options import FILE
from peagle_bench.commands.packs import scorecard_data
from peagle_sm.cli.base import Command, State, global_options
from peagle_sm.cli.console import emit, note
from peagle_sm.cli.terminal import show

if TYPE_CHECKING:
    from peagle_bench.report.merging import Part
    from peagle_bench.report.view import View


@click.command(cls=Command)
@click.argument("files", metavar="FILE…", nargs=-1, required=True, type=FILE)
@click.option("--html", "page", type=FILE, help="Write an HTML page to this file.")
@click.option("--markdown", is_flag=True, help="Print Markdown, for example for a pull request.")
@click.option("--title", help="Title of the report.  [default: P-EAGLE report]")
@global_options
@click.pass_obj
def report(
    state: State, files: tuple[Path, ...], page: Path | None, markdown: bool, title: str | None
) -> None:
    """Summarise results files: in the terminal, as an HTML page, or as Markdown.

    FILE is a results file of bench, compare, tune or verify. Several files make one report with one part for
    each run; figures of different runs cannot be compared. Exit code 2 if a file is not a results file, or if
    no file contains a finished load.
    """
    from peagle_bench.report import slices
    from peagle_bench.report.markdown import markdown as as_markdown
    from peagle_bench.report.merging import demand_figures, parts_of
    from peagle_bench.report.page import html_page
    from peagle_bench.report.verdict import verdict
    from peagle_bench.results.result_file import read_files
    from peagle_sm.aws.files import write_file

    results = read_files(files)
    parts = parts_of(results)
    for warning in (text for each in results for text in each.warnings):
        note(state, f"warning: {warning}")
    demand_figures(results)
    for line in (text for part in parts for text in part.view.empty):
        note(state, f"note: {line}")
    if page is not None:
        write_file(page, html_page(results, title=title), parents=True)
        note(state, f"wrote {page}")
    if markdown:
        click.echo(as_markdown(results, title=title), nl=False)
        return
    emit(
        state,
        table=lambda: render_reports(parts),
        data=lambda: {
            **asdict(verdict(parts[0].view)),
            **parts[0].view.headers[0].target_data(),
            "packs": scorecard_data([pack for part in parts for pack in part.view.packs]),
            "slices": [row for each in results for row in slices.data(each)],
            "html": str(page) if page else None,
        },
        names=[str(page)] if page else [],
    )


def render_reports(parts: Sequence[Part]) -> str:
    """Render the report of one run, or of several runs with their titles."""
    if len(parts) == 1:
        return render_report(parts[0].view)
    blocks = [f"{part.title}\n{'=' * len(part.title)}\n{render_report(part.view)}" for part in parts]
    return "\n\n\n".join([*blocks, "Compare modes within one run only."])


def render_report(view: View) -> str:
    """Render the verdict with its limits, then every table that has rows."""
    from peagle_bench.load.points import doubt_lines
    from peagle_bench.report import tables
    from peagle_bench.report.trust import trust
    from peagle_bench.report.verdict import checked, verdict

    outcome = verdict(view)
    first = [*caution_lines(view), outcome.headline]
    first += [f"  {line}" for line in (outcome.second, "; ".join(outcome.limits)) if line]
    blocks = ["\n".join(first)]
    blocks += [show(table) for table in tables.tables_of(view)]
    if view.checks:
        blocks.append(checked(view.checks))
    if warning := trust(view):
        blocks.append("\n".join([warning, *(f"note: {line}" for line in doubt_lines(view.points))]))
    return "\n\n".join(blocks)


def caution_lines(view: View) -> list[str]:
    """Render the cautions that a reader must see before any figure."""
    from peagle_bench.report.view import cautions

    return [f"{caution.name.upper()}. {caution.text}" for caution in cautions(view)]
