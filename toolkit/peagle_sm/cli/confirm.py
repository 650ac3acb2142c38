"""Asking before something costs or destroys; never guessing when nobody can answer."""

from __future__ import annotations

import click

from peagle_sm.cli.state import State


def need_terminal(state: State, yes: bool, look: str) -> None:
    """Refuse before any work when the question that comes later could not be asked.

    Args:
        state: the terminal.
        yes: whether --yes was given.
        look: the command that shows what would be done.

    Raises:
        SpecError: there is no terminal to ask on and --yes was not given.
    """
    if yes or state.stdin_is_tty():
        return
    from peagle_sm.core.errors import SpecError

    raise SpecError(
        "There is no terminal to ask on, and --yes was not given. Nothing was changed.",
        next_step=f"look at it with `{look}`, then run it again with --yes",
    )


def confirmed(state: State, question: str, yes: bool) -> bool:
    """Whether to go on; asks on stderr and takes only y or yes, typed after the question.

    Raises:
        SpecError: there is no terminal to ask on and --yes was not given.
    """
    if yes:
        return True
    if not state.stdin_is_tty():
        from peagle_sm.core.errors import SpecError

        raise SpecError(
            f"{question} There is no terminal to ask on, and --yes was not given. Nothing was changed.",
            next_step="read what is shown above, then run it again with --yes",
        )
    from peagle_sm.service.notebook.asking import discard_typed

    discard_typed()
    return click.confirm(question, default=False, err=True)
