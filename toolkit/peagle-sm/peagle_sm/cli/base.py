"""The base of every command: state, global options, groups that import lazily.

`State` holds the global options and the outside world (environment, terminal); tests replace both. A global
option may come before the subcommand or after it; the later one wins. `LazyGroup` lists its commands from a
table of `Entry` and imports a command's module only when that command is used. This keeps --help fast.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeVar

import click
from click.core import ParameterSource


@dataclass
class Settings:
    """The global options as typed; None means that the flag was not given."""

    format: str | None = None
    profile: str | None = None
    region: str | None = None
    local: bool | None = None
    local_port: int | None = None
    debug: bool | None = None


@dataclass
class State:
    """The context object of click; tests set its environment, terminal and clock."""

    settings: Settings = field(default_factory=Settings)
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    stdin_is_tty: Callable[[], bool] = lambda: sys.stdin is not None and sys.stdin.isatty()
    stderr_is_tty: Callable[[], bool] = lambda: sys.stderr is not None and sys.stderr.isatty()
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    spec_region: str | None = None
    """The region in ./peagle.yaml, if the endpoint's name comes from that file."""

    @property
    def format(self) -> str:
        """`table`, `json` or `quiet`."""
        return self.settings.format or "table"

    @property
    def local_port(self) -> int | None:
        """The local server's port from flag or environment; None for the only server.

        Raises:
            SpecError: PEAGLE_SM_LOCAL_PORT is not a port.
        """
        from peagle_sm.aws.session.local_server import local_port

        return local_port(self.settings.local_port, self.environ)

    @property
    def local(self) -> bool:
        """Whether commands use the local SageMaker: flag, else environment, else no.

        Raises:
            SpecError: PEAGLE_SM_LOCAL or PEAGLE_SM_LOCAL_PORT has a value that is not allowed.
        """
        from peagle_sm.aws.session.local_server import wants_local

        return wants_local(self.settings.local, self.settings.local_port, self.environ)

    @property
    def flags(self) -> str:
        """Options that give a suggested command the same target; begin with a space."""
        if self.settings.local_port is not None:
            return f" --local-port {self.settings.local_port}"
        if self.local:
            return " --local"
        given = (("--profile", self.settings.profile), ("--region", self.settings.region))
        return "".join(f" {option} {value}" for option, value in given if value)

    def region(self, from_spec: str | None = None) -> str | None:
        """Return the region of flag, else environment, else spec; None: the profile's."""
        from peagle_sm.aws.session.local_server import region_of

        return region_of(self.settings.region, self.environ, from_spec)


F = TypeVar("F", bound=Callable[..., Any])
FORMATS = ("table", "json", "quiet")


def as_seconds(ctx: click.Context, param: click.Parameter, value: str) -> float:
    """Convert an option's duration (`90s`, `45m`, `2h`, `1h30m`) into seconds."""
    from peagle_sm.cli.terminal import parse_duration

    try:
        return parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    # Every command of the line has the option: one that was not typed must not undo one that was.
    assert param.name is not None
    if ctx.get_parameter_source(param.name) is ParameterSource.COMMANDLINE:
        name = {"output_format": "format"}.get(param.name, param.name)
        setattr(ctx.ensure_object(State).settings, name, value)
    return value


def _option(*names: str, **attributes: Any) -> Callable[[F], F]:
    return click.option(*names, expose_value=False, callback=_remember, is_eager=True, **attributes)


_OPTIONS = (
    _option(
        "--format",
        "output_format",
        type=click.Choice(FORMATS),
        help="Format of the results on stdout; quiet prints names only.  [default: table]",
    ),
    _option("--profile", metavar="NAME", help="AWS profile.  [env: AWS_PROFILE]"),
    _option("--region", metavar="REGION", help="AWS region; overrides the spec's.  [env: AWS_REGION]"),
    _option(
        "--local/--no-local",
        default=None,
        help="Use the local SageMaker that `peagle-sm local up` started.  [env: PEAGLE_SM_LOCAL]",
    ),
    _option(
        "--local-port",
        type=click.IntRange(1, 65535),
        metavar="PORT",
        help="Port of the local SageMaker, if several run; implies --local.  [env: PEAGLE_SM_LOCAL_PORT]",
    ),
    _option("--debug", is_flag=True, default=None, help="Show the traceback of an error."),
)
GLOBAL_OPTION_NAMES = frozenset({"output_format", "profile", "region", "local", "local_port", "debug"})


def global_options(function: F) -> F:
    """Add the global options to a command or group."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


GLOBAL_TITLE = "Global options, before or after the command"


@dataclass(frozen=True)
class Entry:
    """A row of a lazy group's table: enough to list a command without importing it."""

    name: str
    target: str
    """`module:attribute`, below the group's package; or the distribution that adds it by an entry point."""
    help: str
    """The line in the group's help; a test checks that the command's own help begins with it."""
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
    """A command with a help page that separates its own options from the global ones."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; explain why a command without a prompt has no --yes."""
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


#: A distribution, with those that it needs beside peagle-sm: pip finds none of them on an index.
_NEEDED = {"peagle-bench": ("peagle-bench",), "peagle-learn": ("peagle-bench", "peagle-learn")}
#: Other tools' names of commands, with the commands here; a group suggests the first one that it has.
_HABITS: dict[str, tuple[str, ...]] = {
    "apply": ("deploy",),
    "create": ("deploy", "install", "init"),
    "destroy": ("delete", "uninstall", "down"),
    "describe": ("status",),
    "down": ("delete",),
    "get": ("status",),
    "ls": ("list",),
    "predict": ("invoke",),
    "ps": ("list", "status"),
    "remove": ("delete", "uninstall"),
    "rm": ("delete", "uninstall"),
    "run": ("invoke",),
    "show": ("status",),
    "start": ("resume", "up"),
    "stop": ("pause", "down"),
    "up": ("deploy",),
}


def write_sections(formatter: click.HelpFormatter, sections: Mapping[str, Sequence[Entry]]) -> None:
    """Write commands section by section, their texts in one column."""
    width = max((len(entry.name) for entries in sections.values() for entry in entries), default=0)
    for title, entries in sections.items():
        with formatter.section(title):
            formatter.write_dl([(entry.name.ljust(width), entry.help) for entry in entries])


def _from_distribution(entry: Entry, ctx: click.Context) -> Any:
    """Load a command that another distribution of this project adds; None if completion cannot offer it.

    Raises:
        NotFound: the distribution is not installed.
    """
    from importlib.metadata import entry_points

    for point in entry_points(group="peagle_sm.commands", name=entry.name):
        return point.load()
    if ctx.resilient_parsing:  # a shell's completion asks for every command
        return None
    from peagle_sm.core.errors import NotFound
    from peagle_sm.core.words import clone_command

    raise NotFound(
        f"`peagle-sm {entry.name}` is a command of {entry.target}, which is not installed",
        next_step=clone_command(*_NEEDED[entry.target]),
    )


class LazyGroup(click.Group):
    """A group over a table of `Entry`; commands are imported by `get_command` alone."""

    def __init__(
        self, *, entries: Sequence[Entry] = (), package: str = "peagle_sm.cli", **attrs: object
    ) -> None:
        """Take the table of commands, in the order of the help page, and the package of their modules."""
        super().__init__(**attrs)  # type: ignore[arg-type]
        self.package = package
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
        if attribute:
            command = getattr(import_module(f"{self.package}.{module}"), attribute)
        else:
            command = _from_distribution(entry, ctx)
        assert command is None or isinstance(command, click.Command), entry.target
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; for an unknown name, suggest a similar one and list all."""
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in self.entries:
            from difflib import get_close_matches

            close = get_close_matches(name, self.entries, n=1)
            suggestion = next((command for command in _HABITS.get(name, ()) if command in self.entries), None)
            suggestion = suggestion or (close[0] if close else None)
            guess = f" Did you mean {suggestion!r}?" if suggestion else ""
            raise click.UsageError(
                f"No such command {name!r}.{guess} Commands: {', '.join(self.entries)}.", ctx=ctx
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands, section by section."""
        sections: dict[str, list[Entry]] = {}
        for entry in self.entries.values():
            sections.setdefault(entry.section, []).append(entry)
        write_sections(formatter, sections)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, then the group's own options, then the global ones."""
        self.format_commands(ctx, formatter)
        _write_option_sections(self, ctx, formatter)
