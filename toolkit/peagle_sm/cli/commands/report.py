"""`peagle-sm report`: results files as one page, as Markdown, and as a summary."""

from __future__ import annotations

from pathlib import Path

import click

from peagle_sm.cli.lazy import Command
from peagle_sm.cli.measuring_options import RESULTS_FILE
from peagle_sm.cli.options import global_options
from peagle_sm.cli.output import emit, note
from peagle_sm.cli.state import State

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

    from peagle_sm.cli.report_text import render_reports
    from peagle_sm.measure.report.files import read_files, write_page
    from peagle_sm.measure.report.markdown import markdown as as_markdown
    from peagle_sm.measure.report.merging import view_of
    from peagle_sm.measure.report.page import html_page
    from peagle_sm.measure.report.parts import parts_of
    from peagle_sm.measure.report.unfinished import demand_figures
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
