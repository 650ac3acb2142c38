"""`peagle-sm invoke`: one request, streamed to the terminal, with its figures at the end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from peagle_sm.cli.lazy import Command
from peagle_sm.cli.options import global_options
from peagle_sm.cli.output import note, to_json
from peagle_sm.cli.request_body import MAX_TOKENS, Question, parameters, question
from peagle_sm.cli.state import State

if TYPE_CHECKING:
    from peagle_sm.aws.runtime import Chunk, StreamSummary
    from peagle_sm.service import Endpoint

_FILE = click.Path(path_type=Path, dir_okay=False, allow_dash=True)


@click.command(cls=Command)
@click.argument("name")
@click.option("--prompt", "-p", help="The text to go on from.")
@click.option("--messages", type=_FILE, help="JSON file with chat messages.")
@click.option("--body", type=_FILE, help="JSON file with a whole request body.")
@click.option(
    "--max-tokens",
    type=click.IntRange(min=1),
    help=f"Stop after so many output tokens.  [default: {MAX_TOKENS}; with a whole body, the body's]",
)
@click.option(
    "--temperature",
    type=click.FloatRange(0, 2),
    help="0 takes the likeliest token each time.  [default: the engine's]",
)
@click.option(
    "--component",
    help="The inference component to ask.  [default: the one of the endpoint's own name, if it runs some]",
)
@click.option("--no-stream", is_flag=True, help="Ask for the whole answer in one piece.")
@global_options
@click.pass_obj
def invoke(
    state: State,
    name: str,
    prompt: str | None,
    messages: Path | None,
    body: Path | None,
    max_tokens: int | None,
    temperature: float | None,
    component: str | None,
    no_stream: bool,
) -> None:
    """Send one request and stream the answer.

    The answer goes to stdout; time to first token, tokens per second and acceptance go to stderr. Without
    an option the question is read from stdin: JSON messages, a JSON body, or plain text as the prompt.
    """
    from peagle_sm.cli.connect import open_session
    from peagle_sm.service import connect

    piped = None
    if prompt is None and messages is None and body is None and not state.stdin_is_tty():
        piped = sys.stdin.read()
    asked = question(prompt, messages, body, piped)
    params = parameters(asked, max_tokens, temperature)
    endpoint = connect(name, session=open_session(state))
    arguments = {**_arguments(asked, params), "component": component}
    text, summary = (_whole if no_stream else _streamed)(state, endpoint, arguments)
    _finish(state, endpoint, text, summary)


def _arguments(asked: Question, params: dict[str, Any]) -> dict[str, Any]:
    if asked.body is not None:
        return {"body": {**asked.body, **params}}
    chosen = {"messages": asked.messages} if asked.messages is not None else {"prompt": asked.prompt}
    return {**chosen, **params}


def _whole(state: State, endpoint: Endpoint, arguments: dict[str, Any]) -> tuple[str, StreamSummary]:
    completion = endpoint.invoke(**arguments)
    if state.format != "json":
        click.echo(completion.text)
    return completion.text, completion.summary


def _streamed(state: State, endpoint: Endpoint, arguments: dict[str, Any]) -> tuple[str, StreamSummary]:
    show = state.format != "json"
    stream = endpoint.stream(**arguments)
    try:
        for chunk in stream:
            if show:
                _print_chunk(state, chunk)
    finally:
        stream.close()
        if show:
            click.echo()  # whatever ends the text, a message or a prompt begins on a line of its own
    return stream.text, stream.summary


def _print_chunk(state: State, chunk: Chunk) -> None:
    if chunk.reasoning and state.format == "table":  # so that the terminal is not silent while a model thinks
        click.secho(chunk.reasoning, dim=True, nl=False, err=True)
    click.echo(chunk.text, nl=False)


def _finish(state: State, endpoint: Endpoint, text: str, summary: StreamSummary) -> None:
    from peagle_sm.cli.deploy_result import is_stand_in
    from peagle_sm.cli.invoke_text import acceptance_note, render_summary

    status = endpoint.status() if summary.acceptance is None or not state.local else None
    stand_in = status is None or is_stand_in(state, status)
    if state.format == "json":
        click.echo(
            to_json(
                {
                    "name": endpoint.name,
                    "text": text,
                    "summary": summary.to_dict(),
                    "stand_in_weights": stand_in,
                }
            )
        )
    else:
        note(state, "\n" + render_summary(summary, stand_in=stand_in))
    missing = acceptance_note(summary, status) if status is not None else None
    if missing:
        note(state, missing)
