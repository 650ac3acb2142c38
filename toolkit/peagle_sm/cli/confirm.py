"""Asking before something costs or destroys; never guessing when nobody can answer."""

from __future__ import annotations

import click

from peagle_sm.cli.state import State


def confirmed(state: State, question: str, yes: bool) -> bool:
    """Whether to go on; asks on stderr and takes only y or yes.

    Raises:
        click.UsageError: there is no terminal to ask on and --yes was not given (exit code 2).
    """
    if yes:
        return True
    if not state.stdin_is_tty():
        raise click.UsageError(
            "this needs a yes, and there is no terminal to ask on. Read what is shown above, then add --yes.",
            ctx=click.get_current_context(silent=True),
        )
    return click.confirm(question, default=False, err=True)
