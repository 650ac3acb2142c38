"""`peagle-sm checks`: every check that there is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from peagle_sm.cli.lazy import Command
from peagle_sm.cli.options import global_options
from peagle_sm.cli.output import emit
from peagle_sm.cli.state import State
from peagle_sm.cli.table import render_table

if TYPE_CHECKING:
    from peagle_sm.core.checks import Check


@click.command(cls=Command)
@global_options
@click.pass_obj
def checks(state: State) -> None:
    """List what is checked before a deploy.

    `doctor` runs them all. --format json has of each what it looks for, why, who says so, how to fix it.
    docs/reference/checks.md is the same to read.
    """
    from peagle_sm.core.checks import ALL_CHECKS

    emit(
        state,
        table=lambda: render_table(
            ("check", "at worst", "looks at", "fix", "what"), [_row(each) for each in ALL_CHECKS]
        ),
        data=lambda: [check_data(each) for each in ALL_CHECKS],
        names=[each.id for each in ALL_CHECKS],
    )


def _row(each: Check) -> tuple[str, ...]:
    return each.id, each.severity, each.reads, "yes" if each.fix else "-", each.what


def check_data(each: Check) -> dict[str, Any]:
    """One check as JSON-able data."""
    return {
        "id": each.id,
        "severity": each.severity,
        "reads": each.reads,
        "needs_spec": each.needs_spec,
        "what": each.what,
        "why": each.why,
        "source": each.source,
        "url": each.url,
        "remedy": each.remedy,
        "fix": each.fix.what if each.fix else None,
    }
