"""`peagle-sm serve`: OpenAI's API on this machine, for tools that cannot sign."""

from __future__ import annotations

import os
import sys
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from peagle_sm.cli.endpoint_name import complete_endpoint
from peagle_sm.cli.lazy import Command
from peagle_sm.cli.openai_text import cost_line
from peagle_sm.cli.options import global_options
from peagle_sm.cli.output import note, to_json
from peagle_sm.cli.state import State
from peagle_sm.core.extras import install_command

if TYPE_CHECKING:
    from peagle_sm.aws.session.session import Session
    from peagle_sm.service import EndpointStatus
    from peagle_sm.service.serving.proxy import Served
    from peagle_sm.service.serving.running import Running

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
    from peagle_sm.cli.connect import open_session
    from peagle_sm.service.serving.openai_access import component_of
    from peagle_sm.service.serving.proxy import Proxy
    from peagle_sm.service.serving.running import run
    from peagle_sm.service.serving.upstream import Upstream

    session = open_session(state)
    status = _look(state, session, name)
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


def _look(state: State, session: Session, name: str) -> EndpointStatus | None:
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
