"""What a command works on: a session, a SPEC file, the NAME of an endpoint.

The global options choose the session: AWS, or the local SageMaker that is running. Without a NAME the
endpoint's name is read from ./peagle.yaml. Shell completion reads names from SageMaker and gives up after
three seconds.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import click

from peagle_sm.cli.base import State
from peagle_sm.cli.console import note
from peagle_sm.core.errors import CredentialsError, EngineError
from peagle_sm.core.words import install_command

if TYPE_CHECKING:
    from peagle_sm.aws.session.session import Session
    from peagle_sm.core.spec.endpoint_spec import EndpointSpec


def need_local_extra() -> None:
    """Say what to install when the extra `local` is not there.

    Raises:
        EngineError: a package of the extra is missing.
    """
    missing = [name for name in ("aiohttp", "moto", "psutil") if find_spec(name) is None]
    if missing:
        raise EngineError(
            f"the local SageMaker needs {' and '.join(missing)}, which this Python does not have",
            next_step=install_command("local"),
            details={"found": sys.executable},
        )


def open_session(state: State, spec_region: str | None = None) -> Session:
    """A session for the place that the options name.

    Region: flag, then environment, then the spec, then the profile; a local server has its own.

    Raises:
        CredentialsError: no or unknown region or profile, or a region that the local server does not play.
        NotFound: --local, and no local server runs.
    """
    from peagle_sm.aws.session.session import LocalTarget, make_session

    if not state.local:
        return make_session(
            profile=state.settings.profile, region=state.region(spec_region or state.spec_region)
        )
    need_local_extra()
    from peagle_sm.aws.session.local_server import find_server

    target = LocalTarget.from_status(find_server(state.local_port).to_dict())
    asked = state.settings.region
    if asked and asked != target.region:
        raise CredentialsError(
            f"the local SageMaker plays region {target.region}, and --region asks for {asked}",
            next_step=f"leave --region out, or write --region {target.region}",
            details={"found": asked, "allowed": target.region},
        )
    return make_session(region=target.region, local=target)


spec_argument = click.argument(
    "spec_path", metavar="[SPEC]", default="peagle.yaml", type=click.Path(path_type=Path, dir_okay=False)
)


def given(path: Path) -> str:
    """The spec as words of a suggested command, with a leading blank; nothing for the usual one."""
    from shlex import quote

    return "" if str(path) == "peagle.yaml" else f" {quote(str(path))}"


def read_spec(path: Path) -> EndpointSpec:
    """The spec in a file; `-` reads stdin.

    Raises:
        SpecError: the file cannot be read, or has a bad field.
    """
    from peagle_sm.core.spec.endpoint_spec import load_spec, parse_spec

    if str(path) == "-":
        return parse_spec(sys.stdin.read(), "stdin")
    return load_spec(path)


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
        from peagle_sm.aws.control.sagemaker import endpoint_names

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
