"""What several commands take: a session, a follower of progress, the SPEC file, an endpoint's NAME.

The global options choose the session: AWS, or the local SageMaker. Without NAME, the endpoint's name comes
from ./peagle.yaml.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from peagle_sm.aws.files import write_file
from peagle_sm.cli.base import State
from peagle_sm.cli.console import note, say

if TYPE_CHECKING:
    from peagle_sm.aws.session.session import Session
    from peagle_sm.cli.progress import Follower
    from peagle_sm.core.spec.endpoint_spec import EndpointSpec


def open_session(state: State, spec_region: str | None = None, default_region: str | None = None) -> Session:
    """Open a session for AWS or the local SageMaker, as the global options say.

    Region: the flag, else the environment, else the spec, else the profile, else ``default_region``. A local
    server has its own.

    Raises:
        CredentialsError: no or unknown region or profile, or a --region other than the local server's.
        NotFound: --local was given, but no local server runs.
        EngineError: --local was given, but sagemaker-local is not installed.
    """
    from peagle_sm.aws.session.local_server import session_for

    settings = state.settings
    return session_for(
        state.environ,
        profile=settings.profile,
        region=settings.region,
        local=settings.local,
        port=settings.local_port,
        spec_region=spec_region or state.spec_region,
        default_region=default_region,
    )


def follower(state: State) -> Follower:
    """Return the follower of progress for the format and the terminal."""
    from peagle_sm.cli import progress

    if state.format == "json":
        return progress.JsonLines()
    if state.format == "quiet":
        return progress.Follower()
    if state.stderr_is_tty():
        return progress.LiveLine(state.monotonic)
    return progress.PlainLines(say)


spec_argument = click.argument(
    "spec_path", metavar="[SPEC]", default="peagle.yaml", type=click.Path(path_type=Path, dir_okay=False)
)


yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
unguarded_option = click.option(
    "--unguarded",
    is_flag=True,
    help="Go on without a guard: only the lifetime schedule then deletes a forgotten endpoint.",
)
temperature_option = click.option(
    "--temperature",
    type=click.FloatRange(0, 2),
    help="Sampling temperature; 0 is greedy.  [default: the engine's]",
)
component_option = click.option(
    "--component",
    help="Inference component to invoke.  [default: the one with the endpoint's name, if it has components]",
)


def given(path: Path) -> str:
    """Return " SPEC" for a suggested command; empty for peagle.yaml."""
    return "" if str(path) == "peagle.yaml" else f" {quote(str(path))}"


def read_spec(path: Path) -> EndpointSpec:
    """Read the spec from a file; `-` reads stdin.

    Raises:
        SpecError: the file cannot be read, or has a bad field.
    """
    from peagle_sm.core.spec.endpoint_spec import parse_spec
    from peagle_sm.service.spec_to_plan import load_spec

    if str(path) == "-":
        return parse_spec(sys.stdin.read(), "stdin")
    return load_spec(path)


def write_fields(path: Path, fields: Mapping[str, Any]) -> None:
    """Write fields, by dotted name, into a spec file; the rest of it stays as it is.

    Raises:
        SpecError: a field cannot be written.
        CannotWrite: the file cannot be written.
    """
    from peagle_sm.core.spec.editing import edit_spec

    write_file(path, edit_spec(path.read_text(encoding="utf-8"), dict(fields), str(path)))


SPEC = Path("peagle.yaml")


def name_from_spec(ctx: click.Context) -> str:
    """Read the name from ./peagle.yaml, print it, and use that spec's region too.

    Raises:
        UsageError: there is no ./peagle.yaml.
        SpecError: it is not a spec.
    """
    if not SPEC.is_file():
        raise click.UsageError(
            f"No NAME was given, and there is no ./{SPEC} to read it from. Give the endpoint's name, or run "
            "the command in the folder of its spec.",
            ctx=ctx,
        )
    from peagle_sm.service.spec_to_plan import load_spec

    spec = load_spec(SPEC, locks=False)
    state = ctx.ensure_object(State)
    state.spec_region = spec.placement.region
    note(state, f"note: endpoint {spec.name} (name from ./{SPEC})")
    return spec.name


endpoint_argument = click.argument(
    "name",
    required=False,
    metavar="[NAME]",
    callback=lambda ctx, _, value: (
        name_from_spec(ctx) if value is None and not ctx.resilient_parsing else value
    ),
)
"""The optional argument NAME; without it the command gets the name in ./peagle.yaml."""
