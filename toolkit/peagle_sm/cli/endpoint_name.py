"""The endpoint's NAME on the command line: given, or taken from ./peagle.yaml."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from threading import Thread

import click

from peagle_sm.cli.output import note
from peagle_sm.cli.state import State

SPEC = Path("peagle.yaml")
COMPLETION_S = 3.0
"""The longest wait for AWS while somebody presses Tab."""


def name_from_spec(ctx: click.Context) -> str:
    """Read the name from ./peagle.yaml, say so, and use the region of that file too.

    Raises:
        UsageError: there is no ./peagle.yaml.
        SpecError: it is not a spec.
    """
    if not SPEC.is_file():
        raise click.UsageError(
            f"No NAME was given, and there is no ./{SPEC} to take it from. Give the endpoint's name, or run "
            "the command in the folder of its spec.",
            ctx=ctx,
        )
    from peagle_sm.core.spec.endpoint_spec import load_spec

    spec = load_spec(SPEC, locks=False)
    state = ctx.ensure_object(State)
    state.spec_region = spec.placement.region
    note(state, f"note: endpoint {spec.name} (name from ./{SPEC})")
    return spec.name


def _given_or_from_spec(ctx: click.Context, _: click.Parameter, value: str | None) -> str | None:
    return name_from_spec(ctx) if value is None and not ctx.resilient_parsing else value


def complete_endpoint(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of an existing endpoint for the shell; nothing where that fails or takes long."""
    found: list[str] = []

    def look() -> None:
        from peagle_sm.aws.control.nearest import endpoint_names
        from peagle_sm.cli.connect import open_session

        with suppress(Exception):  # a shell's prompt is no place for an error
            found.extend(endpoint_names(open_session(ctx.ensure_object(State))))

    looking = Thread(target=look, daemon=True)
    looking.start()
    looking.join(COMPLETION_S)
    return sorted(name for name in found if name.startswith(incomplete))


endpoint_argument = click.argument(
    "name",
    required=False,
    metavar="[NAME]",
    callback=_given_or_from_spec,
    shell_complete=complete_endpoint,
)
"""The argument NAME of a command for one endpoint; the command gets a name in any case."""
