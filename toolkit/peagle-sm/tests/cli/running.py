"""How these tests run the command line: in this process, with an environment and a terminal of their own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from click.testing import CliRunner, Result

from peagle_sm.cli.app import app
from peagle_sm.cli.base import State


def run(
    *arguments: str | Path,
    environ: Mapping[str, str] | None = None,
    answers: str | None = None,
    stdin: str = "",
) -> Result:
    """Run `peagle-sm`; `answers` is what somebody types at a terminal, `stdin` what a pipe brings."""
    state = State(environ=dict(environ or {}), stdin_is_tty=lambda: answers is not None)
    return CliRunner().invoke(
        app,
        [str(each) for each in arguments],
        obj=state,
        input=answers if answers is not None else stdin,
        terminal_width=80,
    )
