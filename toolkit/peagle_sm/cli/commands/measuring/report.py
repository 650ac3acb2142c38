"""`peagle-sm report`: results files as an HTML page, as Markdown, and as a summary."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from peagle_sm.cli.base import Command, State, global_options
from peagle_sm.cli.commands.measuring.options import RESULTS_FILE
from peagle_sm.cli.console import emit, note
from peagle_sm.cli.terminal import render_table

if TYPE_CHECKING:
    from peagle_sm.measure.report.merging import Part
    from peagle_sm.measure.report.tables import Rows
    from peagle_sm.measure.report.view import View


_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(cls=Command)
@click.argument("files", metavar="FILE…", nargs=-1, required=True, type=RESULTS_FILE)
@click.option("--html", "page", type=_FILE, help="Write the page here: one file, with its data inside.")
@click.option("--markdown", is_flag=True, help="Print Markdown for a pull request in place of the summary.")
@click.option("--title", help="What the report is called.  [default: P-EAGLE report]")
@global_options
@click.pass_obj
def report(
    state: State, files: tuple[Path, ...], page: Path | None, markdown: bool, title: str | None
) -> None:
    """Show what results files say: a summary here, a page, or Markdown.

    FILE is what bench, compare, tune or verify wrote, or a page that this command wrote: its data is
    inside. Several files make one report with a part for each
    run: figures of two runs cannot be compared. Exit code 2 when a file cannot be read as results,
    or none of them holds a load that was finished.
    """
    from dataclasses import asdict

    from peagle_sm.measure.report.files import read_files, write_page
    from peagle_sm.measure.report.merging import demand_figures, parts_of, view_of
    from peagle_sm.measure.report.page import html_page
    from peagle_sm.measure.report.tables import markdown as as_markdown
    from peagle_sm.measure.report.verdict import verdict

    results = read_files(files)
    view = view_of(results)
    for warning in view.warnings:
        note(state, f"warning: {warning}")
    demand_figures(results)
    for line in view.empty:
        note(state, f"note: {line}")
    if page is not None:
        write_page(page, html_page(results, title=title))
        note(state, f"wrote {page}")
    if markdown:
        click.echo(as_markdown(results, title=title), nl=False)
        return
    emit(
        state,
        table=lambda: render_reports(parts_of(results)),
        data=lambda: {
            **asdict(verdict(view)),
            "stand_in_weights": view.stand_in,
            "html": str(page) if page else None,
        },
        names=[str(page)] if page else [],
    )


def render_reports(parts: Sequence[Part]) -> str:
    """One run's report, or those of several under their names."""
    if len(parts) == 1:
        return render_report(parts[0].view)
    blocks = [f"{part.title}\n{'=' * len(part.title)}\n{render_report(part.view)}" for part in parts]
    return "\n\n\n".join([*blocks, "Compare modes within one run only."])


def render_report(view: View) -> str:
    """The verdict with how far it reaches, then every table that has rows."""
    from peagle_sm.measure.load.points import doubt_lines
    from peagle_sm.measure.report import tables
    from peagle_sm.measure.report.trust import trust
    from peagle_sm.measure.report.verdict import checked, verdict

    said = verdict(view)
    first = [*caution_lines(view), said.headline]
    first += [f"  {line}" for line in (said.second, "; ".join(said.limits)) if line]
    blocks = ["\n".join(first)]
    measured = tables.ratios(view), tables.points(view), tables.best_k(view), tables.rates(view)
    for table in (*measured, tables.checks(view, power=False)):
        if table is not None:
            blocks.append(render_rows(table))
    if view.checks:
        blocks.append(checked(view.checks))
    if told := trust(view):
        blocks.append("\n".join([told, *(f"note: {line}" for line in doubt_lines(view.points))]))
    return "\n\n".join(blocks)


def caution_lines(view: View) -> list[str]:
    """What must be read before any figure."""
    from peagle_sm.measure.report.view import cautions

    return [f"{one.name.upper()}. {one.text}" for one in cautions(view)]


def render_rows(table: Rows) -> str:
    """Aligned columns, figures to the right."""
    return render_table(table.heads, table.rows, right=table.figures)
