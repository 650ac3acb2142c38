"""A click group that imports a command's module only when that command is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module

import click

from peagle_sm.cli.options import GLOBAL_OPTION_NAMES

GLOBAL_TITLE = "Global options, before or after the command"


@dataclass(frozen=True)
class Entry:
    """One command in a lazy group's table: enough to list it in a help page without importing it."""

    name: str
    target: str
    """Where it lives, as `module:attribute`."""
    help: str
    """The line in the group's help; a test holds it equal to the command's own."""
    section: str = "Commands"


def _write_option_sections(
    command: click.Command, ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    own: list[tuple[str, str]] = []
    shared: list[tuple[str, str]] = []
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
        if record is not None:
            (shared if param.name in GLOBAL_OPTION_NAMES else own).append(record)
    for title, rows in (("Options", own), (GLOBAL_TITLE, shared)):
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)


class Command(click.Command):
    """A command whose help page lists the global options apart from its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; a command without a confirmation prompt names that as the reason for having no --yes."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name in ("--yes", "-y"):
                raise click.UsageError(
                    f"{ctx.command_path} has no {error.option_name}: it never asks for confirmation."
                    " Leave it out.",
                    ctx,
                ) from error
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options, then the global ones."""
        _write_option_sections(self, ctx, formatter)


class LazyGroup(click.Group):
    """A group over a table of `Entry`; commands are imported by `get_command` alone."""

    def __init__(self, *, entries: Sequence[Entry] = (), **attrs: object) -> None:
        """Take the table of commands, in the order of the help page."""
        super().__init__(**attrs)  # type: ignore[arg-type]
        self.entries = {entry.name: entry for entry in entries}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the commands in the table's order."""
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command, or None when the table does not have it."""
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.target.partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command), entry.target
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which names are close and which exist."""
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in self.entries:
            from difflib import get_close_matches

            close = get_close_matches(name, self.entries, n=1)
            guess = f" Did you mean {close[0]!r}?" if close else ""
            raise click.UsageError(
                f"No such command {name!r}.{guess} Commands: {', '.join(self.entries)}.", ctx=ctx
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table, section by section, from its own words."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for entry in self.entries.values():
            sections.setdefault(entry.section, []).append((entry.name, entry.help))
        width = max((len(name) for name in self.entries), default=0)
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in rows])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, then the group's own options, then the global ones."""
        self.format_commands(ctx, formatter)
        _write_option_sections(self, ctx, formatter)
