"""`peagle-sm heads check`: all that is wrong with a head, wherever it is."""

from __future__ import annotations

import click

from peagle_sm.cli.lazy import Command
from peagle_sm.cli.options import global_options
from peagle_sm.cli.output import emit
from peagle_sm.cli.state import State


@click.command(cls=Command)
@click.argument("head")
@click.option(
    "--target", metavar="TARGET", help="Target to hold it against: as HEAD.  [default: the catalogue's]"
)
@click.option(
    "--mode", type=click.Choice(("eagle3", "p-eagle")), help="How it is to draft.  [default: as it is]"
)
@click.option(
    "--k", type=click.IntRange(1), metavar="K", help="num_speculative_tokens that it is to propose."
)
@click.option("--revision", metavar="COMMIT", help="Commit, branch or tag on the hub.  [default: main]")
@global_options
@click.pass_obj
def check(
    state: State, head: str, target: str | None, mode: str | None, k: int | None, revision: str | None
) -> None:
    """Say all that is wrong with a head, before an engine loads it.

    HEAD is a folder, s3://BUCKET/PREFIX/, OWNER/NAME on the Hugging Face hub, or a head or model of the
    catalogue. Only configs, headers and the vocabulary's map are read; of a folder, every file's sha256 too.
    Ends with exit code 3 when the head must not be deployed.
    """
    from peagle_sm.cli.connect import open_session
    from peagle_sm.cli.heads_sources import sources_for
    from peagle_sm.cli.heads_text import render_report
    from peagle_sm.core.heads.fault import refused
    from peagle_sm.service.heads import check_head

    sources = sources_for(state, lambda: open_session(state))
    report = check_head(
        head, target=target, mode=mode, num_speculative_tokens=k, revision=revision, sources=sources
    )
    emit(
        state,
        table=lambda: render_report(report),
        data=report.to_dict,
        names=[fault.code for fault in report.faults if fault.severity == "error"],
    )
    if not report.ok:
        raise refused(report.place, report.faults, shown=state.format == "table")
