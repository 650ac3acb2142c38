"""`peagle-sm openai` and `serve`: use an endpoint through the OpenAI API.

`openai` prints the environment variables for an OpenAI client that calls SageMaker directly. `serve` runs a
proxy on this machine for tools that cannot sign requests.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from importlib.util import find_spec
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from peagle_sm.cli.arguments import component_option, open_session
from peagle_sm.cli.base import Command, State, global_options
from peagle_sm.cli.commands.endpoints.recording import (
    end_recording,
    recording_options,
    recording_plan,
    source_of,
    start_recording,
)
from peagle_sm.cli.console import note, to_json
from peagle_sm.core.words import install_command, when

if TYPE_CHECKING:
    from peagle_sm.aws.session.session import Session
    from peagle_sm.service import EndpointStatus
    from peagle_sm.service.serving.proxy import Running, Served


def advice(name: str, expires_at: datetime, flags: str, hours: float) -> Iterator[str]:
    """Yield notes for the user: token expiry, model name, what is not served."""
    longer = "" if hours > 11 else " (at most 12 h, with --hours 12)"
    yield f"the token expires at {when(expires_at)}{longer}; run this command again for a new one"
    yield 'model: leave it empty ("" in the request); the URL already selects the endpoint and its one model'
    yield (
        "served: chat completions only; for tools that need a model name, /v1/models or /v1/completions, "
        f"run: peagle-sm serve {name}{flags}"
    )


def cost_line(usd_per_hour: float | None, expires_at: datetime | None) -> str:
    """Return the endpoint's price and the end of its lifetime."""
    price = "price unknown" if usd_per_hour is None else f"{usd_per_hour:,.2f} USD/hour while it is on"
    end = f"deleted at {when(expires_at)} even if in use" if expires_at else "NO lifetime schedule"
    return f"{price}; {end}"


@click.command("openai", cls=Command)
@click.argument("name")
@component_option
@click.option(
    "--hours",
    type=float,
    default=1.0,
    show_default=True,
    help="Lifetime of the token: at most 12, and at most that of the credentials that sign it.",
)
@global_options
@click.pass_obj
def openai(state: State, name: str, component: str | None, hours: float) -> None:
    """Print the environment variables for OpenAI clients.

    Prints OPENAI_BASE_URL and OPENAI_API_KEY. To set them: eval "$(peagle-sm openai NAME)"; for other shells,
    --format json has both. The key is a bearer token with the rights of your AWS credentials. It is printed
    on stdout and not stored. SageMaker serves chat completions only, and the client must leave the model name
    empty. For other clients, use `peagle-sm serve`.
    """
    from peagle_sm.aws.session.signing import bearer_token
    from peagle_sm.service.lifecycle.endpoint import component_of, openai_base_url

    session = open_session(state)
    token = bearer_token(session, hours=hours)  # first, since it costs no call
    _note_if_missing(state, session, name)
    chosen = component_of(session, name, component)
    url = openai_base_url(session, name, chosen)
    if state.format == "json":
        client = {"base_url": url, "api_key": token.token, "expires_at": token.expires_at, "model": ""}
        click.echo(to_json({"endpoint": name, "component": chosen, **client}))
        return
    click.echo(f"export OPENAI_BASE_URL={quote(url)}\nexport OPENAI_API_KEY={quote(token.token)}")
    for line in advice(name, token.expires_at, state.flags, hours):
        note(state, line)
    if sys.stdout.isatty():
        note(state, f'to set these: eval "$(peagle-sm openai {name}{state.flags})"')


def _note_if_missing(state: State, session: Session, name: str) -> None:
    """Raise NotFound for an unknown endpoint; print a note if it cannot be checked."""
    from peagle_sm.core.errors import CredentialsError
    from peagle_sm.service import connect

    try:
        connect(name, session=session)
    except CredentialsError as error:  # permission to invoke does not include permission to describe
        note(state, f"could not check whether {name} exists: {error.message}")


LOOPBACK = "127.0.0.1"
_KEY = "PEAGLE_SM_SERVE_API_KEY"


@click.command(cls=Command)
@click.argument("name")
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
    help="Address to listen on. If it is not loopback, other machines can send requests that you pay for: "
    "it needs --api-key.",
)
@component_option
@click.option("--api-key", envvar=_KEY, help=f"API key that clients must send.  [env: {_KEY}]")
@recording_options
@global_options
@click.pass_obj
def serve(
    state: State,
    /,
    name: str,
    port: int,
    host: str,
    component: str | None,
    api_key: str | None,
    **recording: Any,
) -> None:
    """Run a local proxy with the OpenAI API for an endpoint.

    For clients that cannot sign requests, that need /v1/completions or /v1/models, or that
    need a model name (here: the endpoint's name). Streams arrive as the engine produces them. A broken stream
    ends with an error event and without [DONE]. Each request is logged as one line on stderr. Ctrl-C waits
    for requests in flight; a second Ctrl-C ends them. SageMaker's limits: 60 s for a whole answer, 8 minutes
    for a stream. With --record it writes prompts and answers to a file or to S3, after it has shown what and
    asked.
    """
    _need_extra()
    from peagle_sm.service.lifecycle.endpoint import component_of
    from peagle_sm.service.serving.listening import is_loopback
    from peagle_sm.service.serving.proxy import Proxy, run
    from peagle_sm.service.serving.upstream import Upstream

    private = is_loopback(host)
    _check_key(host, private, api_key)
    plan = recording_plan(state, **recording)
    session = open_session(state)
    status = _status_if_allowed(state, session, name)
    if status is not None:
        status.demand_real()
    chosen = component_of(session, name, component)
    upstream = Upstream.of(session, name, chosen)
    recorder = None if plan is None else start_recording(state, plan, source_of(name, chosen, status))
    proxy = Proxy(
        upstream,
        api_key=api_key,
        any_host=not private,
        on_served=lambda served: _log(state, served),
        recorder=recorder,
    )
    if not private:
        note(
            state,
            f"warning: listening on {host}, not on loopback: anyone with the key can send requests that you "
            "pay for",
        )
    try:
        run(
            proxy,
            host,
            port,
            ready=lambda running: _announce(state, session, running, status),
            draining=lambda busy: note(
                state, f"waiting for {busy} requests in flight; Ctrl-C again ends them"
            ),
        )
    finally:
        if recorder is not None:
            end_recording(state, recorder)


def _check_key(host: str, private: bool, api_key: str | None) -> None:
    """Refuse an empty key, and an address that others reach without a key."""
    from peagle_sm.core.errors import SpecError

    if api_key is not None and not api_key.strip():
        raise SpecError(
            "--api-key: found an empty key; allowed: a key of at least one character.",
            next_step="Give --api-key KEY, or leave it out.",
        )
    if not private and not api_key:
        raise SpecError(
            f"--host {host} is not loopback, and there is no API key: anyone who can connect could send "
            "requests that you pay for.",
            next_step=f"Give --api-key KEY, or set {_KEY}.",
            details={"host": host},
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
    """Return the endpoint's status; None if the caller may not describe it."""
    from peagle_sm.core.errors import CredentialsError
    from peagle_sm.service import status

    try:
        return status(name, session=session)
    except CredentialsError as error:
        session.credentials()  # raises the clearer error if there are no credentials at all
        note(state, f"price and lifetime unknown: {error.message}")
        return None


def _announce(state: State, session: Session, running: Running, status: EndpointStatus | None) -> None:
    from peagle_sm.aws.streams.refusals import serving_step

    summary = status.summary if status else None
    proxy = running.proxy
    if state.format == "json":
        started = {
            "url": running.url,
            "pid": os.getpid(),
            "model": proxy.model,
            "status": summary and summary.status,
            "usd_per_hour": summary and summary.usd_per_hour,
            "expires_at": summary and summary.expires_at,
        }
        click.echo(to_json(started, indent=None))
    else:
        click.echo(running.url)
    sys.stdout.flush()
    if summary is not None:
        note(state, f"{proxy.model}: {cost_line(summary.usd_per_hour, summary.expires_at)}")
        if summary.status != "InService":
            step = serving_step(session, summary.name, summary.status)
            note(state, f"warning: its status is {summary.status}. {step}")
    key = "the key of --api-key" if proxy.keyed else "any value (keys are not checked)"
    note(state, f'OPENAI_BASE_URL={running.url}  model "{proxy.model}"  OPENAI_API_KEY: {key}')
    note(state, "Ctrl-C ends the proxy after the requests in flight; the endpoint stays on and is billed")


def _log(state: State, served: Served) -> None:
    if state.format == "json":
        click.echo(to_json({"request": served.to_dict()}, indent=None), err=True)
    else:
        note(state, f"{time.strftime('%H:%M:%S')}  {served.line()}")
