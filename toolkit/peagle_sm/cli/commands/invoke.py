"""`peagle-sm invoke`: one request, streamed to the terminal, with its figures at the end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from peagle_sm.cli.endpoint_name import endpoint_argument
from peagle_sm.cli.lazy import Command
from peagle_sm.cli.options import global_options
from peagle_sm.cli.output import note, to_json
from peagle_sm.cli.request_body import (
    MAX_TOKENS,
    Question,
    body_hint,
    parameters,
    question,
    refuse_loose_words,
    stdin_text,
)
from peagle_sm.cli.state import State

if TYPE_CHECKING:
    from peagle_sm.aws.streams.runtime import Choice, Chunk, Completion
    from peagle_sm.service import Endpoint, EndpointStatus

_FILE = click.Path(path_type=Path, dir_okay=False, allow_dash=True)


@click.command(cls=Command, context_settings={"allow_extra_args": True})
@endpoint_argument
@click.option("--prompt", "-p", help="The prompt; - reads it from stdin.")
@click.option("--messages", type=_FILE, help="JSON file with chat messages.")
@click.option("--body", type=_FILE, help="JSON file with a whole request body.")
@click.option(
    "--max-tokens",
    type=click.IntRange(min=1),
    help=f"Maximum output tokens.  [default: {MAX_TOKENS}; with a whole body, the body's]",
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
@click.option(
    "--read-timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop when a stream is silent this long.  [default: 490]",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop when a stream has not ended after this time.  [default: 500]",
)
@click.option("--no-stream", is_flag=True, help="Ask for the whole answer in one piece.")
@global_options
@click.pass_context
def invoke(
    ctx: click.Context,
    /,
    name: str,
    prompt: str | None,
    messages: Path | None,
    body: Path | None,
    max_tokens: int | None,
    temperature: float | None,
    component: str | None,
    read_timeout: float | None,
    timeout: float | None,
    no_stream: bool,
) -> None:
    """Send one request and stream the answer.

    The answer goes to stdout, with each tool call on a line of its own; time to first token, tokens per
    second and acceptance go to stderr. Without an option the question is read from stdin: JSON messages, a
    JSON body, or plain text as the prompt.
    """
    from peagle_sm.cli.connect import open_session
    from peagle_sm.service import connect

    refuse_loose_words(name, ctx.args)
    state = ctx.ensure_object(State)
    piped = None
    if prompt == "-":  # as --messages - and --body - do; here text stays text
        prompt = stdin_text() or None
    if prompt is None and messages is None and body is None and not state.stdin_is_tty():
        piped = stdin_text()
    asked = question(prompt, messages, body, piped)
    params = parameters(asked, max_tokens, temperature)
    if hint := body_hint(asked):
        note(state, hint)
    endpoint = connect(name, session=open_session(state))
    arguments = {**_arguments(asked, params), "component": component}
    if no_stream:
        _refuse_times(read_timeout, timeout)
        answer = _whole(state, endpoint, arguments)
    else:
        times = {"read_timeout_s": read_timeout, "total_timeout_s": timeout}
        answer = _streamed(state, endpoint, {**arguments, **times})
    finish(state, endpoint, answer)


def _arguments(asked: Question, params: dict[str, Any]) -> dict[str, Any]:
    if asked.body is not None:
        return {"body": {**asked.body, **params}}
    chosen = {"messages": asked.messages} if asked.messages is not None else {"prompt": asked.prompt}
    return {**chosen, **params}


def _refuse_times(read_timeout: float | None, timeout: float | None) -> None:
    given = {"--read-timeout": read_timeout, "--timeout": timeout}
    named = [option for option, value in given.items() if value is not None]
    if named:
        from peagle_sm.core.errors import SpecError

        raise SpecError(
            f"{' and '.join(named)} beside --no-stream: SageMaker itself gives a whole answer up after 60 s.",
            next_step="Leave one of them out.",
        )


def _whole(state: State, endpoint: Endpoint, arguments: dict[str, Any]) -> Completion:
    completion = endpoint.invoke(**arguments)
    if state.format != "json":
        for choice in completion.choices:
            if completion.others:
                click.echo(f"[answer {choice.index + 1} of {len(completion.choices)}]")
            click.echo(choice.text)
            _print_calls(choice)
    return completion


def _streamed(state: State, endpoint: Endpoint, arguments: dict[str, Any]) -> Completion:
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
    if show:
        _print_calls(stream.completion)
    return stream.completion


def _print_calls(answer: Completion | Choice) -> None:
    for call in answer.tool_calls:
        click.echo(f"{call.name}({call.arguments})")


def _print_chunk(state: State, chunk: Chunk) -> None:
    if chunk.reasoning and state.format == "table":  # so that the terminal is not silent while a model thinks
        click.secho(chunk.reasoning, dim=True, nl=False, err=True)
    click.echo(chunk.text, nl=False)


class Described(Protocol):
    """An endpoint as far as the end of an invocation needs it."""

    name: str

    def status(self) -> EndpointStatus:
        """Return everything known of the endpoint."""


def finish(state: State, endpoint: Described, answer: Completion) -> None:
    """Print the answer as JSON, or its figures below the text; the status only decorates them."""
    from peagle_sm.cli.deploy_result import is_stand_in, read_status
    from peagle_sm.cli.invoke_text import acceptance_note, answer_data, render_summary

    summary = answer.summary
    wanted = summary.acceptance is None or not state.local
    status = read_status(state, endpoint.status) if wanted else None
    stand_in = state.local if status is None else is_stand_in(state, status)
    if state.format == "json":
        known = stand_in if status is not None or state.local else None
        click.echo(to_json({"name": endpoint.name, **answer_data(answer), "stand_in_weights": known}))
    else:
        note(state, "\n" + render_summary(summary, stand_in=stand_in))
    missing = acceptance_note(summary, status, len(answer.choices)) if status is not None else None
    if missing:
        note(state, missing)
