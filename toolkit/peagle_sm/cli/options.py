"""The global options: accepted before the subcommand and after it; the later one wins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from peagle_sm.cli.state import State

F = TypeVar("F", bound=Callable[..., Any])
FORMATS = ("table", "json", "quiet")


def as_seconds(ctx: click.Context, param: click.Parameter, value: str) -> float:
    """Take `90s`, `45m`, `2h` or `1h30m` as an option's value."""
    from peagle_sm.cli.words import parse_duration

    try:
        return parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    # The option stands on every command, so one that was not typed must not undo one that was typed earlier.
    assert param.name is not None
    if ctx.get_parameter_source(param.name) is ParameterSource.COMMANDLINE:
        name = {"output_format": "format"}.get(param.name, param.name)
        setattr(ctx.ensure_object(State).settings, name, value)
    return value


_OPTIONS = (
    click.option(
        "--format",
        "output_format",
        type=click.Choice(FORMATS),
        help="How results are printed on stdout; quiet prints names only.  [default: table]",
        expose_value=False,
        callback=_remember,
        is_eager=True,
    ),
    click.option(
        "--profile",
        metavar="NAME",
        help="AWS profile.  [env: AWS_PROFILE]",
        expose_value=False,
        callback=_remember,
        is_eager=True,
    ),
    click.option(
        "--region",
        metavar="REGION",
        help="AWS region; goes before the spec's.  [env: AWS_REGION]",
        expose_value=False,
        callback=_remember,
        is_eager=True,
    ),
    click.option(
        "--local/--no-local",
        default=None,
        help="Use the SageMaker that `peagle-sm local up` runs on this machine.  [env: PEAGLE_SM_LOCAL]",
        expose_value=False,
        callback=_remember,
        is_eager=True,
    ),
    click.option(
        "--local-port",
        type=click.IntRange(1, 65535),
        metavar="PORT",
        help="Which local SageMaker, when several run; implies --local.  [env: PEAGLE_SM_LOCAL_PORT]",
        expose_value=False,
        callback=_remember,
        is_eager=True,
    ),
    click.option(
        "--debug",
        is_flag=True,
        default=None,
        help="Show a traceback when something unexpected fails.",
        expose_value=False,
        callback=_remember,
        is_eager=True,
    ),
)
GLOBAL_OPTION_NAMES = frozenset({"output_format", "profile", "region", "local", "local_port", "debug"})


def global_options(function: F) -> F:
    """Add the global options to a command or group."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function
