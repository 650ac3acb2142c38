"""The pages of the commands and of the exit codes."""

from __future__ import annotations

from collections.abc import Iterator

import click

from peagle_sm.cli.app import PROGRAM, app
from peagle_sm.cli.base import GLOBAL_TITLE
from peagle_sm.core.errors import EXIT_CODES

_CLI_INTRO = """\
# The command line

`scripts/reference` writes this page from the commands' own `--help`.

Results go to stdout, everything else to stderr. `--format json` prints one JSON document on stdout; progress,
notes and errors are then JSON objects on stderr, one a line: `{"progress": …}`, `{"plan": …}`,
`{"preflight": […]}`, `{"note": …}`, `{"error": {"type", "message", "next_step", "details", "exit_code"}}`.
`--format quiet` prints names only.
The global options, in the first section below, may come before or after every command.
A value comes from the flag, then the environment, then the spec, then the profile's default.
Exit codes: [their meaning](exit-codes.md).
"""
_CODES_INTRO = """\
# Exit codes

`scripts/reference` writes this page from `peagle_sm.core.errors.EXIT_CODES`. With `--format json` the error
on stderr carries the same number as `exit_code`.

| code | meaning |
|---:|---|
"""
PIPE_CLOSED = "the reader of stdout went away (128 + SIGPIPE), as `peagle-sm logs … | head` does"


def walk(
    command: click.Command = app, name: str = PROGRAM, parent: click.Context | None = None
) -> Iterator[tuple[str, str]]:
    """Each command's full name and help page, the group before its commands."""
    settings = {**command.context_settings, "terminal_width": 100, "max_content_width": 100}
    context = click.Context(command, info_name=name, parent=parent, **settings)
    yield _path(context), command.get_help(context)
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            child = command.get_command(context, each)
            assert child is not None, each
            yield from walk(child, each, context)


def _path(context: click.Context) -> str:
    names = [] if context.parent is None else [_path(context.parent)]
    return " ".join([*names, str(context.info_name)])


def _without_global_options(page: str) -> str:
    return page.split(f"\n\n{GLOBAL_TITLE}:")[0]


def cli_page() -> str:
    """The text of docs/reference/cli.md."""
    sections = []
    for name, page in walk():
        text = page if name == PROGRAM else _without_global_options(page)
        sections.append(f"## {name}\n\n```text\n{text.rstrip()}\n```\n")
    return "\n".join([_CLI_INTRO, *sections])


def exit_codes_page() -> str:
    """The text of docs/reference/exit-codes.md."""
    codes = {**EXIT_CODES, 141: PIPE_CLOSED}
    return _CODES_INTRO + "".join(f"| {code} | {meaning} |\n" for code, meaning in sorted(codes.items()))
