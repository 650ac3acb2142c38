"""`peagle-sm openai`: the environment that points any OpenAI tool at an endpoint."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from peagle_sm.cli.endpoint_name import complete_endpoint
from peagle_sm.cli.lazy import Command
from peagle_sm.cli.openai_text import SHELLS, advice, export_lines, shell_of
from peagle_sm.cli.options import global_options
from peagle_sm.cli.output import note, to_json
from peagle_sm.cli.state import State

if TYPE_CHECKING:
    from peagle_sm.aws.session.session import Session


@click.command("openai", cls=Command)
@click.argument("name", shell_complete=complete_endpoint)
@click.option(
    "--component", help="The inference component to ask.  [default: the one of the endpoint's name]"
)
@click.option(
    "--hours",
    type=float,
    default=1.0,
    show_default=True,
    help="How long the token lasts: at most 12, and never longer than the credentials that sign it.",
)
@click.option(
    "--shell",
    type=click.Choice(SHELLS),
    help="Whose syntax to print.  [default: fish where SHELL says so, else bash]",
)
@global_options
@click.pass_obj
def openai(state: State, name: str, component: str | None, hours: float, shell: str | None) -> None:
    """Print the environment for any OpenAI tool.

    OPENAI_BASE_URL and OPENAI_API_KEY; to set them: eval "$(peagle-sm openai NAME)". The key is a bearer
    token with the rights of your AWS credentials: it is printed on stdout and kept nowhere. The route serves
    chat completions only, and tools must leave the model's name empty; for others there is `peagle-sm serve`.
    """
    from peagle_sm.aws.session.bearer import bearer_token
    from peagle_sm.cli.connect import open_session
    from peagle_sm.service.serving.openai_access import component_of, openai_base_url

    session = open_session(state)
    token = bearer_token(session, hours=hours)  # first, since it costs no call
    _look(state, session, name)
    chosen = component_of(session, name, component)
    url = openai_base_url(session, name, chosen)
    if state.format == "json":
        told = {"base_url": url, "api_key": token.token, "expires_at": token.expires_at, "model": ""}
        click.echo(to_json({"endpoint": name, "component": chosen, **told}))
        return
    syntax = shell or shell_of(state.environ)
    for line in export_lines(syntax, {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": token.token}):
        click.echo(line)
    for line in advice(name, token.expires_at, state.flags, hours):
        note(state, line)
    if sys.stdout.isatty():
        note(state, f"to set these: {_how(syntax, name, state.flags)}")


def _look(state: State, session: Session, name: str) -> None:
    """Say that there is no such endpoint, as far as the caller may know."""
    from peagle_sm.core.errors import CredentialsError
    from peagle_sm.service import connect

    try:
        connect(name, session=session)
    except CredentialsError as error:  # who may invoke need not be allowed to describe
        note(state, f"not looked whether {name} exists: {error.message}")


def _how(shell: str, name: str, flags: str) -> str:
    command = f"peagle-sm openai {name}{flags}"
    if shell == "fish":
        return f"{command} | source"
    if shell == "powershell":
        return f"{command} --shell powershell | Out-String | Invoke-Expression"
    return f'eval "$({command})"'
