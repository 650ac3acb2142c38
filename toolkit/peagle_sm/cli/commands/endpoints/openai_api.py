"""`peagle-sm openai` and `serve`: reach an endpoint through the OpenAI API.

`openai` prints the environment variables for an OpenAI client that calls SageMaker directly. `serve` runs a
proxy on this machine for tools that cannot sign requests.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from peagle_sm.cli.arguments import complete_endpoint
from peagle_sm.cli.base import Command, State, global_options
from peagle_sm.cli.console import note, to_json
from peagle_sm.cli.endpoint_status import when
from peagle_sm.core.words import install_command

if TYPE_CHECKING:
    from peagle_sm.aws.session.session import Session
    from peagle_sm.service import EndpointStatus
    from peagle_sm.service.serving.proxy import Running, Served


SHELLS = ("bash", "zsh", "fish", "powershell")


def shell_of(environ: Mapping[str, str]) -> str:
    """Return the shell whose syntax to print by default."""
    return "fish" if environ.get("SHELL", "").rpartition("/")[2] == "fish" else "bash"


def export_lines(shell: str, variables: Mapping[str, str]) -> Iterator[str]:
    """Yield one line for each variable that a shell can evaluate, whatever the value holds."""
    for name, value in variables.items():
        if shell == "powershell":
            yield f"$env:{name} = '{value.replace(chr(39), chr(39) * 2)}'"
        elif shell == "fish":
            escaped = value.replace("\\", "\\\\").replace("'", "\\'")
            yield f"set -gx {name} '{escaped}'"
        else:
            quoted = value.replace("'", "'\"'\"'")
            yield f"export {name}='{quoted}'"


def advice(name: str, expires_at: datetime, flags: str, hours: float) -> Iterator[str]:
    """Yield what a person must know beside the lines: the end, the model's name, and what is not served."""
    longer = "" if hours > 11 else "; --hours 12 is the most"
    yield f"the token ends at {when(expires_at)}{longer}; run this again for a new one"
    yield 'model: leave it empty ("" in the request): the endpoint has one model, and the URL names it'
    yield (
        "served: chat completions only; for tools that insist on a model's name, on /v1/models, "
        f"/v1/completions or /v1/responses: peagle-sm serve {name}{flags}"
    )


def cost_line(usd_per_hour: float | None, expires_at: datetime | None) -> str:
    """Return the endpoint's price and the end of its life, which go on whether anybody asks or not."""
    price = "price unknown" if usd_per_hour is None else f"{usd_per_hour:,.2f} USD/hour while it is on"
    end = f"deleted at {when(expires_at)} whatever happens" if expires_at else "NO lifetime limit ends it"
    return f"{price}; {end}"


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
    from peagle_sm.aws.session.signing import bearer_token
    from peagle_sm.cli.arguments import open_session
    from peagle_sm.service.endpoint import component_of, openai_base_url

    session = open_session(state)
    token = bearer_token(session, hours=hours)  # first, since it costs no call
    _note_if_missing(state, session, name)
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


def _note_if_missing(state: State, session: Session, name: str) -> None:
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


LOOPBACK = "127.0.0.1"
_KEY = "PEAGLE_SM_SERVE_API_KEY"


@click.command(cls=Command)
@click.argument("name", shell_complete=complete_endpoint)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="Port to listen on; 0 takes any free one.",
)
@click.option(
    "--host",
    default=LOOPBACK,
    show_default=True,
    help="Address to listen on. Any other lets other machines spend on your account: give --api-key too.",
)
@click.option(
    "--component", help="The inference component to ask.  [default: the one of the endpoint's name]"
)
@click.option("--api-key", envvar=_KEY, help=f"Answer only to this key.  [env: {_KEY}]")
@global_options
@click.pass_obj
def serve(state: State, name: str, port: int, host: str, component: str | None, api_key: str | None) -> None:
    """Serve OpenAI's API on this machine for an endpoint.

    For tools that cannot sign, that need /v1/completions, /v1/responses or /v1/models, or that insist on a
    model's name: here it is the endpoint's. Streams come as the engine makes them; one that breaks ends with
    an error event and without [DONE]. One line a request goes to stderr. Ctrl-C lets what is under way end; a
    second one does not. Whole answers take at most 60 s on SageMaker, streams 8 minutes.
    """
    _need_extra()
    from peagle_sm.cli.arguments import open_session
    from peagle_sm.service.endpoint import component_of
    from peagle_sm.service.serving.proxy import Proxy, run
    from peagle_sm.service.serving.upstream import Upstream

    session = open_session(state)
    status = _status_if_allowed(state, session, name)
    proxy = Proxy(
        Upstream.of(session, name, component_of(session, name, component)),
        api_key=api_key,
        any_host=host != LOOPBACK,
        on_served=lambda served: _log(state, served),
    )
    if host != LOOPBACK:
        keyed = "whoever has the key" if api_key else "ANYBODY who reaches it (there is no --api-key)"
        note(state, f"warning: listening on {host}, not on loopback: {keyed} can spend on your account")
    run(
        proxy,
        host,
        port,
        ready=lambda running: _announce(state, session, running, status),
        draining=lambda busy: note(state, f"waiting for {busy} requests under way; Ctrl-C again ends them"),
    )


def _need_extra() -> None:
    from peagle_sm.core.errors import NotFound

    if find_spec("aiohttp") is None:
        raise NotFound(
            "peagle-sm serve needs the package aiohttp, which this Python does not have.",
            next_step=install_command("openai"),
            details={"found": sys.executable},
        )


def _status_if_allowed(state: State, session: Session, name: str) -> EndpointStatus | None:
    """Return what is known of the endpoint; None where the caller may invoke it and not describe it."""
    from peagle_sm.core.errors import CredentialsError
    from peagle_sm.service import status

    try:
        return status(name, session=session)
    except CredentialsError as error:
        session.credentials()  # without any, nothing can be signed either: that error is the one to tell
        note(state, f"price and lifetime are not known: {error.message}")
        return None


def _announce(state: State, session: Session, running: Running, status: EndpointStatus | None) -> None:
    from peagle_sm.aws.streams.refusals import serving_step

    summary = status.summary if status else None
    proxy = running.proxy
    if state.format == "json":
        told = {
            "url": running.url,
            "pid": os.getpid(),
            "model": proxy.model,
            "status": summary and summary.status,
            "usd_per_hour": summary and summary.usd_per_hour,
            "expires_at": summary and summary.expires_at,
        }
        click.echo(to_json(told, indent=None))
    else:
        click.echo(running.url)
    sys.stdout.flush()
    if summary is not None:
        note(state, f"{proxy.model}: {cost_line(summary.usd_per_hour, summary.expires_at)}")
        if summary.status != "InService":
            step = serving_step(session, summary.name, summary.status)
            note(state, f"warning: its status is {summary.status}. {step}")
    key = "the key of --api-key" if proxy.keyed else "any key: none is looked at"
    note(state, f'OPENAI_BASE_URL={running.url}  model "{proxy.model}"  OPENAI_API_KEY: {key}')
    note(state, "Ctrl-C lets what is under way end; the endpoint stays, and costs what it costs")


def _log(state: State, served: Served) -> None:
    if state.format == "json":
        click.echo(to_json({"request": served.to_dict()}, indent=None), err=True)
    else:
        note(state, f"{time.strftime('%H:%M:%S')}  {served.line()}")
